"""Tests of prompts: stable prefixes held against a lock file, with pytest (`prefix_lock`) or any other test runner."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefold.prompts.prompt import Prompt

    Prefix = Prompt | Mapping[str, Any] | str
    """A prompt, a request body, or a plain text."""

__all__ = ["assert_prefix"]


def assert_prefix(
    name: str,
    prefix: Prefix | Callable[[], Prefix] | None = None,
    *,
    system: str | Sequence[Any] | None = None,
    tools: Sequence[Any] | None = None,
    messages: Sequence[Any] | None = None,
    part: str = "prefix",
    dialect: str | None = None,
    lock: str | os.PathLike[str] = "prefold.lock.json",
) -> None:
    """Assert that a stable prefix is what the lock file says. For tests without pytest, which has `prefix_lock`.

    With the variable PREFOLD_UPDATE=1 the prefix is accepted and written to the lock file instead, except under CI.

    Args:
        name: what the prefix is called in the lock file.
        prefix: a request body, a `Prompt` or a plain text; or a function that builds one, which is called twice and
            must give the same twice.
        system: instead of `prefix`: the system prompt, in the form of the client library.
        tools: with it, or alone: the tool definitions.
        messages: with them, or alone: messages that stay, such as examples.
        part: what of a body stays: `system`, `tools`, `prefix` (tools, system and messages up to the last answer) or
            `whole`.
        dialect: the form of a body; None to recognise it.
        lock: the lock file.

    Raises:
        AssertionError: if the prefix changed, is not in the lock file, or differs between two calls of its builder.
        PrefoldError: if the arguments or the lock file cannot be used, or updates are asked for under CI.
    """
    from prefold.testing.checking import Check, refuse_update_under_ci  # noqa: PLC0415 - test runs start lightly

    __tracebackhide__ = True
    accepts = os.environ.get("PREFOLD_UPDATE", "").lower() not in ("", "0", "false", "no")
    if accepts:
        refuse_update_under_ci("PREFOLD_UPDATE", os.environ)
    check = Check(Path(lock), accepts=accepts, how_to_accept="PREFOLD_UPDATE=1 in the environment of the test run")
    fields = {"system": system, "tools": tools, "messages": messages}
    verdict = check(name, prefix, fields, part=part, dialect=dialect)
    if verdict.problem:
        raise AssertionError(verdict.problem)
    if verdict.accepted:
        print(f"prefold: {verdict.accepted}", file=sys.stderr)
