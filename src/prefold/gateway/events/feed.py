"""KV events of one replica, followed into the index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import zmq.asyncio

from prefold.core.block_index import BlockIndex
from prefold.gateway.events.holdings import Holdings
from prefold.gateway.events.places import Places
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

    A replica with several data-parallel ranks has an endpoint for each. It counts as holding what any of them does.

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
        index: BlockIndex,
        *,
        block_size: int,
        max_blocks: int,
        clock: Callable[[], float],
        on_change: Callable[[Trust], None] = lambda _: None,
    ) -> None:
        self._holdings = Holdings(replica, index)
        self._counts = Counts()
        self._clock = clock
        self._on_change = on_change
        self._sources = [
            Source(endpoint, Places(index, block_size, max_blocks), self._holdings, self._counts, self._reconsider)
            for endpoint in endpoints
        ]
        self._trust = Trust.FALLBACK
        self._since = clock()

    @property
    def trust(self) -> Trust:
        """How far the index can be believed about this replica."""
        return self._trust

    @property
    def state(self) -> FeedState:
        """What is known of it now."""
        engine_blocks = sum(len(source.places) for source in self._sources)
        return FeedState(self._trust, self._since, engine_blocks, replace(self._counts))

    def predict(self, keys: Sequence[int], until: float) -> None:
        """Count blocks as held, because a prompt with them is on its way, until events say so.

        Args:
            keys: of the prompt's blocks.
            until: when that lapses, by the feed's clock; no earlier than the last time it was told.
        """
        self._holdings.predict(keys, until)

    async def run(self) -> None:
        """Follow the replica until cancelled; then it holds nothing as far as the index knows."""
        context = zmq.asyncio.Context()
        try:
            async with asyncio.TaskGroup() as group:
                for source in self._sources:
                    group.create_task(source.follow(context))
                while True:
                    await asyncio.sleep(_LAPSE_SECONDS)
                    self._holdings.lapse(self._clock())
        finally:
            self._holdings.clear()
            context.destroy(linger=0)

    def _reconsider(self) -> None:
        trusts = {source.trust for source in self._sources}
        trust = trusts.pop() if len(trusts) == 1 else Trust.DEGRADED
        if trust is not self._trust:
            self._trust, self._since = trust, self._clock()
            self._on_change(trust)
