"""The gateway from the outside: what goes in, where it goes, and what comes back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import (
    HELLO,
    MODEL,
    Peer,
    RunningGateway,
    Upstream,
    chunk_of,
    config_of,
    eventually,
    read_until,
    running,
    serving,
    sse,
    well,
)

from prefold.gateway.router import Decision

GREEDY = {**HELLO, "temperature": 0}
STREAM = {**GREEDY, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def gateway(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway in front of one upstream that has both APIs."""
    config = config_of(upstream_server, replica='speaks = ["openai", "anthropic"]')
    with serving(config, tmp_path_factory.mktemp("gateway")) as running_gateway:
        yield running_gateway


# Bytes


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"],
)
def test_the_bodys_bytes_go_upstream_untouched(gateway: RunningGateway, upstream: Upstream, path: str) -> None:
    body = (
        b'{ "model" :"m","unknown":{"b":1.50,"a":1e2},"prompt":"\\u00e9 \xc3\xa9",\n'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}],'
        b'"input":"i","prompt":"p" }'
    )
    reply = gateway.post(body, path)
    assert 200 == reply.status
    [request] = upstream.requests
    assert (path, body) == (request.path, request.body)


def test_the_query_goes_upstream_as_it_came(gateway: RunningGateway, upstream: Upstream) -> None:
    gateway.post(HELLO, "/v1/messages?beta=true&x=%2F")
    assert ["/v1/messages?beta=true&x=%2F"] == [request.path for request in upstream.requests]


def test_the_answers_bytes_come_back_untouched(gateway: RunningGateway, upstream: Upstream) -> None:
    body = b'{"choices": [ ],\n "usage":{"prompt_tokens":1.0 ,"n\\u00e9w":null}}'
    events = b': a comment\n\nid: 7\nevent: odd\ndata: {"choices" : []}\n\ndata:[DONE]\r\n\r\n'

    async def oddly(peer: Peer) -> None:
        if peer.request.json.get("stream"):
            await peer.begin_events()
            await peer.events(events)
            await peer.end_events()
        else:
            await peer.answer(200, body, openai_processing_ms="12", x_ratelimit="a=b")

    upstream.behaviour = oddly
    reply = gateway.post()
    assert body == reply.body
    assert {"openai-processing-ms": "12", "x-ratelimit": "a=b", "content-length": str(len(body))}.items() <= (
        reply.headers.items()
    )
    assert events == gateway.post(STREAM).body


def test_headers_say_what_happened(gateway: RunningGateway) -> None:
    replies = [gateway.post(), gateway.post()]
    for reply in replies:
        assert ("a", "only_one", "off") == tuple(
            reply.headers[f"x-prefold-{name}"] for name in ("replica", "reason", "cache")
        )
    assert 2 == len({reply.headers["x-prefold-request-id"] for reply in replies})


def test_explain_calls_nobody(gateway: RunningGateway, upstream: Upstream) -> None:
    reply = gateway.post(x_prefold_explain="1")
    assert {
        "replica": "a",
        "reason": "only_one",
        "tokens": len(json.dumps(HELLO)) // 4,
        "matched_tokens": None,
        "tenant": "default",
        "isolation": "shared",
        "transforms": [],
        "candidates": ["a"],
    } == reply.json
    assert [] == upstream.requests


