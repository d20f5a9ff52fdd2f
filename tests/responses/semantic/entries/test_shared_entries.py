"""Servers that are frozen, gone or strange, and what keeps requests from waiting for them."""

import asyncio
import os
import signal
import time

import pytest

from prefold.core.breaker import Breaker
from prefold.errors import UsageError
from prefold.responses.semantic.entries.guarded_entries import GuardedEntries
from prefold.responses.semantic.entries.records import EntriesOptions
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
from prefold.responses.store import StoreFailed

from ...support import free_port, running_redis  # noqa: TID252 - of the folder above
from ..entries_support import EMBEDDER, NOW, entry, nearest, question, running_postgres, sample, vector  # noqa: TID252 - of the folder above

OPTIONS = EntriesOptions()


def redis_entries(url, budget=5.0, **more):
    pytest.importorskip("redis", reason="redis comes with the extra `gateway`")
    from prefold.responses.semantic.entries.redis_entries import RedisEntries  # noqa: PLC0415 - imports redis

    return RedisEntries(url, OPTIONS, lambda: NOW, budget, **more)


def postgres_entries(conninfo, budget=5.0):
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    from prefold.responses.semantic.entries.postgres_entries import PostgresEntries  # noqa: PLC0415 - imports psycopg

    return PostgresEntries(conninfo, OPTIONS, lambda: NOW, budget)


