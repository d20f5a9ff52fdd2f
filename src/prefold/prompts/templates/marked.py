"""Which part of a rendered text comes from which part of a request.

A template is code, so the answer is found by running it: once more, with two marks around each part, which are
characters that no text holds. Parts whose marks would change what the template does stay as they are, and are looked
for between the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefold.errors import InvalidRequest
from prefold.prompts.paths import Path
from prefold.prompts.sequences import common_length
from prefold.prompts.templates.conversation import Write
from prefold.prompts.view import Piece

# The private use planes: marks that begin a part are taken from the one, those that end it from the other.
_BEGIN, _END, _MARKS = 0xF0000, 0x100000, 0xFFFE
_ANY_MARK = re.compile("[\U000f0000-\U000ffffd\U00100000-\U0010fffd]")

_Render = Callable[[Write], str]
_Span = tuple[int, int]


def locate(text: str, render: _Render) -> tuple[Piece, ...]:
    """The parts of a rendered text, in the order of the text, without overlaps.

    What lies between them is the template's: each piece has what stands before it as its header.

    Args:
        text: what was rendered.
        render: renders the same, with something else written for each part.
    """
    rendering = _with_marks(text, render)
    spans = _read_marks(text, rendering)
    _find_unmarked(text, rendering, spans)
    pieces: list[Piece] = []
    position = 0
    for (start, end), number in sorted((span, number) for number, span in spans.items()):
        if start >= position:
            pieces.append(Piece(position, start, end, rendering.parts[number][0]))
            position = end
    return tuple(pieces)


@dataclass
class _Rendering:
    """A rendering with marks around some parts.

    Attributes:
        chosen: numbers of the parts that get marks.
        keeps_edges: whether white space at the edges of a part stays outside the marks, for templates that trim.
        parts: the path of each part, and what was to be written for it.
        marked: the text with the marks.
    """

    chosen: Collection[int]
    keeps_edges: bool
    parts: list[tuple[Path, Any]] = field(default_factory=list)
    marked: str = ""

    def write(self, path: Path, value: Any) -> Any:
        number = len(self.parts)
        self.parts.append((path, value))
        if number not in self.chosen:
            return value
        begin, end = chr(_BEGIN + number), chr(_END + number)
        if not isinstance(value, str):
            return _around_texts(value, begin, end)
        words = value.strip() if self.keeps_edges else value
        if not words.strip():
            return value
        at = value.index(words)
        return f"{value[:at]}{begin}{words}{end}{value[at + len(words) :]}"


def _with_marks(text: str, render: _Render) -> _Rendering:
    """A rendering with marks around as many parts as do not change it."""

    def attempt(chosen: Collection[int], *, keeps_edges: bool = True) -> _Rendering | None:
        rendering = _Rendering(chosen, keeps_edges)
        try:
            rendering.marked = render(rendering.write)
        except InvalidRequest:
            return None
        return rendering if _ANY_MARK.sub("", rendering.marked) == text else None

    def harmless(numbers: Sequence[int]) -> list[int]:
        if not numbers or attempt(numbers):
            return list(numbers)
        middle = len(numbers) // 2
        return [*harmless(numbers[:middle]), *harmless(numbers[middle:])] if middle else []

    bare = _Rendering((), keeps_edges=True)
    bare.marked = render(bare.write)
    everything = range(min(len(bare.parts), _MARKS))
    if _ANY_MARK.search(text):
        return bare
    return (
        attempt(everything, keeps_edges=False)
        or attempt(everything)
        or attempt(frozenset(harmless(everything)))
        or bare
    )


def _around_texts(value: Any, begin: str, end: str) -> Any:
    """A JSON value with a mark before its first text and one behind its last."""
    texts: list[str] = []

    def visit(item: Any, change: Callable[[int, str], str]) -> Any:
        if isinstance(item, str):
            texts.append(item)
            return change(len(texts) - 1, item)
        if isinstance(item, dict):
            return {key: visit(member, change) for key, member in item.items()}
        if isinstance(item, list):
            return [visit(member, change) for member in item]
        return item

    visit(value, lambda _, text: text)
    last = len(texts) - 1
    texts.clear()
    return visit(value, lambda index, text: (begin if index == 0 else "") + text + (end if index == last else ""))


def _read_marks(text: str, rendering: _Rendering) -> dict[int, _Span]:
    """Where each marked part is in the text, by its number."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for passed, found in enumerate(_ANY_MARK.finditer(rendering.marked if rendering.chosen else "")):
        code, position = ord(found.group()), found.start() - passed
        if code >= _END:
            ends.setdefault(code - _END, position)
        else:
            begins.setdefault(code - _BEGIN, position)
    spans: dict[int, _Span] = {}
    for number, (_, value) in enumerate(rendering.parts):
        of = _text_span if isinstance(value, str) else _value_span
        if (span := of(text, value, begins.get(number), ends.get(number))) is not None:
            spans[number] = span
    return spans


def _text_span(text: str, value: str, begin: int | None, end: int | None) -> _Span | None:
    """Where a text was written, as far as it was."""
    if begin is not None and end is not None:
        return (begin, end) if begin <= end else None
    if end is not None:  # the template took the beginning away, such as what was thought before an answer
        words = value.rpartition("</think>")[2].strip()
        return end - common_length(text[max(0, end - len(words)) : end][::-1], words[::-1]), end
    if begin is not None:
        return begin, begin + common_length(text[begin : begin + len(value)], value)
    return None


def _value_span(text: str, _value: Any, begin: int | None, end: int | None) -> _Span | None:
    """Where a JSON value was written: the innermost object around its texts, or from the first of them to the last."""
    if begin is None or end is None or begin > end:
        return None
    brace = begin
    for _ in range(_BRACES):
        if (brace := text.rfind("{", 0, brace)) < 0:
            break
        try:
            _, object_end = _read_json(text, brace)
        except (ValueError, RecursionError):
            continue
        if object_end >= end:
            return brace, object_end
    return begin, end


_BRACES = 32  # how far out to look for an object; a definition's first text lies near its beginning
_read_json: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode


def _find_unmarked(text: str, rendering: _Rendering, spans: dict[int, _Span]) -> None:
    """Add to the spans those texts that have no marks: each behind the part before it, or wherever it is."""
    position = 0
    for number, (_, value) in enumerate(rendering.parts):
        words = value.strip() if isinstance(value, str) and number not in rendering.chosen else ""
        start = text.find(words, position) if words else -1
        if start < 0 and words:
            start = text.find(words)
        if start >= 0:
            spans[number] = start, start + len(words)
        position = spans[number][1] if number in spans else position
