"""A tree that remembers something about prefixes that end at given places: what caches of entries and units keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from prefold.analysis.caches.common import is_full
from prefold.core.keys import Scope
from prefold.core.radix import Leaves, Match, Node, RadixTree
from prefold.core.tokens import WIDTH

V = TypeVar("V")


class Ends(Generic[V]):
    """Values by prefix, on the nodes that end where they do. What was not used for longest is forgotten.

    A request looks once, with `find`; what it reads and keeps then is reached from there upwards.

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

    def find(self, run: bytes, scope: Scope) -> Match[V | None]:
        """How far a run is known, in units. Changes nothing."""
        return self._tree.peek(run, scope)

    def put(self, run: bytes, scope: Scope, match: Match[V | None], ends: Sequence[int]) -> list[Node[V | None]]:
        """Remember prefixes of a run, and that they were used now.

        Args:
            run: a run.
            scope: who may share it.
            match: what `find` says, where it has just been asked.
            ends: of the prefixes, in units, ascending, at least one.

        Returns:
            The node that ends at each end, for its value to be read and set: None where there was none. Those that
            there is no room for are no longer part of the tree.
        """
        self._used += 1
        node, longest = match.node, ends[-1]
        if longest > match.length:
            node = self._tree.insert(run[: longest * WIDTH], scope, _nothing, self._used, match).node
        nodes = []
        for end in reversed(ends):
            node = self._tree.ending(node, end)
            nodes.append(node)
        nodes.reverse()
        self._tree.touch(nodes[-1], self._used)
        while is_full(self._tree, self._capacity) and (oldest := self._leaves.oldest()) is not None:
            self._tree.truncate(oldest, 0)
            self.has_forgotten = True
        return nodes


def values(match: Match[V | None]) -> Iterator[tuple[int, V]]:
    """The values of the known prefixes of a run with their ends, the longest first."""
    node = match.node
    while node.parent is not None:
        if node.value is not None and node.stop <= match.length:
            yield node.stop, node.value
        node = node.parent


def _nothing(_start: int, _stop: int) -> None:
    """The value of a prefix that was only seen."""
