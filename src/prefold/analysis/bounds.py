"""What a prefix cache of any size could hit: least recently used at every capacity, and the best that is possible.

A request uses its path through the tree of prompts as a whole, so what is in a cache is always closed under prefixes:
tails go before heads. Everything here follows from one fact about such paths. Call the latest request that used a
block its owner. What a request owns is one stretch of its own path, from where no later request came by to its end; a
new request takes the heads of the stretches on its path away from their owners and owns all of it. That is `access` in
link-cut trees (Sleator and Tarjan 1983), whose bound holds: amortised O(log n) stretches a request, however long it is.

*Least recently used.* Its caches are the beginnings of one list (Mattson et al. 1970): all blocks, latest owner first,
heads before tails. A stretch that is taken from an owner lies in that list behind everything that later requests own,
which a Fenwick tree sums. So each stretch adds one linear piece to the curve of hits against capacity.

*The optimum.* A block that a request uses and a later one uses next is a hit for the price of one place in between.
With C places the most such intervals are kept by dropping, whenever more than C overlap, the one that ends last
(Belady's MIN, 1966, with bypass; Carlisle and Lloyd 1995 for intervals). Heads are used again no later than their
tails, so among equals the deepest goes, and what is kept is closed under prefixes. No schedule hits more, whether it is
closed or not. All blocks of a stretch share one interval, so the work is in stretches too.

Capacities and hits are in tokens; distances are counted in units, the ids of a log's prompts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate, compress
from operator import add
from typing import Any

from prefold.analysis.memory import MOST_NODES, MOST_UNITS
from prefold.analysis.request import Request
from prefold.core.tokens import WIDTH, common_prefix, count
from prefold.errors import UsageError


@dataclass(frozen=True, slots=True)
class Curve:
    """Hits of least recently used at every capacity.

    Attributes:
        unit: tokens that an id of the log stands for; capacities are used in whole units.
        input_tokens: of the whole log.
        limit: the capacity in tokens up to which the curve is exact, and behind which there may be more hits than it
            says; None if it is exact everywhere.
        corners: capacities in units at which the curve bends, ascending.
        hits: units hit at each corner.
        slopes: units hit more for each unit of capacity behind each corner.
    """

    unit: int
    input_tokens: int
    limit: int | None
    corners: Sequence[int] = field(repr=False)
    hits: Sequence[int] = field(repr=False)
    slopes: Sequence[int] = field(repr=False)

    @property
    def largest(self) -> int:
        """The capacity in tokens behind which nothing more is hit."""
        return self.corners[-1] * self.unit if self.corners else 0

    def hit_tokens(self, capacity: int | None) -> int:
        """Input tokens hit by a cache of `capacity` tokens; None for one without limit."""
        if not self.corners:
            return 0
        units = self.corners[-1] if capacity is None else capacity // self.unit
        corner = bisect_right(self.corners, units) - 1
        if corner < 0:
            return 0
        return (self.hits[corner] + self.slopes[corner] * (units - self.corners[corner])) * self.unit

    def hit_rate(self, capacity: int | None) -> float:
        """Input tokens hit, divided by all of them; 0 for a log without any."""
        return self.hit_tokens(capacity) / self.input_tokens if self.input_tokens else 0.0


class _Stretch:
    """What an owner has left of its path.

    Attributes:
        owner: the number of the request.
        run: its units, packed; never empty.
        forks: by the positions behind its units, in order, the stretches that go on there, each under its first unit.
            All of them have earlier owners.
        siblings: where it is found itself, under `key`: a fork, or the beginnings of all paths.
    """

    __slots__ = ("forks", "key", "owner", "run", "siblings")

    def __init__(self, owner: int, run: bytes, forks: dict[int, _Fork], siblings: _Fork, key: Hashable) -> None:
        self.owner = owner
        self.run = run
        self.forks = forks
        self.siblings = siblings
        self.key = key
        siblings[key] = self

    def shared(self, path: bytes, position: int) -> int:
        """Units from `position` on, where it begins, that it shares with a path."""
        run, start = self.run, position * WIDTH
        if path[start : start + len(run)] == run:
            return count(run)
        for place in self.forks:  # most paths leave where others have left
            cut, stop = place * WIDTH - start, place * WIDTH
            if path[start:stop] == run[:cut] and path[stop : stop + WIDTH] != run[cut : cut + WIDTH]:
                return place - position
            break
        return common_prefix(run, path, position)

    def lose(self, shared: int, position: int, forks: dict[int, _Fork]) -> bool:
        """Have a new owner take the first units, up to `position`, and their forks; whether anything is left.

        What is left hangs at the fork behind them.
        """
        rest = self.run[shared * WIDTH :]
        if not rest:
            forks |= self.forks
            return False
        for place in tuple(self.forks):
            if place > position:
                break
            forks[place] = self.forks.pop(place)
        self.run, self.key = rest, rest[:WIDTH]
        self.siblings = forks.setdefault(position, {})
        self.siblings[self.key] = self
        return True


_Fork = dict[Hashable, _Stretch]
_NO_FORK: _Fork = {}


class Bounds:
    """What caches of any size could hit, learned request by request.

    Prompts and, where the log has them, answers are kept, as engines keep them; only prompts hit. The last token of a
    prompt never does, since it must run to give logits; in logs of blocks, whose last block may be a part, all may.

    Of a path that is longer than a cache, it keeps the beginning.

    Takes memory for the different units of the log, at most `most_units`, 8 bytes for each request, and 24 for each
    stretch of units that is used again: the optimum needs the future.

    Args:
        most_units: units that are remembered; beyond so many, those whose last use lies furthest back are forgotten.
        most_stretches: stretches that are remembered.
    """

    def __init__(self, most_units: int = MOST_UNITS, most_stretches: int = MOST_NODES) -> None:
        self.unit = 0
        """Tokens that an id stands for; 0 before the first request."""
        self.input_tokens = 0
        self._most_units = most_units
        self._most_stretches = most_stretches
        self._remembered: int | None = None  # units that were never fewer, once some had been forgotten
        self._beginnings: _Fork = {}
        self._stretches: OrderedDict[int, _Stretch] = OrderedDict()  # by owner, in order of time
        self._owned = _Sums()  # units by owner
        # One entry for each stretch that is used again: who used it, who does next, its hits, and the place before it
        # in the list of all blocks.
        self._used, self._next, self._size, self._before = array("I"), array("I"), array("q"), array("q")

    def add(self, request: Request) -> None:
        """Note a request; they come in order of time.

        Raises:
            UsageError: if ids of this request stand for another number of tokens than those before.
        """
        if self.unit not in (0, request.unit):
            raise UsageError(
                f"{request.record.place} has ids of {request.unit} tokens, the requests before it of {self.unit}.",
                hint="Give logs of text and of blocks one by one.",
            )
        self.add_run(request.run, request.unit, request.tokens, request.scope, request.output)

    def add_run(
        self, run: bytes, unit: int, tokens: int, scope: tuple[str, str | None] = ("", None), output: bytes = b""
    ) -> None:
        """Note a request given by its parts, which are those of `Request`; `unit` is that of the requests before it."""
        self.unit = unit
        self.input_tokens += tokens
        path = run + output
        if not path:
            return
        self._use(path, count(run) - (unit == 1), (scope, path[:WIDTH]))
        if self._owned.total > self._most_units or len(self._stretches) > self._most_stretches:
            self._forget()

    def _use(self, path: bytes, readable: int, beginning: Hashable) -> None:
        """Make a new request the owner of a path.

        Args:
            path: what it uses.
            readable: units of it that may hit.
            beginning: what its first unit is found under.
        """
        owned, stretches = self._owned, self._stretches
        now = owned.length
        forks: dict[int, _Fork] = {}
        siblings, key, position = self._beginnings, beginning, 0
        while stretch := siblings.get(key):
            owner = stretch.owner
            shared = stretch.shared(path, position)
            before = owned.take(owner, shared)
            if position < readable:
                self._used.append(owner)
                self._next.append(now)
                self._size.append(min(shared, readable - position))
                # What this path took from stretches before this one had later owners.
                self._before.append(before + position)
            del siblings[key]
            if not siblings:
                forks.pop(position, None)
            position += shared
            if stretch.lose(shared, position, forks):
                siblings = forks[position]
            else:
                del stretches[owner]
                siblings = forks.get(position, _NO_FORK)
            key = path[position * WIDTH : (position + 1) * WIDTH]
        stretches[now] = _Stretch(now, path, forks, self._beginnings, beginning)
        owned.append(count(path))

    def _forget(self) -> None:
        owned, stretches = self._owned, self._stretches
        while owned.total > self._most_units or len(stretches) > self._most_stretches:
            oldest = next(iter(stretches.values()))  # every other one at its forks would be older still
            gone = count(oldest.run)
            if len(stretches) <= self._most_stretches:
                gone = min(gone, owned.total - self._most_units)
            owned.take(oldest.owner, gone)
            oldest.run = oldest.run[: -gone * WIDTH]
            if not oldest.run:
                del stretches[oldest.owner], oldest.siblings[oldest.key]
            self._remembered = min(owned.total, self._remembered or owned.total)

    @property
    def is_exact(self) -> bool:
        """Whether nothing was forgotten; else the optimum is at least what `optima` says."""
        return self._remembered is None

    def lru(self) -> Curve:
        """Hits of least recently used at every capacity."""
        bends = dict(Counter(self._before))
        for stop, number in Counter(map(add, self._before, self._size)).items():
            bends[stop] = bends.get(stop, 0) - number
        corners = sorted(bends)
        slopes = list(accumulate(bends[corner] for corner in corners))
        rises = (slope * (stop - start) for slope, start, stop in zip(slopes, corners, corners[1:], strict=False))
        hits = list(accumulate(rises, initial=0))[: len(corners)]
        limit = None if self._remembered is None else self._remembered * self.unit
        return Curve(self.unit or 1, self.input_tokens, limit, corners, hits, slopes)

    def optima(self, capacities: Sequence[int]) -> dict[int, int]:
        """The most input tokens that any cache could hit, by its capacity in tokens.

        What is dropped at one capacity is dropped at every smaller one too (Mattson et al. 1970 on MIN), so each goes
        on with what the next larger one kept, and those where nothing overlaps too often cost nothing.
        """
        unit = self.unit or 1
        used, following, size = self._used, self._next, self._size
        change = [0] * (self._owned.length + 1)
        for start, stop, units in zip(used, following, size, strict=True):
            change[start] += units
            change[stop] -= units
        most = max(accumulate(change))
        best: dict[int, int] = {}
        for capacity in sorted(capacities, reverse=True):
            if capacity // unit < most:
                most = capacity // unit
                size = _kept(used, following, size, most)
                used, following = array("I", compress(used, size)), array("I", compress(following, size))
                size = array("q", filter(None, size))
            best[capacity] = sum(size) * unit
        return {capacity: best[capacity] for capacity in capacities}

    def as_json(self, capacities: Iterable[int], curve: Curve) -> dict[str, Any]:
        """Hit rates at capacities in tokens, and of a cache without limit.

        Args:
            capacities: in the order in which they are shown.
            curve: what `lru` gives.
        """
        total = self.input_tokens or 1
        capacities = list(capacities)
        best = self.optima(capacities)
        return {
            "points": [
                {
                    "tokens": capacity,
                    "lru": round(curve.hit_rate(capacity), 6),
                    "optimum": round(best[capacity] / total, 6),
                }
                for capacity in capacities
            ],
            "infinite": round(curve.hit_rate(None), 6),
        }


def _kept(used: array[int], following: array[int], size: array[int], places: int) -> array[int]:
    """How much of each stretch MIN keeps from its use to the following one, of `places` that it has.

    MIN looks the same in both directions of time. It runs backwards here, as the stretches are in order of their
    following use: it drops what was used longest ago.
    """
    kept = size[:]
    now = following[-1] if following else 0
    held = 0
    ends = [0] * now  # units held by the request that used them
    oldest: list[int] = []  # a heap of stretches by that request
    for stretch in range(len(used) - 1, -1, -1):
        while now > following[stretch]:
            now -= 1
            held -= ends[now]
        user, units = used[stretch], size[stretch]
        ends[user] += units
        held += units
        heappush(oldest, user * len(used) + stretch)
        while held > places:
            user, last = divmod(oldest[0], len(used))
            gone = min(held - places, kept[last])
            kept[last] -= gone
            ends[user] -= gone
            held -= gone
            if not kept[last]:
                heappop(oldest)
    return kept


class _Sums:
    """A growing list of counts with sums of its parts: a tree of Fenwick (1994), O(log n) a call.

    The last count, which changes the most, stays beside the tree until another one is appended.
    """

    def __init__(self) -> None:
        self.total = 0
        """The sum of all counts."""
        self.length = 0
        """How many there are."""
        self._sums = array("q", [0])
        self._last = 0

    def append(self, value: int) -> None:
        if self.length:
            index, part, step = self.length, self._last, 1
            while not index & step:
                part += self._sums[index - step]
                step <<= 1
            self._sums.append(part)
        self.total += value
        self.length += 1
        self._last = value

    def take(self, index: int, part: int) -> int:
        """Lower a count by a part of it; returns the sum of all counts behind it."""
        after = self.total
        self.total -= part
        index += 1
        if index == self.length:
            self._last -= part
            return 0
        sums = self._sums
        below = index
        while below:
            after -= sums[below]
            below &= below - 1
        while index < self.length:
            sums[index] -= part
            index += index & -index
        return after
