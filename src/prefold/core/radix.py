"""A radix tree over tokens with a value on each node.

Each node holds a run of tokens and a value for exactly that run: K/V slots in the engine, a set of replicas in a
router, nothing in a simulator. Three rules keep it exact to the token: what was inserted ends on a node's end, a node
is split where two sequences part, and only unpinned leaves go away.

A salt hangs a private subtree at the token position where it begins: at that position the edge is looked up under
(salt, token) instead of the token alone, so that neither side can walk into the other's part. A namespace does the
same at position 0.

Looking is pure (`peek`), using is not (`touch`). The structure and the splitting rule follow SGLang's RadixAttention
(Zheng et al., 2023); runs are compared as bytes, see `prefold.core.tokens`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import WIDTH, common_prefix

V = TypeVar("V")
Edge = bytes | tuple[str, str | None, bytes]
"""What selects a child: its first token, or (namespace, salt, first token) where either begins."""


def _edge(scope: Scope, position: int, first: bytes) -> Edge:
    namespace = scope.namespace if position == 0 else ""
    salt = scope.salt if position == scope.salt_from else None
    return (namespace, salt, first) if namespace or salt is not None else first


class Node(Generic[V]):
    """A run of tokens at a fixed place below the root.

    Attributes:
        run: the tokens, packed; empty only for the root.
        start, stop: the positions in the sequence that the run covers, `start` inclusive, `stop` exclusive.
        value: what the host keeps for the run.
        pins: how many holders keep this node and so its ancestors from being removed.
        used: logical time of the last use; never earlier than that of any descendant.
        note: what the policy knows of the node; the tree does not look at it.
    """

    __slots__ = ("children", "edge", "note", "parent", "pins", "queued", "run", "start", "used", "value")

    def __init__(self, edge: Edge, run: bytes, start: int, parent: Node[V] | None, value: V, used: int) -> None:
        self.edge = edge
        self.run = run
        self.start = start
        self.parent = parent
        self.children: dict[Edge, Node[V]] = {}
        self.value = value
        self.pins = 0
        self.used = used
        self.note: Any = None
        self.queued = False  # owned by the LeafQueue

    @property
    def length(self) -> int:
        """Tokens in the run."""
        return len(self.run) // WIDTH

    @property
    def stop(self) -> int:
        """Position behind the last token of the run."""
        return self.start + len(self.run) // WIDTH

    @property
    def evictable(self) -> bool:
        """An unpinned leaf that is still part of the tree."""
        return not self.pins and not self.children and self.parent is not None

    def path(self) -> list[Node[V]]:
        """The nodes from below the root down to this one."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes


class LeafQueue(Protocol[V]):
    """What the tree tells of its leaves: it offers a node whenever it may have become an unpinned one."""

    def offer(self, node: Node[V]) -> None:
        """Note that `node` may have become evictable."""

    def forget(self, node: Node[V]) -> None:
        """Note that `node` has left the tree."""

    def __iter__(self) -> Iterator[Node[V]]:
        """All evictable leaves, in no particular order."""


