"""Answers that are kept and shared, from the outside."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import (
    HELLO,
    MODEL,
    USAGE,
    Peer,
    RunningGateway,
    Upstream,
    chunk_of,
    config_of,
    eventually,
    read_until,
    serving,
    sse,
    well,
)

GREEDY = {**HELLO, "temperature": 0}
STREAM = {**GREEDY, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
def answering(upstream: Upstream, tmp_path: Path) -> Iterator[RunningGateway]:
    with serving(config_of(upstream, more='[answers]\nmode = "on"'), tmp_path) as gateway:
        yield gateway


def hit_of(gateway: RunningGateway, value: object, path: str = "/v1/chat/completions"):
    """The answer from the cache, once it is there."""
    gateway.post(value, path)
    replies = []

    def is_hit() -> bool:
        replies.append(gateway.post(value, path))
        return replies[-1].headers["x-prefold-cache"] == "hit"

    eventually(is_hit, "the hit")
    return replies[-1]


@pytest.mark.parametrize("fields", [GREEDY, STREAM], ids=["whole", "stream"])
def test_the_same_request_is_answered_once(answering: RunningGateway, upstream: Upstream, fields: dict) -> None:
    first = answering.post(fields)
    assert "miss" == first.headers["x-prefold-cache"]
    hit = hit_of(answering, fields)
    assert first.body == hit.body
    assert first.headers["content-type"] == hit.headers["content-type"]
    assert "x-prefold-replica" not in hit.headers
    asked = len(upstream.requests)
    assert "hit" == answering.post(fields).headers["x-prefold-cache"]
    assert asked == len(upstream.requests)
    assert asked * 6 == answering.metric("llm_prefix_cache_hit_tokens_total", replica="a")


def test_another_request_is_another_answer(answering: RunningGateway) -> None:
    hit_of(answering, GREEDY)
    for more in (
        {"guided_json": {}},
        {"cache_salt": "s"},
        {"max_tokens": 3},
        {"stream": True},
        {"model": MODEL, "n": 1},
    ):
        assert "miss" == answering.post({**GREEDY, **more}).headers["x-prefold-cache"], more
    assert "off" == answering.post(HELLO).headers["x-prefold-cache"]  # its answer is left to chance


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v1/embeddings", {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}]}),
        ("/v1/messages/count_tokens", {"input_tokens": 7}),
    ],
)
def test_what_leaves_nothing_to_chance_is_always_looked_up(
    upstream: Upstream, tmp_path: Path, path: str, answer: dict
) -> None:
    async def tell(peer: Peer) -> None:
        await peer.answer(200, answer)

    upstream.behaviour = tell
    config = config_of(upstream, kind="anthropic" if "messages" in path else "other", more='[answers]\nmode = "on"')
    with serving(config, tmp_path) as gateway:
        assert answer == hit_of(gateway, {**HELLO, "input": "x"}, path).json


@pytest.mark.parametrize("header", ["api_key", "x_goog_api_key", "cookie"])
def test_nobody_is_told_what_another_account_was(answering: RunningGateway, header: str) -> None:
    hit_of(answering, GREEDY)
    for value in ("one", "two"):
        reply = answering.post({**GREEDY, "max_tokens": 3}, **{header: value})
        assert "miss" == reply.headers["x-prefold-cache"]
        assert "miss" == answering.post(GREEDY, **{header: value}).headers["x-prefold-cache"]


def test_what_is_kept_reads_well_to_clients(answering: RunningGateway) -> None:
    openai = pytest.importorskip("openai")
    anthropic = pytest.importorskip("anthropic")
    hit_of(answering, STREAM)
    with openai.OpenAI(base_url=f"{answering.url}/v1", api_key="k", max_retries=0) as client:
        # The key of the cache covers the credentials, since nobody here has checked them.
        for expected in ("miss", "hit"):
            with client.chat.completions.with_streaming_response.create(**STREAM) as response:
                source = response.headers["x-prefold-cache"]
                chunks = list(response.parse())
            assert source in (expected, "shared")
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert "You said: Hello" == text
    with anthropic.Anthropic(base_url=answering.url, api_key="k", max_retries=0) as client:
        ask = {"model": MODEL, "max_tokens": 9, "messages": HELLO["messages"], "extra_body": {"temperature": 0}}
        for _ in range(3):
            with client.messages.stream(**ask) as stream:
                assert "You said: Hello" == "".join(stream.text_stream)


@pytest.mark.parametrize("fields", [GREEDY, STREAM], ids=["whole", "stream"])
def test_the_same_at_once_is_asked_once(answering: RunningGateway, upstream: Upstream, fields: dict) -> None:
    release = threading.Event()

    async def wait(peer: Peer) -> None:
        while not release.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.005)
        await well(peer)

    upstream.behaviour = wait
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(answering.post, fields) for _ in range(8)]
        eventually(lambda: len(answering.server.server_state.tasks) == 8, "eight requests")
        release.set()
        replies = [future.result() for future in asked]
    assert 1 == len(upstream.requests)
    assert 1 == len({reply.body for reply in replies})
    assert {"miss": 1, "shared": 7} == Counter(reply.headers["x-prefold-cache"] for reply in replies)
    assert 6 == answering.metric("llm_prefix_cache_hit_tokens_total", replica="a")


def test_who_leaves_takes_nothing_from_those_who_stay(answering: RunningGateway, upstream: Upstream) -> None:
    release = threading.Event()

    async def begin(peer: Peer) -> None:
        await peer.begin_events()
        await peer.events(sse(chunk_of({"content": "Once"})))
        while not release.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.005)
        await peer.events(sse(chunk_of({}, "stop"), {**chunk_of({}), "choices": [], "usage": USAGE}, "[DONE]"))
        await peer.end_events()

    upstream.behaviour = begin
    with answering.asking(STREAM) as first, answering.asking(STREAM) as second:
        read_until(first, b"Once")
        read_until(second, b"Once")
        first.close()
        eventually(lambda: 1 == answering.metric("prefold_requests_total", outcome="client_gone"), "the leaving")
        assert 0 == answering.metric("prefold_answers_without_usage_total")
        release.set()
        assert read_until(second, b"[DONE]")
    assert 1 == len(upstream.requests)
    # The one call that was made is counted once, with what its answer said in the end.
    assert 6 == answering.metric("llm_prefix_cache_hit_tokens_total", replica="a", tenant="default")
    assert 4 == answering.metric("llm_prefix_cache_miss_tokens_total", replica="a", tenant="default")
    assert 0 == answering.metric("prefold_answers_without_usage_total")
    eventually(lambda: 1 == answering.metric("prefold_requests_total", outcome="done", cache="shared"), "the other")
    assert 1 == answering.metric("prefold_requests_total", outcome="client_gone", replica="a", status="200")


@pytest.mark.parametrize("status", [400, 500])
def test_errors_are_never_kept(answering: RunningGateway, upstream: Upstream, status: int) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.answer(status, {"error": {"message": "no", "type": "t"}})

    upstream.behaviour = refuse
    for _ in range(3):
        assert (status, "miss") == (
            (reply := answering.post(GREEDY)).status,
            reply.headers["x-prefold-cache"],
        )
    upstream.behaviour = well
    assert 200 == answering.post(GREEDY).status


def test_half_a_stream_is_never_kept(answering: RunningGateway, upstream: Upstream) -> None:
    async def die(peer: Peer) -> None:
        await peer.begin_events()
        await peer.events(sse(chunk_of({"content": "Once"})))
        peer.writer.transport.abort()

    upstream.behaviour = die
    for _ in range(2):
        assert b"no_answer" in answering.post(STREAM).body
    assert 2 == answering.metric("prefold_requests_total", outcome="failed", status="200")
    upstream.behaviour = well
    assert b"[DONE]" in answering.post(STREAM).body


def test_a_shared_stream_that_breaks_off_breaks_off_for_all(answering: RunningGateway, upstream: Upstream) -> None:
    release = threading.Event()

    async def begin(peer: Peer) -> None:
        await peer.begin_events()
        await peer.events(sse(chunk_of({"content": "Once"})))
        while not release.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.005)
        peer.writer.transport.abort()

    upstream.behaviour = begin
    with answering.asking(STREAM) as first, answering.asking(STREAM) as second:
        read_until(first, b"Once")
        read_until(second, b"Once")
        release.set()
        read_until(first, b"no_answer")
        read_until(second, b"no_answer")
    assert 1 == len(upstream.requests)
    eventually(lambda: 2 == answering.metric("prefold_requests_total", outcome="failed", status="200"), "the count")


def test_repeats_are_counted_before_anything_is_kept(upstream: Upstream, tmp_path: Path) -> None:
    with serving(config_of(upstream, more='[answers]\nmode = "observe"'), tmp_path) as gateway:
        replies = [gateway.post(ask) for ask in (GREEDY, GREEDY, STREAM, GREEDY, HELLO)]
        assert ["observed"] * 4 + ["off"] == [reply.headers["x-prefold-cache"] for reply in replies]
        assert 5 == len(upstream.requests)
        assert 0.4 == gateway.get("/prefold/replicas").json["answers"]["repeat_rate"]
