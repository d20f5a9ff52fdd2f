"""What a node is worth in time: what it takes to have its tokens again once they have left the cache."""

from __future__ import annotations

from typing import Any

from prefold.core.radix import Node


class Cost:
    """Costs in units of a token at position 0; only their ratios matter, so any unit will do.

    A token attends to all before it, so later ones cost more: `1 + position / attention_span` each. Hosts that know
    better, such as one that keeps copies elsewhere, derive from this class.

    Args:
        attention_span: position at which attention costs as much as all the rest of a token.
    """

    def __init__(self, attention_span: float) -> None:
        self._halved = 1 / (2 * attention_span)

    def compute(self, start: int, stop: int) -> float:
        """Cost of computing the tokens at positions `start` up to, not including, `stop`."""
        return (stop - start) * (1 + (start + stop) * self._halved)

    def again(self, node: Node[Any]) -> float:
        """Cost of having a node's tokens again, were they evicted now: of computing them, where nothing else is known.

        Deterministic, and asked once or more for each use and eviction, so it must be cheap.
        """
        return self.compute(node.start, node.stop)
