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

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Any

from prefold.analysis.memory import MOST_NODES, MOST_UNITS
from prefold.analysis.request import Request
from prefold.core.keys import Scope
from prefold.core.radix import Leaves, RadixTree
from prefold.core.tokens import count
from prefold.errors import UsageError

_USED = attrgetter("used")


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


class Bounds:
    """What caches of any size could hit, learned request by request.

    Prompts and, where the log has them, answers are kept, as engines keep them; only prompts hit. The last token of a
    prompt never does, since it must run to give logits; in logs of blocks, whose last block may be a part, all may.

    Of a path that is longer than a cache, it keeps the beginning.

    Takes memory for the different units of the log, at most `most_units`, 8 bytes for each request, and 24 for each
    stretch of units that is used again: the optimum needs the future.

    Args:
        most_units: units that are remembered; beyond so many, those whose last use lies furthest back are forgotten.
        most_nodes: nodes of the tree that are remembered.
    """

    def __init__(self, most_units: int = MOST_UNITS, most_nodes: int = MOST_NODES) -> None:
        self.unit = 0
        """Tokens that an id stands for; 0 before the first request."""
        self.input_tokens = 0
        self._most_units = most_units
        self._most_nodes = most_nodes
        self._remembered: int | None = None  # units that were never fewer, once some had been forgotten
        self._leaves: Leaves[None] = Leaves()
        self._tree: RadixTree[None] = RadixTree(None, _no_values, self._leaves)
        self._owned = _Sums()
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
        self.unit = request.unit
        self.input_tokens += request.tokens
        path = request.run + request.output
        readable = request.units - (request.unit == 1)
        tree, owned = self._tree, self._owned
        now = owned.length
        if not path:
            return
        end = tree.insert(path, Scope(namespace=repr(request.scope)), _no_value, now).node
        for owner, group in groupby(reversed(end.path()), key=_USED):  # tails first, so owners in order of time
            if owner == now:
                continue
            nodes = list(group)
            start, stop = nodes[-1].start, nodes[0].stop
            if start < readable:
                self._used.append(owner)
                self._next.append(now)
                self._size.append(min(stop, readable) - start)
                self._before.append(owned.after(owner))
            owned.add(owner, start - stop)
        owned.append(count(path))
        tree.touch(end, now)
        self._forget()

    def _forget(self) -> None:
        tree = self._tree
        while tree.size > self._most_units or tree.node_count > self._most_nodes:
            leaf = self._leaves.oldest()
            if leaf is None:
                raise AssertionError("units in the tree without a leaf")
            gone = leaf.length
            if tree.node_count <= self._most_nodes:
                gone = min(gone, tree.size - self._most_units)
            self._owned.add(leaf.used, -gone)
            tree.truncate(leaf, leaf.length - gone)
            self._remembered = min(tree.size, self._remembered or tree.size)

    @property
    def is_exact(self) -> bool:
        """Whether nothing was forgotten; else the optimum is at least what `optimum` says."""
        return self._remembered is None

    def lru(self) -> Curve:
        """Hits of least recently used at every capacity."""
        bends: dict[int, int] = {}
        for before, size in zip(self._before, self._size, strict=True):
            bends[before] = bends.get(before, 0) + 1
            bends[before + size] = bends.get(before + size, 0) - 1
        corners = sorted(bends)
        slopes = list(accumulate(bends[corner] for corner in corners))
        rises = (slope * (stop - start) for slope, start, stop in zip(slopes, corners, corners[1:], strict=False))
        hits = list(accumulate(rises, initial=0))[: len(corners)]
        limit = None if self._remembered is None else self._remembered * self.unit
        return Curve(self.unit or 1, self.input_tokens, limit, corners, hits, slopes)

    def optimum(self, capacity: int) -> int:
        """The most input tokens that any cache of `capacity` tokens could hit."""
        places = capacity // (self.unit or 1)
        held = [0] * self._owned.length  # units by the request that uses them next
        last_used: list[int] = []  # a heap of those requests, the last one first
        size = hits = now = 0
        order = sorted(range(len(self._used)), key=self._used.__getitem__)
        for stretch in order:
            used, following, units = self._used[stretch], self._next[stretch], self._size[stretch]
            while now <= used:
                hits += held[now]
                size -= held[now]
                held[now] = 0
                now += 1
            if not held[following]:
                heapq.heappush(last_used, -following)
            held[following] += units
            size += units
            while size > places:
                furthest = -last_used[0]
                gone = min(size - places, held[furthest])
                held[furthest] -= gone
                size -= gone
                if not held[furthest]:
                    heapq.heappop(last_used)
        return (hits + sum(held[now:])) * (self.unit or 1)

    def as_json(self, capacities: Iterable[int], curve: Curve) -> dict[str, Any]:
        """Hit rates at capacities in tokens, and of a cache without limit.

        Args:
            capacities: in the order in which they are shown.
            curve: what `lru` gives.
        """
        total = self.input_tokens or 1
        return {
            "points": [
                {
                    "tokens": capacity,
                    "lru": round(curve.hit_rate(capacity), 6),
                    "optimum": round(self.optimum(capacity) / total, 6),
                }
                for capacity in capacities
            ],
            "infinite": round(curve.hit_rate(None), 6),
        }


class _Sums:
    """A growing list of counts with sums of its parts: a tree of Fenwick (1994), O(log n) a call."""

    def __init__(self) -> None:
        self._sums = array("q", [0])
        self._total = 0

    @property
    def length(self) -> int:
        return len(self._sums) - 1

    def append(self, value: int) -> None:
        self._total += value
        index, step = len(self._sums), 1
        while not index & step:
            value += self._sums[index - step]
            step <<= 1
        self._sums.append(value)

    def add(self, index: int, change: int) -> None:
        self._total += change
        index += 1
        sums = self._sums
        while index < len(sums):
            sums[index] += change
            index += index & -index

    def after(self, index: int) -> int:
        """The sum of all counts behind `index`."""
        index += 1
        rest = self._total
        while index:
            rest -= self._sums[index]
            index &= index - 1
        return rest


def _no_values(_value: None, _length: int) -> tuple[None, None]:
    return None, None


def _no_value(_start: int, _stop: int) -> None:
    return None
