"""Answers between the engine's thread and the event loop."""

import asyncio
import time

from prefold.server.fields import Fields
from prefold.server.generation import Generation
from prefold.server.metrics import Metrics
from prefold.server.openai_requests import parse_completion


def test_the_engine_outlives_the_event_loop_of_its_clients(server, model):
    """A gateway that is cut off leaves answers behind, at which its engine works for a moment longer."""
    body = {"prompt": "Once", "max_tokens": 40, "stream": True, "ignore_eos": True}
    call = parse_completion(Fields(body), model)
    engine = server.worker.engine
    metrics = Metrics(engine, "m", time.monotonic)

    async def leave():
        Generation(server.worker, call, lambda: metrics.meter(None, 0.0)).start()

    asyncio.run(leave())
    while server.call(lambda: engine.busy):
        time.sleep(0.01)
    assert not server.worker.failed
    assert b'prefold_answers_finished_total{model="m",reason="length"} 1.0' in metrics.render()
