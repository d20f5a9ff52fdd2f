"""`prefold doctor`: why the hit rate fell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.log_options import cache_of, log_options
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from fractions import Fraction

    from prefold.analysis.doctor.diagnose import Diagnosis, Finding
    from prefold.analysis.doctor.observe import Observer, Totals
    from prefold.analysis.encode import Encoder
    from prefold.analysis.logs.log import Log

_MILLISECONDS_FROM = 1e11
"""An epoch number above this counts milliseconds: as seconds it would lie in the year 5138."""
_WORTH_TELLING = 0.05
"""Share of the drop from which evidence for a cause is printed."""


@click.command()
@click.argument("log", metavar="[LOG|-]", required=False)
@click.option("--at", metavar="TIME", help="Split LOG at this time: 2026-11-30T12:00Z, or seconds since 1970.")
@click.option("--before", metavar="LOG", allow_from_autoenv=False, help="Instead of LOG: the log before the drop.")
@click.option("--after", metavar="LOG", allow_from_autoenv=False, help="And the log after it.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100),
    default=0.5,
    show_default=True,
    metavar="POINTS",
    help="A fall by less than this many percentage points is none.",
)
@click.option(
    "--cache",
    metavar="NAME",
    help="The provider, engine or model whose rules hold for the log.  [default: by each request's model]",
)
@click.option("--capacity", metavar="SIZE", help="Capacity of an own cache, such as 10GiB or 200000tokens.")
@click.option("--isolate", type=click.Choice(["tenant"]), help="Who shares nothing with others.")
@click.option(
    "--url", metavar="URL", allow_from_autoenv=False, help="Instead of LOG: judge the engine at this address."
)
@click.option("--model", metavar="NAME", help="With --url: the model to ask.  [default: the first that it serves]")
@click.option("--api-key-env", metavar="NAME", help="With --url: the environment variable that holds the engine's key.")
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="With --url: send the same long prompt twice, to see whether it is cached.",
)
@log_options
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def doctor(
    *,
    log: str | None,
    at: str | None,
    before: str | None,
    after: str | None,
    tolerance: float,
    cache: str | None,
    capacity: str | None,
    isolate: str | None,
    url: str | None,
    model: str | None,
    api_key_env: str | None,
    verify: bool,
    log_format: str | None,
    tokenizer: str | None,
    lenient: bool,
    as_json: bool,
) -> None:
    """Say why the hit rate fell.

    Each usual cause, in the order in which they are worth checking, with its share of the drop and what speaks for it.
    The shares sum to the drop.

    LOG is a file, a folder, or - for standard input; it is split with --at, or two logs are compared with --before and
    --after. Hits are those that providers reported where both sides have them, and simulated ones otherwise. The log
    before also fills the cache, so let it begin well before the drop. The exit code is 1 if the hit rate fell.

    With --url, metrics and settings of an engine (vLLM, SGLang, llama.cpp, ollama, prefold) are read and judged, and
    it is asked whether it really caches. The exit code is 1 if anything is poor.
    """
    from prefold.errors import UsageError

    if url is not None:
        from prefold.cli.doctor_url import doctor_url

        if any(option is not None for option in (log, at, before, after)):
            raise UsageError("A log and an engine are both given.", hint="Give either --url, or LOG.")
        doctor_url(url, model=model, api_key_env=api_key_env, is_asked=verify, as_json=as_json)
        return
    from prefold.analysis.doctor.diagnose import diagnose
    from prefold.analysis.doctor.observe import Observer
    from prefold.analysis.encode import Encoder
    from prefold.cli.log_progress import reading, tell_notes
    from prefold.cli.pricing import BYTES_PER_TOKEN

    sources = _sources(log, at, before, after)
    spec = cache_of(cache, capacity, bytes_per_token=BYTES_PER_TOKEN, isolate=isolate)
    encoder = Encoder(tokenizer=tokenizer, isolate_tenants=spec.isolate_tenants)
    observer = Observer(spec)
    sides: list[Totals] = []
    for source in sources:
        with reading([source], lenient=lenient, log_format=log_format) as opened:
            sides += _observed(opened, encoder, observer, None if at is None else _seconds(at))
            tell_notes(opened.notes)
    for name, side in zip(("before", "after"), sides, strict=True):
        if not side.requests:
            what = f"{sources[0]} has no request {name} {at}" if at else f"The log {name} has no request"
            raise UsageError(f"{what}.", hint="Both sides need requests to be compared.")
    found = diagnose(sides[0], sides[1])
    has_fallen = 100 * found.drop > tolerance
    if as_json:
        echo_json(_report(found, encoder, has_fallen=has_fallen))
    else:
        _print(found, has_fallen=has_fallen)
    if has_fallen:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


def _sources(log: str | None, moment: str | None, before: str | None, after: str | None) -> tuple[str, ...]:
    from prefold.cli.inputs import STANDARD_INPUT
    from prefold.errors import UsageError

    if log is not None and moment is not None and before is None and after is None:
        return (log,)
    if log is None and moment is None and before is not None and after is not None:
        if before == after == STANDARD_INPUT:
            raise UsageError("Standard input can be one of the two only.", hint="One log is split with --at.")
        return before, after
    is_both = (log or moment) and (before or after)
    raise UsageError(
        "Both ways to name the two sides are mixed." if is_both else "There are no two sides to compare.",
        hint="Give either LOG with --at, or --before and --after.",
    )


def _seconds(moment: str) -> float:
    """A time as seconds since 1970. Times without a zone count as UTC."""
    import math
    from datetime import UTC, datetime

    from prefold.errors import UsageError

    try:
        number = float(moment)
    except ValueError:
        try:
            read = datetime.fromisoformat(moment)
        except ValueError:
            raise UsageError(
                f"{moment!r} is no time.", hint="Write 2026-11-30T12:00Z, or seconds since 1970."
            ) from None
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(number):
        raise UsageError(f"{moment!r} is no time.", hint="Write 2026-11-30T12:00Z, or seconds since 1970.")
    return number / 1000 if number > _MILLISECONDS_FROM else number


def _observed(log: Log, encoder: Encoder, observer: Observer, moment: float | None) -> list[Totals]:
    from prefold.analysis.doctor.diagnose import observe, split_at
    from prefold.analysis.encode import encoded

    requests = encoded(log, encoder, log)
    return [observe(requests, observer)] if moment is None else [*split_at(requests, moment, observer)]


def _report(found: Diagnosis, encoder: Encoder, *, has_fallen: bool) -> dict[str, Any]:
    """The answer as `--json` prints it. Tokens are whole, and those of all causes sum to the drop's."""
    return {
        "schema_version": 1,
        "fell": has_fallen,
        "hits": "reported" if found.is_reported else "simulated",
        "tokens": {"counters": dict(encoder.counters), "exact": encoder.is_exact},
        **{
            name: {
                "requests": side.requests,
                "compared_requests": side.compared_requests,
                "input_tokens": side.input_tokens,
                "hit_rate": float(side.hit_rate),
            }
            for name, side in (("before", found.before), ("after", found.after))
        },
        "drop": float(found.drop),
        "drop_tokens": sum(finding.tokens for finding in found.findings),
        "cause": found.main.cause if has_fallen and found.main else None,
        "causes": [
            {
                "cause": finding.cause,
                "drop": float(finding.drop),
                "share": None if finding.share is None else float(finding.share),
                "tokens": finding.tokens,
                "evidence": list(finding.evidence),
                "check": finding.check,
            }
            for finding in found.findings
        ],
    }


