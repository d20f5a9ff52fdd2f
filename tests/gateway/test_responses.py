"""OpenAI's Responses API through the gateway, asked by the real client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import MODEL, Peer, RunningGateway, Upstream, config_of, eventually, running, serving

sdk = pytest.importorskip("openai")

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 6},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 12,
}
TEXT = {"type": "output_text", "text": "You said it", "annotations": []}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [TEXT]}


def response_of(*, is_done: bool, instructions: str | None = None) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed" if is_done else "in_progress",
        "instructions": instructions,
        "model": MODEL,
        "output": [MESSAGE] if is_done else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE if is_done else None,
        "metadata": {},
    }


async def respond(peer: Peer) -> None:
    """Answer in the words of the Responses API."""
    assert "/v1/responses" == peer.request.path
    fields = peer.request.json
    told = fields.get("instructions")
    if not fields.get("stream"):
        await peer.answer(200, response_of(is_done=True, instructions=told))
        return
    delta = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": "You said it", "logprobs": []}
    events = [
        {"type": "response.created", "response": response_of(is_done=False, instructions=told)},
        {"type": "response.output_text.delta", **delta},
        {"type": "response.completed", "response": response_of(is_done=True, instructions=told)},
    ]
    await peer.begin_events()
    for number, event in enumerate(events):
        data = json.dumps({**event, "sequence_number": number})
        await peer.events(f"event: {event['type']}\ndata: {data}\n\n".encode())
    await peer.end_events()


def client_of(gateway: RunningGateway, key: str = "sk-own") -> Any:
    return sdk.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


def test_whole_answers_and_streams_are_passed_on_and_metered(tmp_path: Path) -> None:
    upstream = Upstream("a", respond)
    with running(upstream), serving(config_of(upstream), tmp_path) as gateway, client_of(gateway) as client:
        answer = client.responses.create(model=MODEL, input="Hello", instructions="Be brief")
        assert ("You said it", 6) == (answer.output_text, answer.usage.input_tokens_details.cached_tokens)
        assert {"model": MODEL, "input": "Hello", "instructions": "Be brief"} == upstream.requests[0].json
        assert 6 == gateway.metric("llm_prefix_cache_hit_tokens_total")
        # What the last event repeats may be longer than all that is kept of a stream.
        *_, last = client.responses.create(model=MODEL, input="Hello", instructions="Be brief. " * 5_000, stream=True)
        assert ("response.completed", 6) == (last.type, last.response.usage.input_tokens_details.cached_tokens)
        eventually(lambda: gateway.metric("llm_prefix_cache_hit_tokens_total") == 12, "the second answer's metering")
        assert 8 == gateway.metric("llm_prefix_cache_miss_tokens_total")
        assert 2 == gateway.metric("prefold_requests_total", api="/v1/responses", outcome="done", status="200")


def test_one_beginning_goes_to_one_place(tmp_path: Path) -> None:
    upstreams = [Upstream(name, respond) for name in "abcd"]
    with running(*upstreams), serving(config_of(*upstreams), tmp_path) as gateway, client_of(gateway) as client:
        places = {}
        for name in ("x", "y", "z", "u", "v", "w"):
            turns = [{"role": "user", "content": f"I am {name}. " * 400}]
            for turn in range(3):
                reply = client.responses.with_raw_response.create(model=MODEL, input=[*turns])
                places.setdefault(name, set()).add(reply.headers["x-prefold-replica"])
                turns += [MESSAGE, {"role": "user", "content": f"And {turn}?"}]
    assert [1] * 6 == [len(where) for where in places.values()]
    assert 1 < len(set.union(*places.values()))


ISOLATED = """
[health]
verify-caching = false

[access]
by = "header"
salt-secret = { env = "SALT_SECRET" }

[[group]]
name = "default"
isolation = "isolated"
"""


def test_vllm_is_given_the_tenants_salt(tmp_path: Path) -> None:
    upstream = Upstream("a", respond)
    environ = {"SALT_SECRET": "s" * 64}
    with (
        running(upstream),
        serving(config_of(upstream, kind="vllm", more=ISOLATED), tmp_path, environ=environ) as gateway,
        client_of(gateway) as client,
    ):
        for tenant in ("one", "other", "one"):
            for stream in (False, True):
                client.responses.create(
                    model=MODEL, input="Hello", stream=stream, extra_headers={"x-prefold-tenant": tenant}
                )
    asked = [request.json for request in upstream.requests if request.path == "/v1/responses"]
    salts = [fields["cache_salt"] for fields in asked]
    assert (6, 2) == (len(salts), len(set(salts)))
    assert salts[:2] == salts[4:]


def test_an_upstream_that_lacks_it_is_told_of_clearly_and_another_one_asked(tmp_path: Path) -> None:
    async def lacks(peer: Peer) -> None:
        await peer.answer(404, {"detail": "Not Found"})

    old, new = Upstream("old", lacks), Upstream("new", respond)
    with running(old, new):
        with serving(config_of(old), tmp_path) as gateway, client_of(gateway) as client:
            with pytest.raises(sdk.BadRequestError, match="have no /v1/responses") as caught:
                client.responses.create(model=MODEL, input="Hello")
            assert "unsupported_endpoint" == caught.value.code
        config = config_of(old, new, more='[routing]\npolicy = "round_robin"')
        with serving(config, tmp_path) as gateway, client_of(gateway) as client:
            assert ["You said it"] * 4 == [
                client.responses.create(model=MODEL, input="Hello").output_text for _ in range(4)
            ]
            assert {"old": "up", "new": "up"} == gateway.states
