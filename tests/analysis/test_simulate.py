"""One pass over a log for many caches, and what it costs."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from prefold.analysis.anonymise import Anonymiser, read_line
from prefold.analysis.caches.named import OWN, check_effect, named_rules, parse_capacity, parse_tier, specs_for
from prefold.analysis.caches.resolve import PLAIN
from prefold.analysis.caches.spec import CacheSpec, Tier
from prefold.analysis.encode import Encoder
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.analysis.request import Marker, Request
from prefold.analysis.simulate import SimulatedRow, Simulation, simulate
from prefold.core.tokens import pack
from prefold.errors import UsageError
from prefold.providers.prices import Prices
from prefold.providers.rules import Control, rules_for

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def request(
    tokens: list[int], time: float = 0.0, *, markers: tuple[Marker, ...] = (), unit: int = 1, **record
) -> Request:
    run = pack(tokens)
    size = len(tokens) * unit
    ends = tuple(marker.end for marker in markers)
    place = Record(Blocks(run, unit, size), Place("log", 1), time=time, **record)
    return Request(run, unit, size, time, place, ends=ends, markers=markers)


def spec(name: str, **options) -> CacheSpec:
    return CacheSpec(name, named_rules(name), **options)


def prices(given: str = "miss=2,hit=0.04") -> Prices:
    return Prices.load(given=given, now=NOW)


def test_the_worked_example_goes_from_84_to_5_60():
    shared = list(range(4000))
    requests = (request([*shared, *range(10_000 + 200 * n, 10_200 + 200 * n)], float(n)) for n in range(100))
    (row,) = simulate(requests, [spec("blocks")], prices())
    assert (100, 420_000, 99 * 4000, 4000 + 100 * 200) == (
        row.requests,
        row.input_tokens,
        row.hit_tokens,
        row.recomputed_tokens,
    )
    assert (99 * 4000 * 0.04 + 24_000 * 2) / 1e6 == pytest.approx(row.cost)
    assert ("USD", 0) == (row.currency, row.unpriced_requests)
    assert 99 * 4000 / 420_000 == row.hit_rate


def test_caches_stand_side_by_side():
    requests = [request(list(range(3000)), float(n), markers=(Marker(3000),)) for n in range(3)]
    specs = [spec("vllm"), spec("claude-sonnet-4-5"), spec("gpt-4o"), spec("deepseek"), spec("llama.cpp")]
    rows = simulate(requests, specs)
    assert [2 * 2992, 6000, 2 * 2944, 2 * 2944, 2 * 2999] == [row.hit_tokens for row in rows]
    assert [0, 3000, 0, 0, 0] == [row.written_tokens for row in rows]
    assert ["lru", None, None, None, "lru"] == [row.policy for row in rows]
    assert [None] * 5 == [row.cost for row in rows]


MIXED = ["claude-haiku-4-5", "claude-sonnet-4-5", "gpt-4o", "gpt-5", "gpt-5.6", "gemini-2.5-pro", "gemini-3.1-flash"]


@pytest.mark.parametrize("name", ["anthropic", "openai", "gemini", "gemini:resource", "azure", "deepseek", "vllm"])
@pytest.mark.parametrize("limit", [{}, {"isolate_tenants": True}, {"replicas": 2}])
def test_a_provider_judges_each_model_by_its_own_family(name: str, limit: dict[str, Any]):
    """Prompts of 3,000 tokens are long enough for one family of Claude, and too short for another."""
    requests = [
        request(
            [*range(2900), *range(10_000 + 100 * n, 10_100 + 100 * n)],
            float(60 * n),
            markers=(Marker(2900), Marker(3000)),
            model=model,
        )
        for n, model in enumerate(MIXED * 12)
    ]
    chosen = named_rules(name, MIXED[0])
    specs = [CacheSpec(other, named_rules(other, MIXED[0]), by_model=True, **limit) for other in (name, "anthropic")]
    row, _ = simulate(requests, specs, prices())
    hits, families, cost = 0, {}, 0.0
    for model in MIXED:
        own = named_rules(name, model) if rules_for(model, name.partition(":")[0]) else chosen
        alone = [found for found in requests if found.record.model == model]
        (part,) = simulate(alone, [CacheSpec(name, own, **limit)], prices())
        hits, cost = hits + part.hit_tokens, cost + part.cost
        families[own.family] = families.get(own.family, 0) + len(alone)
    assert (hits, pytest.approx(cost)) == (row.hit_tokens, row.cost)
    assert families == row.families


def test_a_log_of_one_provider_is_judged_as_it_was_served():
    requests = [
        request(list(range(3000)), float(n), markers=(Marker(3000),), model=MIXED[n // 2 % 2], provider="anthropic")
        for n in range(12)
    ]
    own, row = simulate(requests, [spec("own"), spec("anthropic", by_model=True)])
    assert 5 * 3000 == own.hit_tokens == row.hit_tokens
    assert {} == own.families


def test_writes_and_storage_are_billed():
    """Input at 3 USD; the hour of a resource's million tokens at 4.50 USD."""
    marked = [request(list(range(3000)), float(n), markers=(Marker(2000, 3600), Marker(3000))) for n in range(2)]
    (row,) = simulate(marked, [spec("claude-sonnet-4-5")], prices("miss=3"))
    assert 3 * (2000 * 2.0 + 1000 * 1.25 + 3000 * 0.1) / 1e6 == pytest.approx(row.cost)
    named = [request(list(range(8000)), float(n)) for n in range(2)]
    resource = CacheSpec("gemini", rules_for("gemini-2.5-pro", control=Control.RESOURCE))
    (row,) = simulate(named, [resource], prices("miss=3"))
    assert (3 * (8000 + 8000 * 0.1) + 8000 * 4.5) / 1e6 == pytest.approx(row.cost)


