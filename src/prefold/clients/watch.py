"""`prefold.watch`: see what the requests of a client cost, and what breaks their prefixes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from prefold.clients.attach import attach_to_genai, attach_to_rest
from prefold.clients.counters import Break
from prefold.clients.editing import Editor
from prefold.clients.watcher import Watcher
from prefold.errors import UsageError

_Client = TypeVar("_Client")

_KNOWN = "OpenAI, AsyncOpenAI, Anthropic, AsyncAnthropic and google.genai.Client"


def watch(
    client: _Client,
    *,
    label: str = "",
    canonicalize: bool = False,
    breakpoints: bool = False,
    conversation: bool | None = None,
    include_usage: bool = False,
    on_break: Callable[[Break], None] | None = None,
    logger: logging.Logger | None = None,
) -> _Client:
    """Watch a client of the official SDKs `openai`, `anthropic` or `google-genai`.

    The client stays what it is, and its requests and answers what they are; an error in here never becomes an error
    of a request. Requests are changed only with `canonicalize`, `breakpoints` or `include_usage`.

    Args:
        client: the client. It is watched from now on, together with those that its `with_options` makes.
        label: what requests are counted under outside of any `with client.prefold.label(...)`.
        canonicalize: send equal prompts as equal bytes, as `prefold canonicalize` does with its default steps.
        breakpoints: mark prompts for the provider's cache, as `prefold breakpoints` plans it.
        conversation: for `breakpoints`, whether each request is repeated by the next one. None to tell by an answer in
            its history, which the first request of a conversation has not.
        include_usage: ask for usage at the end of OpenAI's chat and completion streams, which otherwise have none. They
            then end with a chunk without choices.
        on_break: is called with each break, on a thread of the watcher's own.
        logger: gets a warning for each new kind of break; `prefold.watch` if not given.

    Returns:
        The client. What is known of its requests is in its attribute `prefold`, a `Watcher`; type checkers like
        `watcher_of(client)` better.

    Raises:
        UsageError: if the client is none of these SDKs', or watched already.
    """
    if isinstance(getattr(client, "prefold", None), Watcher):
        raise UsageError("This client is watched already.", hint="What is known of its requests is in client.prefold.")
    homes = [kind.__module__ for kind in type(client).__mro__]
    edit = None
    if canonicalize or breakpoints:
        edit = Editor(canonicalize=canonicalize, breakpoints=breakpoints, conversation=conversation)
    watcher = Watcher(label=label, edit=edit, include_usage=include_usage, on_break=on_break, logger=logger)
    if any(home.split(".")[0] in ("openai", "anthropic") for home in homes) and hasattr(client, "request"):
        attach_to_rest(client, watcher)
    elif any(home.startswith("google.genai.") for home in homes) and hasattr(client, "_api_client"):
        attach_to_genai(client, watcher)
    else:
        raise UsageError(f"A {type(client).__name__} cannot be watched.", hint=f"Clients that can: {_KNOWN}.")
    return client


def watcher_of(client: Any) -> Watcher:
    """The watcher of a client.

    Raises:
        UsageError: if the client is not watched.
    """
    watcher = getattr(client, "prefold", None)
    if not isinstance(watcher, Watcher):
        raise UsageError("This client is not watched.", hint="Watch it first: client = prefold.watch(client).")
    return watcher
