"""Who is evicted.

A policy decides and never stores: the tree keeps pins, leaves and the order of use, so no policy can evict a pinned or
an inner node, whatever it answers. To add one, write a class with the four methods of `Policy` and name it in
`POLICIES`; the contract tests pick it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from prefold.core.radix import Leaves, Node


class Policy(Protocol):
    """What the cache tells a policy, and what it asks."""

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """`node` is new; `origin` is the node it was split from, None for new tokens."""

    def touched(self, node: Node[Any]) -> None:
        """A request used the path that ends in `node`."""

    def removed(self, node: Node[Any]) -> None:
        """`node` is gone from the tree."""

    def victim(self, leaves: Leaves[Any]) -> Node[Any] | None:
        """The evictable leaf whose tail should go first, None if there is none."""


class LRU:
    """Least recently used. A path is used as a whole, so tails go before heads."""

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """See `Policy`."""

    def touched(self, node: Node[Any]) -> None:
        """See `Policy`."""

    def removed(self, node: Node[Any]) -> None:
        """See `Policy`."""

    def victim(self, leaves: Leaves[Any]) -> Node[Any] | None:
        """See `Policy`. Amortised O(log n)."""
        return leaves.oldest()


POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType({"lru": LRU})
"""Every policy by the name that options use."""
