"""An application in this process as an upstream; the engine's own server is one of them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from prefold.gateway.embedded import AppUpstream
from prefold.gateway.upstream import Outgoing, UpstreamFailed

ASK = Outgoing("POST", "/v1/a%20b?c=1", [(b"content-type", b"text/plain"), (b"content-length", b"99")], b"hello")
START = {"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", b"text/plain")]}


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def body_of(answer: Any) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


def test_an_application_is_called_as_by_a_server():
    seen = []

    async def app(scope, receive, send):
        seen.extend([scope, await receive()])
        await send(START)
        await send(part(b"", more=False))

    async def main() -> None:
        upstream = AppUpstream(app, "engine")
        answer = await upstream.send(ASK)
        assert (200, [(b"content-type", b"text/plain")]) == (answer.status, answer.headers)
        assert b"" == await body_of(answer)
        await upstream.close()

    asyncio.run(main())
    scope, message = seen
    assert ("POST", "/v1/a b", b"/v1/a%20b", b"c=1") == tuple(
        scope[name] for name in ("method", "path", "raw_path", "query_string")
    )
    assert [(b"content-type", b"text/plain"), (b"content-length", b"5")] == scope["headers"]
    assert {"type": "http.request", "body": b"hello", "more_body": False} == message


def test_chunks_come_as_they_are_sent():
    async def main() -> None:
        more = asyncio.Event()

        async def app(scope, receive, send):
            await send(START)
            await send(part(b"one"))
            await more.wait()
            await send(part(b"two"))
            await send(part(b"", more=False))

        chunks = (await AppUpstream(app, "engine").send(ASK)).chunks()
        assert b"one" == await anext(chunks)
        more.set()
        assert b"two" == await anext(chunks)
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)

    asyncio.run(main())


def test_a_slow_reader_holds_the_application_up():
    sent = 0

    async def app(scope, receive, send):
        nonlocal sent
        await send(START)
        while sent < 4 << 20:
            sent += 1 << 10
            await send(part(b"x" * (1 << 10)))
        await send(part(b"", more=False))

    async def main() -> None:
        answer = await AppUpstream(app, "engine").send(ASK)
        for _ in range(10_000):
            await asyncio.sleep(0)
        assert (256 << 10) + (1 << 10) == sent
        assert 4 << 20 == len(await body_of(answer))

    asyncio.run(main())


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_client_that_leaves_is_told_to_the_application(has_begun):
    heard = []

    async def main() -> None:
        ready, ended = asyncio.Event(), asyncio.Event()

        async def app(scope, receive, send):
            await receive()
            if has_begun:
                await send(START)
                await send(part(b"one"))
            ready.set()
            heard.append(await receive())
            await send(part(b"nobody hears this"))
            ended.set()

        upstream = AppUpstream(app, "engine")
        sending = asyncio.ensure_future(upstream.send(ASK))
        await ready.wait()
        if has_begun:
            answer = await sending
            await answer.close()
            await answer.close()
            with pytest.raises(UpstreamFailed, match="was left"):
                await body_of(answer)
        else:
            sending.cancel()
        await ended.wait()
        await upstream.close()

    asyncio.run(main())
    assert [{"type": "http.disconnect"}] == heard


def test_an_application_that_does_not_listen_is_cancelled():
    async def main() -> None:
        cancelled = asyncio.Event()

        async def app(scope, receive, send):
            await send(START)
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        answer = await AppUpstream(app, "engine").send(ASK)
        await answer.close()
        await cancelled.wait()

    asyncio.run(main())


def test_closing_the_upstream_ends_what_runs():
    async def app(scope, receive, send):
        await send(START)
        await send(part(b"one"))
        await asyncio.Event().wait()

    async def main() -> None:
        upstream = AppUpstream(app, "engine")
        answer = await upstream.send(ASK)
        await upstream.close()
        with pytest.raises(UpstreamFailed, match="ended before its answer"):
            await body_of(answer)

    asyncio.run(main())


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("fault", [ValueError("oh"), None], ids=["raises", "returns"])
def test_an_application_that_fails_gives_no_answer(caplog, has_begun, fault):
    async def app(scope, receive, send):
        if has_begun:
            await send(START)
            await send(part(b"one"))
        if fault is not None:
            raise fault

    async def main() -> None:
        with pytest.raises(UpstreamFailed, match="ended before its answer"):
            await body_of(await AppUpstream(app, "engine").send(ASK))

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert (fault is not None) == ("engine failed" in caplog.text)


def test_the_engine_answers_without_a_socket_and_stops_when_left(default_checkpoint):
    from prefold.engine.loading import load_engine  # noqa: PLC0415 - needs torch
    from prefold.engine.options import EngineOptions  # noqa: PLC0415 - the same
    from prefold.engine.worker import EngineWorker  # noqa: PLC0415 - the same
    from prefold.server.app import PrefoldApp  # noqa: PLC0415 - the same

    engine = load_engine(default_checkpoint, EngineOptions(dtype="float32", kv_memory=96 << 20, threads=1))
    worker = EngineWorker(lambda: engine)
    worker.start()

    async def running() -> int:
        def look() -> int:
            return len(engine.scheduler.running) + len(engine.scheduler.waiting)

        return await asyncio.wrap_future(worker.call(look))

    async def main() -> None:
        upstream = AppUpstream(PrefoldApp(worker, ("m",)), "engine")
        health = await upstream.send(Outgoing("GET", "/health", [], b""))
        assert (200, {"status": "ok"}) == (health.status, json.loads(await body_of(health)))
        request = {"model": "m", "prompt": "Once", "max_tokens": 1_500, "ignore_eos": True, "stream": True}
        answer = await upstream.send(Outgoing("POST", "/v1/completions", [], json.dumps(request).encode()))
        assert (await anext(answer.chunks())).startswith(b"data: ")
        assert 1 == await running()
        await answer.close()
        while await running():  # noqa: ASYNC110 - the engine's thread tells nobody
            await asyncio.sleep(0.01)
        await upstream.close()

    try:
        asyncio.run(main())
    finally:
        worker.stop(drain=False)
