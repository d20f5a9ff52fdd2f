"""Where the characters of a JSON string's value lie in the file that holds it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text lies in a file.

    Attributes:
        start: its first character there, or in the text that holds it.
        escapes: for each escape in it, the character of the text that it stands for, in order.
        shifts: how many characters further on in the file the text lies behind each of those; one more than `escapes`.
        outer: where the text that holds it lies; None for the file.
    """

    start: int = 0
    escapes: tuple[int, ...] = ()
    shifts: tuple[int, ...] = (0,)
    outer: Place | None = None

    def within(self, start: int) -> Place:
        """The place of a part of the text."""
        return Place(start, outer=self)

    def within_string(self, start: int, literal: str) -> Place:
        """The place of a JSON string's value: the literal, with its quotes, begins at a character of the text."""
        longer = [(found.start(), len(found[0]) - 1) for found in _ESCAPE.finditer(literal)]
        shifts = tuple(accumulate((extra for _, extra in longer), initial=1))
        escapes = tuple(position - shift for (position, _), shift in zip(longer, shifts, strict=False))
        return Place(start, escapes, shifts, self)

    def at(self, position: int) -> int:
        """The character of the file at which a character of the text begins."""
        # Behind an escape lies what has a higher number than the character that it stands for.
        shifted = self.start + position + self.shifts[bisect_right(self.escapes, position - 1)]
        return shifted if self.outer is None else self.outer.at(shifted)
