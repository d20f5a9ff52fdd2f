"""Budgets in memory and over a real Redis, also one that hangs."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.gateway.budgets import Budgets, estimated_tokens
from prefold.gateway.call import Tenant
from prefold.gateway.config import GroupTable
from prefold.gateway.windows import LocalWindows, Window
from prefold.server.asgi import HttpError

SERVER = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(SERVER is None, reason="redis-server is not installed")


def tenant(name="acme", requests=None, tokens=None):
    return Tenant(name, GroupTable(name="paying", requests_per_minute=requests, tokens_per_minute=tokens))


class RedisServer:
    """A server of this test's own."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.process = subprocess.Popen(
            [str(SERVER), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
            stdout=subprocess.DEVNULL,
        )
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise AssertionError("redis-server did not start")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.stop()


async def taken(budgets: Budgets, of: Tenant, tokens: int = 1, times: int = 100) -> int:
    """How often it could take so many tokens in a row."""
    for count in range(times):
        try:
            await budgets.take(of, tokens)
        except HttpError:
            return count
    return times


def with_budgets(work, address="", **options):
    async def all_of():
        budgets = Budgets(address, **options)
        try:
            return await work(budgets)
        finally:
            await budgets.close()

    return asyncio.run(all_of())


@pytest.fixture(params=["memory", pytest.param("redis", marks=needs_redis)])
def address(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "memory" else request.getfixturevalue("server").url


def test_who_has_no_budget_is_not_counted():
    assert with_budgets(lambda budgets: taken(budgets, tenant(), 10**9)) == 100


def test_requests_of_a_minute(address):
    async def work(budgets):
        assert 3 == await taken(budgets, tenant(requests=3))
        with pytest.raises(HttpError) as refused:
            await budgets.take(tenant(requests=3), 1)
        assert 1 == await taken(budgets, tenant("other", requests=1))  # tenants do not share
        return refused.value

    refused = with_budgets(work, address)
    assert 429 == refused.status
    assert "3 requests" in refused.message
    # The minute that these three are in ends within 60 s, and a third of them has to be forgotten after that.
    assert 1 <= int(refused.headers["retry-after"]) <= 80
    assert refused.headers["retry-after"] in refused.hint


def test_tokens_of_a_minute(address):
    async def work(budgets):
        assert 2 == await taken(budgets, tenant(tokens=100), 40)
        assert 1 == await taken(budgets, tenant(tokens=100), 20)
        with pytest.raises(HttpError, match="100 tokens"):
            await budgets.take(tenant(tokens=100), 1)

    with_budgets(work, address)


def test_what_was_taken_too_much_is_given_back(address):
    async def work(budgets):
        await budgets.take(tenant(tokens=100), 90)
        await budgets.settle(tenant(tokens=100), taken=90, used=30)
        return await taken(budgets, tenant(tokens=100), 70, times=1), await taken(budgets, tenant(tokens=100), 1)

    assert (1, 0) == with_budgets(work, address)


def test_what_was_used_beyond_the_budget_counts(address):
    async def work(budgets):
        await budgets.take(tenant(tokens=100), 10)
        await budgets.settle(tenant(tokens=100), taken=10, used=5_000)
        return await taken(budgets, tenant(tokens=100), 0)

    assert 0 == with_budgets(work, address)


def test_a_request_larger_than_the_budget_takes_all_of_it_and_is_settled(address):
    async def work(budgets):
        assert 1 == await taken(budgets, tenant(tokens=100), 1_000_000)
        await budgets.settle(tenant(tokens=100), taken=1_000_000, used=60)
        return await taken(budgets, tenant(tokens=100), 40)

    assert 1 == with_budgets(work, address)


def test_what_an_earlier_minute_took_is_not_given_back_to_this_one(address):
    async def work(budgets):
        await budgets.take(tenant(tokens=100), 10)
        await budgets.settle(tenant(tokens=100), taken=100, used=0)  # 90 of them were never in this window
        return await taken(budgets, tenant(tokens=100), 100, times=2)

    assert 1 == with_budgets(work, address)


@needs_redis
def test_gateways_share_a_budget(server):
    async def work():
        one, other = Budgets(server.url), Budgets(server.url)
        try:
            results = await asyncio.gather(*(taken(budgets, tenant(requests=10), times=10) for budgets in (one, other)))
            return sum(results), one.uncounted + other.uncounted
        finally:
            await one.close()
            await other.close()

    assert (10, 0) == asyncio.run(work())


@needs_redis
def test_a_frozen_store_stops_nobody_and_counts_again_when_it_is_back(server):
    now = [0.0]

    async def work(budgets):
        assert 1 == await taken(budgets, tenant(requests=1))
        os.kill(server.process.pid, signal.SIGSTOP)
        assert 100 == await taken(budgets, tenant(requests=1))
        assert 100 == budgets.uncounted
        await budgets.settle(tenant(tokens=5), taken=1, used=3)
        os.kill(server.process.pid, signal.SIGCONT)
        assert 1 == await taken(budgets, tenant(requests=1), times=1)  # it has not been asked again yet
        now[0] += 2.0
        return await taken(budgets, tenant(requests=1))

    assert 0 == with_budgets(work, server.url, clock=lambda: now[0])


@needs_redis
def test_a_frozen_store_is_asked_by_one_round_of_requests_only(server, monkeypatch):
    """Counted in questions, since times are not asserted: one timeout, and everybody after it goes on at once."""
    asked = []

    async def work(budgets):
        await budgets.take(tenant(requests=1), 1)
        take = budgets._windows.take
        monkeypatch.setattr(budgets._windows, "take", lambda *arguments: (asked.append(1), take(*arguments))[1])
        os.kill(server.process.pid, signal.SIGSTOP)
        for _ in range(50):
            await budgets.take(tenant(requests=1), 1)

    with_budgets(work, server.url, clock=lambda: 0.0)
    assert 1 == len(asked)


@needs_redis
def test_a_store_that_stays_away_is_asked_by_one_alone(server, monkeypatch):
    now, asked = [0.0], []

    async def work(budgets):
        await budgets.take(tenant(requests=1), 1)
        take = budgets._windows.take
        monkeypatch.setattr(budgets._windows, "take", lambda *arguments: (asked.append(1), take(*arguments))[1])
        os.kill(server.process.pid, signal.SIGSTOP)
        for _ in range(3):
            await asyncio.gather(*(budgets.take(tenant(requests=1), 1) for _ in range(20)))
            now[0] += 2.0

    with_budgets(work, server.url, clock=lambda: now[0])
    assert 20 + 1 + 1 == len(asked)


def test_no_store_at_all(caplog):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # closed again, so nobody is there

    async def work(budgets):
        return await taken(budgets, tenant(requests=1)), budgets.uncounted

    assert (100, 100) == with_budgets(work, f"redis://:secret-word@127.0.0.1:{port}/0", clock=lambda: 0.0)
    assert 1 == len(caplog.records)
    assert "secret-word" not in caplog.text


def test_estimate():
    assert 25 == estimated_tokens(b"x" * 100)


COUNTS = st.integers(0, 10_000)


@given(
    previous=COUNTS,
    current=COUNTS,
    into=st.floats(0, 59.9),
    count=st.integers(0, 10_000),
)
def test_waiting_is_long_enough_and_not_longer(previous, current, into, count):
    window = Window(previous, 60.0 - into, current, 120.0 - into)

    def counted(after: float) -> float:
        if after < 60.0 - into:
            return previous * (60.0 - into - after) / 60.0 + current
        return current * max(0.0, 120.0 - into - after) / 60.0

    wait = window.seconds_until(count)
    assert counted(wait + 0.001) <= count + 0.001
    assert 0.0 == wait or counted(wait - 0.001) >= count - 1e-6


def test_the_last_minute_counts_by_the_part_of_it_that_is_not_over():
    now = [0.0]

    async def work():
        windows = LocalWindows(lambda: now[0])
        assert await windows.take("a", 100, 100) is None
        now[0] = 75.0  # three quarters of those are still less than 60 s ago
        refused = await windows.take("a", 100, 26)
        assert refused is not None
        assert (75, 100) == (refused.counted, refused.previous)
        now[0] += refused.seconds_until(74)
        assert await windows.take("a", 100, 26) is None
        now[0] = 180.0
        assert await windows.take("a", 100, 100) is None

    asyncio.run(work())


@needs_redis
def test_redis_keeps_names_and_counts_only_and_forgets_them(server):
    async def work(budgets):
        await budgets.take(tenant(requests=5, tokens=5), 1)
        redis = budgets._windows._redis
        return {(key, await redis.get(key)): await redis.ttl(key) for key in await redis.keys("*")}

    kept = with_budgets(work, server.url)
    assert 2 == len(kept)
    assert {b"1"} == {value for _, value in kept}
    assert all(0 < seconds <= 120 for seconds in kept.values())
