"""Encoded parts of a request, and how they are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from prefold.analysis.encoding.memo import Memo
from prefold.core.tokens import count, pack
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Section, Segment
from prefold.prompts.tokens import Estimate, TokenCounter
from prefold.prompts.view import header_of

_OVERHEAD = 200  # bytes that Python takes for the objects around a remembered value, roughly
_HEADERS = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class Part:
    """Segments that follow each other, encoded.

    Attributes:
        run: their ids, packed.
        lengths: units of each segment.
        system_units: units of those of tools and system, which come first.
        markers: the cache markers on them, by position of the segment.
    """

    run: bytes
    lengths: tuple[int, ...]
    system_units: int
    markers: tuple[tuple[int, Any], ...]

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
        self._encode = counter.pseudo_tokens if isinstance(counter, Estimate) else counter.encode
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
        return Part(run, (units,), units if is_system else 0, ())

    def part(self, segments: Sequence[Segment], *, remember: bool = True) -> Part:
        """Segments, each with what stands before it in the view of the prompt; `remember` as in `run`."""
        runs = [self.run(header_of(segment)) + self.run(segment.text, remember=remember) for segment in segments]
        lengths = tuple(map(count, runs))
        fixed = sum(segment.section is not Section.MESSAGES for segment in segments)
        markers = tuple((i, segment.marker) for i, segment in enumerate(segments) if segment.marker is not None)
        return Part(b"".join(runs), lengths, sum(lengths[:fixed]), markers)


def joined(parts: Sequence[Part]) -> Part:
    """Parts of one prompt, in the order in which the model reads them."""
    lengths = tuple(chain.from_iterable([part.lengths for part in parts]))
    markers: list[tuple[int, Any]] = []
    if any(part.markers for part in parts):
        segments = 0
        for part in parts:
            markers += ((segments + index, marker) for index, marker in part.markers)
            segments += len(part.lengths)
    system_units = sum([part.system_units for part in parts])
    return Part(b"".join([part.run for part in parts]), lengths, system_units, tuple(markers))
