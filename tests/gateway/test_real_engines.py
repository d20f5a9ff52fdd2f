"""Real engines behind the gateway: the embedded one, and two processes whose events say what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")
pytest.importorskip("torch")
pytest.importorskip("zmq")

from tests.gateway.engines import engine
from tests.gateway.support import (
    Reply,
    RunningGateway,
    Upstream,
    config_of,
    eventually,
    free_port,
    read_until,
    running,
    serving,
)

from prefold.engine.checkpoint import Checkpoint
from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.engine.worker import EngineWorker
from prefold.gateway.events.source import Trust
from prefold.gateway.operator import OperatorPages
from prefold.server.app import PrefoldApp

MODEL = "smollm2-135m-instruct"
RULES = "Answer in one word, and never explain what you have been asked not to explain. " * 12


def turns(name: str, *said: str) -> dict[str, Any]:
    """A conversation, of which one token is asked for."""
    messages = [{"role": "system", "content": f"You are {name}. {RULES}"}]
    messages += [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(said)]
    return {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0}


def cached(reply: Reply) -> int:
    """Tokens that the engine says it had."""
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


# The embedded engine


@pytest.fixture(scope="module")
def embedded(default_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    options = EngineOptions(dtype="float32", kv_memory=96 << 20, threads=1)
    worker = EngineWorker(lambda: load_engine(default_checkpoint, options))
    worker.start()
    try:
        engine = (PrefoldApp(worker, (MODEL,)), (MODEL,))
        config = "[health]\nverify_caching = false"
        with serving(config, tmp_path_factory.mktemp("gateway"), engine=engine) as gateway:
            yield gateway
    finally:
        worker.stop(drain=False)


def test_without_replicas_the_embedded_engine_answers(embedded: RunningGateway) -> None:
    first, second = (embedded.post(turns("Ann", "Hello", *more)) for more in ((), ("Hi", "Bye")))
    assert (200, "engine") == (first.status, first.headers["x-prefold-replica"])
    assert 0 == cached(first)
    assert 150 < cached(second) < second.json["usage"]["prompt_tokens"]
    assert cached(second) == embedded.metric("llm_prefix_cache_hit_tokens_total", replica="engine")


def test_the_embedded_engine_streams_to_real_clients(embedded: RunningGateway) -> None:
    openai, anthropic = pytest.importorskip("openai"), pytest.importorskip("anthropic")
    ask = {**turns("Ben", "Count to three."), "max_tokens": 8}
    whole = embedded.post(ask).text
    with openai.OpenAI(base_url=f"{embedded.url}/v1", api_key="none", max_retries=0) as client:
        chunks = list(client.chat.completions.create(**ask, stream=True))
    assert whole == "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    system, user = ask["messages"]
    with anthropic.Anthropic(base_url=embedded.url, api_key="none", max_retries=0) as client:
        message = {"model": MODEL, "system": system["content"], "messages": [user]}
        with client.messages.stream(**message, max_tokens=8, extra_body={"temperature": 0}) as stream:
            assert whole == "".join(stream.text_stream)
            usage = stream.get_final_message().usage
        assert 150 < usage.cache_read_input_tokens
        counted = client.messages.count_tokens(**message).input_tokens
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_when_the_client_leaves_the_embedded_engine_stops(embedded: RunningGateway) -> None:
    ask = {**turns("Cid", "Tell a story."), "max_tokens": 1_000, "stream": True, "ignore_eos": True}
    with embedded.asking(ask) as connection:
        read_until(connection, b'"content"')
    eventually(lambda: 0 == embedded.metric("prefold_replica_pending"), "the end here")
    assert 1 == embedded.metric("prefold_requests_total", outcome="client_gone")
    reply = embedded.post(turns("Cid", "Tell a story."))  # the engine is free for others at once
    assert 200 == reply.status


def test_the_embedded_engine_refuses_in_its_own_words(embedded: RunningGateway) -> None:
    reply = embedded.post({**turns("Dan", "Hello"), "temperature": -1})
    assert (400, "temperature") == (reply.status, reply.json["error"]["param"])
    long = embedded.post(turns("Dan", "word " * 9_000))
    assert (400, "context_length_exceeded") == long.code


def test_pins_of_the_embedded_engine_are_the_operators(embedded: RunningGateway, tmp_path: Path) -> None:
    ask = turns("Eve", "Hello")
    pin = embedded.post({"messages": ask["messages"][:1]}, "/cache/pins").json
    assert pin["tokens"] <= cached(embedded.post(ask))
    assert [pin["id"]] == [pin["id"] for pin in embedded.get("/cache/pins").json["pins"]]
    before = embedded.config.read_text()
    embedded.reload(before + "\n[engine]\npin_limit = 0.1")
    assert 1 == embedded.get("/cache").json["pins"]  # a reload leaves the engine and its pins alone
    embedded.reload(before)
    config = '[access]\nby = "header"\n[health]\nverify_caching = false'
    with serving(config, tmp_path, engine=embedded.gateway._engine) as closed:  # clients are told apart here
        for path in ("/cache", "/cache/pins", "/cache/reset"):
            assert 404 == closed.post({"prompt": "a"}, path, x_prefold_tenant="ann").status
        assert OperatorPages(lambda: closed.gateway.app.parts).has("/cache/pins")
    assert 200 == embedded.send("DELETE", f"/cache/pins/{pin['id']}").status
    assert 404 == embedded.get("/cachet").status


# Engines with events


def test_without_events_requests_go_on(default_checkpoint: Checkpoint, tmp_path: Path) -> None:
    a, b = Upstream("a"), Upstream("b")
    more = f'events = "tcp://127.0.0.1:{free_port()}"\ntokenizer = "{default_checkpoint.folder}"'
    with running(a, b):
        config = config_of(a, replica=more) + config_of(b) + '[routing]\npolicy = "exact"'
        with serving(config, tmp_path) as gateway:
            replies = [gateway.post() for _ in range(6)]
            assert {(200, "fallback")} == {(reply.status, reply.headers["x-prefold-reason"]) for reply in replies}
            assert {"a", "b"} == {reply.headers["x-prefold-replica"] for reply in replies}
            assert 1 == gateway.metric("prefold_replica_trust", replica="a", trust="fallback")


@pytest.mark.slow
def test_requests_go_where_events_say_that_their_prefix_is(default_checkpoint: Checkpoint, tmp_path: Path) -> None:
    more = '[routing]\npolicy = "exact"\npredicted_seconds = 0.001\n[health]\nverify_caching = false\nseconds = 0.2\n'
    with ExitStack() as stack:
        engines = {name: stack.enter_context(engine(name)) for name in ("one", "two")}
        tables = [f'{each.table}tokenizer = "{default_checkpoint.folder}"\n' for each in engines.values()]
        gateway = stack.enter_context(serving("\n".join([*tables, more]), tmp_path))
        knowledge = gateway.gateway.app.parts.knowledge
        eventually(lambda: {Trust.EXACT} == {knowledge.trust(index) for index in (0, 1)}, "trust")

        def told() -> list[int]:
            return [knowledge.index.blocks_of(index) for index in (0, 1)]

        def ask(fields: dict[str, Any], blocks: bool = True) -> Reply:
            """An answer, after whose blocks events have told of it."""
            before = told()
            reply = gateway.post(fields)
            assert 200 == reply.status
            if blocks:
                eventually(lambda: told() != before, "the events")
            return reply

        # New conversations spread, and then stay where they are.
        homes = {name: ask(turns(name, "Hello")).headers["x-prefold-replica"] for name in ("Ann", "Ben")}
        assert {"one", "two"} == set(homes.values())
        for name, home in homes.items():
            for said in (
                ("Hello", "Hi", "What is up, then, with all of this?"),
                ("Hello", "Hi", "What is up?", "A", "B"),
            ):
                reply = ask(turns(name, *said), blocks=False)
                assert (home, "exact") == tuple(reply.headers[f"x-prefold-{what}"] for what in ("replica", "reason"))
                matched = int(reply.headers["x-prefold-matched-tokens"])
                assert 150 < matched
                assert matched <= cached(reply) < matched + 16  # whole blocks of what the engine then found

        explained = gateway.post(turns("Ann", "Hello"), x_prefold_explain="1").json
        assert (homes["Ann"], "exact") == (explained["replica"], explained["reason"])
        assert explained["matched_tokens"] < explained["tokens"]

        # Anthropic's words become the same tokens.
        fields = turns("Ann", "Hello", "Hi", "What is up, then, with all of this?")
        system, *messages = fields["messages"]
        message = {"model": MODEL, "max_tokens": 1, "system": system["content"], "messages": messages}
        told_in_other_words = gateway.post(message, "/v1/messages", x_prefold_explain="1").json
        assert (
            gateway.post(fields, x_prefold_explain="1").json["matched_tokens"]
            == (told_in_other_words["matched_tokens"])
        )
        assert homes["Ann"] == told_in_other_words["replica"]

        # What has no tokens goes somewhere, and hears there what is wrong with it.
        for odd in ({}, [], [{}], [7], [{"role": "user"}], [{"role": "no", "content": {"a": 1}}], "text", None):
            assert 200 == gateway.post({**fields, "messages": odd}, x_prefold_explain="1").status
            assert gateway.post({**fields, "messages": odd}).status in (200, 400)
            assert 200 == gateway.post({**message, "messages": odd}, "/v1/messages", x_prefold_explain="1").status
            assert gateway.post({**message, "messages": odd}, "/v1/messages").status in (200, 400)
        for odd in ("", [], [1, -1], [1 << 70], [[1], [2]], {"a": 1}, None):
            assert gateway.post({"model": MODEL, "max_tokens": 1, "prompt": odd}, "/v1/completions").status in (
                200,
                400,
            )

        # A cache that was emptied attracts nobody.
        engines[homes["Ann"]].reset()
        eventually(lambda: 0 in told(), "AllBlocksCleared")
        explained = gateway.post(turns("Ann", "Hello"), x_prefold_explain="1").json
        # Both begin with the same words before the name; nothing of the rest is anywhere.
        assert explained["matched_tokens"] < 32

        # An engine that dies takes nothing with it but its cache.
        gone, left = homes["Ben"], homes["Ann"]
        engines[gone].process.kill()
        reply = ask(turns("Ben", "Hello"))
        assert left == reply.headers["x-prefold-replica"]
        eventually(lambda: "down" == gateway.states[gone], "the fall")
        index = list(engines).index(gone)
        eventually(lambda: Trust.FALLBACK is knowledge.trust(index), "the end of trust")
        again = gateway.post(turns("Ben", "Hello", "Hi", "Bye"))
        assert left == again.headers["x-prefold-replica"]
        assert 150 < cached(again)
        assert json.loads(again.body)["model"] == MODEL
