"""Policies that remember what they evicted: ARC and S3-FIFO, with tokens in the place of pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefold.core.policies.base import Policy, Shelves
from prefold.core.radix import Edge, Node
from prefold.core.tokens import WIDTH


def _key_behind(key: int, edge: Edge) -> int:
    """Name of the place behind another place, where the next token is that of `edge`."""
    return hash((key, edge))


@dataclass(slots=True, eq=False)
class Note:
    """What both policies know of a node.

    Attributes:
        key: name of the place where the node begins.
        uses: requests that used it since it was added; the one that added it counts.
        behind: key of the ghost that begins where the node now ends, 0 for none.
        proven: whether it is in the part of the cache for what was used again.
        rank: place in the queue, for S3-FIFO.
        credit: uses that still count, for S3-FIFO.
    """

    key: int
    uses: int = 0
    behind: int = 0
    proven: bool = False
    rank: int = 0
    credit: int = 0


class Ghosts:
    """Sizes of evicted runs by where they began, the oldest first. Names are hashes: two places may share one."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self.size = 0
        """Tokens remembered."""

    def remember(self, node: Node[Any], keep: int) -> None:
        """Take in the tokens of a leaf behind its first `keep`; what was cut from it before is one with them."""
        note: Note = node.note
        size = node.length - keep + self.take(note.behind)
        key = _key_behind(note.key, node.run[keep * WIDTH : (keep + 1) * WIDTH]) if keep else note.key
        self.take(key)
        self._sizes[key] = size
        self.size += size
        note.behind = key

    def take(self, key: int) -> int:
        """Forget what began there; returns how many tokens it had."""
        size = self._sizes.pop(key, 0)
        self.size -= size
        return size

    def trim(self, limit: float) -> None:
        """Forget the oldest until no more than `limit` tokens are remembered."""
        while self.size > limit:
            self.take(next(iter(self._sizes)))


class _Remembering(Policy):
    """Keeps notes and the sizes of the two parts of the cache, which `_enter` puts new nodes into."""

    leaves: Shelves

    def __init__(self) -> None:
        self.leaves = Shelves(2, self._place)
        self._capacity = 0
        self._sizes = [0, 0]

    def _place(self, node: Node[Any]) -> tuple[int, int]:
        raise NotImplementedError

    def _enter(self, node: Node[Any], note: Note) -> None:
        """Decide where a node of new tokens belongs."""
        raise NotImplementedError

    def sized(self, capacity: int) -> None:
        """See `Policy`."""
        self._capacity = capacity

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """See `Policy`."""
        if origin is not None:
            rest: Note = origin.note
            node.note = Note(rest.key, rest.uses, 0, rest.proven, rest.rank, rest.credit)
            rest.key = _key_behind(rest.key, origin.edge)
            return
        parent = node.parent.note if node.parent is not None and node.parent.note is not None else None
        note = node.note = Note(_key_behind(parent.key if parent else 0, node.edge))
        if parent:
            # What was cut off there is found again, or something else has taken its place.
            parent.behind = 0
        self._enter(node, note)
        self._sizes[note.proven] += node.length

    def done(self, node: Node[Any], now: float, output_tokens: int, stop: str) -> None:  # noqa: ARG002
        """See `Policy`. An answer was used once when it was made."""
        while node.parent is not None and not node.note.uses:
            node.note.uses = 1
            node = node.parent

    def removing(self, node: Node[Any], keep: int) -> None:
        """See `Policy`."""
        self._sizes[node.note.proven] -= node.length - keep

    def _prove(self, node: Node[Any]) -> None:
        node.note.proven = True
        self._sizes[0] -= node.length
        self._sizes[1] += node.length


class ARC(_Remembering):
    """Adaptive replacement (Megiddo and Modha, 2003): a part for what was used once and one for what was used again.

    How the capacity is shared between them follows the ghosts: when what was evicted from a part comes back, that part
    grows.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ghosts = (Ghosts(), Ghosts())
        self._target = 0.0  # tokens for what was used once

    def _place(self, node: Node[Any]) -> tuple[int, int]:
        return int(node.note.proven), node.used

    def _enter(self, node: Node[Any], note: Note) -> None:
        once, again = self._ghosts
        once_size, again_size = once.size, again.size
        if back := min(node.length, once.take(note.key)):
            self._target = min(self._capacity, self._target + back * max(1.0, again_size / once_size))
        elif back := min(node.length, again.take(note.key)):
            self._target = max(0.0, self._target - back * max(1.0, once_size / again_size))
        note.proven = back > 0

    def used(self, node: Node[Any], now: float) -> None:  # noqa: ARG002
        """See `Policy`."""
        while node.parent is not None:
            node.note.uses += 1
            if node.note.uses == 2 and not node.note.proven:
                self._prove(node)
            node = node.parent

    def removing(self, node: Node[Any], keep: int) -> None:
        """See `Policy`."""
        super().removing(node, keep)
        once, again = self._ghosts
        self._ghosts[node.note.proven].remember(node, keep)
        once.trim(self._capacity - self._sizes[0])
        again.trim(2 * self._capacity - sum(self._sizes) - once.size)

    def victim(self) -> Node[Any] | None:
        """See `Policy`."""
        return self.leaves.first_of((0, 1) if self._sizes[0] > self._target else (1, 0))


class S3FIFO(_Remembering):
    """Three queues (Yang et al., 2023): a small one for what is new, a main one, and ghosts of what left the small one.

    What is evicted from the small queue and comes back enters the main queue at once. Uses move nothing; they are
    credit, which is spent when a node's turn comes.

    Args:
        small: share of the capacity for the small queue.
    """

    def __init__(self, small: float = 0.1) -> None:
        super().__init__()
        self._small = small
        self._ghosts = Ghosts()
        self._turn = 0

    def _place(self, node: Node[Any]) -> tuple[int, int]:
        return int(node.note.proven), node.note.rank

    def _enter(self, node: Node[Any], note: Note) -> None:  # noqa: ARG002
        note.proven = self._ghosts.take(note.key) > 0
        self._requeue(note)

    def _requeue(self, note: Note) -> None:
        self._turn += 1
        note.rank = self._turn

    def used(self, node: Node[Any], now: float) -> None:  # noqa: ARG002
        """See `Policy`."""
        while node.parent is not None:
            note: Note = node.note
            if note.uses:
                note.credit = min(3, note.credit + 1)
            note.uses += 1
            node = node.parent

    def removing(self, node: Node[Any], keep: int) -> None:
        """See `Policy`."""
        super().removing(node, keep)
        if not node.note.proven:
            self._ghosts.remember(node, keep)
            self._ghosts.trim(self._capacity * (1 - self._small))

    def victim(self) -> Node[Any] | None:
        """See `Policy`. Amortised over the uses that gave the credit."""
        while True:
            small_first = self._sizes[0] > self._small * self._capacity
            leaf = self.leaves.first_of((0, 1) if small_first else (1, 0))
            if leaf is None:
                return None
            note: Note = leaf.note
            if not note.proven and note.credit > 1:
                self._prove(leaf)
                note.credit = 0
            elif note.proven and note.credit:
                note.credit -= 1
            else:
                return leaf
            self._requeue(note)
