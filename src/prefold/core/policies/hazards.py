"""How soon a conversation goes on: learned online from what its requests looked like.

A request's life begins when it is answered and ends when its conversation goes on. The hazard of that end at age `a` is
a product, as in Cox's proportional hazards (1972): a base, which depends on the age, on why the answer ended and on how
long it was, times one multiplier for each thing known about the request. Base and multipliers are fitted in turns to
the latest lives, those still going on included, with one pass over them at a time.

What a token is worth to keep at age `a` is its Gittins index (1979): expected hits divided by expected time held, for
the best time to give up. That is the largest slope from one point of a curve to all later ones, so one walk along the
curve's convex hull gives it for all ages.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

EDGES = (0.0, *(1.4**power for power in range(36)))
"""Where the buckets of age begin, in seconds; the last one has no end."""
_BUCKETS = len(EDGES)
_WIDTHS = (*(after - edge for edge, after in pairwise(EDGES)), EDGES[-1])
_DECAY = tuple(min(1.0, 60 / max(edge, 1.0)) for edge in EDGES)
"""Shape of a hazard of which nothing is known: beyond a minute it falls with age."""

_TOOL_CALLS = frozenset({"tool_use", "tool_calls", "tool_call", "function_call"})
_OUTPUTS = (64, 128, 256, 512, 1024)
"""Lengths of answers that have a base of their own, in tokens."""
_BASES = 3 * (len(_OUTPUTS) + 1)
_TURNS, _BITS = 4, 17
_SIZES = ((_TURNS + 1) * _BITS, 14, 21, 18)
"""Levels of each factor: turn with new tokens, gap before the request, tokens of the prompt, tokens of the answer."""

_REMEMBERED = 4096
"""Lives to fit to: more is slower and less up to date."""
_FIRST_FIT = 64
_PRIOR = 8.0
"""Ends that a level must have seen, as many as expected, to count half."""
_BASE_PRIOR = 3.0
"""The same for one bucket of a base."""
_STEP = 0.2
"""Multipliers within a factor e**0.2 of each other share a table of indexes."""
_UNKNOWN: list[float] = []
"""Stays empty."""


class Life:
    """What became of a request, and what was known of it.

    Attributes:
        depth: tokens of prompt and answer.
        new: those of them that were not known.
        turn: 1 for the first request of a conversation.
        gap: seconds between the request before and this one, None for the first.
        time: when it was answered, in seconds; when it arrived, until it is.
        end: when its conversation went on, None while it has not.
        base: which base it has.
        levels: its level of each factor.
        answered: whether it began.
        weight: what it counts in the fit. Long prompts matter more, but with their full length few would count at all.
        step: its multiplier, as a power of e**_STEP.
        indexes: those of its base and step by age, shared by all such lives; empty where they are to be worked out.
    """

    __slots__ = (
        "answered",
        "base",
        "depth",
        "end",
        "gap",
        "indexes",
        "levels",
        "new",
        "step",
        "time",
        "turn",
        "weight",
    )

    def __init__(self, depth: int, new: int, time: float, turn: int = 1, gap: float | None = None) -> None:
        self.depth = depth
        self.new = new
        self.time = time
        self.turn = turn
        self.gap = gap
        self.end: float | None = None
        self.answered = False
        self.base = 0
        self.levels = (0, 0, 0, 0)
        self.weight = 0.0
        self.step = 0
        self.indexes = _UNKNOWN


class Hazards:
    """The fit, and what it says of a life."""

    def __init__(self) -> None:
        self.ends = 0
        """Lives whose end was seen."""
        self._lives: deque[Life] = deque(maxlen=_REMEMBERED)
        self._bases: list[list[float]] = [[1e-3 * share for share in _DECAY]] * _BASES
        self._multipliers = [[1.0] * size for size in _SIZES]
        self._indexes: dict[tuple[int, int], list[float]] = {}
        self._until_fit = _FIRST_FIT

    def ended(self, life: Life, now: float) -> None:
        """A conversation goes on."""
        life.end = now
        self.ends += 1

    def answered(self, life: Life, now: float, output_tokens: int, stop: str) -> None:
        """A life begins."""
        life.answered = True
        life.time = now
        why = 0 if not stop else 1 if stop in _TOOL_CALLS else 2
        life.base = (len(_OUTPUTS) + 1) * why + bisect_right(_OUTPUTS, output_tokens)
        gap = life.gap
        a, b, c, d = life.levels = (
            _BITS * min(life.turn, _TURNS) + min(life.new.bit_length(), _BITS - 1),
            0 if gap is None else min(int(gap / 2).bit_length() + 1, _SIZES[1] - 1),
            min(life.depth.bit_length(), _SIZES[2] - 1),
            min(output_tokens.bit_length(), _SIZES[3] - 1),
        )
        life.weight = math.sqrt(life.depth)
        m0, m1, m2, m3 = self._multipliers
        life.step = round(math.log(m0[a] * m1[b] * m2[c] * m3[d]) / _STEP)
        self._lives.append(life)
        self._until_fit -= 1

    def fit_if_due(self, now: float) -> bool:
        """Fit again if a third as many lives were added as there are; says whether it did."""
        if self._until_fit > 0:
            return False
        self._until_fit = max(_FIRST_FIT, len(self._lives) // 3)
        self._fit(now)
        for indexes in self._indexes.values():
            indexes.clear()  # by which those who share them know
        return True

    def index(self, life: Life, now: float) -> float:
        """Expected hits for each second that a token of this conversation is kept from `now` on."""
        return (life.indexes or self.work_out(life))[bisect_right(EDGES, now - life.time) - 1]

    def work_out(self, life: Life) -> list[float]:
        """The indexes of a life by age."""
        key = (life.base, life.step)
        indexes = self._indexes.get(key)
        if indexes is None:
            indexes = self._indexes[key] = []
        life.indexes = indexes
        if not indexes:
            multiplier = math.exp(_STEP * life.step)
            indexes += gittins([multiplier * hazard for hazard in self._bases[life.base]])
        return indexes

    def _fit(self, now: float) -> None:
        """One pass over the lives: expected ends by the present fit, beside those seen, give the next one."""
        hazards = [hazard for base in self._bases for hazard in base]
        before = [hazard for base in self._bases for hazard in _cumulated(base)]
        ends, last, inside = ([0.0] * len(hazards) for _ in range(3))
        seen, expected = ([[0.0] * size for size in _SIZES] for _ in range(2))
        (m0, m1, m2, m3), (s0, s1, s2, s3), (x0, x1, x2, x3) = self._multipliers, seen, expected
        for life in self._lives:
            end, weight = life.end, life.weight
            age = (now if end is None else end) - life.time
            bucket = bisect_right(EDGES, age) - 1
            rest = age - EDGES[bucket]
            cell = life.base * _BUCKETS + bucket
            a, b, c, d = life.levels
            multiplier = m0[a] * m1[b] * m2[c] * m3[d]
            share = multiplier * weight
            last[cell] += share
            inside[cell] += share * rest
            share *= before[cell] + hazards[cell] * rest
            x0[a] += share
            x1[b] += share
            x2[c] += share
            x3[d] += share
            if end is None:
                step = round(math.log(multiplier) / _STEP)
                if step != life.step:
                    life.step = step
                    life.indexes = _UNKNOWN
            else:
                ends[cell] += weight
                s0[a] += weight
                s1[b] += weight
                s2[c] += weight
                s3[d] += weight
        unit = sum(life.weight for life in self._lives) / len(self._lives)
        prior = _BASE_PRIOR * unit
        rows = [slice(first, first + _BUCKETS) for first in range(0, len(hazards), _BUCKETS)]
        seen_ends = [ends[row] for row in rows]
        exposed = [_exposed(last[row], inside[row]) for row in rows]
        all_ends, all_exposed = ([sum(column) for column in zip(*table, strict=True)] for table in (seen_ends, exposed))
        total = max(unit, sum(all_ends))
        rate = total / max(1e-9, sum(seconds * share for seconds, share in zip(all_exposed, _DECAY, strict=True)))
        pooled = _shrunk(all_ends, all_exposed, [rate * share for share in _DECAY], prior)
        self._bases = [_shrunk(*pair, pooled, prior) for pair in zip(seen_ends, exposed, strict=True)]
        # The base takes up what all lives have in common. The root keeps factors that say the same from overshooting.
        scale = total / max(1e-9, sum(x0))
        prior = _PRIOR * unit
        self._multipliers = [
            [math.sqrt(m * (s + prior) / (scale * x / m + prior)) for m, s, x in zip(*levels, strict=True)]
            for levels in zip(self._multipliers, seen, expected, strict=True)
        ]


def _cumulated(hazards: Sequence[float]) -> list[float]:
    """Integral of a hazard up to the beginning of each bucket."""
    total, sums = 0.0, []
    for hazard, width in zip(hazards, _WIDTHS, strict=True):
        sums.append(total)
        total += hazard * width
    return sums


def _exposed(last: Sequence[float], inside: Sequence[float]) -> list[float]:
    """Seconds spent in each bucket: `inside` by those whom it saw last, its width by each of those seen last later."""
    later, seconds = 0.0, []
    for count, rest, width in zip(reversed(last), reversed(inside), reversed(_WIDTHS), strict=True):
        seconds.append(rest + later * width)
        later += count
    return seconds[::-1]


def _shrunk(ends: Sequence[float], exposed: Sequence[float], towards: Sequence[float], prior: float) -> list[float]:
    """Ends by seconds in each bucket and its neighbours, shrunk as if `prior` more had been seen at a known rate."""
    return [
        (e + prior) / (x + prior / rate) for e, x, rate in zip(_smooth(ends), _smooth(exposed), towards, strict=True)
    ]


def _smooth(values: Sequence[float]) -> list[float]:
    return [
        0.25 * before + 0.5 * value + 0.25 * after
        for before, value, after in zip((0.0, *values), values, (*values[1:], 0.0), strict=False)
    ]


def gittins(hazards: Sequence[float]) -> list[float]:
    """The Gittins index at the beginning of each bucket of age, in hits a second.

    Args:
        hazards: ends a second in each bucket, above 0.
    """
    alive, hit, hold = 1.0, 0.0, 0.0
    hits, holds = [0.0], [0.0]  # by the beginning of each bucket, and at the end
    for hazard, width in zip(hazards, _WIDTHS, strict=True):
        after = alive * math.exp(-hazard * width)
        hit += alive - after
        hold += (alive - after) / hazard
        hits.append(hit)
        holds.append(hold)
        alive = after
    stop = len(hazards)
    hull: list[int] = []  # the corners behind `stop`, the nearest one last
    indexes = [0.0] * stop
    for start in range(stop - 1, -1, -1):
        hit, hold = hits[start], holds[start]
        steepest = (hits[stop] - hit) / max(1e-12, holds[stop] - hold)
        while hull:
            slope = (hits[hull[-1]] - hit) / max(1e-12, holds[hull[-1]] - hold)
            if slope < steepest:
                break
            stop = hull.pop()
            steepest = slope
        indexes[start] = steepest
        hull.append(stop)
        stop = start
    return indexes
