"""Applies the fixes of findings."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
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
    applied: list[Replacement] = []
    count = 0
    for finding in findings:
        if finding.fix and not any(_touch(new, old) for new in finding.fix for old in applied):
            candidate = [*applied, *finding.fix]
            if not is_python or _is_python(_replaced(text, candidate)):
                applied = candidate
                count += 1
    return Fixed(_replaced(text, applied), count)


def difference(before: str, after: str, file: str) -> str:
    """What changes, as a unified diff."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), file, file, n=1)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _replaced(text: str, replacements: Iterable[Replacement]) -> str:
    pieces: list[str] = []
    end = len(text)
    for replacement in sorted(set(replacements), key=lambda item: item.start, reverse=True):
        pieces += (text[replacement.end : end], replacement.text)
        end = replacement.start
    return "".join([text[:end], *pieces[::-1]])


def _touch(one: Replacement, other: Replacement) -> bool:
    return one != other and one.start <= other.end and other.start <= one.end


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
