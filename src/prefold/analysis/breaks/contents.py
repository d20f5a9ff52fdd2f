"""Content that was sent before, wherever it stood: what a broken prefix takes with it.

A prompt is cut where its own ids say so (content-defined chunking, as in LBFS: Muthitacharoen et al., 2001), and at the
ends of its segments. So the same text gives the same chunks behind any beginning, and what follows a changed word is
found again a few tokens later. Only what lies behind the known prefix is looked up or noted.

The first unit of a segment does not name it: where it tells of changed settings (see `prefold.analysis.encode`), the
content is the same.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat

from prefold.analysis.breaks.recent import Turn
from prefold.analysis.record import Blocks
from prefold.analysis.request import Request
from prefold.analysis.traced import TracedPrompt
from prefold.core.tokens import WIDTH, unpack

# Bytes at which packed ids are cut. In both of OpenAI's vocabularies they are the full stop and the end of a line;
# wherever else they stand, they cut just as well: every 64 tokens on average, and every 32 of estimated ones.
_CUTS = (b"\x0d", b"\xc6")
_LEAST = 24  # tokens in a row: fewer are common phrases
_CAPACITY = 1 << 17  # chunks in each generation

_Names = dict[int, int]
"""By the name of a piece of content, the conversation that sent it last."""
_Step = tuple[int, int | None, bool]
"""A step along a prompt: its end in units, the conversation that sent last what lies before it, and whether that is a
whole segment."""
_END: _Step = (sys.maxsize, None, False)  # closes the last stretch


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
        self._young: dict[tuple[str, str | None], _Names] = {}
        self._old: dict[tuple[str, str | None], _Names] = {}
        self._count = 0  # names in `_young`

    def sender(self, request: Request, stop: int) -> int | None:
        """The conversation that sent last what ends at unit `stop`, or before; None where nobody is known."""
        young, old = self._names(request)
        # The last whole segment that was one before, too.
        for index in reversed(range(bisect_right(request.ends, stop))):
            name = _name_of_segment(request, index)
            if number := young.get(name) or old.get(name):
                return number
        if request.unit > 1:
            names = unpack(request.run[(stop - 1) * WIDTH : stop * WIDTH]) if stop else []
        else:
            names = [hash(piece) for piece in _cut(request.run[: stop * WIDTH], 2)[-2:-1]]  # the last one may go on
        return young.get(names[0]) or old.get(names[0]) if names else None

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
        young, old = self._names(request)
        steps: list[_Step] = []
        sent: list[int] = []  # noted at the end: what a request says twice is no repeat
        if request.unit > 1:
            sent = unpack(request.run[known * WIDTH :])
            numbers = [young.get(block) or old.get(block) for block in sent]
            steps += zip(range(known + 1, request.units + 1), numbers, repeat(False))
        else:
            is_trace = bool(request.ends) and isinstance(content, Blocks)  # whose segments are what is sent again
            for begin, end in _segments(request, known):
                run = _named(request.run, begin, end)
                whole = hash(run)
                sent.append(whole)
                number = young.get(whole) or old.get(whole)
                if number or is_trace:
                    steps.append((end, number, True))
                else:
                    pieces = _cut(run)
                    names = list(map(hash, pieces))
                    sent += names
                    if turn.lost or _known_bytes(pieces, names, young, old) >= _LEAST * WIDTH:
                        numbers = [young.get(name) or old.get(name) for name in names]
                        steps += _steps(pieces, numbers, end - len(run) // WIDTH, end)
                    else:  # as in most new messages
                        steps.append((end, None, False))
                if end <= request.system_end:
                    sent.append(hash(request.run[: end * WIDTH]))
        self._note(request, sent, turn.conversation)
        return _repeats(steps, start, -(-_LEAST // request.unit), turn.conversation if turn.lost else None)

    def _names(self, request: Request) -> tuple[_Names, _Names]:
        """Those of the scope of a request, by generation: the younger first."""
        scope = request.scope
        return self._young.get(scope, {}), self._old.get(scope, {})

    def _note(self, request: Request, sent: Iterable[int], number: int) -> None:
        """Note that a conversation sent pieces of content."""
        if not sent:
            return
        young = self._young.setdefault(request.scope, {})
        self._count -= len(young)
        for name in sent:
            young[name] = number
        self._count += len(young)
        if self._count > _CAPACITY:
            self._old, self._young, self._count = self._young, {}, 0


def _known_bytes(pieces: Sequence[bytes], names: Sequence[int], young: _Names, old: _Names) -> int:
    """How much of some pieces is known; what both generations know counts twice."""
    known = sum(map(len, compress(pieces, map(young.get, names))))
    if old:
        known += sum(map(len, compress(pieces, map(old.get, names))))
    return known


def _name_of_segment(request: Request, index: int) -> int:
    """The name of a segment; of one of tools and system prompt with all before it, for many prompts have it."""
    begin, end = request.ends[index - 1] if index else 0, request.ends[index]
    return hash(request.run[: end * WIDTH] if end <= request.system_end else _named(request.run, begin, end))


def _repeats(steps: Iterable[_Step], start: int, least: int, own: int | None) -> Repeats:
    """What is known of a prompt.

    Args:
        steps: along it; those that end before `start` do not count.
        start: where to begin.
        least: units of a stretch. One that is shorter counts where it is several messages, or lost by the conversation.
        own: the conversation itself, where it lost something.
    """
    found = Repeats()
    begin = position = start  # of the stretch that is being walked, and where the walk is
    votes: dict[int, int] = {}
    wholes = 0  # segments of the stretch that are known as a whole
    for stop, number, is_whole in (*steps, _END):
        if stop <= position:
            continue
        if number is not None:
            votes[number] = votes.get(number, 0) + stop - position
            wholes += is_whole
        else:
            if votes and (position - begin >= least or wholes > 1 or own in votes):
                found.stretches.append(Stretch(begin, position))
                for sender, units in votes.items():
                    found.votes[sender] = found.votes.get(sender, 0) + units
            begin, wholes = stop, 0
            votes.clear()
        position = stop
    return found


def rest_of_segment(request: Request, start: int, turn: Turn) -> Repeats:
    """What may be left of a segment whose beginning the conversation sent before: too little to be found as a chunk."""
    end = next(_segments(request, start), (start, start))[1]
    stop = min(end, start + turn.lost)
    stretch = Stretch(max(start, stop - _LEAST), stop)
    return Repeats([stretch], {turn.conversation: stop - stretch.start}) if stretch.start < stop else Repeats()


def _cut(run: bytes, most: int = -1) -> list[bytes]:
    """The pieces of a run, without the bytes that it is cut at; after `most` cuts from its end on, what is left."""
    one, other = _CUTS
    return run.replace(other, one).rsplit(one, most)  # several times faster than a regular expression


def _steps(pieces: Sequence[bytes], numbers: Sequence[int | None], begin: int, end: int) -> Iterator[_Step]:
    """Steps along the pieces of a run, one for those in a row that one conversation sent last, or none did."""
    cut, last = -1, numbers[0]  # the byte that ended the piece before
    for piece, number in zip(pieces, numbers, strict=True):
        if number != last:
            yield begin + cut // WIDTH + 1, last, False
            last = number
        cut += len(piece) + 1
    yield end, last, False


def _named(run: bytes, begin: int, end: int) -> bytes:
    """What names a segment: all but its first unit, where there is more."""
    return run[(begin + 1 if end - begin > 1 else begin) * WIDTH : end * WIDTH]


def _segments(request: Request, start: int) -> Iterator[tuple[int, int]]:
    """The segments that end behind unit `start`, as units."""
    ends = request.ends or (request.units,)
    index = bisect_right(ends, start)
    begin = ends[index - 1] if index else 0
    for end in ends[index:]:
        if end > begin:
            yield begin, end
        begin = end