def test_requests_without_a_price_are_counted():
    pytest.importorskip("genai_prices")
    listed = Prices.load(now=NOW)
    requests = [request(list(range(2000)), model=model) for model in ("gpt-4o", "nobody-knows-this")]
    (row,) = simulate(requests, [spec("vllm")], listed)
    assert 1 == row.unpriced_requests
    assert row.cost is not None
    assert row.cost > 0
    (row,) = simulate(requests[1:], [spec("vllm")], listed)
    assert (None, "", 1) == (row.cost, row.currency, row.unpriced_requests)


def test_rows_can_be_asked_for_at_any_time():
    simulation = Simulation([spec("blocks")])
    assert [(0, 0.0, 1.0)] == [(row.requests, row.hit_rate, row.load_imbalance) for row in simulation.rows()]
    simulation.add(request([1, 2, 3]))
    simulation.add(request([1, 2, 3]))
    assert [(2, 0.5)] == [(row.requests, row.hit_rate) for row in simulation.rows()]


def test_a_row_as_json():
    (row,) = simulate([request([1, 2], unit=512)], [spec("vllm", capacity=5120, replicas=2, routing="exact")])
    expected = {
        "cache": "vllm",
        "policy": "lru",
        "capacity_blocks": 10,
        "capacity_tokens": 5120,
        "replicas": 2,
        "routing": "exact",
        "requests": 1,
        "input_tokens": 1024,
        "hit_tokens": 0,
        "recomputed_tokens": 1024,
        "written_tokens": 0,
        "hit_rate": 0.0,
        "cost": None,
        "currency": None,
        "unpriced_requests": 0,
        "load_imbalance": 2.0,
        "families": {"vLLM": 1},
    }
    assert expected == row.as_json()
    assert isinstance(row, SimulatedRow)


