"""What is known of the replicas' caches: an index of blocks, fed by the events of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from prefold.engine.default_model import DEFAULT_MODEL
from prefold.engine.tokenizer import Tokenizer
from prefold.errors import UsageError
from prefold.gateway.config import GatewayConfig, ReplicaTable, RoutingOptions
from prefold.gateway.events.feed import EventFeed
from prefold.gateway.events.ranks import RankedIndex
from prefold.gateway.events.source import Endpoint, Trust
from prefold.gateway.prompt_tokens import PromptTokens

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Followed:
    """A replica whose events are read."""

    feed: EventFeed
    block_size: int
    tokenizer: str
    task: asyncio.Task[None]


class Knowledge:
    """The index, and what keeps it true.

    Args:
        options: how large the index may become, and how long a prediction holds.
        clock: monotonic seconds.

    Attributes:
        index: which replica holds which blocks.
    """

    def __init__(self, options: RoutingOptions, clock: Callable[[], float]) -> None:
        self.index = RankedIndex(options.index_blocks)
        self._options = options
        self._clock = clock
        self._followed: dict[int, _Followed] = {}
        self._tokens: dict[str, PromptTokens] = {}

    def check(self, config: GatewayConfig) -> None:
        """Load what is needed to follow all replicas, so that faults are known before anything runs.

        Only exact routing tokenises prompts. For other policies events are followed too, for what metrics say of
        caches, and need no tokenizer.

        Raises:
            UsageError: if a tokenizer is needed and is no folder, or addresses are none.
            ModelError: if a tokenizer is damaged.
        """
        for table in config.replica:
            if table.events:
                _endpoints(table)
                if config.routing.policy == "exact":
                    self._load_tokenizer(table)

    def reload(self, options: RoutingOptions) -> None:
        """Take on new options. How large the index may become stays what it was."""
        self._options = msgspec.structs.replace(options, index_blocks=self._options.index_blocks)

    def follow(self, index: int, table: ReplicaTable) -> None:
        """Read the events of a replica, if it sends any; called in the event loop."""
        if not table.events:
            return
        feed = EventFeed(
            index,
            _endpoints(table),
            self.index,
            block_size=table.block_size,
            max_blocks=self._options.index_blocks,
            clock=self._clock,
            on_change=lambda trust: _log.warning("Events of %s: %s", table.name, trust.value),
        )
        task = asyncio.create_task(feed.run())
        self._followed[index] = _Followed(feed, table.block_size, table.tokenizer, task)

    async def leave(self, index: int) -> None:
        """Forget a replica."""
        if followed := self._followed.pop(index, None):
            followed.task.cancel()
            await asyncio.gather(followed.task, return_exceptions=True)
            self.index.clear(index)

    async def close(self) -> None:
        """Stop reading events."""
        for index in tuple(self._followed):
            await self.leave(index)

    def block_size(self, index: int) -> int | None:
        """Tokens of a block in a replica's events; None where it sends none, or they cannot be trusted now."""
        followed = self._followed.get(index)
        return followed.block_size if followed and followed.feed.trust is not Trust.FALLBACK else None

    def tokens_of(self, index: int) -> PromptTokens | None:
        """What tokenises a replica's prompts; None where nobody needs to."""
        followed = self._followed.get(index)
        return self._tokens.get(followed.tokenizer) if followed else None

    def trust(self, index: int) -> Trust | None:
        """How far the index can be believed about a replica; None where it sends no events."""
        followed = self._followed.get(index)
        return followed.feed.trust if followed else None

    def evicted_blocks(self, index: int) -> int:
        """Blocks that a replica's events said were gone, since the gateway began."""
        followed = self._followed.get(index)
        return followed.feed.state.counts.removed if followed else 0

    def predict(self, index: int, keys: Sequence[int]) -> None:
        """A prompt with these blocks is on its way to a replica: until events say so, count them as held."""
        if keys and (followed := self._followed.get(index)):
            followed.feed.predict(keys, self._clock() + self._options.predicted_seconds)

    def _load_tokenizer(self, table: ReplicaTable) -> None:
        if table.tokenizer in self._tokens:
            return
        folder = Path(table.tokenizer).expanduser()
        if not table.tokenizer or not folder.is_dir():
            what = f"its tokenizer {table.tokenizer!r} is no folder" if table.tokenizer else "it has no tokenizer"
            raise UsageError(
                f"The replica {table.name} has events for exact routing, but {what}.",
                hint="give the folder that holds the model's tokenizer.json and chat template; the default model's is"
                f" models/{DEFAULT_MODEL.name}-... in prefold's cache folder (~/.cache/prefold, or --cache-dir)",
            )
        self._tokens[table.tokenizer] = PromptTokens(Tokenizer(folder))


def _endpoints(table: ReplicaTable) -> list[Endpoint]:
    """Where a replica's ranks publish."""
    first = Endpoint(table.events, table.replay)
    return [first, *map(first.of_rank, range(1, table.data_parallel_size))]
