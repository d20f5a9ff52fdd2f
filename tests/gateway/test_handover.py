"""Long prompts through two replicas, which are servers on loopback that do what a test says."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import (
    MODEL,
    Peer,
    RunningGateway,
    Upstream,
    eventually,
    free_port,
    read_until,
    running,
    serving,
    well,
)

from prefold.errors import UsageError
from prefold.gateway.load_config import load_config

LONG = "All work and no play makes Jack a dull boy. " * 100
CHUNK = {"type": "text", "text": LONG, "cache_chunk": True}
SECRET = "s" * 64


def ask(text: str = LONG, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 50, **more}


def config_of(*upstreams: Upstream, roles: tuple[str, ...], kind: str = "other", more: str = "", at: str = "") -> str:
    tables = [
        f'[[replica]]\nname = "{each.name}"\nurl = "{each.url}"\nkind = "{kind}"\nrole = "{role}"\n'
        f'models = ["{MODEL}"]\n'
        for each, role in zip(upstreams, roles, strict=True)
    ]
    routing = f"[routing]\nprefill_tokens = 512\n{at}\n"
    return "\n".join([*tables, routing, "[health]\nverify_caching = false\nseconds = 0.2", more])


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Upstream, Upstream]]:
    pair = Upstream("p"), Upstream("d")
    with running(*pair):
        yield pair


@pytest.fixture
def pair(servers: tuple[Upstream, Upstream]) -> Iterator[tuple[Upstream, Upstream]]:
    for server in servers:
        server.requests.clear()
        server.behaviour, server.is_well = well, True
    yield servers
    for server in servers:
        server.behaviour, server.is_well = well, True
    eventually(lambda: all(server.running == 0 for server in servers), "the end of all calls")


@contextmanager
def two(
    pair: tuple[Upstream, Upstream], folder: Path, kind: str = "other", more: str = "", at: str = ""
) -> Iterator[RunningGateway]:
    config = config_of(*pair, roles=("prefill", "decode"), kind=kind, more=more, at=at)
    with serving(config, folder, environ={"SALT": SECRET}) as gateway:
        yield gateway


def handed(gateway: RunningGateway, outcome: str) -> float:
    return gateway.metric("prefold_prefill_seconds_count", outcome=outcome)


async def usage_of_a_fresh_prompt(peer: Peer) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}
    await peer.answer(200, {"choices": [], "usage": usage})


def test_a_long_prompt_goes_through_both(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    prefill, decode = pair
    fields = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "max_completion_tokens": 90,
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "required",
        "temperature": 0,
        "seed": 7,
        "unknown": {"kept": ["é", "\U0001f600"]},
    }
    with two(pair, tmp_path) as gateway:
        reply = gateway.post(json.dumps(ask(**fields)).encode())
        assert (200, "d", "p") == (
            reply.status,
            reply.headers["x-prefold-replica"],
            reply.headers["x-prefold-prefill"],
        )
        assert reply.body.endswith(b"data: [DONE]\n\n")
    (first,), (second,) = prefill.requests, decode.requests
    dropped = ("stream_options", "n", "max_completion_tokens", "logprobs", "top_logprobs", "tool_choice")
    kept = {name: value for name, value in ask(**fields).items() if name not in dropped}
    assert {**kept, "max_tokens": 1, "stream": False} == first.json
    assert ask(**fields) == second.json


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/v1/chat/completions", ask("Hello")),
        ("/v1/chat/completions", ask(prefold_chunks=[{"message": 0, "start": 0, "stop": 9}])),
        ("/v1/messages", {"model": MODEL, "messages": [{"role": "user", "content": [CHUNK]}], "max_tokens": 9}),
        ("/v1/embeddings", {"model": MODEL, "input": LONG}),
        ("/v1/messages/count_tokens", ask()),
    ],
    ids=["short", "chunks", "parts", "embeddings", "count"],
)
def test_others_go_straight(path: str, value: dict[str, Any], pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    with two(pair, tmp_path) as gateway:
        reply = gateway.post(value, path)
        assert "x-prefold-prefill" not in reply.headers
        assert "prefold_prefill_seconds" not in gateway.metrics
    assert [] == pair[0].requests


def test_completions_and_messages_too(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    with two(pair, tmp_path) as gateway:
        for path, value in (
            ("/v1/completions", {"model": MODEL, "prompt": LONG, "logprobs": 2, "max_tokens": 9}),
            ("/v1/messages", {**ask(LONG + "!"), "system": "s", "tool_choice": {"type": "any"}}),
        ):
            assert "p" == gateway.post(value, path).headers["x-prefold-prefill"]
    completion, message = pair[0].requests
    assert {"model": MODEL, "prompt": LONG, "max_tokens": 1, "stream": False} == completion.json
    assert ("/v1/chat/completions", 1, "system") == (  # translated for a server that speaks only the other API
        message.path,
        message.json["max_tokens"],
        message.json["messages"][0]["role"],
    )


def test_only_what_is_new_of_a_conversation_counts(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    first = ask()["messages"]
    second = [*first, {"role": "assistant", "content": "No."}, {"role": "user", "content": "Why?"}]
    with two(pair, tmp_path) as gateway:
        for messages in (first, second, [*second, {"role": "user", "content": LONG}]):
            gateway.post({"model": MODEL, "messages": messages})
    assert [1, 4] == [len(request.json["messages"]) for request in pair[0].requests]


def test_salts_are_those_of_the_second_half(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    more = (
        '[access]\nby = "header"\nheader = "x-who"\nsalt_secret = { env = "SALT" }\n'
        '[[group]]\nname = "default"\nisolation = "shared-system"\n'
    )
    messages = [{"role": "system", "content": "Be kind."}, *ask()["messages"]]
    with two(pair, tmp_path, kind="prefold", more=more) as gateway:
        for tenant in ("ann", "ben", "ann"):  # what was sent for another tenant is new all the same
            assert 200 == gateway.post({"model": MODEL, "messages": messages}, x_who=tenant).status
    (ann, ben), seconds = ([(r.json["cache_salt"], r.json["cache_salt_from"]) for r in s.requests] for s in pair)
    assert [ann, ben, ann] == seconds
    assert ann != ben
    assert {"message": 1} == ann[1]


def test_the_client_is_billed_once(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    pair[0].behaviour = usage_of_a_fresh_prompt
    with two(pair, tmp_path) as gateway:
        reply = gateway.post(ask())
        assert 6 == reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]  # as its replica says it
        assert 1 == gateway.metric("prefold_requests_total")
        assert 2 == gateway.metric("prefold_output_tokens_total")
        # 5 of the 6 tokens that were found had been computed for this very call.
        assert 1 == gateway.metric("llm_prefix_cache_hit_tokens_total", replica="d")
        assert 9 == gateway.metric("llm_prefix_cache_miss_tokens_total", replica="d")
        assert 0 == gateway.metric("llm_prefix_cache_hit_tokens_total", replica="p")
        assert 1 == gateway.metric("prefold_prefill_seconds_count", replica="p", outcome="done", model=MODEL)


def test_budgets_count_once(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    more = '[[group]]\nname = "default"\ntokens_per_minute = 100_000\nrequests_per_minute = 2\n'
    with two(pair, tmp_path, more=more) as gateway:
        replies = [gateway.post(ask(f"{number} {LONG}")) for number in range(3)]
    assert [200, 200, 429] == [reply.status for reply in replies]
    assert 2 == len(pair[0].requests) == len(pair[1].requests)


async def _breaks_off(peer: Peer) -> None:
    peer.writer.transport.abort()


async def _half(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{")
    peer.writer.close()


async def _busy(peer: Peer) -> None:
    await peer.answer(503, {"error": {"message": "busy"}}, retry_after="1")


async def _too_long(peer: Peer) -> None:
    await peer.answer(400, {"error": {"message": "too long"}})


async def _never(peer: Peer) -> None:
    await peer.until_left()


async def _garbage(peer: Peer) -> None:
    await peer.answer(200, b"\xff{")


async def _endless(peer: Peer) -> None:
    await peer.answer(200, b"[" * (2 << 20))


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        (_breaks_off, "failed"),
        (_half, "failed"),
        (_endless, "failed"),
        (_busy, "refused"),
        (_too_long, "refused"),
        (_never, "late"),
        (_garbage, "done"),  # the prompt is thrown away anyway
    ],
)
def test_whatever_the_first_half_does_the_answer_comes(
    behaviour: Any, outcome: str, pair: tuple[Upstream, Upstream], tmp_path: Path
) -> None:
    pair[0].behaviour = behaviour
    with two(pair, tmp_path, at="prefill_seconds = 0.3") as gateway:
        reply = gateway.post(ask())
        assert (200, f"You said: {LONG}") == (reply.status, reply.text)
        assert ("x-prefold-prefill" in reply.headers) == (outcome == "done")
        assert {"done", "failed", "refused", "late", "nobody"} - {outcome} == {
            other for other in ("done", "failed", "refused", "late", "nobody") if not handed(gateway, other)
        }
        assert 0 == gateway.metric("prefold_replica_pending")
    eventually(lambda: 0 == pair[0].running, "the end of the first half")


def test_one_that_goes_down_meanwhile_is_left(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    prefill, _ = pair

    async def freezes(peer: Peer) -> None:
        prefill.is_well = False
        await peer.until_left()

    prefill.behaviour = freezes
    with two(pair, tmp_path) as gateway:  # whose patience is a minute
        assert 200 == gateway.post(ask()).status
        assert 1 == handed(gateway, "late")
        assert 200 == gateway.post(ask("!" + LONG)).status
        assert 1 == handed(gateway, "nobody")
        prefill.is_well, prefill.behaviour = True, well
        eventually(lambda: "up" == gateway.states["p"], "the prefill replica up again")
        assert "p" == gateway.post(ask("?" + LONG)).headers["x-prefold-prefill"]


def test_without_a_decode_replica_the_other_one_answers(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    _, decode = pair
    with two(pair, tmp_path) as gateway:
        decode.behaviour = _breaks_off
        for text in ("Hello", LONG):  # it failed, and is still thought to be up
            assert (200, "p") == ((reply := gateway.post(ask(text))).status, reply.headers["x-prefold-replica"])
        decode.is_well = False
        eventually(lambda: "down" == gateway.states["d"], "the other one down")
        for text in ("Hello", "!" + LONG):
            assert (200, "p") == ((reply := gateway.post(ask(text))).status, reply.headers["x-prefold-replica"])


def test_when_the_client_leaves_the_first_half_ends(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    prefill, decode = pair
    prefill.behaviour = _never
    with two(pair, tmp_path) as gateway:
        with gateway.asking(ask(stream=True)):
            eventually(lambda: prefill.running, "the first half")
        eventually(lambda: not prefill.running, "its end")
        eventually(lambda: gateway.metric("prefold_requests_total", outcome="client_gone"), "the end of the call")
        assert 0 == gateway.metric("prefold_replica_pending")
    assert [] == decode.requests


def test_when_the_client_leaves_the_second_half_ends(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    prefill, decode = pair

    async def begins(peer: Peer) -> None:
        await peer.begin_events()
        await peer.events(b"data: {}\n\n")
        await peer.until_left()

    decode.behaviour = begins
    with two(pair, tmp_path) as gateway:
        with gateway.asking(ask(stream=True)) as connection:
            read_until(connection, b"data: {}")
        eventually(lambda: not decode.running, "its end")
    assert 1 == len(prefill.requests)


def test_calls_for_the_same_text_at_once_all_go_there(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    """Until the first one's blocks are there, the others have to wait for them too."""
    prefill, _ = pair
    may_go = asyncio.Event()

    async def waits(peer: Peer) -> None:
        if len(prefill.requests) == 2:
            may_go.set()
        await may_go.wait()
        await well(peer)

    prefill.behaviour = waits
    with two(pair, tmp_path) as gateway, gateway.asking(ask()) as connection:
        eventually(lambda: prefill.requests, "the first one")
        assert "p" == gateway.post(ask()).headers["x-prefold-prefill"]
        read_until(connection, b"You said")


