"""The report in a terminal: the same analysis, in the few lines that matter most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from prefold.prompts.invisible import visible

if TYPE_CHECKING:
    from rich.console import Console

_MOST_REASONS = 8
_MOST_BREAKS = 5
_MOST_ADVICE = 3
_NOTHING = "-"

_STYLES = {"hit": "blue", "cold": "bright_black", "block_tail": "bright_black", "below_minimum": "bright_black"}
_NAMES = {
    "hit": "read from cache",
    "cold": "sent for the first time",
    "block_tail": "behind the last whole block",
    "below_minimum": "prefix below the minimum",
    "other_replica": "on another replica",
    "other_model": "cached for another model",
    "other_tenant": "cached for another tenant",
    "breakpoint": "no breakpoint in reach",
    "not_kept": "not kept by the provider",
}


def print_summary(analysis: Mapping[str, Any], console: Console) -> None:
    """Print the headline, the attribution, the worst breaks, other caches, and what to do first.

    Args:
        analysis: as `render_html` takes it. Texts of the log are printed without control characters.
        console: where to; its width is kept to.
    """
    _headline(analysis, console)
    _attribution(analysis, console)
    _breaks(analysis, console)
    _caches(analysis, console)
    _advice(analysis, console)
    _footnotes(analysis, console)


def _headline(analysis: Mapping[str, Any], console: Console) -> None:
    log, cost = analysis["log"], analysis["cost"]
    console.print(_plain(analysis["title"], "bold"), Text(f"{_count(log['requests'])} requests"), sep="  ")
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    sent = analysis["input_tokens"]
    table.add_row("sent", _count(sent), "tokens")
    table.add_row("read from cache", _count(analysis["hit_tokens"]), _rate(analysis["hit_rate"]), style="blue")
    table.add_row("recomputed", _count(analysis["recomputed_tokens"]), _share(analysis["recomputed_tokens"], sent))
    avoidable = f"a hit rate of {_rate(analysis['possible_hit_rate'])} was possible"
    table.add_row("avoidable", _count(analysis["avoidable_tokens"]), avoidable, style="yellow")
    if cost:
        possible = f"{_money(cost['possible'], cost['currency'])} possible"
        table.add_row("cost", _money(cost["now"], cost["currency"]), possible)
    console.print(table)
    if analysis.get("complete") is False:
        console.print("Reading was stopped: these are the requests up to then.", style="yellow")


def _attribution(analysis: Mapping[str, Any], console: Console) -> None:
    sums: dict[str, int] = {}
    for row in analysis["attribution"]:
        sums[row["reason"]] = sums.get(row["reason"], 0) + row["tokens"]
    parts = sorted(((reason, tokens) for reason, tokens in sums.items() if tokens), key=lambda part: -part[1])
    if not parts:
        return
    sent = analysis["input_tokens"]
    _heading("Where every token went", console)
    if console.is_terminal and not console.no_color:
        width = min(console.width, 80)
        bar = Text()
        for (reason, _), cells in zip(parts, _cells([tokens for _, tokens in parts], width), strict=True):
            bar.append("█" * cells, _style(reason))
        console.print(bar)
    table = Table.grid(padding=(0, 2))
    for justify in ("right", "right", "left"):
        table.add_column(justify=justify, overflow="fold")
    for reason, tokens in parts[:_MOST_REASONS]:
        table.add_row(_share(tokens, sent), _count(tokens), _plain(_name(reason), _style(reason)))
    if rest := sum(tokens for _, tokens in parts[_MOST_REASONS:]):
        table.add_row(_share(rest, sent), _count(rest), "other reasons")
    console.print(table)


def _breaks(analysis: Mapping[str, Any], console: Console) -> None:
    breaks = analysis["breaks"]
    if not breaks:
        return
    _heading("What broke the prefix", console)
    for rank, entry in enumerate(breaks[:_MOST_BREAKS], 1):
        line = Text(f"{rank}. ").append(_plain((entry["cause"] or "another history").replace("_", " "), "bold"))
        if entry["path"]:
            line.append(" at ").append(_plain(entry["path"]))
        line.append(f": {_count(entry['tokens'])} tokens in {_count(entry['requests'])} requests", "yellow")
        console.print(line)
        if entry["fix"]:
            console.print(Text("   ").append(_plain(entry["fix"])))
    if len(breaks) > _MOST_BREAKS:
        console.print(f"   and {len(breaks) - _MOST_BREAKS} more")


def _caches(analysis: Mapping[str, Any], console: Console) -> None:
    if not analysis["caches"]:
        return
    _heading("The same traffic under other caches", console)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    table.add_column("cache", overflow="fold")
    for heading in ("hit rate", "recomputed", "cost"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in sorted(analysis["caches"], key=lambda row: -(row["hit_rate"] or 0)):
        cost = _money(row["cost"], row["currency"] or "")
        name = " ".join(part for part in (row["cache"], row["policy"]) if part)
        table.add_row(_plain(name), _rate(row["hit_rate"]), _count(row["recomputed_tokens"]), cost)
    console.print(table)


def _advice(analysis: Mapping[str, Any], console: Console) -> None:
    if not analysis["advice"]:
        return
    _heading("What to do first", console)
    for rank, item in enumerate(analysis["advice"][:_MOST_ADVICE], 1):
        console.print(Text(f"{rank}. ").append(_plain(item["title"], "bold")))
        console.print(Text("   ").append(_plain(item["text"])))
        if item["command"]:
            console.print(Text("   $ ").append(_plain(item["command"])), soft_wrap=True)


def _footnotes(analysis: Mapping[str, Any], console: Console) -> None:
    log, cost = analysis["log"], analysis["cost"]
    unexplained = sum(row["tokens"] for row in analysis["attribution"] if row["reason"] == "unexplained")
    notes = [
        f"unexplained {_share(unexplained, analysis['input_tokens'])}",
        f"{_count(log['skipped'])} lines skipped",
        "tokens exact" if log["tokens"]["exact"] else "tokens estimated",
    ]
    if cost and cost["prices_age_days"] is not None:
        notes.append(f"prices {cost['prices_age_days']} days old")
    console.print()
    console.print(_plain(", ".join(notes), "dim"))


def _heading(text: str, console: Console) -> None:
    console.print()
    console.print(Text(text, "bold"))


def _plain(text: str, style: str = "") -> Text:
    """A text as it is: no markup, and no control character that could move the cursor."""
    return Text(visible(text), style)


def _style(reason: str) -> str:
    return _STYLES.get(reason, "yellow")


def _name(reason: str) -> str:
    return _NAMES.get(reason, reason.replace("_", " "))


def _cells(amounts: list[int], width: int) -> list[int]:
    """Cells of a bar for each amount, together exactly its width."""
    total, done, before, cells = sum(amounts), 0, 0, []
    for amount in amounts:
        done += amount
        edge = round(width * done / total)
        cells.append(edge - before)
        before = edge
    return cells


def _count(value: int | None) -> str:
    return _NOTHING if value is None else f"{value:,}"


def _rate(value: float | None) -> str:
    """A share as a percentage, at most 100 %; only all of it is 100 %."""
    if value is None:
        return _NOTHING
    share = min(1.0, max(0.0, value))
    return f"{100 * (share if share == 1 else min(share, 0.999)):.1f} %"


def _share(part: int, whole: int) -> str:
    return _rate(part / whole) if whole else _NOTHING


def _money(value: float | None, currency: str) -> str:
    if value is None:
        return _NOTHING
    digits = 0 if abs(value) >= 1000 else 2 if abs(value) >= 0.1 or value == 0 else 6
    return f"{visible(currency)} {value:,.{digits}f}".strip()
