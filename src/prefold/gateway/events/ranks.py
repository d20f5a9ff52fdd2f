"""Data-parallel ranks: each has a cache of its own, so each is a place of its own in the index.

What two ranks hold half of each, neither holds: the blocks of an engine with several ranks may not be taken together.
Which rank will serve a request is the engine's choice, and it prefers one that has the prefix. So what a replica holds
of a prompt is what its best rank does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefold.core.block_index import BlockIndex
from prefold.core.keys import SHARED, Scope
from prefold.gateway.events.holdings import Holdings
from prefold.gateway.events.places import Places

MOST_RANKS = 64
"""Of one replica; events of more cannot be read."""


@dataclass(frozen=True, slots=True)
class Rank:
    """What one rank holds.

    Attributes:
        places: of its blocks, by its own hashes.
        holdings: the same in the index.
    """

    places: Places
    holdings: Holdings


class RankedIndex:
    """An index for the first rank of all replicas, another one for the second, and so on.

    Args:
        max_blocks: different blocks that each remembers.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._first = BlockIndex(max_blocks)
        self._ranks = [self._first]

    def of(self, rank: int) -> BlockIndex:
        """The index of a rank."""
        while len(self._ranks) <= rank:
            self._ranks.append(BlockIndex(self._max_blocks))
        return self._ranks[rank]

    def keys(self, run: bytes, block_size: int, scope: Scope = SHARED) -> list[int]:
        """See `BlockIndex`: keys are the same for all ranks."""
        return self._first.keys(run, block_size, scope)

    def match(self, keys: Sequence[int]) -> list[int]:
        """How many of the leading blocks the best rank of each replica holds, by its index; see `BlockIndex`."""
        best = self._first.match(keys)
        for other in self._ranks[1:]:
            found = other.match(keys)
            best += [0] * (len(found) - len(best))
            best[: len(found)] = map(max, best, found)
        return best

    def clear(self, replica: int) -> None:
        """Note that a replica holds nothing, or is gone."""
        for rank in self._ranks:
            rank.clear(replica)

    @property
    def size(self) -> int:
        """Different blocks that are remembered, of all ranks."""
        return sum(rank.size for rank in self._ranks)

    @property
    def capacity(self) -> int:
        """Most of them."""
        return self._max_blocks * len(self._ranks)

    def blocks_of(self, replica: int) -> int:
        """Blocks that a replica's ranks are known to hold."""
        return sum(rank.blocks_of(replica) for rank in self._ranks)
