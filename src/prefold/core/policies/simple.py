"""Policies that go by one number a node, and remember nothing that has left the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefold.core.policies.base import Policy, Shelves
from prefold.core.policies.cost import Cost
from prefold.core.radix import Leaves, Node


class LRU(Policy):
    """Least recently used. A path is used as a whole, so tails go before heads."""

    leaves: Leaves[Any]

    def __init__(self) -> None:
        self.leaves = Leaves()

    def victim(self) -> Node[Any] | None:
        """See `Policy`. Amortised O(log n)."""
        return self.leaves.oldest()


class TTLLRU(LRU):
    """Least recently used; and what was not used for `ttl` seconds is gone, whether there is room or not.

    Args:
        ttl: seconds that a use keeps a path alive, those of the commonest lifetime at providers by default.
    """

    def __init__(self, ttl: float = 300.0) -> None:
        super().__init__()
        self._ttl = ttl

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """See `Policy`."""
        if origin is not None:
            node.note = origin.note

    def used(self, node: Node[Any], now: float) -> None:
        """See `Policy`."""
        while node.parent is not None:
            node.note = now  # the time of the last use
            node = node.parent

    def done(self, node: Node[Any], now: float, output_tokens: int, stop: str) -> None:  # noqa: ARG002
        """See `Policy`."""
        self.used(node, now)

    def expired(self, now: float) -> Node[Any] | None:
        """See `Policy`. The one that was used longest ago was also the first to expire."""
        leaf = self.leaves.oldest()
        return leaf if leaf is not None and leaf.note is not None and now - leaf.note > self._ttl else None


class FIFO(Policy):
    """First in, first out, however much it was used."""

    leaves: Shelves

    def __init__(self) -> None:
        self.leaves = Shelves(1, lambda node: (0, node.note))
        self._added = 0

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """See `Policy`."""
        self._added += 1
        node.note = self._added if origin is None else origin.note

    def victim(self) -> Node[Any] | None:
        """See `Policy`."""
        return self.leaves.first(0)


class LFU(Policy):
    """Least frequently used, counted from when it entered the tree; among equals the least recently used."""

    leaves: Shelves

    def __init__(self) -> None:
        self.leaves = Shelves(1, lambda node: (0, (node.note, node.used)))

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """See `Policy`."""
        node.note = 0 if origin is None else origin.note

    def used(self, node: Node[Any], now: float) -> None:  # noqa: ARG002
        """See `Policy`."""
        while node.parent is not None:
            node.note += 1
            node = node.parent

    def victim(self) -> Node[Any] | None:
        """See `Policy`."""
        return self.leaves.first(0)


@dataclass(slots=True)
class _Worth:
    uses: int
    rank: float


class GDSF(Policy):
    """Greedy dual size frequency: cost times frequency over size, and what is not used ages (Cherkasova, 1998).

    The cost of a token grows with its position, since it attends to all before it.

    Args:
        attention_span: see `Cost`, where the host does not say what tokens cost; six times the width of the model, for
            a model 4,096 wide by default.
    """

    leaves: Shelves

    def __init__(self, attention_span: int = 24_576) -> None:
        self.leaves = Shelves(1, lambda node: (0, (node.note.rank, node.used)))
        self._cost = Cost(attention_span)
        self._age = 0.0  # rank of the latest victim: what comes in or is used starts from there

    def priced(self, cost: Cost) -> None:
        """See `Policy`."""
        self._cost = cost

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """See `Policy`."""
        node.note = _Worth(0, self._age) if origin is None else _Worth(origin.note.uses, origin.note.rank)

    def used(self, node: Node[Any], now: float) -> None:  # noqa: ARG002
        """See `Policy`."""
        while node.parent is not None:
            note = node.note
            note.uses += 1
            note.rank = self._age + note.uses * self._cost.again(node) / node.length
            node = node.parent

    def victim(self) -> Node[Any] | None:
        """See `Policy`."""
        leaf = self.leaves.first(0)
        if leaf is not None:
            self._age = leaf.note.rank
        return leaf


@dataclass(slots=True)
class _Head:
    parted: int = 0
    pinned: bool = False


class Pinned(Policy):
    """Heads that many prompts share are never evicted; least recently used for the rest.

    What the user pins with `Cache.pin` stays under every policy. This one finds by itself what is worth it: a prefix,
    such as a system prompt, behind which `sharers` different continuations were seen. Like pins, such heads may hold
    half of the capacity; beyond that they are evicted like all else.

    Args:
        sharers: continuations that make a prefix a shared head.
    """

    leaves: Shelves

    def __init__(self, sharers: int = 4) -> None:
        self.leaves = Shelves(2, lambda node: (int(node.note.pinned), node.used))
        self._sharers = sharers
        self._pinned = 0  # tokens
        self._limit = 0.0

    def sized(self, capacity: int) -> None:
        """See `Policy`."""
        self._limit = capacity / 2

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """See `Policy`."""
        if origin is not None:
            node.note = _Head(parted=1, pinned=origin.note.pinned)
            return
        node.note = _Head()
        head = node.parent
        if head is not None and head.parent is not None:
            head.note.parted += 1
            if head.note.parted >= self._sharers:
                while head.parent is not None and not head.note.pinned:
                    head.note.pinned = True
                    self._pinned += head.length
                    head = head.parent

    def removing(self, node: Node[Any], keep: int) -> None:
        """See `Policy`."""
        if node.note.pinned:
            self._pinned -= node.length - keep

    def victim(self) -> Node[Any] | None:
        """See `Policy`."""
        rest, pinned = self.leaves.first(0), self.leaves.first(1)
        if rest is None or (pinned is not None and self._pinned > self._limit and pinned.used < rest.used):
            return pinned
        return rest
