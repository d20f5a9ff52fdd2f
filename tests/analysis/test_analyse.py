"""From a log to what the report shows: every figure there, sums exact, and all of it JSON."""

from __future__ import annotations

import json
import math
import random
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from prefold.analysis.analyse import Analysis, Options
from prefold.analysis.anonymise import Anonymiser
from prefold.analysis.caches.named import named_rules
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.comparison import ComparisonHere
from prefold.analysis.encode import Encoder, encoded
from prefold.analysis.logs.log import open_log
from prefold.analysis.situation import Situation
from prefold.providers.prices import Prices

NOW = datetime(2026, 11, 30, tzinfo=UTC)
WORDS = (
    *("order", "refund", "parcel", "late", "blue", "card", "desk", "policy", "ask", "about"),
    *("when", "where", "return", "open", "force", "label", "number", "paid"),
)
KEYS = {
    *("schema_version", "title", "log", "input_tokens", "hit_tokens", "recomputed_tokens", "avoidable_tokens"),
    *("hit_rate", "possible_hit_rate", "cost", "attribution", "reported", "breaks", "order", "capacity", "over_time"),
    *("caches", "routes", "situation", "advice", "flame", "redacted"),
}
INNER_KEYS = {
    "attribution": {"reason", "cause", "path", "tokens", "requests", "share", "cost"},
    "breaks": {
        *("cause", "path", "tokens", "requests", "cost", "before", "after", "fix", "explanation", "gain_tokens"),
        *("example", "miss_reasons"),
    },
    "over_time": {"time", "tenant", "model", "input_tokens", "hit_tokens"},
    "caches": {
        *("cache", "policy", "capacity_tokens", "requests", "input_tokens", "hit_tokens", "hit_rate"),
        *("recomputed_tokens", "cost", "currency"),
    },
    "routes": {"route", "lossless", "saved_tokens", "saved_cost", "text"},
    "advice": {"title", "text", "command"},
}


