"""Which slots of the K/V pool belong to whom.

The pool is paged with a page of one token: sharing is exact to the token and nothing is ever copied. Slots are handed
out in runs as long as the free space allows, because attention over a run reads a slice where scattered slots would
have to be gathered first.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

Runs = tuple[tuple[int, int], ...]
"""Slots in order, as half-open intervals `(start, stop)`."""


def length(runs: Runs) -> int:
    """Number of slots in `runs`."""
    return sum(stop - start for start, stop in runs)


def cut(runs: Runs, begin: int, end: int) -> Runs:
    """The slots from the `begin`-th up to, not including, the `end`-th."""
    kept = []
    at = 0
    for start, stop in runs:
        low, high = max(begin - at, 0), min(end - at, stop - start)
        if low < high:
            kept.append((start + low, start + high))
        at += stop - start
    return tuple(kept)


def join(*parts: Runs) -> Runs:
    """The slots of all parts in order, neighbours merged."""
    merged: list[tuple[int, int]] = []
    for runs in parts:
        for start, stop in runs:
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], stop)
            else:
                merged.append((start, stop))
    return tuple(merged)


class SlotPool:
    """The free slots of a pool of `capacity` slots."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._starts = [0]
        self._stops = [capacity]
        self.free_slots = capacity

    def allocate(self, count: int, *, after: int | None = None, spare: int = 0) -> Runs:
        """Take `count` slots, in as few runs as possible.

        Args:
            count: how many; the caller has made sure that they are free.
            after: prefer the slots that begin here, so that a growing sequence stays in one run.
            spare: prefer a place where the run could later grow by this many.
        """
        if count > self.free_slots:
            raise ValueError(f"{count} slots asked for, {self.free_slots} free")
        taken: list[tuple[int, int]] = []
        wanted = count
        if after is not None:
            place = bisect_left(self._starts, after)
            if place < len(self._starts) and self._starts[place] == after:
                taken.append(self._take(place, wanted))
                wanted -= taken[-1][1] - taken[-1][0]
        if wanted:
            lengths = [stop - start for start, stop in zip(self._starts, self._stops, strict=True)]
            for enough in (wanted + spare, wanted):
                fitting = [(size, place) for place, size in enumerate(lengths) if size >= enough]
                if fitting:
                    taken.append(self._take(min(fitting)[1], wanted))
                    break
            else:
                taken += self._take_longest(lengths, wanted)
        self.free_slots -= count
        return join(tuple(taken))

    def _take(self, place: int, wanted: int) -> tuple[int, int]:
        """Up to `wanted` slots from the beginning of one free run."""
        start = self._starts[place]
        stop = min(self._stops[place], start + wanted)
        if stop == self._stops[place]:
            del self._starts[place], self._stops[place]
        else:
            self._starts[place] = stop
        return start, stop

    def _take_longest(self, lengths: list[int], wanted: int) -> list[tuple[int, int]]:
        """`wanted` slots from the longest free runs, of which no single one has as many."""
        chosen = []
        for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
            chosen.append(place)
            wanted -= lengths[place]
            if wanted <= 0:
                break
        taken = [(self._starts[place], self._stops[place]) for place in chosen]
        gone = set(chosen[:-1])
        last = chosen[-1]
        if wanted == 0:
            gone.add(last)
        else:
            self._starts[last] = self._stops[last] + wanted
            taken[-1] = (taken[-1][0], self._starts[last])
        self._starts = [start for place, start in enumerate(self._starts) if place not in gone]
        self._stops = [stop for place, stop in enumerate(self._stops) if place not in gone]
        return taken

    def free(self, runs: Runs) -> None:
        """Give slots back.

        Raises:
            ValueError: if one of them is free already.
        """
        for start, stop in runs:
            place = bisect_left(self._starts, start)
            before = place > 0 and self._stops[place - 1] == start
            behind = place < len(self._starts) and self._starts[place] == stop
            if (place > 0 and self._stops[place - 1] > start) or (
                place < len(self._starts) and self._starts[place] < stop
            ):
                raise ValueError(f"slots {start}..{stop} are free already")
            if before and behind:
                self._stops[place - 1] = self._stops.pop(place)
                del self._starts[place]
            elif before:
                self._stops[place - 1] = stop
            elif behind:
                self._starts[place] = start
            else:
                self._starts.insert(place, start)
                self._stops.insert(place, stop)
            self.free_slots += stop - start


@dataclass(frozen=True, slots=True)
class Names:
    """The keys of the blocks that end in a span.

    Attributes:
        size: tokens of a block.
        first: tokens of the span up to the end of the first one.
        keys: see `prefold.core.keys`.
    """

    size: int
    first: int
    keys: tuple[bytes, ...]

    def cut(self, at: int) -> tuple[Names, Names]:
        """The names of the first `at` tokens and of the rest."""
        head = max((at - self.first) // self.size + 1, 0)
        return Names(self.size, self.first, self.keys[:head]), Names(
            self.size, self.first + head * self.size - at, self.keys[head:]
        )


@dataclass(slots=True)
class Span:
    """The K and V of one tree node.

    Attributes:
        runs: its slots, one a token.
        ready: leading tokens whose K and V are in place.
        planned: leading tokens that will be in place when the step being prepared has run; at least `ready`.
        names: of the blocks that end in it, where somebody has asked for them.
    """

    runs: Runs
    ready: int
    planned: int
    names: Names | None = None


class SpanStore:
    """What the cache does with spans."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool

    def split(self, value: Span, at: int) -> tuple[Span, Span]:
        """Cut a span after `at` tokens."""
        total = length(value.runs)
        head = Span(cut(value.runs, 0, at), min(value.ready, at), min(value.planned, at))
        tail = Span(cut(value.runs, at, total), max(value.ready - at, 0), max(value.planned - at, 0))
        if value.names is not None:
            head.names, tail.names = value.names.cut(at)
        return head, tail

    def free(self, value: Span) -> None:
        """Give the slots back to the pool."""
        self._pool.free(value.runs)
