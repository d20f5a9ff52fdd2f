"""The report in a terminal: the same analysis, in the few lines that matter most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
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
_REPEATED = "repeated"  # content that came back behind another beginning, for no cause
_NAMES = {
    _REPEATED: "repeated behind another beginning",
    "hit": "read from cache",
    "cold": "sent for the first time",
    "block_tail": "behind the last whole block",
    "below_minimum": "prefix below the minimum",
    "other_replica": "on another replica",
    "other_model": "cached for another model",
    "other_tenant": "cached for another tenant",
    "breakpoint": "no breakpoint",
    "lookback": "further back than is looked",
    "not_kept": "not kept by the provider",
}


def print_summary(analysis: Mapping[str, Any], console: Console) -> None:
    """Print the headline, the attribution, the worst breaks, other caches, and what to do first.

    Args:
        analysis: as `render_html` takes it. Texts of the log are printed without control characters.
        console: where to; its width is kept to, and no number is cut for it.
    """
    _headline(analysis, console)
    _attribution(analysis, console)
    _reported(analysis, console)
    _breaks(analysis, console)
    _caches(analysis, console)
    _advice(analysis, console)
    _footnotes(analysis, console)


def _headline(analysis: Mapping[str, Any], console: Console) -> None:
    log, cost = analysis["log"], analysis["cost"]
    console.print(_plain(analysis["title"], "bold"), Text(f"{_count(log['requests'])} requests"), sep="  ")
    if analysis.get("complete") is False:
        console.print("Interrupted: these are the requests up to then.", style="yellow")
    sent = analysis["input_tokens"]
    avoidable = f"a hit rate of {_rate(analysis['possible_hit_rate'])} was possible by this cache's rules"
    rows = [
        _Row("sent", [_count(sent)], "tokens"),
        _Row("read from cache", [_count(analysis["hit_tokens"])], _rate(analysis["hit_rate"]), "blue"),
        _Row("recomputed", [_count(analysis["recomputed_tokens"])], _share(analysis["recomputed_tokens"], sent)),
        _Row("avoidable", [_count(analysis["avoidable_tokens"])], avoidable, "yellow"),
    ]
    if cost:
        rows += [
            _Row("cost", [_money(cost["now"], cost["currency"])], _cost_basis(analysis)),
            _Row(
                "cost possible",
                [_money(cost["possible"], cost["currency"])],
                "simulated: had all avoidable tokens been read from the cache",
            ),
        ]
    _table(rows, console)


def _cost_basis(analysis: Mapping[str, Any]) -> str:
    """What the cost of now is made from."""
    requests, reported = analysis["log"]["requests"], analysis["reported"]
    if not reported:
        return "by simulation"
    if reported["requests"] >= requests:
        return "by reported usage"
    return f"by reported usage in {_count(reported['requests'])} requests, else by simulation"


def _attribution(analysis: Mapping[str, Any], console: Console) -> None:
    sums: dict[str, int] = {}
    for row in analysis["attribution"]:
        is_return = row["reason"] == "changed_prefix" and not row["cause"]
        name = _REPEATED if is_return else row["reason"]
        sums[name] = sums.get(name, 0) + row["tokens"]
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
    rows = [
        _Row("", [_share(tokens, sent), _count(tokens)], _name(reason), _style(reason))
        for reason, tokens in parts[:_MOST_REASONS]
    ]
    if rest := sum(tokens for _, tokens in parts[_MOST_REASONS:]):
        rows.append(_Row("", [_share(rest, sent), _count(rest)], "other reasons"))
    _table(rows, console)


def _reported(analysis: Mapping[str, Any], console: Console) -> None:
    reported = analysis["reported"]
    if not reported:
        return
    _heading("Read from cache, as reported and as simulated", console)
    requests = f"in {_count(reported['requests'])} requests"
    rate = f"{_rate(reported['hit_rate'])} of {_count(reported['input_tokens'])} tokens {requests}"
    simulated = reported["simulated_hit_tokens"]
    input_tokens = reported.get("simulated_input_tokens")
    simulated_rate = f"{_share(simulated, input_tokens)} of {_count(input_tokens)} tokens" if input_tokens else ""
    rows = [
        _Row("reported", [_count(reported["hit_tokens"])], rate),
        _Row("simulated", [_count(simulated)], simulated_rate),
        _Row("difference", [f"{reported['difference_tokens']:+,}"], ""),
    ]
    _table(rows, console)


def _breaks(analysis: Mapping[str, Any], console: Console) -> None:
    breaks = analysis["breaks"]
    if not breaks:
        return
    _heading("What broke the prefix", console)
    for rank, entry in enumerate(breaks[:_MOST_BREAKS], 1):
        line = _plain((entry["cause"] or "another history").replace("_", " "), "bold")
        if entry["path"]:
            line.append(" at ", "not bold").append(_plain(entry["path"], "not bold"))
        line.append(f": {_count(entry['tokens'])} tokens in {_count(entry['requests'])} requests", "not bold yellow")
        advice = [entry["fix"] or entry["explanation"] or ""]
        if entry["gain_tokens"]:
            advice.append(f"Replayed with it, {_count(entry['gain_tokens'])} more tokens are read from the cache.")
        _item(f"{rank}.", [line, _plain(" ".join(filter(None, advice)))], console)
    _rest(len(breaks) - _MOST_BREAKS, console)


def _caches(analysis: Mapping[str, Any], console: Console) -> None:
    rows = [
        _Row(
            " ".join(part for part in (row["cache"], row["policy"]) if part),
            [_rate(row["hit_rate"]), _count(row["recomputed_tokens"]), _money(row["cost"], row["currency"] or "")],
        )
        for row in sorted(analysis["caches"], key=lambda row: -(row["hit_rate"] or 0))
    ]
    if rows:
        _heading("The same traffic under other caches, simulated", console)
        _table(rows, console, headings=["cache", "hit rate", "recomputed", "cost"])


def _advice(analysis: Mapping[str, Any], console: Console) -> None:
    advice = analysis["advice"]
    if not advice:
        return
    _heading("What to do first", console)
    for rank, item in enumerate(advice[:_MOST_ADVICE], 1):
        _item(f"{rank}.", [_plain(item["title"], "bold"), _plain(item["text"])], console)
        if item["command"]:
            console.print(Text("   $ ").append(_plain(item["command"])), soft_wrap=True)
    _rest(len(advice) - _MOST_ADVICE, console)


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
    if log.get("history_was_forgotten"):
        console.print(
            "The log is longer than what is remembered of it: some tokens that were sent before count as sent for the "
            "first time.",
            style="dim",
        )


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a table: its name, numbers that are never cut, and a text that may be wrapped."""

    name: str
    numbers: Sequence[str]
    note: str = ""
    style: str = ""


