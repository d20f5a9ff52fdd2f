"""Where the values of a JSON document, and the characters of its strings, lie in the file that holds it."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from prefold.prompts.paths import Path, Step

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


_SPACE = re.compile(r"[ \t\n\r]*")
_scan_value: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode


class Spans:
    """Finds many values of one document: objects and lists on the way are read once, which `JsonText.span` does not.

    Args:
        source: a valid JSON document.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._members: dict[int, dict[Step, tuple[int, int]]] = {}

    def of(self, path: Path) -> tuple[int, int]:
        """First character of the value at a path, and the one after it.

        Raises:
            LookupError: if there is no such value.
        """
        start = self._skip(1 if self._source.startswith("\ufeff") else 0)
        end = len(self._source.rstrip())
        for step in path.steps:
            if start not in self._members:
                self._members[start] = self._read(start)
            start, end = self._members[start][step]
        return start, end

    def _read(self, start: int) -> dict[Step, tuple[int, int]]:
        """Spans in the object or list that begins at a character, by key or position; none for other values."""
        source = self._source
        members: dict[Step, tuple[int, int]] = {}
        is_object = source[start] == "{"
        if not is_object and source[start] != "[":
            return members
        position = self._skip(start + 1)
        while source[position] not in "}]":
            step: Step = len(members)
            if is_object:
                step, position = _scan_value(source, position)
                position = self._skip(self._skip(position) + 1)  # over the colon
            _, end = _scan_value(source, position)
            members[step] = (position, end)
            position = self._skip(end)
            if source[position] == ",":
                position = self._skip(position + 1)
        return members

    def _skip(self, position: int) -> int:
        space = _SPACE.match(self._source, position)
        return space.end() if space else position
