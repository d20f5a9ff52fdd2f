"""Content that was sent before, wherever it stood: what a broken prefix takes with it.

A prompt is cut where its own ids say so (content-defined chunking, as in LBFS: Muthitacharoen et al., 2001), and at the
ends of its segments. So the same text gives the same chunks behind any beginning, and what follows a changed word is
found again a few tokens later. Only what lies behind the known prefix is looked up or noted.

The first unit of a segment does not name it: where it tells of changed settings (see `prefold.analysis.encode`), the
content is the same.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress

from prefold.analysis.breaks.recent import Turn
from prefold.analysis.record import Blocks
from prefold.analysis.request import Request
from prefold.analysis.traced import TracedPrompt
from prefold.core.tokens import WIDTH, unpack

# Bytes at which packed ids are cut. In both of OpenAI's vocabularies they are the full stop and the end of a line;
# wherever else they stand, they cut just as well: every 64 tokens on average, and every 32 of estimated ones.
_CUT = re.compile(rb"[\x0d\xc6]")
_LEAST = 24  # tokens in a row: fewer are common phrases
_CAPACITY = 1 << 17  # chunks in each generation


@dataclass(frozen=True, slots=True)
class Stretch:
    """Units of a prompt that were sent before behind another prefix, from `start` to `stop`."""

    start: int
    stop: int


@dataclass(slots=True)
class Repeats:
    """What of a request was sent before behind another prefix.

    Attributes:
        stretches: where, ascending.
        votes: units by the conversation that sent them last.
    """

    stretches: list[Stretch] = field(default_factory=list)
    votes: dict[int, int] = field(default_factory=dict)

    @property
    def nearest(self) -> int | None:
        """The conversation that sent most of it, of several the newest; None where there is none."""
        return max(self.votes, key=lambda number: (self.votes[number], number), default=None)


class Contents:
    """Which conversation of a scope sent a piece of content last; what was sent least recently is forgotten.

    Segments are looked up as a whole first, and in chunks only where they are not known so.
    """

    def __init__(self) -> None:
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def sender(self, request: Request, stop: int) -> int | None:
        """The conversation that sent last what ends at unit `stop`, or before; None where nobody is known."""
        salt = hash(request.scope)
        for index in reversed(
            range(bisect_right(request.ends, stop))
        ):  # the last whole segment that was one before, too
            number = self._number(self._name(request, index) ^ salt)
            if number is not None:
                return number
        if request.unit > 1:
            return self._number(unpack(request.run[(stop - 1) * WIDTH : stop * WIDTH])[0] ^ salt) if stop else None
        pieces = _CUT.split(request.run[: stop * WIDTH])[:-1]  # the last one may go on behind `stop`
        return self._number(hash(pieces[-1]) ^ salt) if pieces else None

    def visit(self, request: Request, known: int, start: int, turn: Turn) -> Repeats:
        """What of a request was sent before in its scope; notes that it was sent again.

        Args:
            request: the next one of the log.
            known: units of its beginning that were sent before in its scope, and need not be noted again.
            start: where to begin to look for repeats; not before `known`.
            turn: the conversation that it belongs to.
        """
        content = request.record.content
        if isinstance(content, TracedPrompt) and not content.names_content:
            return Repeats()
        walk = _Walk(start, -(-_LEAST // request.unit), turn.conversation if turn.lost else None)
        salt = hash(request.scope)
        sent: list[int] = []  # noted at the end: what a request says twice is no repeat
        if request.unit > 1:
            sent += (block ^ salt for block in unpack(request.run[known * WIDTH :]))
            self._go(walk, range(known + 1, request.units + 1), sent)
        else:
            is_trace = bool(request.ends) and isinstance(content, Blocks)
            for begin, end in _segments(request, known):
                run = request.run[begin * WIDTH : end * WIDTH]
                sent += self._visit_segment(walk, run, begin, salt, turn, is_trace=is_trace)
                if end <= request.system_end:
                    sent.append(hash(request.run[: end * WIDTH]) ^ salt)
        self._young.update(dict.fromkeys(sent, turn.conversation))
        if len(self._young) > _CAPACITY:
            self._old, self._young = self._young, {}
        return walk.end()

    def _visit_segment(
        self, walk: _Walk, run: bytes, begin: int, salt: int, turn: Turn, *, is_trace: bool
    ) -> list[int]:
        """Walk over a segment; returns the names to note."""
        end = begin + len(run) // WIDTH
        run = _named(run)
        whole = hash(run) ^ salt
        number = self._number(whole)
        if number is not None:
            walk.go(end, number, is_whole=True)
            return [whole]
        if is_trace:  # whose segments are what is sent again
            walk.go(end, None)
            return [whole]
        pieces = _CUT.split(run)
        names = [hash(piece) ^ salt for piece in pieces]
        if not turn.lost:
            known = sum(map(len, compress(pieces, map(self._young.get, names))))
            if self._old:
                known += sum(map(len, compress(pieces, map(self._old.get, names))))
            if known < _LEAST * WIDTH:  # as in most new messages
                walk.go(end, None)
                return [*names, whole]
        begin = end - len(run) // WIDTH
        stops = [begin + cut.start() // WIDTH + 1 for cut in _CUT.finditer(run)]
        self._go(walk, [*stops, end], names)
        return [*names, whole]

    @staticmethod
    def _name(request: Request, index: int) -> int:
        """The name of a segment; of one of tools and system prompt with all before it, for many prompts have it."""
        begin, end = request.ends[index - 1] if index else 0, request.ends[index]
        if end <= request.system_end:
            return hash(request.run[: end * WIDTH])
        return hash(_named(request.run[begin * WIDTH : end * WIDTH]))

    def _go(self, walk: _Walk, stops: Sequence[int], names: Sequence[int]) -> None:
        for stop, name in zip(stops, names, strict=True):
            walk.go(stop, self._number(name))

    def _number(self, name: int) -> int | None:
        number = self._young.get(name)
        return self._old.get(name) if number is None else number


class _Walk:
    """A walk along a prompt that collects stretches of known content."""

    def __init__(self, start: int, least: int, own: int | None) -> None:
        self.found = Repeats()
        self.position = start
        self._least = least
        self._own = own
        self._begin = start
        self._votes: dict[int, int] = {}  # of the stretch that is being walked
        self._wholes = 0  # segments of it that are known as a whole

    def go(self, stop: int, number: int | None, *, is_whole: bool = False) -> None:
        """Go on to a position; what lies before it was sent by a conversation, or by none."""
        if stop <= self.position:
            return
        if number is None:
            self._close()
            self._begin = stop
        else:
            self._votes[number] = self._votes.get(number, 0) + stop - self.position
            self._wholes += is_whole
        self.position = stop

    def end(self) -> Repeats:
        """What was found, at the end of the prompt."""
        self._close()
        return self.found

    def _close(self) -> None:
        """End a stretch. One that is short counts where it is several messages, or lost by the conversation itself."""
        is_long = self.position - self._begin >= self._least
        if self._votes and (is_long or self._wholes > 1 or self._own in self._votes):
            self.found.stretches.append(Stretch(self._begin, self.position))
            for number, units in self._votes.items():
                self.found.votes[number] = self.found.votes.get(number, 0) + units
        self._votes.clear()
        self._wholes = 0


def rest_of_segment(request: Request, start: int, turn: Turn) -> Repeats:
    """What may be left of a segment whose beginning the conversation sent before: too little to be found as a chunk."""
    end = next(_segments(request, start), (start, start))[1]
    stop = min(end, start + turn.lost)
    stretch = Stretch(max(start, stop - _LEAST), stop)
    return Repeats([stretch], {turn.conversation: stop - stretch.start}) if stretch.start < stop else Repeats()


def _named(run: bytes) -> bytes:
    """What names a segment: all but its first unit, where there is more."""
    return run[WIDTH:] or run


def _segments(request: Request, start: int) -> Iterator[tuple[int, int]]:
    """The segments that end behind unit `start`, as units."""
    ends = request.ends or (request.units,)
    index = bisect_right(ends, start)
    begin = ends[index - 1] if index else 0
    for end in ends[index:]:
        if end > begin:
            yield begin, end
        begin = end