def _table(rows: Sequence[_Row], console: Console, headings: Sequence[str] = ()) -> None:
    """Print rows as a table; where its numbers do not fit beside each other, each row as a line of its own.

    Args:
        rows: with as many numbers each.
        console: where to.
        headings: of the name and the numbers; none for a table without.
    """
    head = [_Row(headings[0], headings[1:])] if headings else []
    widths = [max(map(len, column)) for column in zip(*(row.numbers for row in (*head, *rows)), strict=True)]
    name_width = max(_longest_word(row.name) for row in (*head, *rows))
    note_width = max(_longest_word(row.note) for row in rows)
    if name_width + sum(2 + width for width in widths) + 2 + note_width > console.width:
        for row in (*head, *rows):
            parts = [_plain(part, row.style) for part in (row.name, *row.numbers, row.note) if part]
            console.print(Text("  ").join(parts))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="", show_header=bool(headings))
    if name_width:
        table.add_column(headings[0] if headings else "", min_width=name_width)
    for number, width in enumerate(widths, 1):
        table.add_column(headings[number] if headings else "", justify="right", min_width=width, no_wrap=True)
    if note_width:
        table.add_column(min_width=note_width)
    for row in rows:
        names, notes = [_plain(row.name)] * bool(name_width), [_plain(row.note)] * bool(note_width)
        table.add_row(*names, *row.numbers, *notes, style=row.style)
    console.print(table)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _item(mark: str, lines: Sequence[Text], console: Console) -> None:
    """Print lines behind a mark; where they are wrapped they keep the indent."""
    indent = len(mark) + 1
    for line in lines:
        for wrapped in line.wrap(console, max(1, console.width - indent)):
            console.print(Text(mark.ljust(indent)).append(wrapped))
            mark = ""


def _rest(count: int, console: Console) -> None:
    if count > 0:
        _item("  ", [Text(f"and {_count(count)} more, which the page shows (-o FILE)")], console)


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
