"""Synthetic logs: the worked example to the cent, and eight kinds of traffic in two orders."""

import hashlib
from typing import Any

import pytest

from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.encode import Encoder
from prefold.analysis.record import Blocks, Body
from prefold.analysis.simulate import simulate
from prefold.analysis.synthetic.shapes import SHAPES
from prefold.analysis.synthetic.workload import Plain, Shaped, workload
from prefold.core.tokens import unpack
from prefold.errors import UsageError
from prefold.prompts.view import view_of
from prefold.providers.rules import rules_for

SHAPE_NAMES = ["agent", "rag", "persona", "code", "dataset", "customer_service", "evaluation", "few_shot"]


def shared_characters(log: Shaped) -> tuple[int, int]:
    """Characters that an implicit cache without limit hits in blocks of 64, from 4,096 on; and all characters."""
    seen: set[int] = set()
    hits = total = 0
    for record in log:
        assert isinstance(record.content, Body)
        text = view_of(record.content.prompt).text
        total += len(text)
        chain, known = 0, 0
        for start in range(0, len(text) - 63, 64):
            chain = hash((chain, text[start : start + 64]))
            known += 64 if chain in seen and known == start else 0
            seen.add(chain)
        hits += known if known >= 4096 else 0
    return hits, total


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_the_good_order_hits_and_the_bad_one_does_not(shape: str) -> None:
    rates = {}
    for order in ("good", "bad"):
        log = workload(f"{shape}:{order},requests=150")
        assert isinstance(log, Shaped)
        hits, total = shared_characters(log)
        rates[order] = hits / total
    assert 0.5 < rates["good"]
    assert rates["bad"] < rates["good"] - 0.4


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_both_orders_say_the_same(shape: str) -> None:
    good, bad = (list(workload(f"{shape}:{order},requests=40")) for order in ("good", "bad"))
    for one, other in zip(good, bad, strict=True):
        assert isinstance(one.content, Body)
        assert isinstance(other.content, Body)
        assert (one.time, one.session, one.tenant, one.answer) == (
            other.time,
            other.session,
            other.tenant,
            other.answer,
        )
        messages, others = one.content.prompt.value["messages"], other.content.prompt.value["messages"]
        assert [message["role"] for message in messages] == [message["role"] for message in others]
        if len(messages) <= 2:  # in the good order the history keeps what was said with each question
            assert sorted(words(messages)) == sorted(words(others))


def words(messages: list[dict[str, Any]]) -> list[str]:
    said = [
        message["content"]
        if isinstance(message["content"], str)
        else "".join(block["text"] for block in message["content"])
        for message in messages
    ]
    return " ".join(said).split()


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_the_good_order_pays_under_a_cache_with_markers_too(shape: str) -> None:
    claude = CacheSpec("anthropic", rules_for("claude-sonnet-4-5"))
    rates = {}
    for order in ("good", "bad"):
        encoder = Encoder()
        log = [encoder.encode(record) for record in workload(f"{shape}:{order},requests=150")]
        rates[order] = simulate(log, [claude])[0].hit_rate
    assert 0.5 < rates["good"]
    assert rates["bad"] < 0.05


def digest(text: str) -> str:
    whole = hashlib.sha256()
    for record in workload(text):
        assert isinstance(record.content, Body)
        whole.update(repr((record.time, record.session, record.tenant, str(record.place))).encode())
        whole.update(record.content.content)
    return whole.hexdigest()[:16]


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_every_seed_gives_one_log(shape: str) -> None:
    assert digest(f"{shape}:good,requests=30") == digest(f"{shape}:good, requests=30, seed=0")
    assert digest(f"{shape}:good,requests=30") != digest(f"{shape}:good,requests=30,seed=1")


def test_a_seed_gives_the_same_log_everywhere() -> None:
    assert "4f7bb1c51466bf69" == digest("agent:bad,requests=50,seed=3")


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_requests_have_times_sessions_and_tenants(shape: str) -> None:
    log = workload(f"{shape}:bad,requests=60")
    records = list(log)
    times = [record.time for record in records if record.time is not None]
    assert 60 == len(times)
    assert sorted(times) == times
    assert times[0] < times[-1]
    assert 1 < len({record.session for record in records})
    assert {"tenant-1", "tenant-2", "tenant-3", "tenant-4"} >= {record.tenant for record in records}
    assert records == list(log)  # it can be read again
    assert f"{shape}:bad:60" == str(records[-1].place)


def test_an_agent_calls_tools_and_gets_their_results() -> None:
    bodies = [
        record.content.prompt.value for record in workload("agent:good,requests=80") if isinstance(record.content, Body)
    ]
    longest = max(bodies, key=lambda body: len(body["messages"]))["messages"]
    calls = [message["tool_calls"][0]["id"] for message in longest if message["role"] == "assistant"]
    assert calls == [message["tool_call_id"] for message in longest if message["role"] == "tool"]
    assert ["system", "user", "assistant", "tool"] == [message["role"] for message in longest[:4]]


def test_the_eight_shapes_have_a_sentence_each() -> None:
    assert SHAPE_NAMES == list(SHAPES)
    assert all(shape.text.endswith(".") for shape in SHAPES.values())


def test_the_worked_example() -> None:
    """84 USD without a cache, 5.60 with one; to the cent 5.61, since the first request finds nothing."""
    log = workload("prefix=4000,suffix=200,requests=10000")
    assert Plain(4000, 200, 10_000) == log
    hits = total = 0
    known: bytes | None = None
    for record in log:
        assert isinstance(record.content, Blocks)
        shared = record.content.run[: 4000 * 4]
        hits += 4000 if shared == known else 0
        known = shared
        total += record.content.tokens
    assert (10_000 * 4200, 9_999 * 4000) == (total, hits)
    assert 84 == total * 2 / 1e6
    assert 5.60784 == pytest.approx(((total - hits) * 2 + hits * 0.04) / 1e6)


def test_suffixes_share_nothing() -> None:
    runs = [
        unpack(record.content.run)
        for record in workload("requests=3, suffix=2, prefix=1")
        if isinstance(record.content, Blocks)
    ]
    assert [[0, 1, 2], [0, 3, 4], [0, 5, 6]] == runs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "There is no workload ''"),
        ("rag", "There is no workload 'rag'"),
        ("rag:best", "There is no workload 'rag:best'"),
        ("poem:good", "There is no workload 'poem:good'"),
        ("rag:good,prefix=3", "'prefix=3' cannot be read"),
        ("rag:good,requests=1,requests=2", "'requests=2' cannot be read"),
        ("rag:good,requests=0", "A workload needs requests"),
        ("rag:good,seed=-1", "'seed=-1' cannot be read"),
        ("prefix=4000,suffix=200", "The workload does not say requests"),
        ("prefix=0,suffix=0,requests=1", "Requests of 0 tokens"),
        ("prefix=99999999,suffix=1,requests=1", "Requests of 100,000,000 tokens"),
        ("prefix=1,suffix=9999999,requests=9999", "needs more than 4,294,967,296 different tokens"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        workload(text)
    assert caught.value.hint
