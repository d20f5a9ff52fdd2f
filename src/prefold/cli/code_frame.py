"""A finding as people read it on a terminal: the line, the place in it, what it costs and what to do."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from prefold.lint.findings import Finding, Rule
from prefold.lint.lines import Lines

_BEFORE = 40
"""Characters shown of a long line before the span."""
_WIDTH = 100
"""Characters shown of a long line."""
_CUT = "..."


def code_frame(finding: Finding, rule: Rule, lines: Lines) -> Text:
    """A finding with its line.

    Args:
        finding: what was found.
        rule: the rule that it breaks.
        lines: those of the file.
    """
    place = lines.position(finding.start)
    path = f"  ({finding.path})" if finding.path else ""
    margin = " " * len(str(place.line))
    frame = Text()
    frame.append(f"{rule.id} {rule.name}", "bold red").append(f": {finding.message}\n", "bold")
    frame.append(f"{margin}--> ", "blue").append(f"{finding.file}:{place.line}:{place.column}{path}\n")
    shown, offset, length = _excerpt(lines.line(place.line), place.column - 1, finding.end - finding.start)
    frame.append(f"{margin} |\n", "blue")
    frame.append(f"{place.line} | ", "blue").append(f"{shown}\n")
    frame.append(f"{margin} | ", "blue").append(f"{' ' * offset}{'^' * length}\n", "bold red")
    for name, text in _remarks(finding):
        frame.append(f"{margin} = ", "blue").append(f"{name}: ", "bold").append(f"{text}\n")
    return frame


def _remarks(finding: Finding) -> list[tuple[str, str]]:
    remarks = [("note", note) for note in finding.notes]
    if finding.lost_tokens:
        remarks.append(
            ("cost", f"at least {finding.lost_tokens:,} input tokens behind it are read again in every request")
        )
    remarks.append(("help", finding.help))
    if finding.fix:
        remarks.append(("fix", "`--fix` shows it, `--fix --write` does it"))
    return remarks


def _excerpt(line: str, start: int, length: int) -> tuple[str, int, int]:
    """A part of a line as it can be shown, and in cells of the terminal where the span begins and how long it is."""
    length = max(1, min(length, len(line) - start, _WIDTH - _BEFORE))
    first = 0 if len(line) <= _WIDTH else max(0, min(start - _BEFORE, len(line) - _WIDTH))
    last = min(len(line), first + _WIDTH)
    before = (_CUT if first else "") + _visible(line[first:start])
    span = _visible(line[start : start + length])
    after = _visible(line[start + length : last]) + (_CUT if last < len(line) else "")
    return before + span + after, cell_len(before), max(1, cell_len(span))


def _visible(text: str) -> str:
    """A text without what moves the cursor."""
    return "".join(" " if letter == "\t" else letter if letter.isprintable() else "\N{MIDDLE DOT}" for letter in text)