def test_what_is_explained_counts_apart_and_uses_nothing(upstream: Upstream, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    more = f"""
    [access]
    by = "header"
    [[tenant]]
    name = "ann"
    [metering]
    request_log = "{log}"
    """
    with serving(config_of(upstream, more=more), tmp_path) as gateway:
        assert 200 == gateway.post(x_prefold_tenant="ann", x_prefold_explain="1").status
        assert 404 == gateway.post({**HELLO, "model": "n"}, x_prefold_tenant="ann", x_prefold_explain="1").status
        counted = partial(gateway.metric, "prefold_requests_total")
        assert 1 == counted(outcome="explained", status="200", model=MODEL, tenant="ann", replica="")
        assert 1 == counted(outcome="refused", status="404", model="other", tenant="ann")
        assert 2 == counted()
        assert 0 == gateway.metric("prefold_answers_without_usage_total")
    assert [404] == [json.loads(line)["status"] for line in log.read_text().splitlines()]


def test_pages(gateway: RunningGateway) -> None:
    assert [MODEL] == [card["id"] for card in gateway.get("/v1/models").json["data"]]
    assert {"status": "ok"} == gateway.get("/health").json
    assert ["a"] == [replica["name"] for replica in gateway.get("/prefold/replicas").json["replicas"]]
    assert "other" == gateway.get("/prefold/config").json["replica"][0]["kind"]
    assert b"prefold_requests_total" in gateway.get("/metrics").body


def test_a_model_is_shown_as_in_the_list(tmp_path: Path) -> None:
    upstream = Upstream("a")
    with running(upstream), serving(config_of(upstream, replica='models = ["m", "org/m"]'), tmp_path) as gateway:
        for card in gateway.get("/v1/models").json["data"]:
            assert card == gateway.get(f"/v1/models/{card['id']}").json
        assert (404, "model_not_found") == gateway.get("/v1/models/other").code
        assert 404 == gateway.get("/v1/models/").status
        assert 405 == gateway.post({}, "/v1/models/m").status


@pytest.mark.parametrize("body", [b'{"model":"\\ud800"}', b'{"model":"m","a":"\\ud800","b":"and so on"}'])
def test_half_a_surrogate_pair_is_refused_with_its_place(gateway: RunningGateway, body: bytes) -> None:
    reply = gateway.post(body)
    assert 400 == reply.status
    assert "surrogate pair (byte" in reply.json["error"]["message"]


def test_usage_is_counted_once(gateway: RunningGateway) -> None:
    def tokens() -> tuple[float, float]:
        return (
            gateway.metric("llm_prefix_cache_hit_tokens_total", replica="a"),
            gateway.metric("llm_prefix_cache_miss_tokens_total", replica="a"),
        )

    hits, misses = tokens()
    gateway.post()
    gateway.post(STREAM)
    gateway.post({**HELLO, "max_tokens": 9}, "/v1/messages")
    gateway.post({**HELLO, "max_tokens": 9, "stream": True}, "/v1/messages")
    assert (hits + 4 * 6, misses + 4 * 4) == tokens()


@pytest.mark.parametrize(
    ("path", "leaves"),
    [("/v1/chat/completions", False), ("/v1/chat/completions", True), ("/v1/messages", True)],
    ids=["stays", "leaves", "leaves though the prompt was counted"],
)
def test_a_stream_without_usage_counts_by_what_was_relayed(
    upstream: Upstream, tmp_path: Path, path: str, leaves: bool
) -> None:
    async def tell(peer: Peer) -> None:
        await peer.begin_events()
        if "messages" in path:
            usage = {"input_tokens": 9, "output_tokens": 1}
            await peer.events(sse({"type": "message_start", "message": {"usage": usage}}))
        for number in range(100):
            await peer.events(sse(chunk_of({"content": f"w{number}"})))
        if leaves:
            await peer.until_left()
        await peer.events(sse("[DONE]"))
        await peer.end_events()

    upstream.behaviour = tell
    budget = '[[group]]\nname = "default"\ntokens_per_minute = 100'
    config = config_of(upstream, replica='speaks = ["openai", "anthropic"]', more=budget)
    with serving(config, tmp_path) as gateway:
        with gateway.asking({**HELLO, "stream": True}, path) as connection:
            read_until(connection, b"w99" if leaves else b"[DONE]")
        outcome = "client_gone" if leaves else "done"
        eventually(lambda: 1 == gateway.metric("prefold_requests_total", outcome=outcome), "the end")
        assert 429 == gateway.post().status


def test_who_leaves_with_the_last_event_has_the_whole_answer(tmp_path: Path) -> None:
    """What was cached of it is known as well, so that the conversation stays where it is."""
    a, b = Upstream("a"), Upstream("b")
    usage = {"input_tokens": 50_000, "input_tokens_details": {"cached_tokens": 49_999}, "total_tokens": 50_000}
    fields = {"model": MODEL, "input": "Hello", "instructions": "word " * 50_000, "stream": True}

    async def tell(peer: Peer) -> None:
        await peer.begin_events()
        await peer.events(sse({"type": "response.completed", "response": {"object": "response", "usage": usage}}))
        await peer.until_left()

    a.behaviour = b.behaviour = tell
    with running(a, b), serving(config_of(a, b), tmp_path) as gateway:
        for number in range(6):
            with gateway.asking(fields, "/v1/responses") as connection:
                read_until(connection, b"total_tokens")
            done = number + 1
            eventually(lambda done=done: done == gateway.metric("prefold_requests_total", outcome="done"), "the end")
        assert 6 * 49_999 == gateway.metric("llm_prefix_cache_hit_tokens_total")
    assert {0, 6} == {len(a.requests), len(b.requests)}


@pytest.mark.parametrize(("path", "status"), [("/v1/chat/completions", 429), ("/v1/embeddings", 200)])
def test_a_whole_answer_without_usage_counts_where_a_model_wrote_it(
    upstream: Upstream, tmp_path: Path, path: str, status: int
) -> None:
    async def tell(peer: Peer) -> None:
        await peer.answer(200, {"object": "list", "data": [0.25] * 1_000})

    upstream.behaviour = tell
    budget = '[[group]]\nname = "default"\ntokens_per_minute = 100'
    with serving(config_of(upstream, more=budget), tmp_path) as gateway:
        assert [200, status] == [gateway.post(path=path).status for _ in range(2)]


def test_what_was_not_computed_counts_nothing(upstream: Upstream, tmp_path: Path) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.answer(400, {"error": {"message": "no " * 1_000, "type": "t"}})

    async def cut(peer: Peer) -> None:
        peer.writer.close()

    budget = '[[group]]\nname = "default"\ntokens_per_minute = 100\n[upstream]\nbreaker_failures = 100'
    long = {**HELLO, "user": "u" * 300}
    with serving(config_of(upstream, more=budget), tmp_path) as gateway:
        upstream.behaviour = refuse
        assert [400, 400, 400] == [gateway.post(long).status for _ in range(3)]
        upstream.behaviour = cut
        assert [502, 502, 502] == [gateway.post(long).status for _ in range(3)]
        assert [404, 404] == [gateway.post({**long, "model": "other"}).status for _ in range(2)]
        assert [200, 200] == [gateway.post(long, x_prefold_explain="1").status for _ in range(2)]
        upstream.behaviour = well
        assert 200 == gateway.post(long).status
        # What was refused for the budget gives nothing back that it never took.
        assert [429] * 3 == [gateway.post({**HELLO, "user": "u" * 1_000}).status for _ in range(3)]
        assert 200 == gateway.post().status


# Routing


def test_a_prompt_stays_at_home_while_that_is_hardly_busy(tmp_path: Path) -> None:
    """However much more than estimated it takes to compute each time."""
    a, b = Upstream("a"), Upstream("b")

    async def tell(peer: Peer) -> None:
        await peer.answer(200, {"choices": [], "usage": {"prompt_tokens": 5_000, "completion_tokens": 1}})

    a.behaviour = b.behaviour = tell
    with running(a, b), serving(config_of(a, b, more='[routing]\npolicy = "prefix_hash"'), tmp_path) as gateway:
        assert {"prefix_hash"} == {gateway.post().headers["x-prefold-reason"] for _ in range(40)}
    assert {0, 40} == {len(a.requests), len(b.requests)}


LONG = "You are a careful assistant. " * 200


def conversation(name: str, turns: int = 1) -> dict:
    said = [{"role": "user", "content": f"{name} says {turn}"} for turn in range(turns)]
    return {"model": MODEL, "messages": [{"role": "system", "content": f"{name}. {LONG}"}, *said]}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Upstream]]:
    upstreams = [Upstream(name) for name in "abc"]
    with running(*upstreams):
        yield upstreams


