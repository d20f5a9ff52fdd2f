"""Encoded parts of a request, and how they are put together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any
from zlib import crc32

from prefold.analysis.encoding.memo import Memo
from prefold.core.tokens import count, pack
from prefold.prompts.breakpoints.positions import Run, run_of
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Section, Segment
from prefold.prompts.tokens import Estimate, TokenCounter
from prefold.prompts.view import header_of

_OVERHEAD = 200  # bytes that Python takes for the objects around a remembered value, roughly
_HEADERS = 1 << 16  # bytes
# Where an estimate begins anew: behind what comes every few words in text of any kind and script.
_BORDER = re.compile("[\n.,kvw07" + "".join(map(chr, range(0x80, 0xFFFF, 32))) + "]")
_SHORTEST_PIECE = 48  # characters, so that rounding stays small


@dataclass(frozen=True, slots=True)
class Part:
    """Segments that follow each other, encoded.

    Attributes:
        run: their ids, packed.
        lengths: units of each segment.
        system_units: units of those of tools and system, which come first.
        markers: the cache markers on them, by position of the segment.
        runs: what those are that hold tool calls or their results, likewise.
        tool_units: units of the tools.
    """

    run: bytes
    lengths: tuple[int, ...]
    system_units: int
    markers: tuple[tuple[int, Any], ...]
    runs: tuple[tuple[int, Run], ...] = ()
    tool_units: int = 0

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return len(self.run) + 40 * len(self.lengths) + _OVERHEAD


class Texts:
    """Texts as packed ids, by one counter. Remembers what it encoded.

    Args:
        counter: an exact tokenizer, or an estimate, whose pseudo-tokens are taken.
        capacity: bytes of texts and ids that are remembered.
    """

    def __init__(self, counter: TokenCounter, capacity: int) -> None:
        self.counter = counter
        self._encode = partial(_pseudo_tokens, counter) if isinstance(counter, Estimate) else counter.encode
        self._known: Memo[str, bytes] = Memo(capacity, lambda text, run: len(text) + len(run) + _OVERHEAD)
        self._headers: Memo[str, bytes] = Memo(_HEADERS, lambda role, run: len(role) + len(run) + _OVERHEAD)

    def run(self, text: str, *, remember: bool = True) -> bytes:
        """The ids of a text.

        Args:
            text: any text.
            remember: whether it may come again as a text, rather than as the message that it is part of.
        """
        if not text:
            return b""
        known = self._known.get(text)
        if known is None:
            known = pack(self._encode(text))
            if remember:
                self._known.put(text, known)
        return known

    def message(self, role: str, text: str, *, is_system: bool) -> Part:
        """A message that is one text; the text is not remembered."""
        header = self._headers.get(role)
        if header is None:
            header = self.run(header_of(Segment(Path(), Section.MESSAGES, role, "", "")))
            self._headers.put(role, header)
        run = header + self.run(text, remember=False)
        units = count(run)
        return Part(run, (units,), units if is_system else 0, (), ((0, Run.RESULTS),) if role == "tool" else ())

    def part(self, segments: Sequence[Segment], *, remember: bool = True) -> Part:
        """Segments, each with what stands before it in the view of the prompt; `remember` as in `run`."""
        runs = [self.run(header_of(segment)) + self.run(segment.text, remember=remember) for segment in segments]
        lengths = tuple(map(count, runs))
        fixed = sum(segment.section is not Section.MESSAGES for segment in segments)
        markers = tuple((i, segment.marker) for i, segment in enumerate(segments) if segment.marker is not None)
        kinds = tuple((i, kind) for i, segment in enumerate(segments) if (kind := run_of(segment)) is not None)
        tools = sum(segment.section is Section.TOOLS for segment in segments)
        return Part(b"".join(runs), lengths, sum(lengths[:fixed]), markers, kinds, sum(lengths[:tools]))


def _pseudo_tokens(estimate: Estimate, text: str) -> list[int]:
    """As many numbers as an estimate counts tokens; behind a change in the text they soon are the same again."""
    first, *others = [estimate.pseudo_tokens(piece) for piece in _pieces(text)]
    if not others:
        return first
    numbers = list(chain(first, *others))
    tokens = estimate.count(text)
    if len(numbers) > tokens:  # each piece was rounded for itself
        numbers[tokens - 1 :] = [crc32(pack(numbers[tokens - 1 :]))]
    return [*numbers, *range(tokens - len(numbers))]


def _pieces(text: str) -> Iterator[str]:
    """A text, cut by what stands in it, so that one behind a change is cut as it was."""
    start, last = 0, len(text) - _SHORTEST_PIECE
    for border in _BORDER.finditer(text, _SHORTEST_PIECE, max(0, last)) if last > 0 else ():
        if border.end() - start >= _SHORTEST_PIECE:
            yield text[start : border.end()]
            start = border.end()
    yield text[start:]


def joined(parts: Sequence[Part]) -> Part:
    """Parts of one prompt, in the order in which the model reads them."""
    if len(parts) == 1:
        return parts[0]
    lengths = tuple(chain.from_iterable([part.lengths for part in parts]))
    markers: list[tuple[int, Any]] = []
    runs: list[tuple[int, Run]] = []
    if any(part.markers or part.runs for part in parts):
        segments = 0
        for part in parts:
            markers += ((segments + index, marker) for index, marker in part.markers)
            runs += ((segments + index, kind) for index, kind in part.runs)
            segments += len(part.lengths)
    system_units = sum([part.system_units for part in parts])
    tool_units = sum([part.tool_units for part in parts])
    return Part(b"".join([part.run for part in parts]), lengths, system_units, tuple(markers), tuple(runs), tool_units)
