"""KV events of one replica, followed into the index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import zmq.asyncio

from prefold.gateway.events.holdings import Holdings
from prefold.gateway.events.places import Places
from prefold.gateway.events.ranks import MOST_RANKS, Rank, RankedIndex
from prefold.gateway.events.source import Counts, Endpoint, Source, Trust

_LAPSE_SECONDS = 0.25  # how often predictions that did not come true are looked for


@dataclass(frozen=True, slots=True)
class FeedState:
    """What is known of a feed.

    Attributes:
        trust: how far the index can be believed about the replica.
        since: when that last changed, by the feed's clock.
        engine_blocks: blocks that the engine named and has not taken back.
        counts: totals.
    """

    trust: Trust
    since: float
    engine_blocks: int
    counts: Counts


class EventFeed:
    """Keeps the index true to what one replica holds.

    A replica with several data-parallel ranks has an endpoint for each, or one that says whose each event is. It counts
    as holding what the best of them does.

    Args:
        replica: its number in the index.
        endpoints: of its publishers; where there are none, it is never trusted.
        index: of the fleet.
        block_size: tokens of the index's blocks.
        max_blocks: blocks of the engine's own that are remembered, for each publisher.
        clock: monotonic seconds.
        on_change: called with the new state of trust.
    """

    def __init__(
        self,
        replica: int,
        endpoints: Sequence[Endpoint],
        index: RankedIndex,
        *,
        block_size: int,
        max_blocks: int,
        clock: Callable[[], float],
        on_change: Callable[[Trust], None] = lambda _: None,
    ) -> None:
        self._replica = replica
        self._index = index
        self._block_size = block_size
        self._max_blocks = max_blocks
        self._holdings = [Holdings(replica, index.of(0))]  # the first one is there for what is predicted
        self._ranks = 0
        self._counts = Counts()
        self._clock = clock
        self._on_change = on_change
        self._sources = [Source(endpoint, self._open_rank, self._counts, self._reconsider) for endpoint in endpoints]
        self._trust = Trust.FALLBACK
        self._since = clock()

    @property
    def trust(self) -> Trust:
        """How far the index can be believed about this replica."""
        return self._trust

    @property
    def state(self) -> FeedState:
        """What is known of it now."""
        engine_blocks = sum(source.engine_blocks for source in self._sources)
        return FeedState(self._trust, self._since, engine_blocks, replace(self._counts))

    def predict(self, keys: Sequence[int], until: float) -> None:
        """Count blocks as held, because a prompt with them is on its way, until events say so.

        Args:
            keys: of the prompt's blocks.
            until: when that lapses, by the feed's clock; no earlier than the last time it was told.
        """
        self._holdings[0].predict(keys, until)

    async def run(self) -> None:
        """Follow the replica until cancelled; then it holds nothing as far as the index knows."""
        context = zmq.asyncio.Context()
        try:
            async with asyncio.TaskGroup() as group:
                for source in self._sources:
                    group.create_task(source.follow(context))
                while True:
                    await asyncio.sleep(_LAPSE_SECONDS)
                    self._holdings[0].lapse(self._clock())
        finally:
            for holdings in self._holdings:
                holdings.clear()
            context.destroy(linger=0)

    def _open_rank(self) -> Rank | None:
        if self._ranks == MOST_RANKS:
            return None
        if self._ranks:
            self._holdings.append(Holdings(self._replica, self._index.of(self._ranks)))
        self._ranks += 1
        return Rank(Places(self._index.of(0), self._block_size, self._max_blocks), self._holdings[-1])

    def _reconsider(self) -> None:
        trusts = {source.trust for source in self._sources}
        trust = trusts.pop() if len(trusts) == 1 else Trust.DEGRADED
        if trust is not self._trust:
            self._trust, self._since = trust, self._clock()
            self._on_change(trust)
