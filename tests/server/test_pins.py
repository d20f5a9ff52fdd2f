"""Pins over real HTTP, by the official SDK, and from a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from prefold.core.keys import SHARED
from prefold.core.tokens import unpack
from prefold.engine.checkpoint import Checkpoint
from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.engine.worker import EngineWorker
from prefold.errors import UsageError
from prefold.server.app import PrefoldApp
from prefold.server.pins import read_pin_file

from .support import MODEL, Reply, RunningServer

SYSTEM = {"role": "system", "content": "You know everything about bees. " * 5}
QUESTION = {"role": "user", "content": "How many legs has a bee?"}
GREEDY = {"temperature": 0, "max_tokens": 2}


@pytest.fixture
def pinning(server: RunningServer) -> Iterator[RunningServer]:
    """The server, without anything in its cache before and without pins afterwards."""
    server.send("POST", "/cache/reset")
    yield server
    for pin in server.get("/cache/pins").json["pins"]:
        assert 200 == server.send("DELETE", f"/cache/pins/{pin['id']}").status
    assert 0 == server.metric("prefold_kv_tokens", state="pinned")


def cached(reply: Reply) -> int:
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_pinned_system_prompt_serves_every_conversation_and_survives_a_reset(pinning):
    pin = pinning.post("/cache/pins", {"messages": [SYSTEM]}).json
    assert {"id", "tokens", "seconds", "hits", "salted"} == pin.keys()
    assert (None, 0, False) == (pin["seconds"], pin["hits"], pin["salted"])
    assert pin["tokens"] == pinning.metric("prefold_kv_tokens", state="pinned")
    assert 1 == pinning.metric("prefold_pins")
    pinning.send("POST", "/cache/reset")
    for question in ("How many legs has a bee?", "1 + 1", "\n\nHi", " x"):
        reply = pinning.post(
            "/v1/chat/completions", {"messages": [SYSTEM, {"role": "user", "content": question}], **GREEDY}
        )
        assert pin["tokens"] <= cached(reply)
    listed = pinning.get("/cache/pins").json
    assert [{**pin, "hits": 4}] == listed["pins"]
    assert pin["tokens"] == listed["tokens"] < listed["limit_tokens"]
    assert {**pin, "hits": 4} == pinning.send("DELETE", f"/cache/pins/{pin['id']}").json
    reply = pinning.send("DELETE", f"/cache/pins/{pin['id']}")
    assert (404, "not_found") == (reply.status, reply.error["code"])


def test_pinning_twice_is_pinning_once(pinning):
    pin, again = (pinning.post("/cache/pins", {"messages": [SYSTEM], "seconds": 90}).json for _ in range(2))
    assert pin["id"] == again["id"]
    assert 89 < again["seconds"] <= 90
    assert [pin["id"]] == [pin["id"] for pin in pinning.get("/cache/pins").json["pins"]]
    assert pinning.post("/cache/pins", {"messages": [SYSTEM]}).json["seconds"] is None


def test_a_pin_belongs_to_its_salt(pinning):
    body = {"prompt": "Private and pinned. " * 5, "cache_salt": "a"}
    pin = pinning.post("/cache/pins", body).json
    assert pin["salted"]
    pinning.post("/cache/reset", {})
    assert 0 == cached(pinning.post("/v1/completions", {"prompt": body["prompt"], **GREEDY}))
    assert pin["tokens"] - 1 == cached(pinning.post("/v1/completions", {**body, **GREEDY}))


def test_pins_cannot_fill_the_cache(pinning):
    state = pinning.get("/cache").json
    limit = state["pin_limit"]
    assert limit == state["capacity"] // 2
    reply = pinning.post("/cache/pins", {"prompt": [7] * (limit + 1)})
    assert (409, "insufficient_memory") == (reply.status, reply.error["code"])
    assert f"at most {limit} may be pinned" in reply.error["message"]
    reply = pinning.post("/cache/pins", {"prompt": [7] * (limit // 2 + 1), "cache_salt": "a"})
    assert (409, True) == (reply.status, "cache_salt" in reply.error["message"])
    assert (0, 0) == tuple(pinning.get("/cache").json[name] for name in ("pinned", "pins"))


def test_the_state_of_the_cache(pinning):
    pinning.post("/cache/pins", {"prompt": [7, 8, 9]})
    state = pinning.get("/cache").json
    assert ("default", 3, 1, 0) == tuple(state[name] for name in ("policy", "pinned", "pins", "reserved"))
    assert pinning.metric("prefold_evicted_tokens_total", policy="default") == state["evicted"]
    assert 405 == pinning.post("/cache", {}).status
    refused = pinning.send("PUT", "/cache/pins")
    assert (405, "GET, POST") == (refused.status, refused.headers["allow"])


def test_a_request_pins_its_prompt_by_the_official_sdk(pinning):
    with openai.OpenAI(base_url=f"{pinning.url}/v1", api_key="none", max_retries=0) as client:
        ask = {"model": MODEL, "messages": [SYSTEM, QUESTION], **GREEDY}
        plain = client.chat.completions.create(**ask)
        assert not hasattr(plain, "prefold_pins")
        answer = client.chat.completions.create(**ask, extra_body={"prefold_pin": 600})
        (pin,) = answer.prefold_pins
        assert plain.choices[0].message.content == answer.choices[0].message.content
        assert 599 < pin["seconds"] <= 600
        chunks = list(
            client.chat.completions.create(
                **ask, stream=True, stream_options={"include_usage": True}, extra_body={"prefold_pin": True}
            )
        )
        assert (pin["id"], None) == (chunks[-1].prefold_pins[0]["id"], chunks[-1].prefold_pins[0]["seconds"])
        pinning.send("POST", "/cache/reset")
        turns = [SYSTEM, QUESTION, {"role": "assistant", "content": "Six."}, {"role": "user", "content": "Sure?"}]
        later = client.chat.completions.create(model=MODEL, messages=turns, **GREEDY)
        assert pin["tokens"] == later.usage.prompt_tokens_details.cached_tokens
        two = client.completions.create(model=MODEL, prompt=["Ab", "Cd"], extra_body={"prefold_pin": True}, **GREEDY)
        assert 2 == len({pin["id"] for pin in two.prefold_pins})


def test_an_answer_is_given_even_where_nothing_more_can_be_pinned(pinning):
    limit = pinning.get("/cache").json["pin_limit"]
    reply = pinning.post("/v1/completions", {"prompt": [7] * (limit + 1), "prefold_pin": True, **GREEDY})
    assert 200 == reply.status
    (told,) = reply.json["prefold_pins"]
    assert "insufficient_memory" == told["error"]["code"]
    assert 0 == pinning.metric("prefold_kv_tokens", state="pinned")


@pytest.mark.parametrize("value", [0, -1, "yes", [], {}, 1e400, 10**400])
def test_bad_times(pinning, value):
    body = json.dumps({"prompt": "a", "prefold_pin": value}).replace("Infinity", "1e999").encode()
    reply = pinning.send("POST", "/v1/completions", body)
    assert (400, "prefold_pin") == (reply.status, reply.error["param"])
    reply = pinning.send("POST", "/cache/pins", body.replace(b"prefold_pin", b"seconds"))
    assert (400, "seconds") == (reply.status, reply.error["param"])


def test_a_pin_that_nobody_asked_for(pinning):
    for value in (None, False):
        assert (
            "prefold_pins" not in pinning.post("/v1/completions", {"prompt": "a", "prefold_pin": value, **GREEDY}).json
        )


def test_many_pin_the_same_at_once(pinning):
    replies: list[Reply] = []
    body = {"messages": [SYSTEM, QUESTION], "prefold_pin": True, **GREEDY}

    def ask() -> None:
        replies.append(pinning.post("/v1/chat/completions", body))
        replies.append(pinning.post("/cache/pins", {"messages": [SYSTEM, QUESTION]}))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [200] * 16 == [reply.status for reply in replies]
    assert 1 == len(pinning.get("/cache/pins").json["pins"])
    pinning.call(pinning.worker.engine.cache.check)


# Files


def test_a_file_is_read(model, tmp_path):
    path = tmp_path / "pins.jsonl"
    entries = [
        {"system": "Be kind."},
        {"messages": [SYSTEM], "tools": [], "cache_salt": "a", "seconds": 60, "model": MODEL},
        {"prompt": [5, 6]},
    ]
    for text in (json.dumps(entries), "\n\n".join(json.dumps(entry) for entry in entries)):
        path.write_text(text)
        first, second, third = read_pin_file(path, model)
        assert "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user" == model.tokenizer.decode(
            unpack(first.prompt.pin.run), skip_special=False
        )
        assert ("a", 60) == (second.prompt.scope.salt, second.prompt.pin.seconds)
        assert ([5, 6], SHARED) == (unpack(third.prompt.run), third.prompt.scope)
    path.write_text(json.dumps(entries[0]))
    assert [f"{path}, entry 1"] == [pin.where for pin in read_pin_file(path, model)]
    path.write_text("")
    assert [] == read_pin_file(path, model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"system": "a"}\n{', "line 2 is not JSON"),
        ("[1]", "entry 1 is 1"),
        ('[{"system": "a"}, {}]', "entry 2: The body has neither prompt nor messages"),
        ('{"system": "a", "seconds": -1}', "seconds is -1"),
        ('{"system": "a", "model": "gpt-5"}', "There is no model 'gpt-5' here"),
        ('{"prompt": "a", "cache_salt": ""}', "cache_salt is empty"),
    ],
)
def test_a_file_that_cannot_be_used(model, tmp_path, text, message):
    path = tmp_path / "pins.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=str(path)) as caught:
        read_pin_file(path, model)
    assert message in caught.value.message
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_pin_file(path, model)


def test_a_server_begins_with_what_a_file_pins_and_again_after_a_restart(
    default_checkpoint: Checkpoint, tmp_path: Path
):
    path = tmp_path / "pins.json"
    path.write_text(json.dumps([{"system": SYSTEM["content"]}, {"prompt": [7] * 30}]))
    names = []
    for _ in range(2):
        options = EngineOptions(dtype="float32", kv_memory=24 << 20, threads=1)
        worker = EngineWorker(lambda options=options: load_engine(default_checkpoint, options))
        worker.start()
        try:
            app = PrefoldApp(worker, (MODEL,))
            stages: list[tuple[str, int, int]] = []
            app.pin(path, lambda *stage, stages=stages: stages.append(stage))
            assert [("Pinning prefixes", done, 2) for done in range(3)] == stages
            names.append([pin.id for pin in worker.call(worker.engine.pins.all).result(10)])
            capacity = worker.engine.cache.capacity
            large = tmp_path / "large.json"
            large.write_text(json.dumps({"prompt": [9] * (capacity // 2)}))
            with pytest.raises(UsageError, match=r"entry 1 of \d+ tokens was not pinned: Pinning"):
                app.pin(large, lambda *_: None)
        finally:
            worker.stop(drain=False)
    assert 2 == len(names[0])
    assert names[0] == names[1]
