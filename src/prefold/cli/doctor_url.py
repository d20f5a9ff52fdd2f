"""`prefold doctor --url`: whether an engine caches prefixes, and is set up to."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.gateway.inspect.judgements import Inspection

_STYLES = {"good": "green", "poor": "bold red", "unknown": "dim"}


def doctor_url(url: str, *, model: str | None, api_key_env: str | None, is_asked: bool, as_json: bool) -> None:
    """Read and judge an engine, print what was found, and end with the exit code for it.

    Args:
        url: of the engine, with or without /v1.
        model: the model to ask; None for the first that it serves.
        api_key_env: name of the variable that holds the key; None for no key.
        is_asked: whether it is sent prompts.
        as_json: whether JSON is printed.

    Raises:
        UsageError: if the URL or the key cannot be used.
        UpstreamFailed: if there is no answer.
    """
    import asyncio
    import os

    from prefold.gateway.config import Secret

    api_key = Secret(env=api_key_env).read(os.environ) if api_key_env is not None else None
    base = url.rstrip("/").removesuffix("/v1")
    found = asyncio.run(_inspected(base, model, api_key, is_asked=is_asked))
    if as_json:
        echo_json(_report(base, found))
    else:
        _print(base, found)
    if found.has_findings:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


async def _inspected(url: str, model: str | None, api_key: str | None, *, is_asked: bool) -> Inspection:
    import time
    from random import SystemRandom

    from prefold.gateway.config import UpstreamOptions
    from prefold.gateway.http_upstream import HttpUpstream
    from prefold.gateway.inspect.judgements import inspect

    upstream = HttpUpstream(url, UpstreamOptions(), api_key)
    try:
        return await inspect(upstream, model, clock=time.perf_counter, random=SystemRandom(), is_asked=is_asked)
    finally:
        await upstream.close()


def _report(url: str, found: Inspection) -> dict[str, Any]:
    """The answer as `--json` prints it."""
    return {
        "schema_version": 1,
        "url": url,
        "engine": found.engine,
        "version": found.version,
        "model": found.model,
        "has_findings": found.has_findings,
        "checks": [asdict(judgement) for judgement in found.judgements],
        "verification": None if found.verification is None else asdict(found.verification),
    }


def _print(url: str, found: Inspection) -> None:
    from prefold.prompts.invisible import visible

    out = console()
    named = " ".join(part for part in (found.engine, found.version) if part)
    out.print(visible(f"{named} at {url}" + (f", model {found.model}" if found.model else "")), markup=False)
    width = max(len(judgement.check) for judgement in found.judgements)
    for judgement in found.judgements:
        out.print()
        out.print(f"{judgement.check.replace('_', ' '):{width}}  {judgement.verdict}", style=_STYLES[judgement.verdict])
        out.print(f"  {visible(judgement.because)}", markup=False, soft_wrap=True)
        if judgement.fix:
            out.print(f"  Fix: {judgement.fix}", markup=False, soft_wrap=True)
        if judgement.read:
            out.print(f"  Read: {visible(judgement.read)}", markup=False, soft_wrap=True, style="dim")
