"""The opening of a request: tools and system text, which come before the conversation; cut into what can be moved."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from sys import getsizeof

from prefold.prompts.prompt import Prompt, Section, Segment, Stability

_SMALL = r"[^\W\d_A-Z]"
# Ends of lines and of sentences. A short word before a full stop is a title or an abbreviation, such as "Dr. Smith".
_END = re.compile(
    r"\n(?:[^\S\n]*\n)*"
    rf"|[.!?](?:(?<={_SMALL}{{3}}.)|(?<=[\dZ)\]\"%].))[ \t]+(?=[^\W\d_a-z])"
    r"|[。！？][^\S\n]*(?=[^\s”』」）\"'])"
)
_MARK = r"(?:[-*+\u2022][ \t]+(?:\[[ xX]\][ \t]+)?)"
_NUMBER = r"(?:\(?[0-9]{1,3}(?:\.[0-9]{1,3}){0,3}|[A-Za-z])[.)]"
_LIST_ITEM = re.compile(rf"\s*(?:{_MARK}|{_NUMBER}[ \t])")
_CONTINUATION = re.compile(rf"[ \t]+(?!{_MARK}|{_NUMBER}[ \t])[^\s]")
_NUMBER_BEFORE = re.compile(rf"(?:^|[:;,.!?)\]][ \t]+|[#>*][ \t]*)(?:[A-Z][a-z]{{1,9}}[ ])?{_NUMBER}\Z", re.MULTILINE)
_LONGEST_NUMBER = 30
"""Characters before the end of an item's number that tell it from the number that a sentence ends with."""
_FENCE = re.compile(r"^ {0,3}(```|~~~|\"\"\"|\'\'\')", re.MULTILINE)
_BRACKETS = {"}": "{", "]": "["}
_BRACKET = re.compile(r"[{}\[\]]")
_TABLE_ROW = re.compile(r"^[ \t]*\|", re.MULTILINE)
_REMEMBERED = 8_000_000
"""Bytes of texts and their units that are kept..."""
_LONGEST_REMEMBERED = 1_000_000
"""...and of one of them."""
_UNIT_BYTES = 300
"""What a unit takes beside the characters of its text and its key."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A line or a sentence of an opening, or an item of a list with all its lines.

    Attributes:
        segment: the segment it belongs to.
        start: its first character in the segment's text.
        text: all of it, with the white space that follows.
        stability: how often it changes.
        is_enclosed: whether it is a part of something that it would tear apart if it moved: of what stands in brackets
            over several units, of a block of code, or of a table.
    """

    segment: Segment
    start: int
    text: str
    stability: Stability = Stability.STATIC
    is_enclosed: bool = False

    @property
    def moves(self) -> bool:
        """Whether it varies and can be moved."""
        return self.stability is not Stability.STATIC and not self.is_enclosed

    @property
    def key(self) -> str:
        """The unit without its spacing, by which it is known again: spacing is not what varies."""
        return _key(self.text)


def is_one_text(prompt: Prompt) -> bool:
    """Whether all of a prompt is one text, with the rules and the question in it, and no system text."""
    segments = [segment for segment in prompt.segments if segment.section is not Section.TOOLS]
    return len(segments) == 1 and segments[0].section is Section.MESSAGES and segments[0].text_path is not None


def split_question(text: str) -> tuple[str, str]:
    """A prompt that is one text, as what comes before its last paragraph, and that; a last line if there is but one."""
    body = text.rstrip()
    cut = body.rfind("\n\n")
    cut = cut + 2 if cut >= 0 else body.rfind("\n") + 1
    return text[:cut], text[cut:]


class Openings:
    """Cuts openings into units, and remembers those of some megabytes of text.

    Turns of a conversation have the same opening, and a log is read several times.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, Sequence[_Piece]] = {}
        self._size = 0

    def units(self, prompt: Prompt) -> list[Unit]:
        """The opening of a prompt in units, in order."""
        return [
            Unit(segment, piece.start, piece.text, is_enclosed=piece.is_enclosed)
            for segment, text in _opening(prompt)
            for piece in self._pieces_of(text)
        ]

    def keys(self, prompt: Prompt) -> list[str]:
        """The key of each of its `units`."""
        return [piece.key for _, text in _opening(prompt) for piece in self._pieces_of(text)]

    def _pieces_of(self, text: str) -> Sequence[_Piece]:
        pieces = self._pieces.get(text)
        if pieces is None:
            pieces = _cut_up(text)
            size = 3 * getsizeof(text) + _UNIT_BYTES * len(pieces)
            if size <= _LONGEST_REMEMBERED:
                if self._size + size > _REMEMBERED:
                    self._pieces.clear()
                    self._size = 0
                self._pieces[text] = pieces
                self._size += size
        return pieces


def _opening(prompt: Prompt) -> list[tuple[Segment, str]]:
    """The segments of an opening, each with the text of it that belongs to the opening."""
    if is_one_text(prompt):
        return [(segment, split_question(segment.text)[0]) for segment in prompt.segments if segment.text_path]
    return [
        (segment, segment.text)
        for segment in prompt.segments
        if segment.section is Section.SYSTEM and segment.text_path is not None
    ]


@dataclass(frozen=True, slots=True)
class _Piece:
    """What can be said of a unit by its text alone; see `Unit`."""

    start: int
    text: str
    is_enclosed: bool
    key: str


def _cut_up(text: str) -> Sequence[_Piece]:
    pieces = list(_cut(text))
    starts = [start for start, _ in pieces]
    # How many more spans begin in a unit than have ended before it; spans may lie in each other.
    changes = [0] * (len(pieces) + 1)
    for start, end in _spans(text):
        first, last = bisect_right(starts, start) - 1, bisect_right(starts, end - 1) - 1
        if first < last:
            changes[first] += 1
            changes[last + 1] -= 1
    return [
        _Piece(start, piece, depth > 0 or _TABLE_ROW.match(piece) is not None, _key(piece))
        for (start, piece), depth in zip(pieces, accumulate(changes), strict=False)
    ]


def _key(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str) -> Iterator[tuple[int, str]]:
    """Lines with the blank lines after them, and the sentences in them; joined they are the text."""
    start = 0
    for found in _END.finditer(text):
        end = found.end()
        if (not start or text[start - 1] == "\n") and _LIST_ITEM.match(text, start):
            is_end = found[0][0] == "\n" and (found[0].count("\n") > 1 or not _CONTINUATION.match(text, end))
        else:
            stop = found.start() + 1
            is_end = not _NUMBER_BEFORE.search(text, max(0, stop - _LONGEST_NUMBER), stop)
        if is_end and (start or not text[:end].isspace()):  # blank lines at the beginning go with the first unit
            yield start, text[start:end]
            start = end
    if start < len(text):
        yield start, text[start:]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """What stands in brackets, with them, and blocks of code; an opening bracket that is never closed opens nothing."""
    open_at: dict[str, list[int]] = {bracket: [] for bracket in _BRACKETS.values()}
    for found in _BRACKET.finditer(text):
        bracket = found[0]
        if bracket in open_at:
            open_at[bracket].append(found.start())
        elif before := open_at[_BRACKETS[bracket]]:
            yield before.pop(), found.end()
    fence = None
    for found in _FENCE.finditer(text):
        if fence is None:
            fence = found
        elif found[1] == fence[1]:
            yield fence.start(), found.end()
            fence = None
    if fence is not None and fence[1] in ("```", "~~~"):  # CommonMark: to the end
        yield fence.start(), len(text)
