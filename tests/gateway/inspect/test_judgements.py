"""What each engine says, judged: the recorded pages, and the same with one setting made poor."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.gateway.inspect.support import LoopbackEngine, recorded, serving, silent

from prefold.gateway.config import UpstreamOptions
from prefold.gateway.http_upstream import HttpUpstream
from prefold.gateway.inspect.engines import ENGINES, EngineName, engine_of
from prefold.gateway.inspect.facts import Check, Fact, Facts
from prefold.gateway.inspect.judgements import Inspection, Judgement, Verdict, inspect, judge
from prefold.gateway.inspect.pages import PATHS, Pages
from prefold.gateway.inspect.verification import Conclusion, Verification
from prefold.gateway.upstream import UpstreamFailed

GOOD, POOR, UNKNOWN = Verdict.GOOD, Verdict.POOR, Verdict.UNKNOWN


def inspected(engine: LoopbackEngine, model: str | None = None, *, is_asked: bool = True) -> Inspection:
    async def ask(url: str) -> Inspection:
        upstream = HttpUpstream(url, UpstreamOptions())
        try:
            return await inspect(upstream, model, clock=engine.clock, random=Random(1), is_asked=is_asked)
        finally:
            await upstream.close()

    with serving(engine) as url:
        return asyncio.run(ask(url))


def judged(pages: Mapping[str, bytes], verification: Verification | None = None) -> dict[Check, Judgement]:
    read = Pages(pages)
    engine = engine_of(read)
    return {judgement.check: judgement for judgement in judge(engine, engine.read(read), verification)}


def with_text(pages: dict[str, bytes], path: str, pattern: str, text: str) -> dict[str, bytes]:
    """The pages with something else on one of them."""
    changed, count = re.subn(pattern.encode(), text.encode(), pages[path])
    assert 1 <= count
    return {**pages, path: changed}


@pytest.mark.parametrize(
    ("name", "version", "model", "verdicts"),
    [
        (EngineName.VLLM, "0.32.0", "smollm2", [GOOD, GOOD, GOOD, GOOD, GOOD, UNKNOWN, GOOD, UNKNOWN, GOOD]),
        (EngineName.SGLANG, "0.5.23", "qwen", [GOOD] * 9),
        (
            EngineName.LLAMACPP,
            "b11434-unknown",
            "smollm2",
            [GOOD, GOOD, *[UNKNOWN] * 2, GOOD, UNKNOWN, GOOD, UNKNOWN, GOOD],
        ),
        (EngineName.OLLAMA, "0.33.3", "gemma4:latest", [*[UNKNOWN] * 6, GOOD, UNKNOWN, GOOD]),
    ],
)
def test_engines_over_http(name: EngineName, version: str, model: str, verdicts: list[Verdict]) -> None:
    engine = LoopbackEngine(pages=recorded(name))
    found = inspected(engine)
    assert (name, version, model) == (found.engine, found.version, found.model)
    assert list(zip(Check, verdicts, strict=True)) == [(each.check, each.verdict) for each in found.judgements]
    assert not found.has_findings
    assert sorted(PATHS) == sorted(engine.asked)
    assert {model} == {request.body["model"] for request in engine.requests}
    assert all(each.read for each in found.judgements if each.verdict is not UNKNOWN)


@pytest.mark.parametrize(
    ("engine", "path", "pattern", "text", "check", "fix"),
    [
        ("vllm", "/metrics", '(prefix_caching)="True"', r'\1="False"', Check.CACHING, "--enable-prefix-caching"),
        ("vllm", "/metrics", '"sha256"', '"xxhash_cbor"', Check.COMPARISON, "--prefix-caching-hash-algo sha256"),
        ("vllm", "/metrics", '"sha256"', '"builtin"', Check.COMPARISON, "--prefix-caching-hash-algo sha256"),
        ("vllm", "/metrics", "(usage_perc{.*) 0.0", r"\1 0.97", Check.KV_TYPE, "--kv-cache-dtype fp8"),
        ("vllm", "/metrics", '"93184"', '"9000"', Check.KV_MEMORY, "a larger --gpu-memory-utilization"),
        ("vllm", "/metrics", ',block_size="32"', ',block_size="784"', Check.BLOCK_SIZE, "--block-size 16"),
        ("sglang", "/server_info", "(radix_cache.: )false", r"\1true", Check.CACHING, "start it without --disable-ra"),
        ("sglang", "/server_info", '"lpm"', '"fcfs"', Check.SCHEDULING, "--schedule-policy lpm"),
        ("sglang", "/server_info", '"page_size": 1', '"page_size": 512', Check.BLOCK_SIZE, "--page-size 1"),
        ("sglang", "/server_info", "(report.: )true", r"\1false", Check.REPORTING, "--enable-cache-report"),
        ("sglang", "/server_info", "443871", "32768", Check.KV_MEMORY, "a larger --mem-fraction-static"),
        ("sglang", "/metrics", "500000.0", "1.0", Check.HIT_RATE, "`prefold report LOG`"),
    ],
)
def test_one_poor_setting_is_one_finding(
    engine: str, path: str, pattern: str, text: str, check: Check, fix: str
) -> None:
    found = judged(with_text(recorded(engine), path, pattern, text))
    poor = [each for each in found.values() if each.verdict is POOR]
    also = {Check.KV_MEMORY} if check is Check.KV_TYPE else set()  # memory that is full is both
    assert {check} | also == {each.check for each in poor}
    assert found[check].fix.startswith(fix)


def test_numbers_of_all_replicas_of_data_parallel_vllm_are_counted() -> None:
    pages = recorded("vllm")
    pages["/metrics"] = (
        b'vllm:prefix_cache_queries_total{engine="0"} 60000.0\nvllm:prefix_cache_queries_total{engine="1"} 40000.0\n'
        b'vllm:prefix_cache_hits_total{engine="0"} 50000.0\nvllm:prefix_cache_hits_total{engine="1"} 25000.0\n'
        b'vllm:kv_cache_usage_perc{engine="0"} 0.1\nvllm:kv_cache_usage_perc{engine="1"} 0.95\n'
    )
    found = judged(pages)
    assert "75.0% of all input tokens since its start came from cache." == found[Check.HIT_RATE].because
    assert POOR is found[Check.KV_MEMORY].verdict


def test_older_vllm_says_its_room_in_blocks() -> None:
    pages = with_text(recorded("vllm"), "/metrics", 'kv_cache_size_tokens="93184",', "")
    assert "Room for 93,184 tokens: 11.4 prompts of full length." == judged(pages)[Check.KV_MEMORY].because


def test_llamacpp_counts_computed_tokens_as_prompt_tokens() -> None:
    pages = recorded("llamacpp")
    pages["/metrics"] = b"llamacpp:prompt_tokens_total 30000\nllamacpp:prompt_tokens_cached_total 70000\n"
    assert "70.0% of all input tokens since its start came from cache." == judged(pages)[Check.HIT_RATE].because


def test_prefolds_own_metrics() -> None:
    pages = {
        "/v1/models": b'{"data":[{"id":"m","owned_by":"prefold","max_model_len":8192}]}',
        "/metrics": b'prefold_kv_tokens{state="capacity"} 10000\nprefold_kv_tokens{state="pinned"} 9500\n',
    }
    found = judged(pages)
    assert (POOR, "--kv-memory, with a larger SIZE") == (found[Check.KV_MEMORY].verdict, found[Check.KV_MEMORY].fix)
    assert "It has read 0 tokens only." == found[Check.HIT_RATE].because
    pages["/metrics"] += (
        b'llm_prefix_cache_hit_tokens_total{tenant="a"} 50000\nllm_prefix_cache_hit_tokens_total{tenant="b"} 10000\n'
        b'llm_prefix_cache_miss_tokens_total{tenant="a"} 40000\n'
    )
    assert "60.0% of all input tokens since its start came from cache." == judged(pages)[Check.HIT_RATE].because


@pytest.mark.parametrize(("engine", "flag"), [("sglang", "--enable-metrics"), ("llamacpp", "--metrics")])
def test_absent_metrics_are_asked_for(engine: str, flag: str) -> None:
    pages = recorded(engine)
    del pages["/metrics"]
    hit_rate = judged(pages)[Check.HIT_RATE]
    assert (UNKNOWN, flag) == (hit_rate.verdict, hit_rate.fix)


def test_older_sglang_has_another_path() -> None:
    pages = recorded("sglang")
    pages["/get_server_info"] = pages.pop("/server_info")
    assert GOOD is judged(pages)[Check.SCHEDULING].verdict


@pytest.mark.parametrize(
    ("name", "in_use", "verdict"),
    [
        ("auto", 0.5, GOOD),
        ("bfloat16", 0.95, POOR),
        ("fp8_e4m3", 0.95, GOOD),
        ("fp8", None, GOOD),
        ("int8_per_token_head", 0.1, GOOD),
        ("turboquant_k8v4", 0.1, UNKNOWN),
        ("nvfp4", 0.1, UNKNOWN),
        ("int4_per_token_head", 0.1, UNKNOWN),
    ],
)
def test_types_of_keys_and_values(name: str, in_use: float | None, verdict: Verdict) -> None:
    facts = Facts(kv_type=Fact(name, "type"), kv_in_use=None if in_use is None else Fact(in_use, "in use"))
    assert verdict is {each.check: each for each in judge(ENGINES[-1], facts, None)}[Check.KV_TYPE].verdict


@pytest.mark.parametrize(
    ("block", "prompt", "verdict"),
    [(1, 10, GOOD), (16, 20, GOOD), (64, 600, POOR), (64, 640, GOOD), (100, None, GOOD), (128, None, POOR)],
)
def test_blocks_are_measured_by_the_prompts(block: int, prompt: int | None, verdict: Verdict) -> None:
    facts = Facts(block=Fact(block, "block"))
    if prompt is not None:
        facts = replace(facts, input_tokens=Fact(7 * prompt, "tokens"), prompts=Fact(7, "prompts"))
    assert verdict is {each.check: each for each in judge(ENGINES[-1], facts, None)}[Check.BLOCK_SIZE].verdict


def test_an_engine_that_caches_without_saying_so() -> None:
    engine = LoopbackEngine(pages=recorded("vllm"), usage=silent)
    found = {each.check: each for each in inspected(engine).judgements}
    assert (GOOD, POOR) == (found[Check.VERIFICATION].verdict, found[Check.REPORTING].verdict)
    assert "--enable-prompt-tokens-details" == found[Check.REPORTING].fix


def test_an_engine_that_does_not_cache_whatever_it_says() -> None:
    found = inspected(LoopbackEngine(pages=recorded("vllm"), usage=silent, caches=False))
    assert found.has_findings
    assert (Check.VERIFICATION, POOR) == (found.judgements[-1].check, found.judgements[-1].verdict)
    assert Conclusion.DOES_NOT_CACHE is found.verification.conclusion


def test_a_short_context_gets_a_prompt_that_fits() -> None:
    engine = LoopbackEngine(pages=with_text(recorded("vllm"), "/v1/models", "8192", "1024"))
    inspected(engine)
    assert 513 == len(engine.requests[0].prompt.split())


def test_a_model_can_be_chosen() -> None:
    engine = LoopbackEngine(pages=recorded("vllm"))
    assert "adapter" == inspected(engine, "adapter").model
    assert "adapter" == engine.requests[0].body["model"]


def test_nothing_is_sent_that_was_not_wanted() -> None:
    engine = LoopbackEngine(pages=recorded("vllm"))
    found = inspected(engine, is_asked=False)
    assert ([], None) == (engine.requests, found.verification)
    assert Check.VERIFICATION not in {each.check for each in found.judgements}


def test_a_server_that_nobody_knows() -> None:
    engine = LoopbackEngine(
        pages={"/metrics": b"<html>{", "/v1/models": b"[1, 2]", "/props": b"null", "/version": b'"1"'}
    )
    found = inspected(engine)
    assert (EngineName.OTHER, "", "") == (found.engine, found.version, found.model)
    assert {UNKNOWN} == {each.verdict for each in found.judgements}
    assert "It names no model that could be asked." == found.judgements[-1].because
    assert [] == engine.requests


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "ollama"])
def test_values_of_other_types_are_unknown(engine: str) -> None:
    """Whatever stands in a field: no number, no crash."""

    def spoilt(value: Any) -> Any:
        match value:
            case dict():
                return {key: spoilt(inner) for key, inner in value.items()}
            case list():
                return [spoilt(inner) for inner in value] + [None]
            case str():
                return value
            case _:
                return [value]

    pages = {
        path: body if path == "/metrics" else json.dumps(spoilt(json.loads(body))).encode()
        for path, body in recorded(engine).items()
    }
    if engine == "vllm":
        pages = with_text(pages, "/metrics", r'(size_tokens|num_gpu_blocks|,block_size)="\d+"', r'\1="many"')
    found = judged(pages)
    assert UNKNOWN is found[Check.KV_MEMORY].verdict


def test_a_server_that_is_gone() -> None:
    engine = LoopbackEngine()
    with serving(engine) as url:
        pass

    async def ask() -> None:
        await inspect(HttpUpstream(url, UpstreamOptions()), clock=engine.clock, random=Random(1))

    with pytest.raises(UpstreamFailed, match="cannot be reached"):
        asyncio.run(ask())
