"""Entries behind a time budget and a breaker, so that no request waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from prefold.core.breaker import Breaker
from prefold.responses.semantic.types import Answer, Candidate, Entries, Entry, KnownWording, Question, Sample
from prefold.responses.store import StoreFailed

_Result = TypeVar("_Result")


class GuardedEntries:
    """See `Entries`. What requests wait for fails after the budget, and at once while the breaker is open.

    A change that took too long may still happen. What administrators do has no budget, since it must be known whether
    it happened, nor has reading all samples, wordings or counts.

    Args:
        entries: asked within the budget.
        budget_seconds: longest that one operation may take.
        breaker: told of every failure.

    Attributes:
        failures: operations that failed or took too long, or were not tried.
    """

    def __init__(self, entries: Entries, budget_seconds: float, breaker: Breaker) -> None:
        self._entries = entries
        self._budget = budget_seconds
        self._breaker = breaker
        self.failures = 0

    @property
    def is_open(self) -> bool:
        """Whether requests leave the entries alone for now."""
        return self._breaker.is_open

    async def nearest(self, question: Question, vector: bytes, embedder: str, count: int) -> list[Candidate]:
        """See `Entries.nearest`."""
        return await self._within(self._entries.nearest(question, vector, embedder, count))

    async def answer(self, entry: str) -> Answer | None:
        """See `Entries.answer`."""
        return await self._within(self._entries.answer(entry))

    async def put(self, entry: Entry) -> str:
        """See `Entries.put`."""
        return await self._within(self._entries.put(entry))

    async def add_wording(self, entry: str, question: Question, vector: bytes, embedder: str) -> None:
        """See `Entries.add_wording`."""
        await self._within(self._entries.add_wording(entry, question, vector, embedder))

    async def reject(self, entry: str, text: str) -> None:
        """See `Entries.reject`."""
        await self._within(self._entries.reject(entry, text))

    async def record(self, sample: Sample) -> None:
        """See `Entries.record`."""
        await self._within(self._entries.record(sample))

    async def tally(self, news: Mapping[str, int]) -> None:
        """See `Entries.tally`."""
        await self._within(self._entries.tally(news))

    async def quarantine(self, entry: str, note: str) -> bool:
        """See `Entries.quarantine`."""
        return await self._counted(self._entries.quarantine(entry, note))

    async def vet(self, entry: str) -> bool:
        """See `Entries.vet`."""
        return await self._counted(self._entries.vet(entry))

    async def share(self, entry: str) -> bool:
        """See `Entries.share`."""
        return await self._counted(self._entries.share(entry))

    async def delete(self, entry: str) -> bool:
        """See `Entries.delete`."""
        return await self._counted(self._entries.delete(entry))

    async def invalidate(self, tag: str) -> int:
        """See `Entries.invalidate`."""
        return await self._counted(self._entries.invalidate(tag))

    async def samples(self, pool: str, after: int = 0) -> list[Sample]:
        """See `Entries.samples`."""
        return await self._counted(self._entries.samples(pool, after))

    async def pools(self) -> list[str]:
        """See `Entries.pools`."""
        return await self._counted(self._entries.pools())

    async def wordings(self, question: Question, embedder: str) -> list[KnownWording]:
        """See `Entries.wordings`."""
        return await self._counted(self._entries.wordings(question, embedder))

    async def tallies(self) -> Mapping[str, int]:
        """See `Entries.tallies`."""
        return await self._counted(self._entries.tallies())

    async def counts(self) -> Mapping[str, int]:
        """See `Entries.counts`."""
        return await self._counted(self._entries.counts())

    async def close(self) -> None:
        """Let go of the entries, as far as they let go within the budget."""
        try:
            async with asyncio.timeout(self._budget):
                await self._entries.close()
        except (StoreFailed, TimeoutError):
            self.failures += 1

    async def _within(self, operation: Coroutine[Any, Any, _Result]) -> _Result:
        if not self._breaker.allows():
            operation.close()
            self.failures += 1
            raise StoreFailed("The entries failed before and are left alone for now.")
        try:
            async with asyncio.timeout(self._budget):
                result = await operation
        except TimeoutError:
            self._failed()
            raise StoreFailed("The entries took too long.", hint="look at the disk or the server") from None
        except StoreFailed:
            self._failed()
            raise
        self._breaker.worked()
        return result

    async def _counted(self, operation: Coroutine[Any, Any, _Result]) -> _Result:
        try:
            return await operation
        except StoreFailed:
            self.failures += 1
            raise

    def _failed(self) -> None:
        self.failures += 1
        self._breaker.failed()