def _print(found: Diagnosis, *, has_fallen: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from prefold.prompts.invisible import visible

    out = console()
    for name, side in (("before", found.before), ("after", found.after)):
        counted = f"{side.compared_requests:,} requests, {side.input_tokens:,} input tokens"
        out.print(f"{name:>6}: {float(100 * side.hit_rate):.1f} % hits of {counted}", markup=False)
    hits = "as providers reported them" if found.is_reported else "simulated"
    out.print(f"{_change(found.drop, has_fallen=has_fallen)} (hits {hits}).", markup=False)
    if not has_fallen:
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("cause", no_wrap=True)
    for header in ("points", "share", "tokens"):
        table.add_column(header, justify="right", no_wrap=True)
    for finding in found.findings:
        table.add_row(*_cells(finding), style="bold" if finding == found.main else None)
    out.print(table)
    told = [finding for finding in found.findings if finding.share is not None and finding.share >= _WORTH_TELLING]
    for finding in sorted(told, key=lambda finding: -finding.drop):
        out.print(_spelled(finding), style="bold", markup=False)
        for sentence in finding.evidence:
            out.print(f"  {visible(sentence)}", markup=False, soft_wrap=True)
        out.print(f"  {finding.check}", markup=False, soft_wrap=True, style="dim")


def _change(drop: Fraction, *, has_fallen: bool) -> str:
    """What became of the hit rate, as the beginning of a sentence."""
    if not drop:
        return "The hit rate is what it was"
    points = _tenths(abs(drop))
    by = f"by {points} points" if float(points) else "by less than 0.1 points"
    if drop < 0:
        return f"The hit rate did not fall: it rose {by}"
    return f"The hit rate fell {by}" + ("" if has_fallen else ", which --tolerance allows")


def _cells(finding: Finding) -> tuple[str, ...]:
    share = "-" if finding.share is None else f"{_tenths(finding.share)} %"
    return _spelled(finding), _tenths(finding.drop), share, f"{finding.tokens:,}"


def _tenths(part: Fraction) -> str:
    """A part in hundredths, to one decimal, without a zero that is negative."""
    return f"{round(float(100 * part), 1) + 0.0:.1f}"


def _spelled(finding: Finding) -> str:
    return finding.cause.replace("_", " ")
