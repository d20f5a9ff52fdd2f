"""Whether an engine caches: each kind of engine is found out by its usage or its time."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.gateway.inspect.support import LoopbackEngine, serving, silent

from prefold.engine.options import EngineOptions
from prefold.errors import UsageError
from prefold.gateway.call import Api
from prefold.gateway.config import UpstreamOptions
from prefold.gateway.http_upstream import HttpUpstream
from prefold.gateway.inspect.verification import PROMPT_TOKENS, ROUNDS, Conclusion, Verification, verify


def verified(engine: LoopbackEngine, api: Api = Api.CHAT, *, seed: int = 1) -> Verification:
    with serving(engine) as url:
        return asyncio.run(asked(url, "some-model", api, clock=engine.clock, random=Random(seed)))


async def asked(url: str, model: str, api: Api, **options: Any) -> Verification:
    upstream = HttpUpstream(url, UpstreamOptions())
    try:
        return await verify(upstream, model, api, **options)
    finally:
        await upstream.close()


def zeros(total: int, cached: int) -> dict[str, Any]:
    return {"prompt_tokens": total, "prompt_tokens_details": {"cached_tokens": 0}}


@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS])
def test_two_requests_settle_it_where_usage_says_so(api: Api) -> None:
    engine = LoopbackEngine()
    found = verified(engine, api)
    assert Conclusion.CACHES is found.conclusion
    assert "It says that it had 1,500 of 1,501 tokens when they came again." == found.reason
    assert (PROMPT_TOKENS + 1, PROMPT_TOKENS) == (found.input_tokens, found.cached_tokens)
    assert (pytest.approx(1.511), pytest.approx(0.011)) == (found.fresh_seconds, found.repeat_seconds)
    first, second = engine.requests
    assert first.body == second.body
    assert (api.value, "some-model", 1) == (first.path, first.body["model"], first.body["max_tokens"])


def test_nothing_of_a_prompt_was_sent_before() -> None:
    engines = LoopbackEngine(), LoopbackEngine()
    for seed, engine in enumerate(engines):
        verified(engine, seed=seed)
    one, other = (engine.requests[0].prompt.split() for engine in engines)
    assert one[0] != other[0]
    assert one[1:] != other[1:]


def test_anthropics_api_gets_a_marker_and_a_longer_prompt() -> None:
    engine = LoopbackEngine(
        usage=lambda total, cached: {
            "input_tokens": total - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
        }
    )
    found = verified(engine, Api.MESSAGES)
    assert (Conclusion.CACHES, 4_601, 4_600) == (found.conclusion, found.input_tokens, found.cached_tokens)
    assert {"type": "ephemeral"} == engine.requests[0].body["messages"][0]["content"][0]["cache_control"]
    assert "anthropic-version" in engine.requests[0].headers


@pytest.mark.parametrize(
    ("caches", "usage", "conclusion", "cached"),
    [
        (True, silent, Conclusion.CACHES_SILENTLY, None),
        (False, silent, Conclusion.DOES_NOT_CACHE, None),
        (True, zeros, Conclusion.CACHES_SILENTLY, 0),
        (False, zeros, Conclusion.DOES_NOT_CACHE, 0),
    ],
)
@pytest.mark.parametrize("loading_seconds", [0, 60])
def test_time_settles_it_where_usage_is_silent(
    caches: bool,
    usage: Callable[[int, int], dict[str, Any]],
    conclusion: Conclusion,
    cached: int | None,
    loading_seconds: float,
) -> None:
    """The first request may wait for the model; that is not taken for what a new prompt costs."""
    engine = LoopbackEngine(
        caches=caches,
        usage=usage,
        seconds=lambda computed, number: 0.2 + 0.001 * computed + (0 if number else loading_seconds),
    )
    found = verified(engine)
    assert (conclusion, cached) == (found.conclusion, found.cached_tokens)
    assert pytest.approx(1.701) == found.fresh_seconds
    assert 2 + 3 * ROUNDS == len(engine.requests)


def test_a_prompt_that_costs_no_time_proves_nothing() -> None:
    engine = LoopbackEngine(caches=False, usage=silent, seconds=lambda computed, number: 0.5 + 0.0001 * computed)
    found = verified(engine)
    assert Conclusion.CANNOT_SAY is found.conclusion
    assert "a long prompt takes hardly longer than a short one" in found.reason


def test_times_that_vary_prove_nothing() -> None:
    """Every other repetition takes as long as a new prompt, as behind a router that ignores prefixes."""
    engine = LoopbackEngine(
        caches=False,
        usage=silent,
        seconds=lambda computed, number: 0.7 if number in (4, 10) else 0.01 + computed / 1_000,
    )
    found = verified(engine)
    assert Conclusion.CANNOT_SAY is found.conclusion
    assert "times vary too much" in found.reason


def test_a_cache_that_is_slow_to_fill_is_found_in_a_later_round() -> None:
    engine = LoopbackEngine(caches=False)
    engine.usage = lambda total, _: (
        zeros(total, 0) if len(engine.requests) < 5 else LoopbackEngine.usage(total, total - 1)
    )
    found = verified(engine)
    assert (Conclusion.CACHES, 5) == (found.conclusion, len(engine.requests))


def test_a_new_prompt_that_is_reported_as_cached_proves_nothing() -> None:
    found = verified(LoopbackEngine(usage=lambda total, _: LoopbackEngine.usage(total, total)))
    assert Conclusion.CANNOT_SAY is found.conclusion
    assert "nobody has sent before" in found.reason


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, b"{}", "status 401: it wants another key."),
        (404, b"{}", "status 404: it has no such model, or no such endpoint."),
        (500, b"secret of the engine", "status 500: see its log."),
        (200, b"<html>", "something that is not JSON."),
        (200, b"[" * 100_000, "something that is not JSON."),
        (200, b" " * (2 << 20), "something that is not JSON."),
    ],
)
def test_a_refusal_is_no_error(status: int, body: bytes, reason: str) -> None:
    engine = LoopbackEngine(refusal=(status, body))
    found = verified(engine)
    assert Conclusion.CANNOT_SAY is found.conclusion
    assert found.reason.endswith(reason)
    assert "secret" not in found.reason
    assert 1 == len(engine.requests)


def test_a_dead_server_is_no_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = asyncio.run(asked(f"http://127.0.0.1:{port}", "m", Api.CHAT, clock=time.monotonic, random=Random(1)))
    assert Conclusion.CANNOT_SAY is found.conclusion
    assert "cannot be reached" in found.reason


def test_endpoints_without_a_prompt_are_refused() -> None:
    with pytest.raises(UsageError, match="/v1/embeddings cannot be verified"):
        verified(LoopbackEngine(), Api.EMBEDDINGS)


def test_prefolds_own_server(default_checkpoint: Any) -> None:
    loading = pytest.importorskip("prefold.engine.loading")
    from tests.server.support import MODEL, running_server  # noqa: PLC0415 - it needs the engine's packages

    engine = loading.load_engine(default_checkpoint, EngineOptions(dtype="float32", kv_memory=96 << 20, threads=2))
    with running_server(engine) as server:
        found = asyncio.run(
            asked(server.url, MODEL, Api.CHAT, clock=time.monotonic, random=Random(1), prompt_tokens=300)
        )
    assert Conclusion.CACHES is found.conclusion
    assert found.input_tokens - 1 == found.cached_tokens
    assert found.input_tokens >= 300