def test_uniform_groups_are_not_told(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    more = '[[group]]\nname = "default"\nttft = "uniform"\njitter_seconds = 0\n'
    with two(pair, tmp_path, more=more) as gateway:
        reply = gateway.post(ask())
        assert 1 == handed(gateway, "done")
    assert {"x-prefold-prefill", "x-prefold-replica"}.isdisjoint(reply.headers)


def test_a_salt_that_is_none_is_not_our_business(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    with two(pair, tmp_path) as gateway:
        assert 200 == gateway.post(ask(cache_salt=7)).status
    assert [] == pair[0].requests


def test_explained(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    with two(pair, tmp_path) as gateway:
        long = gateway.post(ask(), x_prefold_explain="1").json
        assert ("d", ["d"]) == (long["replica"], long["candidates"])
        assert {"replica": "p", "reason": "only_one", "matched_tokens": None} == long["prefill"]
        short = gateway.post(ask("Hello"), x_prefold_explain="1").json
        assert {"replica": None, "reason": "short"} == short["prefill"]
        pair[0].is_well = False
        eventually(lambda: "down" == gateway.states["p"], "the prefill replica down")
        alone = gateway.post(ask(), x_prefold_explain="1").json
        assert {"replica": None, "reason": "nobody"} == alone["prefill"]
        roles = {view["name"]: view["role"] for view in gateway.get("/prefold/replicas").json["replicas"]}
        assert {"p": "prefill", "d": "decode"} == roles
    assert [] == pair[0].requests == pair[1].requests


def test_without_roles_nothing_changes(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    with serving(config_of(*pair, roles=("both", "decode")), tmp_path) as gateway:
        assert "x-prefold-prefill" not in gateway.post(ask()).headers
        assert "prefill" not in gateway.post(ask(), x_prefold_explain="1").json
    assert 1 == sum(len(server.requests) for server in pair)


def test_a_reload_may_change_roles(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    with serving(config_of(*pair, roles=("both", "decode")), tmp_path) as gateway:
        gateway.reload(config_of(*pair, roles=("prefill", "decode")))
        assert "p" == gateway.post(ask()).headers["x-prefold-prefill"]
        gateway.reload(config_of(*pair, roles=("decode", "prefill")))
        reply = gateway.post(ask("!" + LONG))
        assert ("p", "d") == (reply.headers["x-prefold-replica"], reply.headers["x-prefold-prefill"])


def test_prefill_alone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(f'[[replica]]\nname = "p"\nurl = "http://127.0.0.1:{free_port()}"\nrole = "prefill"\n')
    with pytest.raises(UsageError, match="none is there to answer"):
        load_config(path, {})


def test_a_server_with_another_role_is_named_once(
    pair: tuple[Upstream, Upstream], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), two(pair, tmp_path, kind="prefold") as gateway:
        for _ in range(3):
            gateway.check()
    said = [record.getMessage() for record in caplog.records if "role" in record.getMessage()]
    assert [
        "The replica p has the role prefill here, but its server says 'both': start that with --role prefill",
        "The replica d has the role decode here, but its server says 'both': start that with --role decode",
    ] == said
