"""Slower stores below a pool: what is evicted goes down block by block, what is hit comes up again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from prefold.analysis.caches.common import units_of
from prefold.analysis.caches.spec import Tier
from prefold.core.keys import Scope, chain, root_key


class Tiers:
    """Stores of blocks by chained key, each least recently used first out, into the next one below.

    A block is in one of them or in the pool, never in two places: capacities add up.

    Args:
        tiers: the fastest first, at least one; all have blocks of the largest grain among them.
        unit: tokens that an id stands for.
    """

    def __init__(self, tiers: Sequence[Tier], unit: int) -> None:
        grain = max(tier.grain for tier in tiers)
        self.grain = -(-grain // unit)
        """Units in a block."""
        units = (units_of(tier.capacity, unit) for tier in tiers)
        self._levels: list[tuple[int, OrderedDict[bytes, None]]] = [
            (size // self.grain, OrderedDict()) for size in units
        ]

    def keys(self, run: bytes, scope: Scope) -> list[bytes]:
        """Keys of the whole blocks of a run."""
        return chain(root_key(scope.namespace), run, self.grain)

    def reach(self, keys: Sequence[bytes], known: int) -> int:
        """Units of a prompt that pool and tiers hold together, the pool the first `known`. Changes nothing."""
        block = known // self.grain
        while block < len(keys) and any(keys[block] in blocks for _, blocks in self._levels):
            block += 1
        return max(known, block * self.grain)

    def take(self, keys: Iterable[bytes]) -> None:
        """Remove blocks that are in the pool from now on."""
        for key in keys:
            for _, blocks in self._levels:
                blocks.pop(key, None)

    def put(self, keys: Sequence[bytes]) -> None:
        """Take in evicted blocks, given in order of position: the last ones will be the first to go further down."""
        falling = list(reversed(keys))
        for size, blocks in self._levels:
            for key in falling:
                blocks[key] = None
                blocks.move_to_end(key)
            falling = [blocks.popitem(last=False)[0] for _ in range(len(blocks) - size)]
