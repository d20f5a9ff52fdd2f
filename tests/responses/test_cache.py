"""The whole of it: what is served from where, what is kept, and what real clients make of it."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import anthropic
import openai
import pytest

from prefold.errors import UsageError
from prefold.responses.cache import AnswerCache, AnswerCacheOptions, AnswerCounts, Mode, Source
from prefold.responses.sqlite_store import SqliteStore
from prefold.responses.store import StoreFailed
from prefold.server.asgi import Exchange

from .support import (
    CHAT,
    CHAT_EVENTS,
    EVENT_STREAM,
    JSON,
    KEY,
    MESSAGE_EVENTS,
    NOW,
    FakeAnswer,
    FakeUpstream,
    at_rest,
    stored,
)

PATIENT = AnswerCacheOptions(budget_seconds=10)
"""A machine that is busy with other tests is not a store that fails."""

WHOLE = b"".join(CHAT_EVENTS)


@pytest.fixture
def make_cache(tmp_path):
    def make(mode=Mode.ON, options=PATIENT, clock=lambda: NOW):
        store = SqliteStore(tmp_path / "a.db", 1 << 20, clock) if mode is Mode.ON else None
        return AnswerCache(mode, store, options, clock)

    return make


async def answered(cache, upstream, key=KEY):
    async with cache.reply(key, upstream.fetch) as reply:
        body = b"".join([chunk async for chunk in reply.chunks])
    await at_rest(cache)
    return reply, body


def test_the_second_time_it_is_a_hit(make_cache):
    async def scenario():
        cache = make_cache()
        answer = FakeAnswer(headers=[EVENT_STREAM, (b"set-cookie", b"mine"), (b"x-request-id", b"1")])
        upstream = FakeUpstream(answer)
        first, first_body = await answered(cache, upstream)
        second, second_body = await answered(cache, upstream)
        await cache.close()
        assert (Source.MISS, WHOLE, answer.headers) == (first.source, first_body, first.headers)
        assert (Source.HIT, WHOLE, [EVENT_STREAM]) == (second.source, second_body, second.headers)
        assert replace(stored(), chunks=(WHOLE,)) == second.stored
        assert (1, True) == (upstream.calls, answer.is_closed)
        assert AnswerCounts(hits=1, misses=1, kept=1) == cache.counts

    asyncio.run(scenario())


def test_it_outlives_the_process(make_cache):
    async def scenario():
        upstream = FakeUpstream(FakeAnswer())
        for source in (Source.MISS, Source.HIT):
            cache = make_cache()
            reply, _ = await answered(cache, upstream)
            assert source is reply.source
            await cache.close()

    asyncio.run(scenario())


def test_a_document_keeps_its_length(make_cache):
    body = json.dumps(CHAT).encode()

    async def scenario():
        cache = make_cache()
        headers = [JSON, (b"content-length", str(len(body)).encode())]
        upstream = FakeUpstream(FakeAnswer((body[:9], body[9:]), headers=headers))
        await answered(cache, upstream)
        reply, again = await answered(cache, upstream)
        await cache.close()
        assert (Source.HIT, headers, body) == (reply.source, reply.headers, again)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        FakeAnswer((b'{"error":{}}',), status=429, headers=[JSON]),
        FakeAnswer((b'{"error":{}}',), headers=[JSON]),
        FakeAnswer(CHAT_EVENTS[:3]),
        FakeAnswer((b"<html>",), headers=[(b"content-type", b"text/html")]),
        FakeAnswer((b"",), headers=[]),
        FakeAnswer((WHOLE * 40,)),
    ],
    ids=["status", "error", "truncated", "html", "empty", "long"],
)
def test_what_may_not_be_kept_is_passed_on_each_time(make_cache, answer):
    async def scenario():
        cache = make_cache(options=replace(PATIENT, answer_bytes=20_000))
        upstream = FakeUpstream(answer)
        for _ in range(2):
            reply, body = await answered(cache, upstream)
            assert (Source.MISS, answer.status, b"".join(answer._chunks)) == (reply.source, reply.status, body)
        await cache.close()
        assert (2, 0) == (upstream.calls, cache.counts.kept)
        assert 2 * (answer.status == 200) == cache.counts.refused

    asyncio.run(scenario())


def test_an_answer_that_breaks_off_is_not_kept(make_cache):
    async def scenario():
        cache = make_cache()
        upstream = FakeUpstream(FakeAnswer(CHAT_EVENTS, fails=OSError("reset")), FakeAnswer())
        with pytest.raises(OSError, match="reset"):
            await answered(cache, upstream)
        reply, _ = await answered(cache, upstream)
        await cache.close()
        assert Source.MISS is reply.source

    asyncio.run(scenario())


def test_a_client_that_leaves_stops_the_call_and_nothing_is_kept(make_cache):
    async def scenario():
        cache = make_cache()
        answer = FakeAnswer(tickets=asyncio.Semaphore(1))
        async with cache.reply(KEY, FakeUpstream(answer).fetch) as reply:
            assert CHAT_EVENTS[0] == await anext(reply.chunks)
        await at_rest(cache)
        assert answer.is_closed
        assert await cache.look_up(KEY) is None
        await cache.close()

    asyncio.run(scenario())


def test_requests_at_once_share_one_call(make_cache):
    async def scenario():
        cache = make_cache()
        gate = asyncio.Event()
        upstream = FakeUpstream(FakeAnswer(headers=[EVENT_STREAM, (b"set-cookie", b"mine")]), gate=gate)
        asking = [asyncio.create_task(answered(cache, upstream)) for _ in range(20)]
        await upstream.is_asked.wait()
        gate.set()
        replies = await asyncio.gather(*asking)
        await cache.close()
        assert [WHOLE] * 20 == [body for _, body in replies]
        assert [Source.MISS] + [Source.SHARED] * 19 == [reply.source for reply, _ in replies]
        assert all([EVENT_STREAM] == reply.headers for reply, _ in replies[1:])
        assert AnswerCounts(misses=1, shared=19, kept=1) == cache.counts

    asyncio.run(scenario())


def test_requests_at_once_share_one_hit(make_cache):
    async def scenario():
        cache = make_cache()
        upstream = FakeUpstream(FakeAnswer())
        await answered(cache, upstream)
        replies = await asyncio.gather(*(answered(cache, upstream) for _ in range(9)))
        await cache.close()
        assert {Source.HIT} == {reply.source for reply, _ in replies}
        assert 1 == upstream.calls

    asyncio.run(scenario())


def test_the_time_to_live_is_absolute(make_cache):
    now = [NOW]

    async def scenario():
        cache = make_cache(options=replace(PATIENT, ttl_seconds=60), clock=lambda: now[0])
        upstream = FakeUpstream(FakeAnswer())
        await answered(cache, upstream)
        sources = []
        for age in (30, 59, 60):
            now[0] = NOW + age
            reply, _ = await answered(cache, upstream)
            sources.append(reply.source)
        await cache.close()
        return sources

    assert [Source.HIT, Source.HIT, Source.MISS] == asyncio.run(scenario())


@pytest.mark.parametrize(("jump", "is_hit"), [(-4, True), (-6, False), (-1e9, False), (1e9, False)])
def test_clock_jumps(make_cache, jump, is_hit):
    now = [NOW]

    async def scenario():
        cache = make_cache(clock=lambda: now[0])
        upstream = FakeUpstream(FakeAnswer())
        await answered(cache, upstream)
        now[0] += jump
        assert is_hit == (await cache.look_up(KEY) is not None)
        await answered(cache, upstream)
        assert Source.HIT is (await answered(cache, upstream))[0].source
        await cache.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("mode", "key", "source"),
    [
        (Mode.OFF, None, Source.OFF),
        (Mode.ON, None, Source.OFF),
        (Mode.OBSERVE, None, Source.OFF),
        (Mode.OBSERVE, KEY, Source.OBSERVED),
    ],
)
def test_what_is_not_looked_up_goes_straight(make_cache, mode, key, source):
    async def scenario():
        cache = make_cache(mode)
        answer = FakeAnswer()
        upstream = FakeUpstream(answer)
        for calls in (1, 2):
            reply, body = await answered(cache, upstream, key)
            assert (source, WHOLE, calls, True) == (reply.source, body, upstream.calls, answer.is_closed)
        await cache.close()
        return cache.repeats

    repeats = asyncio.run(scenario())
    assert (mode is Mode.OBSERVE and key is not None) == repeats.repeats
    assert 2 * (mode is Mode.OBSERVE) == repeats.requests


def test_more_calls_than_are_followed_go_straight(make_cache):
    async def scenario():
        cache = make_cache(options=replace(PATIENT, flights=1))
        waiting = FakeUpstream(FakeAnswer(tickets=asyncio.Semaphore(0)))
        async with cache.reply(b"other", waiting.fetch):
            reply, body = await answered_straight(cache, FakeUpstream(FakeAnswer()))
            assert (Source.MISS, WHOLE) == (reply.source, body)
        await cache.close()

    async def answered_straight(cache, upstream):
        async with cache.reply(KEY, upstream.fetch) as reply:
            return reply, b"".join([chunk async for chunk in reply.chunks])

    asyncio.run(scenario())


class BrokenStore:
    async def get(self, key):
        raise StoreFailed("down")

    async def put(self, key, answer, ttl):
        raise StoreFailed("down")

    async def close(self):
        raise StoreFailed("down")


def test_a_store_that_fails_fails_no_request():
    async def scenario():
        cache = AnswerCache(Mode.ON, BrokenStore(), PATIENT, lambda: NOW)
        upstream = FakeUpstream(FakeAnswer())
        for _ in range(9):
            reply, body = await answered(cache, upstream)
            assert (Source.MISS, WHOLE) == (reply.source, body)
        await cache.close()
        return cache.counts

    assert AnswerCounts(misses=9, store_failures=5 + 1) == asyncio.run(scenario())


def test_to_keep_answers_takes_a_store():
    with pytest.raises(UsageError, match="store"):
        AnswerCache(Mode.ON, None, PATIENT, lambda: NOW)


def test_without_a_mode_there_is_no_key(make_cache):
    fields = {"model": "m", "messages": [], "temperature": 0}
    arguments = ("/v1/chat/completions", fields, json.dumps(fields).encode(), "tenant", {})
    assert make_cache(Mode.OFF).key(*arguments) is None
    assert make_cache(Mode.OBSERVE).key(*arguments) is not None


@asynccontextmanager
async def gateway(cache, upstream):
    """The lines of the class docstring behind a real server, and its address."""

    async def app(scope, receive, send):
        exchange = Exchange(scope, receive, send)
        body = await exchange.body()
        key = cache.key(exchange.path, json.loads(body), body, "tenant", dict(exchange.headers))
        async with cache.reply(key, upstream.fetch) as reply:
            await exchange.begin(reply.status, [*reply.headers, (b"x-prefold-cache", reply.source.encode())])
            async for chunk in reply.chunks:
                await exchange.write(chunk)
            await exchange.finish()

    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn comes with the extra `gateway`")
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, ws="none")
    listener = config.bind_socket()
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has nothing else to wait for
        await asyncio.sleep(0.001)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


def test_openai_s_client_hears_the_same_stream_again(make_cache):
    async def scenario():
        cache = make_cache()
        upstream = FakeUpstream(FakeAnswer())
        heard = []
        async with (
            gateway(cache, upstream) as url,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
        ):
            for source in ("miss", "hit", "hit"):
                raw = await client.chat.completions.with_raw_response.create(
                    model="m", messages=[{"role": "user", "content": "hi"}], temperature=0, stream=True
                )
                assert source == raw.headers["x-prefold-cache"]
                heard.append([chunk.model_dump() async for chunk in raw.parse()])
                await at_rest(cache)
        await cache.close()
        assert heard[0] == heard[1] == heard[2]
        assert "Hello" == "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in heard[2][:2])
        assert 1 == upstream.calls

    asyncio.run(scenario())


def test_anthropic_s_client_too(make_cache):
    async def scenario():
        cache = make_cache()
        upstream = FakeUpstream(FakeAnswer(MESSAGE_EVENTS))
        async with (
            gateway(cache, upstream) as url,
            anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client,
        ):
            for _ in range(2):
                async with client.messages.stream(
                    model="m",
                    messages=[{"role": "user", "content": "hi"}],
                    max_tokens=9,
                    extra_body={"temperature": 0},
                ) as stream:
                    message = await stream.get_final_message()
                assert ("Hello", "end_turn", 2) == (
                    message.content[0].text,
                    message.stop_reason,
                    message.usage.output_tokens,
                )
                await at_rest(cache)
        await cache.close()
        assert (1, 1) == (upstream.calls, cache.counts.hits)

    asyncio.run(scenario())