def text(seed: int, count: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def conversations(sessions: int, turns: int, *, clock: bool = False, model: str = "gpt-4o") -> list[dict[str, Any]]:
    """Lines of a log: conversations one after the other, with a clock before the rules if wanted."""
    lines: list[dict[str, Any]] = []
    for session in range(sessions):
        messages: list[dict[str, str]] = []
        for turn in range(turns):
            now = f"Now: 2026-11-30T1{session % 10}:{turn:02}:00Z\n" if clock else ""
            messages = [*messages, {"role": "user", "content": text(1000 * session + turn, 80)}]
            sent = [{"role": "system", "content": now + text(1, 1800)}, *messages]
            body = {"model": model, "messages": sent}
            time = 1.79e9 + 60 * session + 20 * turn
            lines.append({"timestamp": time, "session_id": f"s{session}", "tenant": "acme", "body": body})
            messages = [*messages, {"role": "assistant", "content": text(5000 + 1000 * session + turn, 40)}]
    return lines


def with_usage(line: dict[str, Any], share: float) -> dict[str, Any]:
    """A line with what its provider counted: 2,000 tokens, of which a share was read."""
    read = int(share * 2_000)
    usage = {"prompt_tokens": 2_000, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": read}}
    return {**line, "response": {"usage": usage}}


def analysed(path: Path, *lines: dict[str, Any], raw: bytes | None = None, cache: CacheSpec | None = None) -> Any:
    """What the report shows of a log."""
    path.write_bytes(raw if raw is not None else b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    prices = Prices.load(given="miss=2,hit=0.2", now=NOW)
    encoder = Encoder()
    analysis = Analysis(
        Options(cache or CacheSpec("own", None), Situation.HOSTED_API),
        encoder,
        ComparisonHere([CacheSpec("own", None)], prices),
        prices,
    )
    with closing(open_log([str(path)])) as log:
        for request in encoded(log, encoder, log):
            analysis.add(request)
        result = analysis.as_json([path.name], log.notes)
    assert json.loads(json.dumps(result)) == result
    return check(result)


def check(found: dict[str, Any]) -> dict[str, Any]:
    """Whatever the log: all keys are there, and the figures agree with each other."""
    assert found.keys() >= KEYS
    for name, keys in INNER_KEYS.items():
        assert all(each.keys() >= keys for each in found[name]), name
    rows = found["attribution"]
    assert found["input_tokens"] == sum(row["tokens"] for row in rows)
    assert found["hit_tokens"] == sum(row["tokens"] for row in rows if row["reason"] == "hit")
    assert found["recomputed_tokens"] == found["input_tokens"] - found["hit_tokens"]
    assert found["avoidable_tokens"] <= found["recomputed_tokens"]
    assert 1 == sum(row["reason"] == "unexplained" for row in rows)
    assert 0 <= found["hit_rate"] <= found["possible_hit_rate"] <= 1
    gains = [each["gain_tokens"] for each in found["breaks"]]
    assert sorted(gains, reverse=True) == gains
    assert all(each["gain_tokens"] <= each["tokens"] for each in found["breaks"])
    assert found["input_tokens"] == sum(each["input_tokens"] for each in found["over_time"]) or not found["over_time"]
    if found["cost"]:
        assert 0 <= found["cost"]["possible"] <= found["cost"]["now"]
        costs = [row["cost"] for row in rows]
        assert math.isclose(found["cost"]["now"], sum(costs), rel_tol=1e-9, abs_tol=1e-12)
        saved = found["routes"][0]["saved_cost"]
        assert math.isclose(found["cost"]["now"] - found["cost"]["possible"], saved, rel_tol=1e-9, abs_tol=1e-12)
    return found


def test_content_without_usage(tmp_path: Path) -> None:
    found = analysed(tmp_path / "log.jsonl", *conversations(4, 3, clock=True))
    assert found["reported"] is None
    assert (12, {"gpt-4o": 12}, 4, 1) == (
        *(found["log"][name] for name in ("requests", "models", "sessions", "tenants")),
    )
    first = found["breaks"][0]
    assert ("clock", "messages[0]") == (first["cause"], first["path"])
    assert 0.7 * found["avoidable_tokens"] < first["gain_tokens"]
    assert 0.5 < found["possible_hit_rate"]
    assert found["order"]["share_before"] < found["order"]["share_after"]
    assert found["flame"]["nodes"]["tokens"]


def test_content_with_usage_rests_on_it(tmp_path: Path) -> None:
    lines = conversations(4, 3)
    simulated = analysed(tmp_path / "log.jsonl", *lines)
    assert simulated["hit_rate"] > 0.7
    half = analysed(tmp_path / "half.jsonl", *(with_usage(line, 0.5) for line in lines))
    assert 0.5 == pytest.approx(half["hit_rate"], abs=0.01)
    reported = half["reported"]
    assert (12, 24_000, 12_000, 0.5) == (
        *(reported[name] for name in ("requests", "input_tokens", "hit_tokens", "hit_rate")),
    )
    assert simulated["hit_tokens"] == reported["simulated_hit_tokens"]
    assert half["input_tokens"] == reported["simulated_input_tokens"] == simulated["input_tokens"]
    assert {"hit", "not_kept"} <= {row["reason"] for row in half["attribution"] if row["tokens"]}
    # 24,000 tokens were billed, half of them at a tenth of the price.
    assert 12_000 * 2.2 / 1e6 == pytest.approx(half["cost"]["now"])
    flame = half["flame"]["nodes"]
    assert half["hit_tokens"] == flame["hit"][0]


def test_more_reported_than_simulated_leaves_nothing_to_avoid(tmp_path: Path) -> None:
    found = analysed(tmp_path / "log.jsonl", *(with_usage(line, 1.0) for line in conversations(2, 2, clock=True)))
    assert 1.0 == found["hit_rate"] == found["possible_hit_rate"]
    assert 0 == found["avoidable_tokens"]
    assert found["cost"]["now"] == found["cost"]["possible"]


def test_a_trace_of_blocks(tmp_path: Path) -> None:
    prompts = [[1, 2, 3], [1, 2, 3, 4], [1, 9, 3, 4]]
    lines = [
        {"timestamp": 1000 * n, "input_length": 512 * len(ids), "output_length": 5, "hash_ids": ids}
        for n, ids in enumerate(prompts)
    ]
    found = analysed(tmp_path / "trace.jsonl", *lines)
    assert (11 * 512, 4 * 512, 0) == (found["input_tokens"], found["hit_tokens"], found["avoidable_tokens"])
    assert found["order"] is None
    assert {None} == {each["cause"] for each in found["breaks"]}
    assert not [step for step in found["advice"] if "None" in step["title"]]


def test_a_trace_that_was_made_of_a_log_says_no_more_than_the_log(tmp_path: Path) -> None:
    lines = conversations(3, 3, clock=True)
    path = tmp_path / "log.jsonl"
    log_says = analysed(path, *lines)
    anonymiser, encoder = Anonymiser(b"key"), Encoder()
    with closing(open_log([str(path)])) as log:
        trace = b"".join([anonymiser.header(), *map(anonymiser.line, map(encoder.encode, log))])
    trace_says = analysed(tmp_path / "trace.jsonl", raw=trace)
    assert (log_says["input_tokens"], log_says["hit_tokens"]) == (trace_says["input_tokens"], trace_says["hit_tokens"])
    assert 0 == trace_says["avoidable_tokens"] < log_says["avoidable_tokens"]
    assert "changed_prefix" not in {row["reason"] for row in trace_says["attribution"]}
    assert not [step for step in trace_says["advice"] if step["title"].startswith("Mend")]


def test_an_empty_log(tmp_path: Path) -> None:
    found = analysed(tmp_path / "empty.jsonl")
    assert (0, 0, 0.0, 0.0) == (
        *(found[name] for name in ("input_tokens", "hit_tokens", "hit_rate", "possible_hit_rate")),
    )
    assert ([], None, None, []) == (found["breaks"], found["cost"], found["reported"], found["over_time"])


@pytest.mark.parametrize("cache", ["vllm", "anthropic", "llamacpp"])
def test_sums_under_other_caches(tmp_path: Path, cache: str) -> None:
    lines = [*conversations(3, 3, clock=True), *conversations(2, 2, model="claude-sonnet-4-5")]
    found = analysed(tmp_path / "log.jsonl", *lines, cache=CacheSpec(cache, named_rules(cache)))
    assert cache == found["cache"]