def replica_of(gateway: RunningGateway, value: object, **headers: str) -> tuple[str, str]:
    reply = gateway.post(value, **headers)
    assert 200 == reply.status
    return reply.headers["x-prefold-replica"], reply.headers["x-prefold-reason"]


def test_round_robin_takes_each_in_turn(three: list[Upstream], tmp_path: Path) -> None:
    with serving(config_of(*three, more='[routing]\npolicy = "round_robin"'), tmp_path) as gateway:
        assert {"a": 2, "b": 2, "c": 2} == Counter(replica_of(gateway, HELLO)[0] for _ in range(6))


def test_different_beginnings_are_counted(three: list[Upstream], tmp_path: Path) -> None:
    with serving(config_of(*three), tmp_path) as gateway:
        assert "\nprefold_distinct_prefixes " not in gateway.metrics
        for turns in (1, 2, 3):
            for name in "vwxyz":
                gateway.post(conversation(name, turns))
        assert 5 == gateway.metric("prefold_distinct_prefixes")


def test_a_prefix_stays_where_it_is(three: list[Upstream], tmp_path: Path) -> None:
    with serving(config_of(*three), tmp_path) as gateway:
        homes = [replica_of(gateway, conversation(f"Client {number}")) for number in range(12)]
        assert 1 < len({replica for replica, _ in homes})
        again = [replica_of(gateway, conversation(f"Client {number}", turns=3)) for number in range(12)]
        kept = sum(home == now for home, now in zip(homes, again, strict=True))
        assert kept >= 10  # the bound on load may move one or the other