@pytest.mark.parametrize(
    ("name", "model", "family"),
    [
        ("anthropic", "", "Claude 5.5, 512 tokens"),
        ("anthropic", "claude-sonnet-4-5", "Claude, 1,024 tokens"),
        ("anthropic", "gpt-4o", "Claude 5.5, 512 tokens"),
        ("claude-opus-4-6", "", "Claude, 4,096 tokens"),
        ("openai", "", "GPT-4o and o1"),
        ("gpt-5.6", "", "GPT-5.6 and GPT-6"),
        ("azure/gpt-5.6", "", "GPT-5.6 and later on Azure"),
        ("deepseek", "", "DeepSeek Flash"),
        ("deepseek-v3.1", "", "DeepSeek V3 and earlier, blocks of 64 tokens"),
        ("gemini", "", "Gemini Flash, implicit"),
        ("gemini:resource", "", "Gemini Flash, cachedContents"),
        ("gemini:resource", "gemini-2.5-pro", "Gemini Pro, cachedContents"),
        ("qwen:explicit", "", "Qwen, explicit"),
        ("kimi", "", "Kimi K3"),
        ("trtllm", "", "TensorRT-LLM"),
        ("lmcache", "", "LMCache"),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", "", "Claude on Bedrock, 1,024 tokens, five minutes"),
        ("blocks", "", PLAIN.family),
    ],
)
def test_names_of_caches(name: str, model: str, family: str):
    rules = named_rules(name, model)
    assert rules is not None
    assert family == rules.family


def test_own_is_no_cache_of_its_own():
    assert named_rules(OWN) is None


@pytest.mark.parametrize("name", ["nonsense", "", ":resource", "vllm:resource", "llama-3"])
def test_names_that_nobody_knows(name: str):
    with pytest.raises(UsageError, match="There is no cache"):
        named_rules(name)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("200000tokens", 200_000),
        ("1.5Mtokens", 1_500_000),
        ("10000blocks", 160_000),
        ("10kblocks", 160_000),
        ("1GiB", 8192),
        ("16 MB", 122),
        ("unlimited", None),
    ],
)
def test_capacities(text: str, tokens: int | None):
    assert tokens == parse_capacity(text, bytes_per_token=131_072, block_tokens=16)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12",
        "-5blocks",
        "many",
        "15tokens",
        "1KB",
        "1e5tokens",
        "0blocks",
        "9" * 5000,
        "9" * 5000 + "GiB",
        "9" * 400 + "tokens",
    ],
)
def test_what_is_no_capacity(text: str):
    with pytest.raises(UsageError, match=r"capacity"):
        parse_capacity(text, bytes_per_token=131_072, block_tokens=16)


def test_tiers():
    assert Tier("host", 8192, 16) == parse_tier("host=1GiB", bytes_per_token=131_072, block_tokens=16)
    for text in ("host", "=1GiB"):
        with pytest.raises(UsageError, match="no tier"):
            parse_tier(text, bytes_per_token=1, block_tokens=16)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cpu=1000tokens"], "'cpu' is none of vllm's"),
        (["host=1000tokens", "disk=1MiB", "host=1000tokens"], "'host' is there twice"),
    ],
)
def test_tiers_that_cannot_be(names: list[str], message: str):
    with pytest.raises(UsageError, match=message):
        specs_for(spec("vllm"), unit=1, capacities=[], policies=["lru"], tiers=names, bytes_per_token=1)


def test_tiers_stand_in_the_order_of_their_speed():
    (only,) = specs_for(
        spec("vllm"),
        unit=1,
        capacities=[],
        policies=["lru"],
        tiers=["disk=1MiB", "host=1000tokens"],
        bytes_per_token=1,
    )
    assert ["host", "disk"] == [tier.name for tier in only.tiers]


