"""Lines and columns of a text."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A character: line and column, both counted from 1; a column is one code point."""

    line: int
    column: int


class Lines:
    """Finds lines and columns. Only line feeds end a line, so that logs and Python agree on numbers.

    Args:
        text: the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def position(self, offset: int) -> Position:
        """Line and column of a character."""
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def line(self, number: int) -> str:
        """A line without its end."""
        start = self._starts[number - 1]
        end = self._text.find("\n", start)
        return self._text[start : end if end >= 0 else len(self._text)].removesuffix("\r")
