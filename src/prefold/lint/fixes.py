"""Applies the fixes of findings."""

from __future__ import annotations

import ast
import difflib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prefold.lint.findings import Finding, Replacement


@dataclass(frozen=True, slots=True)
class Fixed:
    """A text with fixes applied.

    Attributes:
        text: the new text.
        count: how many findings it mends.
    """

    text: str
    count: int


def fixed(text: str, findings: Iterable[Finding], *, is_python: bool = False) -> Fixed:
    """A text with all fixes that do not touch each other; those that do wait for the next run.

    Args:
        text: the file that the findings are of.
        findings: those to mend.
        is_python: leave out a fix after which the file would be no Python any more.
    """
    is_sound = _is_python if is_python else lambda _text: True
    mending = _mending(text, [], [finding for finding in findings if finding.fix], is_sound)
    return Fixed(_replaced(text, mending), len(mending))


def difference(before: str, after: str, file: str) -> str:
    """What changes, as a unified diff."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), file, file, n=1)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _mending(text: str, chosen: list[Finding], others: list[Finding], is_sound: Callable[[str], bool]) -> list[Finding]:
    """The chosen findings, after whose fixes the text is sound, and those of the others that can be mended too."""
    together = _apart(chosen, others)
    if is_sound(_replaced(text, together)):
        return together
    if len(others) == 1:
        return chosen
    half = len(others) // 2
    return _mending(text, _mending(text, chosen, others[:half], is_sound), others[half:], is_sound)


def _apart(chosen: list[Finding], others: list[Finding]) -> list[Finding]:
    """The chosen findings and those of the others whose replacements touch none that goes before."""
    apart = [*chosen]
    occupied = sorted({new for finding in chosen for new in finding.fix}, key=_start)
    for finding in others:
        if not any(_touches(new, occupied) for new in finding.fix):
            apart.append(finding)
            for new in finding.fix:
                insort(occupied, new, key=_start)
    return apart


def _touches(new: Replacement, occupied: list[Replacement]) -> bool:
    """Whether a replacement touches one of those in order that is not the same."""
    first = bisect_left(occupied, new.start, key=_start)
    near = occupied[max(0, first - 1) : bisect_right(occupied, new.end, key=_start)]
    return any(old != new and old.start <= new.end and new.start <= old.end for old in near)


def _replaced(text: str, findings: Iterable[Finding]) -> str:
    pieces: list[str] = []
    end = len(text)
    for replacement in sorted({new for finding in findings for new in finding.fix}, key=_start, reverse=True):
        pieces += (text[replacement.end : end], replacement.text)
        end = replacement.start
    return "".join([text[:end], *pieces[::-1]])


def _start(replacement: Replacement) -> int:
    return replacement.start


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
