"""A store that fails, hangs or recovers."""

import asyncio

import pytest

from prefold.core.breaker import Breaker
from prefold.responses.guard import Guard
from prefold.responses.store import StoreFailed

from .support import KEY, stored


class FakeStore:
    def __init__(self):
        self.calls = 0
        self.does = "work"

    async def _act(self):
        self.calls += 1
        if self.does == "fail":
            raise StoreFailed("no")
        if self.does == "hang":
            await asyncio.Event().wait()

    async def get(self, key):
        await self._act()
        return stored()

    async def put(self, key, answer, ttl):
        await self._act()

    async def close(self):
        await self._act()


def guarded(store, budget=0.01):
    clock = [100.0]
    return Guard(store, budget, Breaker(3, 10, lambda: clock[0])), clock


@pytest.mark.parametrize("does", ["fail", "hang"])
def test_a_store_that_fails_is_empty_and_soon_left_alone(does):
    store = FakeStore()

    async def scenario():
        guard, clock = guarded(store)
        assert stored() == await guard.get(KEY)
        assert await guard.put(KEY, stored(), 60)
        store.does, store.calls = does, 0
        assert await guard.get(KEY) is None
        assert not await guard.put(KEY, stored(), 60)
        assert not guard.is_open
        assert await guard.get(KEY) is None
        assert guard.is_open
        assert (3, 3) == (store.calls, guard.failures)

        assert await guard.get(KEY) is None
        assert not await guard.put(KEY, stored(), 60)
        assert 3 == store.calls

        clock[0] += 10  # one attempt, which fails
        assert [None, None] == [await guard.get(KEY), await guard.get(KEY)]
        assert 4 == store.calls

        store.does = "work"
        assert await guard.get(KEY) is None
        clock[0] += 10
        assert stored() == await guard.get(KEY)
        assert stored() == await guard.get(KEY)
        assert not guard.is_open
        await guard.close()

    asyncio.run(scenario())


def test_failures_in_between_do_not_add_up():
    store = FakeStore()

    async def scenario():
        guard, _ = guarded(store)
        for _ in range(10):
            store.does = "fail"
            await guard.get(KEY)
            store.does = "work"
            assert stored() == await guard.get(KEY)

    asyncio.run(scenario())


@pytest.mark.parametrize("does", ["fail", "hang"])
def test_closing_ends(does):
    store = FakeStore()

    async def scenario():
        guard, _ = guarded(store)
        store.does = does
        await guard.close()
        assert 1 == guard.failures

    asyncio.run(scenario())
