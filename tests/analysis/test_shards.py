"""The sums over parts of a log that have nothing to do with each other are those of the whole."""

import json
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from prefold.analysis.caches.named import named_rules
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.encode import Encoder
from prefold.analysis.record import Body, Place, Record
from prefold.analysis.request import Request
from prefold.analysis.shards import Sharding
from prefold.analysis.shipping import pack_requests, unpack_requests
from prefold.analysis.simulate import Simulation, rows_of, simulate
from prefold.analysis.tally import Tally
from prefold.cli.pricing import load_prices

PRICES = partial(load_prices, "miss=2,hit=0.3,write=2.5,write_1h=4", None, "USD", None)


def spec(name: str, **settings) -> CacheSpec:
    return CacheSpec(name, named_rules(name), **settings)


def log(requests: int = 300) -> list[Request]:
    """Conversations with three models, some of them salted."""
    dice = Random(7)
    encoder = Encoder()
    histories: dict[int, list[dict[str, str]]] = {}
    made = []
    for number in range(requests):
        session = dice.randrange(20)
        history = histories.setdefault(session, [{"role": "system", "content": f"Rules {session % 3}. " * 800}])
        history.append({"role": "user", "content": f"Question {number}? " * 20})
        body = {"model": ("gpt-4o", "gpt-5.6", "claude-sonnet-4-5")[session % 3], "messages": history}
        if session % 4 == 0:
            body["cache_salt"] = f"tenant-{session}"
        record = Record(
            Body(json.dumps(body).encode()),
            Place("log", number + 1),
            time=number * 20.0,
            model=str(body["model"]),
            tenant=f"t{session % 5}",
            duration=dice.choice([None, 3.0]),
        )
        made.append(encoder.encode(record))
    return made


@pytest.mark.parametrize(
    ("specs", "by_salt"),
    [
        ([spec("openai"), spec("anthropic"), spec("deepseek"), spec("sglang")], True),
        ([spec("openai", isolate_tenants=True), spec("vllm", isolate_tenants=True)], True),
        ([spec("openai", isolate_tenants=True), spec("vllm")], True),
        ([spec("own")], False),
        ([spec("vllm", capacity=20_000)], False),
        ([spec("llamacpp")], False),
        ([spec("vllm", replicas=3, routing="exact")], False),
        ([spec("openai", loss_rate=0.2), spec("own", loss_rate=0.2)], False),
    ],
)
def test_the_sums_over_parts_are_those_of_the_whole(specs, by_salt):
    requests = log()
    sharding = Sharding(specs, 4)
    assert by_salt == sharding.by_salt
    parts: list[list[Request]] = [[] for _ in range(4)]
    for request in requests:
        parts[sharding.of(request)].append(request)
    assert sum(map(bool, parts)) > 1
    merged = [Tally() for _ in specs]
    for part in parts:
        simulation = Simulation(specs, PRICES())
        for request in part:
            simulation.add(request)
        for whole, tally in zip(merged, simulation.tallies(), strict=True):
            whole.merge(tally)
    assert simulate(requests, specs, PRICES()) == rows_of(specs, merged, "USD")


def test_a_batch_carries_all_that_caches_look_at():
    requests = [replace(one, positions=tuple(range(len(one.ends)))) for one in log(50)]
    specs = [spec("openai"), spec("anthropic"), spec("deepseek"), spec("prefold"), spec("own"), spec("llamacpp")]
    arrived = unpack_requests(pack_requests(requests))
    assert simulate(requests, specs, PRICES()) == simulate(arrived, specs, PRICES())
    for field in ("run", "unit", "tokens", "time", "ends", "positions", "markers", "system_end", "salt", "output"):
        assert [getattr(one, field) for one in requests] == [getattr(one, field) for one in arrived]