def test_a_session_stays_where_it_is(three: list[Upstream], tmp_path: Path) -> None:
    with serving(config_of(*three, more='[routing]\npolicy = "sticky"'), tmp_path) as gateway:
        by_key = {replica_of(gateway, {**conversation(f"{turn}"), "prompt_cache_key": "k"}) for turn in range(4)}
        by_header = {replica_of(gateway, conversation(f"{turn}"), x_prefold_session="k") for turn in range(4)}
        assert 1 == len(by_key | by_header)
        assert {"sticky"} == {why for _, why in by_key}


def test_a_conversation_that_is_at_home_is_no_work(three: list[Upstream], tmp_path: Path) -> None:
    with serving(config_of(*three), tmp_path) as gateway:  # whose usage says that little had to be computed
        assert 1 == len({replica_of(gateway, conversation("Ann", turns=turn)) for turn in range(1, 12)})


def test_nor_is_one_of_which_nobody_says_what_was_computed(three: list[Upstream], tmp_path: Path) -> None:
    async def tell(peer: Peer) -> None:  # as to clients that ask for no usage in their streams
        await peer.begin_events()
        await peer.events(sse(chunk_of({"content": "Hi"}), "[DONE]"))
        await peer.end_events()

    for upstream in three:
        upstream.behaviour = tell
    with serving(config_of(*three), tmp_path) as gateway:
        assert 1 == len({replica_of(gateway, conversation("Ann", turns=turn)) for turn in range(1, 12)})


def test_a_short_conversation_stays_where_it_begins(three: list[Upstream], tmp_path: Path) -> None:
    """Shorter than what is hashed of a prompt, and longer at each turn."""
    with serving(config_of(*three), tmp_path) as gateway:
        homes = []
        for name in ("Ann", "Ben", "Cid", "Dan", "Eve", "Fay"):
            messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": f"I am {name}."}]
            said = [{"role": ("assistant", "user")[turn % 2], "content": f"turn {turn}"} for turn in range(9)]
            grown = [{"model": MODEL, "messages": messages + said[:turn]} for turn in range(0, 9, 2)]
            homes.append({replica_of(gateway, body) for body in grown})
        assert [1] * 6 == [*map(len, homes)]
        assert 1 < len(set.union(*homes))


def test_the_least_busy_one_is_taken(three: list[Upstream], tmp_path: Path) -> None:
    release = threading.Event()

    async def wait(peer: Peer) -> None:
        while not release.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.005)
        await well(peer)

    for upstream in three[:2]:
        upstream.behaviour = wait
    with (
        serving(config_of(*three, more='[routing]\npolicy = "least_pending"'), tmp_path) as gateway,
        gateway.asking(HELLO),
        gateway.asking(HELLO),
        gateway.asking(HELLO),
    ):
        eventually(lambda: three[0].running and three[1].running and not three[2].running, "the calls")
        try:
            assert [("c", "least_pending")] * 3 == [replica_of(gateway, HELLO) for _ in range(3)]
        finally:
            release.set()


def test_who_comes_next_knows_of_a_prompt_on_its_way(three: list[Upstream], tmp_path: Path) -> None:
    seen: list[bool] = []
    sent: list[Decision] = []

    async def look(peer: Peer) -> None:
        seen.append(bool(sent))
        await well(peer)

    three[0].behaviour = look
    with serving(config_of(three[0]), tmp_path) as gateway:
        router = gateway.gateway.app.parts.router
        tell = router.sent

        def note(decision: Decision) -> None:
            sent.append(decision)
            tell(decision)

        router.sent = note
        assert 200 == gateway.post().status
    assert [True] == seen


def test_models_go_to_those_that_serve_them(tmp_path: Path) -> None:
    a, b = Upstream("a"), Upstream("b")
    with running(a, b):
        config = config_of(a, replica='models = ["x", "y"]') + config_of(b, replica='models = ["y", "z"]')
        with serving(config, tmp_path) as gateway:
            assert ["x", "y", "z"] == [card["id"] for card in gateway.get("/v1/models").json["data"]]
            assert "a" == replica_of(gateway, {**HELLO, "model": "x"})[0]
            assert "b" == replica_of(gateway, {**HELLO, "model": "z"})[0]
            assert (404, "model_not_found") == gateway.post().code


# Canonicalising


def test_a_transform_that_fired_changes_the_body_and_is_named(upstream: Upstream, tmp_path: Path) -> None:
    with serving(config_of(upstream, more="[canonical]\non = true"), tmp_path) as gateway:
        gateway.post(b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}')
        gateway.post(b'{"model":"m","messages":[{"role":"user","content":"Hello"}]}')
        spaced, tight = [request.body for request in upstream.requests]
        assert tight == spaced
        assert ["json_whitespace"] == gateway.post(x_prefold_explain="1").json["transforms"]
