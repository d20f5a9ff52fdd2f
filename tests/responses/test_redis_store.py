"""A real server: what it is told, and what happens when it is frozen, gone or strange."""

import asyncio
import os
import signal

import pytest

from prefold.errors import UsageError
from prefold.responses.cache import AnswerCache, AnswerCacheOptions, Mode, Source
from prefold.responses.store import StoreFailed

from .support import CHAT_EVENTS, KEY, NOW, FakeAnswer, FakeUpstream, at_rest, free_port, running_redis, stored

pytest.importorskip("redis", reason="redis comes with the extra `gateway`")

from redis.asyncio import Redis

from prefold.responses.redis_store import RedisStore


def test_the_server_lets_answers_expire(redis_url):
    async def scenario():
        store = RedisStore(redis_url, 10)
        await store.put(KEY, stored(), 3600)
        client = Redis.from_url(redis_url)
        remaining = await client.pttl(b"prefold:answer:" + KEY.hex().encode())
        await client.aclose()
        await store.close()
        return remaining

    assert 3_000_000 < asyncio.run(scenario()) <= 3_600_000


def test_what_others_wrote_there_is_none(redis_url):
    async def scenario():
        store = RedisStore(redis_url, 10)
        client = Redis.from_url(redis_url)
        await client.set("prefold:answer:" + KEY.hex(), b"something else")
        assert await store.get(KEY) is None
        await client.delete("prefold:answer:" + KEY.hex())
        await client.lpush("prefold:answer:" + KEY.hex(), b"a list")
        with pytest.raises(StoreFailed, match="ResponseError"):
            await store.get(KEY)
        await client.delete("prefold:answer:" + KEY.hex())
        await client.aclose()
        await store.close()

    asyncio.run(scenario())


def test_a_server_that_is_not_there():
    async def scenario():
        store = RedisStore(f"redis://:secret@127.0.0.1:{free_port()}/0", 10)
        with pytest.raises(StoreFailed) as caught:
            await store.get(KEY)
        assert "secret" not in str(caught.value)
        await store.close()

    asyncio.run(scenario())


def test_a_url_that_is_none():
    with pytest.raises(UsageError) as caught:
        RedisStore("http://secret", 1)
    assert "secret" not in str(caught.value)


def freeze(process):
    """Stop a process that is our own; return when it has stopped."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


async def answered(cache, upstream):
    async with cache.reply(KEY, upstream.fetch) as reply:
        body = b"".join([chunk async for chunk in reply.chunks])
    await at_rest(cache)
    return reply.source, body


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_requests_go_on_while_redis_is_frozen_and_hit_again_when_it_thaws(tmp_path):
    now = [0.0]

    async def scenario(url, process):
        options = AnswerCacheOptions(budget_seconds=1, breaker_failures=2, breaker_seconds=10)
        cache = AnswerCache(Mode.ON, RedisStore(url, 1), options, lambda: NOW, lambda: now[0])
        upstream = FakeUpstream(FakeAnswer())
        body = b"".join(CHAT_EVENTS)
        assert (Source.MISS, body) == await answered(cache, upstream)
        assert (Source.HIT, body) == await answered(cache, upstream)

        freeze(process)
        try:
            for _ in range(4):
                assert (Source.MISS, body) == await answered(cache, upstream)
            assert 2 == cache.counts.store_failures  # then the breaker opened
        finally:
            os.kill(process.pid, signal.SIGCONT)

        now[0] += 10
        assert (Source.HIT, body) == await answered(cache, upstream)
        assert 5 == upstream.calls
        await cache.close()

    with running_redis(tmp_path) as (url, process):
        asyncio.run(asyncio.wait_for(scenario(url, process), 60))


def test_requests_go_on_when_redis_died(tmp_path):
    async def scenario(url, process):
        cache = AnswerCache(Mode.ON, RedisStore(url, 5), AnswerCacheOptions(budget_seconds=5), lambda: NOW)
        upstream = FakeUpstream(FakeAnswer())
        await answered(cache, upstream)
        process.kill()
        await asyncio.to_thread(process.wait)
        assert (Source.MISS, b"".join(CHAT_EVENTS)) == await answered(cache, upstream)
        await cache.close()
        assert cache.counts.store_failures

    with running_redis(tmp_path) as (url, process):
        asyncio.run(scenario(url, process))