def freeze(process):
    """Stop a process that is our own; return when it has stopped."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_a_url_that_is_none():
    with pytest.raises(UsageError) as caught:
        redis_entries("http://secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_server_that_is_not_there(kind):
    async def scenario():
        if kind == "redis":
            entries = redis_entries(f"redis://:secret@127.0.0.1:{free_port()}/0")
        else:
            entries = postgres_entries(f"postgresql://prefold:secret@127.0.0.1:{free_port()}/x")
        with pytest.raises(StoreFailed) as caught:
            await nearest(entries, "one")
        assert "secret" not in str(caught.value)
        await entries.close()

    asyncio.run(scenario())


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_frozen_redis_fails_within_the_budget_and_then_at_once(tmp_path):
    now = [0.0]

    async def scenario(url, process):
        entries = GuardedEntries(redis_entries(url, 0.2), 0.5, Breaker(2, 10, lambda: now[0]))
        await entries.put(entry(1, "one"))
        freeze(process)
        try:
            for _ in range(4):
                with pytest.raises(StoreFailed):
                    await nearest(entries, "one")
            assert (4, True) == (entries.failures, entries.is_open)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        with pytest.raises(StoreFailed, match="left alone"):
            await nearest(entries, "one")
        now[0] += 10
        assert 1 == len(await nearest(entries, "one"))
        assert not entries.is_open
        await entries.close()

    with running_redis(tmp_path) as (url, process):
        asyncio.run(asyncio.wait_for(scenario(url, process), 60))


def test_a_redis_that_was_emptied_starts_over(redis_server):
    from redis.asyncio import Redis  # noqa: PLC0415 - may not be there

    async def scenario():
        entries = redis_entries(redis_server)
        client = Redis.from_url(redis_server)
        await client.flushall()
        for number in range(10):
            await entries.put(entry(number, f"text {number}"))
        assert 5 == len(await nearest(entries, "text 1"))
        await client.flushall()
        await client.script_flush()
        assert [] == await nearest(entries, "text 1")
        await entries.put(entry(11, "text 1"))
        assert ["text 1"] == [one.wording for one in await nearest(entries, "text 1")]
        await client.aclose()
        await entries.close()

    asyncio.run(scenario())


def test_keys_that_redis_dropped_for_want_of_memory_are_as_good_as_gone(redis_server):
    from redis.asyncio import Redis  # noqa: PLC0415 - may not be there

    async def scenario():
        entries = redis_entries(redis_server)
        client = Redis.from_url(redis_server)
        await client.flushall()
        for number in range(40):
            await entries.put(entry(number, f"text {number}", f"who {number}", tags=["t"]))
        names = sorted(await client.keys("*"))
        assert 150 < len(names)
        for dropped, name in enumerate(names):
            await client.delete(name)
            number = dropped % 40
            for found in await nearest(entries, f"text {number}"):
                answer = await entries.answer(found.entry)
                assert answer is None or found.wording.split()[1] == answer.text.split()[-1]
            await entries.reject(f"{number:032x}", f"other {number}")
            await entries.add_wording(f"{number:032x}", question(f"more {number}"), vector(f"more {number}"), EMBEDDER)
        await entries.put(entry(99, "text 99"))
        assert "text 99" == (await nearest(entries, "text 99"))[0].wording
        await entries.invalidate("t")
        await client.aclose()
        await entries.close()

    asyncio.run(scenario())


def test_two_gateways_keep_redis_within_its_bounds(redis_server):
    from redis.asyncio import Redis  # noqa: PLC0415 - may not be there

    from prefold.responses.semantic.entries.redis_entries import RedisEntries  # noqa: PLC0415 - imports redis

    async def scenario():
        client = Redis.from_url(redis_server)
        await client.flushall()
        options = EntriesOptions(entries=10)
        gateways = [RedisEntries(redis_server, options, lambda: NOW, 5) for _ in range(2)]
        for number in range(60):
            await gateways[number % 2].put(entry(number, f"text {number}"))
        counts = await gateways[0].counts()
        assert (10, 10) == (counts["entries"], counts["wordings"])
        for number in range(60):
            await gateways[0].delete(f"{number:032x}")
        # Nothing is left of them.
        left = {name.decode().removeprefix("prefold:meaning:1:") for name in await client.keys("*")}
        assert {"number", "audit", "sums"} == left
        await client.aclose()
        for gateway in gateways:
            await gateway.close()

    asyncio.run(scenario())


def test_postgres_that_was_stopped_is_found_again():
    async def scenario(conninfo):
        entries = postgres_entries(conninfo)
        await entries.put(entry(1, "one"))
        database = entries._connection
        import psycopg  # noqa: PLC0415 - may not be there

        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as other:
            await other.execute("SELECT pg_terminate_backend(%s)", (database.info.backend_pid,))
        with pytest.raises(StoreFailed):
            await nearest(entries, "one")
        assert 1 == len(await nearest(entries, "one"))
        await entries.close()

    with running_postgres() as conninfo:
        asyncio.run(scenario(conninfo))


def test_a_lock_in_postgres_is_waited_for_no_longer_than_the_budget(postgres, postgres_server):
    import psycopg  # noqa: PLC0415 - may not be there

    async def scenario():
        entries = postgres_entries(postgres_server, budget=0.3)
        await entries.put(entry(1, "one"))
        async with await psycopg.AsyncConnection.connect(postgres_server) as other:
            await other.execute("LOCK TABLE prefold_meaning_1.entries IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreFailed, match="too long"):
                await nearest(entries, "one")
            await other.rollback()
        assert 1 == len(await nearest(entries, "one"))
        await entries.close()

    asyncio.run(scenario())


class Slow(SqliteEntries):
    """Takes its time."""

    async def nearest(self, question, vector, embedder, count):
        await asyncio.sleep(60)
        raise AssertionError


def test_slow_entries_fail_and_are_left_alone(tmp_path):
    async def scenario():
        entries = GuardedEntries(Slow(tmp_path / "a.db", OPTIONS, lambda: NOW), 0.05, Breaker(2, 10, time.monotonic))
        for _ in range(2):
            with pytest.raises(StoreFailed, match="too long"):
                await nearest(entries, "one")
        for refused in (nearest(entries, "one"), entries.put(entry(1, "one")), entries.record(sample())):
            with pytest.raises(StoreFailed, match="left alone"):
                await refused
        assert 5 == entries.failures
        # Administrators are not held back.
        assert not await entries.delete("f" * 32)
        assert 0 == (await entries.counts())["entries"]
        await entries.close()

    asyncio.run(scenario())


def test_guarded_entries_pass_everything_on(tmp_path):
    async def scenario():
        breaker = Breaker(2, 10, time.monotonic)
        entries = GuardedEntries(SqliteEntries(tmp_path / "a.db", OPTIONS, lambda: NOW), 30, breaker)
        id_ = await entries.put(entry(1, "one", tags=["t"], open_context=b"o" * 32))
        await entries.add_wording(id_, question("uno"), vector("uno"), EMBEDDER)
        await entries.reject(id_, "two")
        assert (await nearest(entries, "two"))[0].rejected
        assert await entries.answer(id_) is not None
        assert 2 == len(await entries.wordings(question("x"), EMBEDDER))
        assert await entries.quarantine(id_, "note")
        assert await entries.vet(id_)
        assert await entries.share(id_)
        await entries.record(sample())
        assert ["pool"] == await entries.pools()
        assert 1 == len(await entries.samples("pool"))
        await entries.tally({"hits": 1})
        assert {"hits": 1} == dict(await entries.tallies())
        assert 1 == (await entries.counts())["entries"]
        assert 1 == await entries.invalidate("t")
        assert 0 == entries.failures
        await entries.close()
        with pytest.raises(StoreFailed):
            await entries.counts()
        assert 1 == entries.failures

    asyncio.run(scenario())
