"""A tree that remembers something about prefixes that end at given places: what caches of entries and units keep."""

from __future__ import annotations

from typing import Generic, TypeVar

from prefold.analysis.caches.common import is_full
from prefold.core.keys import Scope
from prefold.core.radix import Leaves, Node, RadixTree
from prefold.core.tokens import WIDTH

V = TypeVar("V")


class Ends(Generic[V]):
    """Values by prefix. What was not used for longest is forgotten when there is no room.

    Args:
        capacity: units that all prefixes together may have.
    """

    def __init__(self, capacity: int) -> None:
        self._leaves: Leaves[V | None] = Leaves()
        self._tree: RadixTree[V | None] = RadixTree(None, lambda value, _length: (None, value), self._leaves)
        self._capacity = capacity
        self._used = 0
        self.has_forgotten = False
        """Whether there was no room for everything."""

    def known(self, run: bytes, scope: Scope) -> tuple[int, list[tuple[int, V]]]:
        """How far a run is known in units, and the values of its prefixes with their ends, ascending."""
        match = self._tree.peek(run, scope)
        path = match.node.path()
        return match.length, [
            (node.stop, node.value) for node in path if node.value is not None and node.stop <= match.length
        ]

    def put(self, run: bytes, end: int, scope: Scope, value: V | None) -> None:
        """Remember the first `end` units of a run, and a value for them; without one, only that they were seen."""
        self._used += 1
        node: Node[V | None] = self._tree.insert(run[: end * WIDTH], scope, lambda _start, _stop: None, self._used).node
        self._tree.touch(node, self._used)
        if value is not None:
            node.value = value
        while is_full(self._tree, self._capacity) and (oldest := self._leaves.oldest()) is not None:
            self._tree.truncate(oldest, 0)
            self.has_forgotten = True