def test_what_no_cache_obeys_is_refused():
    hosted, engine, unknown = spec("anthropic"), spec("vllm"), CacheSpec("own", None)
    nothing = {"capacities": [], "policies": [], "tiers": []}
    for asked, message in (
        ({"capacities": ["1GiB"]}, "None of anthropic has a capacity"),
        ({"policies": ["lru", "lfu"]}, "None of anthropic has a policy"),
        ({"tiers": ["host=1GiB"]}, "None of anthropic can have tiers"),
    ):
        with pytest.raises(UsageError, match=message):
            check_effect([hosted], **{**nothing, **asked})
    with pytest.raises(UsageError, match="None of lossy loses what it holds"):
        check_effect([replace(engine, name="lossy", loss_rate=0.5)], **nothing)
    check_effect([hosted, engine], **{**nothing, "capacities": ["1GiB"], "policies": ["lfu"]})
    check_effect([unknown], **{**nothing, "capacities": ["1GiB"], "policies": ["lfu"]})
    check_effect([hosted], **{**nothing, "policies": ["lru"]})
    check_effect([replace(spec("openai"), loss_rate=0.5)], **nothing)


def test_every_combination_for_own_machines_and_one_row_for_a_provider():
    options = {"unit": 1, "capacities": ["1000tokens", "unlimited"], "policies": ["lru", "lfu"], "bytes_per_token": 1}
    engine = specs_for(spec("vllm"), tiers=["host=1000tokens"], **options)
    assert [(1000, "lru"), (1000, "lfu"), (None, "lru"), (None, "lfu")] == [(s.capacity, s.policy) for s in engine]
    assert all((Tier("host", 1000, 16),) == s.tiers for s in engine)
    hosted = spec("anthropic")
    assert [hosted] == specs_for(hosted, tiers=[], **options)
    (only,) = specs_for(
        spec("blocks"), unit=512, capacities=["10blocks"], policies=["lru"], tiers=[], bytes_per_token=1
    )
    assert 5120 == only.capacity


def agent_log(calls: int) -> list[Record]:
    """Three requests of an agent that calls many tools at once, each with a marker on its last block."""
    records = []
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Rule. " * 1500}]}]
    for turn in range(3):
        sent = json.loads(json.dumps(messages))
        sent[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": sent}).encode()
        records.append(Record(Body(body), Place("log", turn), time=30.0 * turn, model="claude-sonnet-4-5"))
        ids = [f"t{turn}_{number}" for number in range(calls)]
        uses = [{"type": "tool_use", "id": name, "name": "f", "input": {"q": name}} for name in ids]
        results = [{"type": "tool_result", "tool_use_id": name, "content": f"It is {name}."} for name in ids]
        messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    return records


def test_many_parallel_tool_calls_are_read_again_from_a_log_and_from_its_trace():
    encoder, anonymiser, second = Encoder(), Anonymiser(b"key"), Encoder()
    requests = [encoder.encode(record) for record in agent_log(14)]
    assert [0, 2, 4] == [sent.positions[-1] - sent.positions[0] if sent.positions else 0 for sent in requests]
    traced = [read_line(json.loads(anonymiser.line(sent)), sent.record.place) for sent in requests]
    again = [second.encode(record) for record in traced if record is not None]
    (row,), (other,) = (simulate(log, [spec("claude-sonnet-4-5")]) for log in (requests, again))
    assert requests[0].tokens + requests[1].tokens == row.hit_tokens == other.hit_tokens
    (apart,) = simulate(requests, [spec("us.anthropic.claude-sonnet-4-5")])
    assert 0 == apart.hit_tokens


def test_a_longer_lifetime_is_billed_at_its_own_price():
    """12 hours of GPT-5.6 at 2.5 times the input, 30 minutes at 1.25; 4 USD for a million tokens."""
    prices = Prices.load(given="miss=4", now=NOW)
    for ttl, times in ((43_200, 2.5), (1800, 1.25), (None, 1.25)):
        sent = request(list(range(2000)), markers=(Marker(2000, ttl),), model="gpt-5.6")
        (row,) = simulate([sent], [CacheSpec("own", None)], prices)
        assert 2000 * 4 * times / 1e6 == pytest.approx(row.cost)
