"""`prefold watch-log`: breaks and alerts of a growing log, as they happen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.inputs import STANDARD_INPUT
from prefold.cli.log_options import cache_of
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.analysis.alerts import Alert
    from prefold.analysis.follow.growing import GrowingLog
    from prefold.analysis.follow.watch import BreakSeen, Summary, Watch

_POLL_SECONDS = 0.2
_BAD_LINES_SHOWN = 10
_KINDS_SHOWN = 10
_ALIKE_SHOWN = 3
_MEANINGS = {
    "tenant_hit_rate": "the hit rate{tenant} is {value:.0%}, {side} {limit:.0%}",
    "hit_share": "{value:.0%} of all input tokens are served from cache, {side} {limit:.0%}",
    "ttft_gain": "the first token of hits comes {value:.0%} sooner than that of misses (P99), {side} {limit:.0%}",
    "eviction_jump": "the eviction rate is {value:.1f} times that of the half hour before, {side} {limit:.1f}",
}

_Percent = click.FloatRange(0, 100)


@click.command("watch-log")
@click.argument("log", metavar="LOG|-")
@click.option("--from-start", is_flag=True, allow_from_autoenv=False, help="Also read what is in LOG already.")
@click.option("--once", is_flag=True, allow_from_autoenv=False, help="End where LOG ends, instead of waiting for more.")
@click.option(
    "--cache",
    metavar="NAME",
    help="The provider, engine or model whose rules hold for the log.  [default: by each request's model]",
)
@click.option("--capacity", metavar="SIZE", help="Capacity of an own cache, such as 10GiB or 200000tokens.")
@click.option("--policy", metavar="NAME", default="lru", show_default=True, help="Who is evicted from it.")
@click.option("--isolate", type=click.Choice(["tenant"]), help="Who shares nothing with others.")
@click.option("--log-format", metavar="NAME", help="Format of LOG.  [default: recognised by content]")
@click.option(
    "--tokenizer", metavar="NAME|PATH", help="What counts tokens.  [default: the model's own, or an estimate]"
)
@click.option("--tenant-below", type=_Percent, default=60, show_default=True, help="% hits of a tenant that alarm.")
@click.option("--tenant-healthy", type=_Percent, help="% hits that end that alarm.  [default: 80, or what alarms]")
@click.option(
    "--tenant-minutes",
    type=click.FloatRange(1, 1440),
    default=30,
    show_default=True,
    help="Minutes that a tenant must have been below.",
)
@click.option("--hits-below", type=_Percent, default=50, show_default=True, help="% of all tokens hit that alarm.")
@click.option("--hits-healthy", type=_Percent, help="% of them that end that alarm.  [default: 70, or what alarms]")
@click.option(
    "--ttft-gain", type=_Percent, default=20, show_default=True, help="% that hits' P99 TTFT must beat misses' by."
)
@click.option(
    "--eviction-jump",
    type=click.FloatRange(min=1, min_open=True),
    default=3,
    show_default=True,
    help="Times the eviction rate of the half hour before that alarms.",
)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print a JSON object for each event.")
def watch_log(
    *,
    log: str,
    from_start: bool,
    once: bool,
    cache: str | None,
    capacity: str | None,
    policy: str,
    isolate: str | None,
    log_format: str | None,
    tokenizer: str | None,
    tenant_below: float,
    tenant_healthy: float | None,
    tenant_minutes: float,
    hits_below: float,
    hits_healthy: float | None,
    ttft_gain: float,
    eviction_jump: float,
    as_json: bool,
) -> None:
    """Follow LOG, and print breaks and alerts when they happen.

    LOG is a file with one request a line that is being written; it may be rotated or cut. Or it is - for standard
    input, which is read from its start to its end. Each request is compared with the best-matching earlier one. Beside
    an alert stand the number of distinct prefixes and what they take in a cache, now and before it began: where those
    grew, the traffic changed. Of breaks that are alike the first three are printed, then the 10th, the 100th and so on;
    --json has all. Ctrl-C ends with a summary; the exit code is 1 if there was a break or an alert.
    """
    import sys
    import time

    from prefold.analysis.alerts import Thresholds
    from prefold.analysis.encode import Encoder
    from prefold.analysis.follow.growing import GrowingLog
    from prefold.analysis.follow.watch import Watch
    from prefold.analysis.logs.formats import reader_named
    from prefold.cli.pricing import BYTES_PER_TOKEN

    def wait() -> bool:
        time.sleep(_POLL_SECONDS)
        return True

    thresholds = Thresholds(
        tenant_hit_rate=tenant_below / 100,
        tenant_healthy=_healthy("tenant", tenant_below, tenant_healthy, usual=80) / 100,
        tenant_minutes=tenant_minutes,
        hit_share=hits_below / 100,
        hit_share_healthy=_healthy("hits", hits_below, hits_healthy, usual=70) / 100,
        ttft_gain=ttft_gain / 100,
        eviction_jump=eviction_jump,
    )
    spec = cache_of(cache, capacity, bytes_per_token=BYTES_PER_TOKEN, isolate=isolate, policy=policy)
    watch = Watch(spec, Encoder(tokenizer=tokenizer, isolate_tenants=spec.isolate_tenants), thresholds)
    is_piped = log == STANDARD_INPUT
    growing = GrowingLog(
        sys.stdin.buffer if is_piped else Path(log),
        wait=(lambda: False) if once else wait,
        from_start=from_start,
        reader=reader_named(log_format) if log_format else None,
    )
    try:
        if not once and not is_piped:
            console(stderr=True).print(f"Following {log}; Ctrl-C ends.", markup=False, soft_wrap=True)
        _follow(growing, watch, time.time, as_json=as_json)
    except KeyboardInterrupt:
        pass  # the usual end
    finally:
        growing.close()
    _finish(growing, watch, as_json=as_json)
    if watch.summary.breaks or watch.summary.alerts:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


def _healthy(of: str, low: float, given: float | None, *, usual: float) -> float:
    """The rate that ends an alarm, in per cent."""
    from prefold.errors import UsageError

    healthy = max(low, usual) if given is None else given
    if healthy < low:
        raise UsageError(
            f"--{of}-healthy {healthy:g} is less than --{of}-below {low:g}.",
            hint="What ends an alarm is at least what begins it.",
        )
    return healthy


def _follow(growing: GrowingLog, watch: Watch, clock: Callable[[], float], *, as_json: bool) -> None:
    from prefold.analysis.logs.reader import BadLine
    from prefold.errors import InvalidRequest

    shown = 0
    restarts = 0
    for item in growing:
        problems = growing.notes.problems
        if (begun := problems["rotated"] + problems["truncated"]) > restarts:
            restarts = begun
            text = f"{item.place.file} was replaced or cut: it is read from its start."
            console(stderr=True).print(text, markup=False, soft_wrap=True)
        if isinstance(item, BadLine):
            bad = item
        else:
            try:
                for event in watch.see(item, clock()):
                    _tell(event, as_json=as_json)
                continue
            except InvalidRequest as error:
                bad = BadLine(item.place, error.message)
                growing.notes.skipped += 1
        shown += 1
        if shown <= _BAD_LINES_SHOWN:
            console(stderr=True).print(f"{bad.place}: {bad.problem}", markup=False, soft_wrap=True)


def _tell(event: BreakSeen | Alert, *, as_json: bool) -> None:
    from prefold.analysis.alerts import Alert

    if as_json:
        echo_json(_as_json(event))
    elif isinstance(event, Alert):
        _print_alert(event)
    else:
        _print_break(event)


def _as_json(event: BreakSeen | Alert) -> dict[str, Any]:
    from dataclasses import asdict

    from prefold.analysis.alerts import Alert

    if isinstance(event, Alert):
        return {"schema_version": 1, "event": "alert", **asdict(event), "is_new_traffic": event.is_new_traffic}
    return {"schema_version": 1, "event": "break", **asdict(event), "place": str(event.place)}


def _is_told(count: int) -> bool:
    """Whether a break is printed when it is the count-th that breaks so: 1, 2, 3, 10, 100, 1,000 ..."""
    return count <= _ALIKE_SHOWN or count == 10 ** (len(str(count)) - 1)


def _print_break(seen: BreakSeen) -> None:
    from prefold.prompts.invisible import visible

    if not _is_told(seen.count):
        return
    out = console()
    at = f" at {visible(seen.path)}" if seen.path else ""
    of = f" [{visible(seen.tenant)}]" if seen.tenant else ""
    again = f" (request {seen.count:,} that breaks so)" if seen.count > 1 else ""
    out.print(
        f"{seen.place}{of}: {seen.cause}{at}, {seen.lost_tokens:,} tokens are read again{again}",
        markup=False,
        soft_wrap=True,
    )
    if seen.count > 1:
        return
    if seen.before or seen.after:
        out.print(f"    before: {visible(seen.before)}", markup=False, soft_wrap=True)
        out.print(f"    after:  {visible(seen.after)}", markup=False, soft_wrap=True)
    if seen.fix:
        out.print(f"    fix:    {seen.fix}", markup=False, soft_wrap=True)
    if seen.miss_reason:
        out.print(f"    the provider says: {visible(seen.miss_reason)}", markup=False, soft_wrap=True)


def _print_alert(alert: Alert) -> None:
    from datetime import UTC, datetime

    from prefold.prompts.invisible import visible

    is_high = (alert.name == "eviction_jump") != alert.is_over
    meaning = _MEANINGS[alert.name].format(
        tenant=f" of {visible(alert.tenant)}" if alert.tenant else "",
        value=alert.value,
        limit=alert.limit,
        side="above" if is_high else "below",
    )
    now, before = alert.now, alert.before
    traffic = f"{now.prefixes:,} distinct prefixes of {now.cache_tokens:,} tokens"
    if before is not None:
        traffic += f", before {before.prefixes:,} of {before.cache_tokens:,}"
    word = "well again" if alert.is_over else "traffic changed" if alert.is_new_traffic else "ALERT"
    try:
        when = f"{datetime.fromtimestamp(alert.time, UTC):%Y-%m-%d %H:%M} "
    except (ValueError, OverflowError, OSError):  # a trace may count from anywhere
        when = ""
    style = "green" if alert.is_over else "yellow" if alert.is_new_traffic else "bold red"
    console().print(f"{when}{word}: {meaning} ({traffic})", markup=False, soft_wrap=True, style=style)


def _finish(growing: GrowingLog, watch: Watch, *, as_json: bool) -> None:
    for alert in watch.finish():
        _tell(alert, as_json=as_json)
    summary, notes = watch.summary, growing.notes
    if as_json:
        echo_json(
            {
                "schema_version": 1,
                "event": "summary",
                "requests": summary.requests,
                "input_tokens": summary.input_tokens,
                "hit_tokens": summary.hit_tokens,
                "lost_tokens": summary.lost_tokens,
                "breaks": [{"cause": c, "path": p, "requests": n} for (c, p), n in summary.breaks.most_common()],
                "alerts": dict(summary.alerts),
                "skipped": notes.skipped,
                "problems": dict(notes.problems),
            }
        )
    else:
        _print_summary(summary, notes.skipped)


def _print_summary(summary: Summary, skipped: int) -> None:
    from prefold.prompts.invisible import visible

    talk = console(stderr=True)
    rate = f", {summary.hit_tokens / summary.input_tokens:.1%} from cache" if summary.input_tokens else ""
    talk.print(f"{summary.requests:,} requests, {summary.input_tokens:,} input tokens{rate}.", markup=False)
    breaks = summary.breaks.total()
    talk.print(f"{breaks:,} breaks, {summary.lost_tokens:,} tokens read again.", markup=False)
    for (cause, path), count in summary.breaks.most_common(_KINDS_SHOWN):
        talk.print(f"  {count:,} x {cause}{f' at {visible(path)}' if path else ''}", markup=False, soft_wrap=True)
    if summary.alerts:
        counted = ", ".join(f"{count:,} x {name.replace('_', ' ')}" for name, count in summary.alerts.items())
        talk.print(f"Alerts: {counted}.", markup=False)
    if skipped:
        talk.print(f"{skipped:,} lines could not be read.", markup=False)