class Leaves(Generic[V]):
    """The unpinned leaves, in order of last use.

    A heap with at most one entry for each node. Entries are not moved when a leaf is used or pinned; they are put
    right when they come to the top, which makes both of these free. Those of nodes that left the tree are swept out
    before they make up half of the heap, since where nothing is evicted they would never come to the top.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node[V]]] = []
        self._serial = 0  # breaks ties before nodes are compared
        self._gone = 0  # nodes that left the tree since the last sweep

    def offer(self, node: Node[V]) -> None:
        """Note that `node` may have become evictable."""
        if node.evictable and not node.queued:
            node.queued = True
            self._serial += 1
            heapq.heappush(self._heap, (node.used, self._serial, node))

    def forget(self, node: Node[V]) -> None:
        """Note that `node` has left the tree. Amortised O(1)."""
        self._gone += node.queued
        if 2 * self._gone > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].parent is not None]
            heapq.heapify(self._heap)
            self._gone = 0

    def oldest(self) -> Node[V] | None:
        """The evictable leaf whose last use lies furthest back, or None. Amortised O(log n)."""
        while self._heap:
            used, _, node = self._heap[0]
            if node.evictable and node.used == used:
                return node
            heapq.heappop(self._heap)
            node.queued = False
            self.offer(node)
        return None

    def __iter__(self) -> Iterator[Node[V]]:
        """All evictable leaves, in no particular order."""
        return (node for _, _, node in self._heap if node.evictable)


@dataclass(frozen=True, slots=True)
class Match(Generic[V]):
    """How far a sequence is known.

    Attributes:
        length: matched tokens.
        node: the node in which the match ends, the root for none. The match may end before `node.stop`.
    """

    length: int
    node: Node[V]


@dataclass(frozen=True, slots=True)
class Insertion(Generic[V]):
    """What `RadixTree.insert` did.

    Attributes:
        existed: leading tokens that the tree held already.
        node: the node whose end is the end of the sequence.
        added: the new nodes, parent before child.
        head: the new first part of a node that had to be split, None if none had.
    """

    existed: int
    node: Node[V]
    added: tuple[Node[V], ...]
    head: Node[V] | None


class RadixTree(Generic[V]):
    """Sequences of tokens with shared prefixes stored once.

    Args:
        root_value: value of the root, which covers no token.
        split_value: cuts a node's value into those of its first `n` tokens and of the rest.
        leaves: keeps the unpinned leaves, of this tree only; in order of last use by default.
    """

    def __init__(
        self, root_value: V, split_value: Callable[[V, int], tuple[V, V]], leaves: LeafQueue[V] | None = None
    ) -> None:
        self.root: Node[V] = Node(b"", b"", 0, None, root_value, 0)
        self.leaves: LeafQueue[V] = Leaves() if leaves is None else leaves
        self.size = 0
        """Tokens in the tree."""
        self.pinned = 0
        """Tokens in pinned nodes."""
        self.node_count = 0
        """Nodes below the root."""
        self._split_value = split_value

    def peek(self, run: bytes, scope: Scope = SHARED) -> Match[V]:
        """Longest known prefix of `run`. Changes nothing, not even the order of eviction."""
        end = len(run)
        node, position = self.root, 0
        # A run that crosses the border where its salt begins is shared with others only up to it.
        border = end if scope.salt is None else min(end, scope.salt_from * WIDTH)
        for reach in (border, end):
            if position == reach:
                continue
            edge = _edge(scope, position // WIDTH, run[position : position + WIDTH])
            while position < reach:
                child = node.children.get(edge)
                if child is None:
                    return Match(position // WIDTH, node)
                piece = child.run
                if not run.startswith(piece, position, reach):
                    shared = common_prefix(piece[: reach - position], run, position // WIDTH)
                    return Match(position // WIDTH + shared, child)
                node = child
                position += len(piece)
                edge = run[position : position + WIDTH]
        return Match(position // WIDTH, node)

    def insert(
        self,
        run: bytes,
        scope: Scope,
        make_value: Callable[[int, int], V],
        used: int,
        match: Match[V] | None = None,
    ) -> Insertion[V]:
        """Add a sequence; afterwards one node ends where it ends.

        Args:
            run: the tokens.
            scope: the salt and where it begins.
            make_value: called at most twice with `(start, stop)`, for the new tokens before and after the salt begins;
                it must not fail, since the tree has changed already.
            used: logical time given to new nodes.
            match: what `peek` says, where it has just been asked.
        """
        match = match or self.peek(run, scope)
        node, head, added = match.node, None, []
        if match.length < node.stop:
            node = head = self._split(node, match.length - node.start)
        position, end = match.length, len(run) // WIDTH
        border = end if scope.salt is None else min(scope.salt_from, end)
        for stop in (border, end):
            if position < stop:
                piece = run[position * WIDTH : stop * WIDTH]
                edge = _edge(scope, position, piece[:WIDTH])
                child = Node(edge, piece, position, node, make_value(position, stop), used)
                node.children[edge] = child
                self.size += stop - position
                self.node_count += 1
                added.append(child)
                node, position = child, stop
        self.leaves.offer(node)
        return Insertion(match.length, node, tuple(added), head)

    def ending(self, node: Node[V], position: int) -> Node[V]:
        """The node at or above another that ends at a position; what covers the position is split where none does.

        Args:
            node: where to look up from.
            position: at most `node.stop`; the root ends at 0.
        """
        while node.start >= position and node.parent is not None:
            node = node.parent
        return node if node.stop == position else self._split(node, position - node.start)

    def _split(self, node: Node[V], length: int) -> Node[V]:
        """Cut a node after `length` tokens and return the new node of the first part.

        The node itself becomes the second part, so that whoever holds it still holds the end of what it held; the new
        one takes over its pins.
        """
        cut = length * WIDTH
        value, rest = self._split_value(node.value, length)
        parent = node.parent
        if parent is None:
            raise ValueError("the root cannot be split")
        head = Node(node.edge, node.run[:cut], node.start, parent, value, node.used)
        self.node_count += 1
        head.pins = node.pins
        parent.children[head.edge] = head
        node.run = node.run[cut:]
        node.edge = node.run[:WIDTH]
        node.start += length
        node.parent = head
        node.value = rest
        head.children[node.edge] = node
        return head

    def touch(self, node: Node[V], used: int) -> None:
        """Note that a node and so all of its ancestors were used at logical time `used`."""
        while node.parent is not None:
            node.used = used
            node = node.parent

    def pin(self, node: Node[V]) -> None:
        """Keep a node and its ancestors from being removed until `unpin`; counts."""
        while node.parent is not None:
            if not node.pins:
                self.pinned += node.length
            node.pins += 1
            node = node.parent

    def unpin(self, node: Node[V]) -> None:
        """Undo one `pin`.

        Raises:
            ValueError: if the node is not pinned.
        """
        if not node.pins and node.parent is not None:
            raise ValueError(f"node {node.start}..{node.stop} is not pinned")
        end = node
        while node.parent is not None:
            node.pins -= 1
            if not node.pins:
                self.pinned -= node.length
            node = node.parent
        self.leaves.offer(end)

    def extend(self, leaf: Node[V], run: bytes) -> None:
        """Make a leaf longer, for sequences that are used as a whole, so that one node does for all of them.

        Args:
            leaf: one that is still part of the tree; its value is left to the caller.
            run: the whole sequence, which begins with what the leaf ends; it crosses no place where a salt begins.
        """
        longer = run[leaf.start * WIDTH :]
        self.size += len(longer) // WIDTH - leaf.length
        leaf.run = longer

    def truncate(self, node: Node[V], keep: int) -> V:
        """Cut the tail off an unpinned leaf, the whole leaf for `keep=0`; returns the value of what was cut off.

        Raises:
            ValueError: if the node is not an unpinned leaf with more than `keep` tokens.
        """
        if not node.evictable or not 0 <= keep < node.length:
            raise ValueError(f"node {node.start}..{node.stop} is pinned, inner, gone, or not longer than {keep}")
        self.size -= node.length - keep
        if keep:
            node.value, value = self._split_value(node.value, keep)
            node.run = node.run[: keep * WIDTH]
            return value
        value, parent = node.value, node.parent
        if parent is not None:
            del parent.children[node.edge]
            node.parent = None
            self.node_count -= 1
            self.leaves.forget(node)
            self.leaves.offer(parent)
        return value

    def nodes(self) -> Iterator[Node[V]]:
        """Every node but the root, parents before children."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())
