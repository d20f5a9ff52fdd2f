"""A store that never fails and never keeps anybody waiting: when it is down, slow or broken, it is empty."""

from __future__ import annotations

import asyncio

from prefold.core.breaker import Breaker
from prefold.responses.store import Store, StoredAnswer, StoreFailed


class Guard:
    """A store behind a time budget and a breaker.

    Args:
        store: asked within the budget.
        budget_seconds: longest that one operation may take.
        breaker: told of every failure.

    Attributes:
        failures: operations that failed or took too long.
    """

    def __init__(self, store: Store, budget_seconds: float, breaker: Breaker) -> None:
        self._store = store
        self._budget = budget_seconds
        self._breaker = breaker
        self.failures = 0

    @property
    def is_open(self) -> bool:
        """Whether the store is left alone for now."""
        return self._breaker.is_open

    async def get(self, key: bytes) -> StoredAnswer | None:
        """The answer under a key; None where there is none, or no telling."""
        if not self._breaker.allows():
            return None
        try:
            async with asyncio.timeout(self._budget):
                found = await self._store.get(key)
        except (StoreFailed, TimeoutError):
            self._failed()
            return None
        self._breaker.worked()
        return found

    async def put(self, key: bytes, answer: StoredAnswer, ttl: float) -> bool:
        """Keep an answer for `ttl` seconds; whether it is kept."""
        if not self._breaker.allows():
            return False
        try:
            async with asyncio.timeout(self._budget):
                await self._store.put(key, answer, ttl)
        except (StoreFailed, TimeoutError):
            self._failed()
            return False
        self._breaker.worked()
        return True

    async def close(self) -> None:
        """Let go of the store, as far as it lets go within the budget."""
        try:
            async with asyncio.timeout(self._budget):
                await self._store.close()
        except (StoreFailed, TimeoutError):
            self.failures += 1

    def _failed(self) -> None:
        self.failures += 1
        self._breaker.failed()
