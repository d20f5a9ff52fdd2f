"""What was evicted: where it began, how long it was, and what was known of it, without the tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prefold.core.policies.hazards import Life
from prefold.core.radix import Edge, Node
from prefold.core.tokens import WIDTH


def place_behind(key: int, edge: Edge) -> int:
    """Name of the place behind the place `key` where the next token is that of `edge`: a hash, not safe to share."""
    return hash((key, edge))


@dataclass(slots=True, eq=False)
class Ghost:
    """A run that left the tree.

    Attributes:
        key: name of the place where it began.
        tokens: its length.
        checked: leading tokens that `check` covers.
        check: their hash.
        life: of the request that used it last.
        moment: of its last use.
    """

    key: int
    tokens: int
    checked: int
    check: int
    life: Life | None
    moment: int


class Memory:
    """Ghosts by where they began, the oldest first.

    Args:
        limit: tokens remembered.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ghosts: dict[int, Ghost] = {}
        self._tokens = 0

    def remember(self, node: Node[Any], keep: int, ghost_behind: int) -> int:
        """Take in the tokens of a leaf behind its first `keep`.

        Args:
            node: the leaf; its note has `key`, `life` and `moment`.
            keep: tokens that stay.
            ghost_behind: key of the ghost that was cut off this leaf before, 0 for none: it becomes part of this one.

        Returns:
            The ghost's key.
        """
        note = node.note
        ghosts = self._ghosts
        run = node.run
        key: int = note.key
        if keep:
            run = run[keep * WIDTH :]
            key = place_behind(key, run[:WIDTH])
        length = tokens = len(run) // WIDTH
        if ghost_behind:
            behind = self._forget(ghost_behind)
            tokens += behind.tokens if behind else 0
        if key in ghosts:
            self._forget(key)
        # Half of it: the last tokens of a prompt are often not those with which the conversation goes on.
        checked = min(length, (tokens + 1) // 2)
        ghosts[key] = Ghost(key, tokens, checked, hash(run[: checked * WIDTH]), note.life, note.moment)
        self._tokens += tokens
        while self._tokens > self._limit:
            self._forget(next(iter(ghosts)))
        return key

    def recall(self, node: Node[Any]) -> Iterator[Ghost]:
        """The ghosts that a new node brings back, from its beginning on; they are forgotten.

        Args:
            node: the node; its note has `key`.
        """
        position, run = 0, node.run
        key = node.note.key
        while (ghost := self._ghosts.get(key)) is not None:
            if hash(run[position : position + ghost.checked * WIDTH]) != ghost.check:
                return
            self._forget(key)
            yield ghost
            position += ghost.tokens * WIDTH
            if position >= len(run):
                return
            key = place_behind(key, run[position : position + WIDTH])

    def _forget(self, key: int) -> Ghost | None:
        ghost = self._ghosts.pop(key, None)
        if ghost is not None:
            self._tokens -= ghost.tokens
        return ghost
