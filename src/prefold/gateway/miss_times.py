"""How long an answer takes whose prompt is not in any cache, learned from answers that came. Pure.

An answer of which a part was cached teaches too: it took as long as a miss of what was left to read (a little longer,
in fact, since attention looks back at what was cached). So nothing is thrown away, and hits never make the time that is
expected of a miss shorter.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field

START_SECONDS = 0.002
"""Seconds a token, while a model's misses are not known."""

LONGEST_SECONDS = 60.0
"""More is never expected, whatever was seen."""

_ROWS = 1_024  # kinds of answers that are remembered
_MODELS = 64
_SAMPLES = 64  # of a row
_ENOUGH = 8
_LEFT_OUT = 32  # of so many samples the longest one may be an accident
_CLASSES_PER_OCTAVE = 4
# For first guesses: a token that is written takes as long as so many that are read, and so does all that is the same
# for every answer.
_WRITING = 20
_OVERHEAD = 64
_NEAR = 4  # what was less work by more than that says more about waiting than about working
_DENSITY_BYTES = 1_024  # a shorter body says little about how many tokens a byte is
_START_DENSITY = 0.5


@dataclass(frozen=True, slots=True)
class Work:
    """What is done before the first byte of an answer.

    Attributes:
        read: tokens of the prompt.
        written: tokens of the answer: 1 for a stream, all of them where they come at once.
    """

    read: int
    written: int = 1

    @property
    def weight(self) -> int:
        """Roughly in tokens read."""
        return self.read + _WRITING * (self.written - 1) + _OVERHEAD


@dataclass(slots=True)
class _Model:
    """What is known of a model.

    Attributes:
        latest: weights and seconds of the last answers.
        densities: tokens by byte of the body.
        reports: whether its answers have said for once how much was cached. Until then nobody knows which are misses.
    """

    latest: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    densities: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    reports: bool = False


class MissTimes:
    """Times of misses, by model, length of the prompt, and length of the answer where that comes at once.

    Bounded: names and kinds of answers that were seen long ago are forgotten.
    """

    def __init__(self) -> None:
        self._models: OrderedDict[str, _Model] = OrderedDict()
        self._rows: OrderedDict[tuple[str, int, int], deque[float]] = OrderedDict()

    def tokens(self, model: str, size: int) -> int:
        """Tokens of a prompt that nobody has counted, rather too many than too few.

        Args:
            model: whose.
            size: bytes of the body.
        """
        known = self._models.get(model)
        return max(1, math.ceil(size * max(known.densities if known else (), default=_START_DENSITY)))

    def add(self, model: str, work: Work, seconds: float, *, cached: int | None, size: int) -> None:
        """Learn from an answer.

        Args:
            model: that gave it.
            work: all of it, what was cached included.
            seconds: from the request to the first byte.
            cached: tokens of the prompt that were; None where the answer does not say.
            size: bytes of the request's body.
        """
        known = self._models.setdefault(model, _Model())
        self._models.move_to_end(model)
        if len(self._models) > _MODELS:
            self._models.popitem(last=False)
        known.reports = known.reports or cached is not None
        if size >= _DENSITY_BYTES:
            known.densities.append(work.read / size)
        # Some servers leave the number out where it is 0.
        done = Work(max(1, work.read - (cached or 0)), work.written)
        known.latest.append((done.weight, seconds))
        if known.reports:
            self._row(model, done).append(seconds * _edge(done.read) / done.read)

    def expected(self, model: str, work: Work) -> float:
        """Seconds that nearly all misses stay below."""
        row = self._rows.get(_key(model, work), ())
        if len(row) >= _ENOUGH:
            return min(LONGEST_SECONDS, sorted(row)[-1 - len(row) // _LEFT_OUT])
        known = self._models.get(model)
        latest = known.latest if known else ()
        pace = max((seconds / weight for weight, seconds in latest if weight * _NEAR >= work.weight), default=0.0)
        if not pace or known is None or not known.reports:
            pace = max(pace, START_SECONDS)
        return min(LONGEST_SECONDS, pace * work.weight)

    def _row(self, model: str, work: Work) -> deque[float]:
        key = _key(model, work)
        row = self._rows.setdefault(key, deque(maxlen=_SAMPLES))
        self._rows.move_to_end(key)
        if len(self._rows) > _ROWS:
            self._rows.popitem(last=False)
        return row


def _class(tokens: int) -> int:
    return math.ceil(math.log2(tokens) * _CLASSES_PER_OCTAVE)


def _edge(tokens: int) -> float:
    """The longest length of a length's class."""
    return math.exp2(_class(tokens) / _CLASSES_PER_OCTAVE)


def _key(model: str, work: Work) -> tuple[str, int, int]:
    return model, _class(work.read), (work.written - 1).bit_length()
