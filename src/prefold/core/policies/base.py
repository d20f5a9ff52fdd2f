"""What a policy is, and the order in which most of them keep their leaves."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prefold.core.policies.cost import Cost
from prefold.core.radix import LeafQueue, Node


class Policy:
    """What a cache tells a policy, and what it asks.

    A policy hears of a request twice: when it arrives (`added` for what is new, then `used`) and when it is done
    (`added` for the answer, then `done`). Both may hear the same time. All that it does not care for it need not
    define.

    Attributes:
        leaves: where the tree offers its unpinned leaves.
    """

    leaves: LeafQueue[Any]

    def sized(self, capacity: int) -> None:
        """The cache holds `capacity` tokens. Told once, before anything else."""

    def priced(self, cost: Cost) -> None:
        """What it costs to have evicted tokens again. Told once, behind `sized`, by hosts that know."""

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """`node` is new; `origin` is the node whose first part it was until now, None for new tokens."""

    def used(self, node: Node[Any], now: float) -> None:
        """A request whose prompt ends with `node` arrived at `now`, in seconds; times never run backwards."""

    def done(self, node: Node[Any], now: float, output_tokens: int, stop: str) -> None:
        """A request was answered at `now`.

        Args:
            node: ends where the prompt and what was kept of the answer end.
            now: seconds.
            output_tokens: length of the answer.
            stop: why it ended, in the words of any provider; empty where the host does not say.
        """

    def removing(self, node: Node[Any], keep: int) -> None:
        """The tokens of the leaf `node` behind its first `keep` are about to leave the tree; all of it for 0."""

    def expired(self, now: float) -> Node[Any] | None:  # noqa: ARG002 (the names of the contract)
        """An evictable leaf that must go at `now` even where there is room, None if there is none."""
        return None

    def victim(self) -> Node[Any] | None:
        """The evictable leaf whose tail should go first, None if there is none."""
        raise NotImplementedError

    def portion(self, victim: Node[Any]) -> int:
        """Up to how many tokens of the victim's tail may go before the policy is asked again, at least 1."""
        return victim.length


class Shelves:
    """Evictable leaves on numbered shelves, each in order of a rank.

    One heap a shelf, with at most one entry for each node over all of them. A node is put right when its entry comes to
    the top, as in `Leaves`; so shelf and rank may change at any time, but while a node stays on a shelf its rank must
    not fall.

    Args:
        shelves: how many there are.
        place: gives a node's shelf and its rank there; the lowest rank comes first.
    """

    def __init__(self, shelves: int, place: Callable[[Node[Any]], tuple[int, Any]]) -> None:
        self._heaps: list[list[tuple[Any, int, Node[Any]]]] = [[] for _ in range(shelves)]
        self._offered: list[Node[Any]] = []  # not yet on a shelf: the policy may not have heard of them
        self._place = place
        self._serial = 0  # breaks ties before nodes are compared
        self._queued = 0
        self._gone = 0  # nodes that left the tree since the last sweep

    def offer(self, node: Node[Any]) -> None:
        """See `LeafQueue`."""
        if not node.queued and node.evictable:
            node.queued = True
            self._queued += 1
            self._offered.append(node)

    def forget(self, node: Node[Any]) -> None:
        """See `LeafQueue`. Amortised O(1)."""
        self._gone += node.queued
        if 2 * self._gone > self._queued:
            self._offered = [node for node in self._offered if node.parent is not None]
            for shelf, heap in enumerate(self._heaps):
                self._heaps[shelf] = [entry for entry in heap if entry[2].parent is not None]
                heapq.heapify(self._heaps[shelf])
            self._queued = len(self._offered) + sum(map(len, self._heaps))
            self._gone = 0

    def first(self, shelf: int) -> Node[Any] | None:
        """The leaf of lowest rank on a shelf, or None. Amortised O(log n)."""
        heap = self._heaps[shelf]
        self._put_up()
        while heap:
            rank, _, node = heap[0]
            if node.evictable and self._place(node) == (shelf, rank):
                return node
            heapq.heappop(heap)
            self._drop(node)
            self.offer(node)
            self._put_up()
        return None

    def first_of(self, shelves: Sequence[int]) -> Node[Any] | None:
        """The first leaf on the first of these shelves that holds any, or None."""
        for shelf in (*shelves, *shelves):  # looking at one shelf may move leaves to one that was looked at before
            if (leaf := self.first(shelf)) is not None:
                return leaf
        return None

    def _put_up(self) -> None:
        for node in self._offered:
            if node.evictable:
                self._serial += 1
                shelf, rank = self._place(node)
                heapq.heappush(self._heaps[shelf], (rank, self._serial, node))
            else:
                self._drop(node)
        self._offered.clear()

    def _drop(self, node: Node[Any]) -> None:
        node.queued = False
        self._queued -= 1
        self._gone -= node.parent is None

    def __iter__(self) -> Iterator[Node[Any]]:
        """See `LeafQueue`."""
        yield from (node for node in self._offered if node.evictable)
        yield from (node for heap in self._heaps for _, _, node in heap if node.evictable)
