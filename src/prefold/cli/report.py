"""`prefold report`: where the tokens of a log are recomputed, why, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from prefold.analysis.caches.spec import DEFAULT_POLICY
from prefold.cli.exit_codes import ExitCode
from prefold.cli.log_options import (
    cache_of,
    check_requests,
    log_options,
    price_options,
    replica_options,
)
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.analysis.analyse import Analysis
    from prefold.analysis.caches.spec import CacheSpec
    from prefold.analysis.request import Request

_COMPARED = (
    *("openai", "gpt-5.6", "anthropic", "gemini", "deepseek", "qwen"),
    *("vllm", "sglang", "llama.cpp", "prefold"),
)
"""The caches that every log is shown under."""
_SURELY_LONG = 10_000_000
"""Bytes of files that are long, whatever they hold; of others that is found out while they are read."""
_SITUATIONS = ("hosted_api", "own_engine", "many_replicas", "many_tenants", "laptop")


@click.command()
@click.argument("sources", metavar="[LOG|-]...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    allow_from_autoenv=False,
    help="Write the report as one HTML page.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    allow_from_autoenv=False,
    help="Write all figures as JSON; - is standard output.",
)
@click.option("--redact", is_flag=True, help="Show shapes and hashes instead of text.")
@click.option(
    "--cache",
    metavar="NAME",
    help="The provider, engine or model whose rules hold for the log.  [default: by each request's model]",
)
@click.option("--capacity", metavar="SIZE", help="Capacity of an own cache, such as 10GiB or 200000tokens.")
@click.option("--policy", metavar="NAME", default=DEFAULT_POLICY, show_default=True, help="Who is evicted from it.")
@replica_options
@click.option("--situation", type=click.Choice(_SITUATIONS), help="What you run.  [default: guessed from the log]")
@click.option(
    "--kv-bytes-per-token", type=click.IntRange(min=1), metavar="N", help="What a token takes of a capacity in bytes."
)
@price_options
@log_options
def report(
    *,
    sources: tuple[str, ...],
    output: str | None,
    json_file: str | None,
    redact: bool,
    cache: str | None,
    capacity: str | None,
    policy: str,
    replicas: int,
    routing: str,
    isolate: str | None,
    situation: str | None,
    kv_bytes_per_token: int | None,
    price: str | None,
    prices: str | None,
    currency: str,
    rate: float | None,
    log_format: str | None,
    tokenizer: str | None,
    lenient: bool,
) -> None:
    """Show where the tokens of LOG are recomputed, and why.

    LOG is a file, a folder, or - for standard input; several are read as one log, in order of time. Every input token
    has exactly one reason. Without -o and --json a summary is printed. Ctrl-C reports what was read so far.
    """
    from contextlib import ExitStack
    from functools import partial
    from itertools import chain

    from prefold.analysis.second_process import SecondProcess
    from prefold.cli.pricing import bytes_per_token, load_prices

    _check_outputs(output, json_file, sources)
    spec = cache_of(
        cache,
        capacity,
        bytes_per_token=bytes_per_token(kv_bytes_per_token, None),
        isolate=isolate,
        policy=policy,
        replicas=replicas,
        routing=routing,
    )
    priced = partial(load_prices, price, prices, currency, rate)
    given = _given(("--log-format", log_format), ("--tokenizer", tokenizer), ("--lenient", lenient))
    with ExitStack() as stack:
        second = stack.enter_context(SecondProcess(priced))
        if _is_long(sources):
            second.start()  # before the imports, so that it imports what it needs meanwhile
        from prefold.analysis.analyse import Analysis, Options
        from prefold.analysis.caches.named import is_provider, named_rules
        from prefold.analysis.caches.spec import CacheSpec
        from prefold.analysis.comparison import ComparisonAside
        from prefold.analysis.encode import Encoder, encoded
        from prefold.analysis.situation import Situation
        from prefold.cli.inputs import shown
        from prefold.cli.log_progress import reading, say, tell_notes

        options = Options(
            cache=spec,
            situation=Situation(situation) if situation else None,
            bytes_per_token=kv_bytes_per_token,
        )
        encoder = Encoder(tokenizer=tokenizer, isolate_tenants=spec.isolate_tenants)
        loaded = priced()
        log = stack.enter_context(reading(sources, lenient=lenient, log_format=log_format))
        requests = iter(encoded(log, encoder, log))
        first = next(requests, None)
        # Where a provider has several families, the log's first model says which one judges models of others.
        model = first.record.model if first else ""
        compared = [
            CacheSpec(name=name, rules=named_rules(name, model), by_model=is_provider(name)) for name in _COMPARED
        ]
        analysis = Analysis(options, encoder, ComparisonAside(compared, second), loaded)
        is_complete, is_hosted = _read(analysis, chain([first] if first else [], requests), spec)
        if not is_complete:
            say("Stopped: these will be the figures of the log so far.")
        try:
            result = analysis.as_json([shown(source) for source in sources], log.notes, given)
        except KeyboardInterrupt:
            say("Stopped while the figures were made: the log was read, but there is nothing to show yet.")
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
        tell_notes(log.notes)
    check_requests(log.notes.records, is_complete=is_complete)
    result["complete"] = is_complete
    chosen = _given(("--capacity", capacity), ("--policy", None if policy == DEFAULT_POLICY else policy))
    if chosen and is_hosted:
        say(f"All requests went to providers' caches, so {' '.join(chosen)} changed nothing.")
    _show(_redacted(result) if redact else result, output, json_file)
    if not is_complete:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _is_long(sources: Sequence[str]) -> bool:
    """Whether a log is certain to take longer to read than a process takes to start."""
    from contextlib import suppress
    from pathlib import Path

    size = 0
    for file in map(Path, sources):
        with suppress(OSError, ValueError):  # whoever reads it says what is wrong
            size += file.stat().st_size if file.is_file() else 0
    return size >= _SURELY_LONG


def _check_outputs(output: str | None, json_file: str | None, sources: Sequence[str]) -> None:
    """Refuse files that must not be written, before the log is read.

    Raises:
        UsageError: as `check_output`, or if both are the same.
    """
    from pathlib import Path

    from prefold.cli.inputs import STANDARD_INPUT
    from prefold.cli.outputs import check_output
    from prefold.errors import UsageError

    files = [Path(name) for name in (output, None if json_file == STANDARD_INPUT else json_file) if name]
    for file in files:
        check_output(file, sources)
    if len({file.resolve() for file in files}) < len(files):
        raise UsageError(f"-o and --json are both {json_file}.", hint="Give two files.")


def _given(*options: tuple[str, str | bool | None]) -> list[str]:
    """Options that were given, as they are written."""
    return [part for name, value in options if value for part in ((name,) if value is True else (name, str(value)))]


def _show(result: Mapping[str, Any], output: str | None, json_file: str | None) -> None:
    """Write the page and the figures, or print a summary."""
    from pathlib import Path

    from prefold.cli.inputs import STANDARD_INPUT
    from prefold.cli.outputs import write_file

    if output:
        from prefold.analysis.report.page import render_html

        write_file(Path(output), render_html(result).encode())
        console(stderr=True).print(f"Wrote {output}.", markup=False, soft_wrap=True)
    if json_file == STANDARD_INPUT:
        echo_json(result)
    elif json_file:
        import json

        write_file(Path(json_file), json.dumps(result, ensure_ascii=False).encode(errors="replace"))
    if not output and not json_file:
        from prefold.analysis.report.terminal import print_summary

        print_summary(result, console())


def _read(analysis: Analysis, requests: Iterable[Request], spec: CacheSpec) -> tuple[bool, bool]:
    """Take in a log; whether it was read to its end, and whether nobody chooses the capacity of any of its caches."""
    from prefold.analysis.caches.resolve import judge_of

    judge = judge_of(spec)
    is_hosted = True
    try:
        for request in requests:
            analysis.add(request)
            if is_hosted:
                is_hosted = not judge(request).self_hosted
    except KeyboardInterrupt:
        return False, is_hosted
    return True, is_hosted


def _redacted(result: dict[str, Any]) -> dict[str, Any]:
    import secrets

    from prefold.analysis.report.redact import redacted

    return redacted(result, key=secrets.token_bytes(32))
