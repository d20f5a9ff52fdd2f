"""The embedded engine in its thread, its publisher, and a feed: real sockets, a real model."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

pytest.importorskip("zmq")
pytest.importorskip("torch")

from prefold.core.keys import Scope
from prefold.core.tokens import pack
from prefold.engine.kv_events import BLOCK_SIZE, Publisher
from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.engine.request import Output, Request, SamplingOptions
from prefold.engine.worker import EngineWorker
from prefold.gateway.events import Endpoint, EventFeed, RankedIndex, Trust


def test_an_engine_is_followed_through_a_reset_and_its_end(default_checkpoint):
    address = "tcp://127.0.0.1:0"
    options = EngineOptions(kv_memory=16 << 20, kv_events=address, kv_replay=address)
    worker = EngineWorker(lambda: load_engine(default_checkpoint, options))
    worker.start()
    assert worker.engine.events is not None
    publisher = worker.engine.events.sink
    assert isinstance(publisher, Publisher)
    index = RankedIndex(1000)
    feed = EventFeed(
        0,
        [Endpoint(publisher.endpoint, publisher.replay)],
        index,
        block_size=BLOCK_SIZE,
        max_blocks=1000,
        clock=lambda: 0.0,
    )
    prompt, scope = pack(range(1000, 1050)), Scope("salt", 20)
    keys = index.keys(prompt, BLOCK_SIZE, scope)

    def ask() -> None:
        done: Future[None] = Future()

        def hear(output: Output) -> None:
            if output.finish:
                done.set_result(None)

        worker.submit(Request(prompt, SamplingOptions(max_tokens=2), hear, scope))
        done.result()

    async def reach(trust: Trust, held: int) -> None:
        async with asyncio.timeout(60):
            while (trust, held) != (feed.trust, sum(index.match(keys))):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.005)

    async def run() -> None:
        task = asyncio.create_task(feed.run())
        await reach(Trust.EXACT, 0)
        await asyncio.to_thread(ask)
        await reach(Trust.EXACT, 3)
        await asyncio.wrap_future(worker.call(worker.engine.reset))
        await reach(Trust.EXACT, 0)
        await asyncio.to_thread(worker.stop, drain=True)
        await reach(Trust.FALLBACK, 0)
        task.cancel()
        await asyncio.wait([task])

    try:
        asyncio.run(run())
    finally:
        worker.stop(drain=False)
