from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.gateway.call import Api
from prefold.gateway.hidden_usage import HiddenStream, hide_in_whole, quiet_headers
from prefold.gateway.upstream import UpstreamFailed
from prefold.providers.usage import Usage

TEXT = 'he said "usage": {"cached_tokens": 5}'
CHOICES = [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}]

# The same answer for a prompt of 1,000 tokens, once after a miss and once after a hit of 960.
PAIRS: dict[str, tuple[Api, Any, Any]] = {
    "openai": (
        Api.CHAT,
        {"usage": {"prompt_tokens": 1_000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}}},
        {"usage": {"prompt_tokens": 1_000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 960}}},
    ),
    "vllm": (
        Api.CHAT,
        {"usage": {"prompt_tokens": 1_000, "completion_tokens": 5, "prompt_tokens_details": None}, "metrics": None},
        {
            "usage": {"prompt_tokens": 1_000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 960}},
            "metrics": {"time_to_first_token": 0.02},
        },
    ),
    "deepseek": (
        Api.COMPLETIONS,
        {"usage": {"prompt_tokens": 1_000, "completion_tokens": 5, "prompt_cache_hit_tokens": 0}},
        {
            "usage": {
                "prompt_tokens": 1_000,
                "completion_tokens": 5,
                "prompt_cache_hit_tokens": 960,
                "prompt_cache_miss_tokens": 40,
            }
        },
    ),
    "llama.cpp": (
        Api.CHAT,
        {"usage": {"prompt_tokens": 1_000, "completion_tokens": 5}, "timings": {"prompt_n": 1_000, "prompt_ms": 900}},
        {"usage": {"prompt_tokens": 1_000, "completion_tokens": 5}, "timings": {"prompt_n": 40, "cache_n": 960}},
    ),
    "responses": (
        Api.RESPONSES,
        {"usage": {"input_tokens": 1_000, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 0}}},
        {"usage": {"input_tokens": 1_000, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 960}}},
    ),
    "anthropic": (
        Api.MESSAGES,
        {"usage": {"input_tokens": 40, "cache_creation_input_tokens": 960, "output_tokens": 5}},
        {"usage": {"input_tokens": 40, "cache_read_input_tokens": 960, "output_tokens": 5}},
    ),
}


def usage_hidden(api: Api, value: Any) -> Any:
    body, _ = hide_in_whole(api, json.dumps({"id": "x", "choices": CHOICES, **value}).encode())
    kept = json.loads(body)
    assert CHOICES == kept["choices"]
    kept.pop("metrics", None)  # null tells nothing
    return kept


@pytest.mark.parametrize("name", PAIRS)
def test_hit_and_miss_tell_the_same(name: str):
    api, miss, hit = PAIRS[name]
    assert usage_hidden(api, miss) == usage_hidden(api, hit)
    counted = usage_hidden(api, hit)["usage"]
    assert 1_000 == counted.get("prompt_tokens", counted.get("input_tokens"))
    assert 5 == counted.get("completion_tokens", counted.get("output_tokens"))


def test_usage_as_it_was_is_given_beside():
    api, _, hit = PAIRS["openai"]
    _, usage = hide_in_whole(api, json.dumps(hit).encode())
    assert Usage(uncached=40, read=960, output=5, is_reported=True) == usage


@pytest.mark.parametrize("body", [b"", b"no JSON", b'{"error": {"message": "x"} }', b'[{"usage": {}}]', b'{"usage":{'])
def test_what_has_no_usage_keeps_its_bytes(body: bytes):
    assert (body, None) == hide_in_whole(Api.CHAT, body)


def test_headers_that_tell_nothing():
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"5"),
        (b"openai-processing-ms", b"12"),
        (b"x-prefold-matched-tokens", b"960"),
        (b"x-prefold-replica", b"b"),
        (b"retry-after", b"2"),
    ]
    assert [(b"content-type", b"application/json"), (b"retry-after", b"2")] == quiet_headers(headers)


def events(*values: Any, ends: str = "\n\n") -> bytes:
    return "".join(f"data: {value if isinstance(value, str) else json.dumps(value)}{ends}" for value in values).encode()


def chunk(content: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if content is None else [{"index": 0, "delta": {"content": content}}]
    return {"id": "x", "choices": choices, **more}


def streamed(cached: int, ends: str = "\n\n") -> bytes:
    role = {"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "usage": None}
    usage = {"prompt_tokens": 1_000, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": cached}}
    return events(role, chunk(TEXT, usage=None), chunk(" b"), chunk(usage=usage), "[DONE]", ends=ends)


@given(st.data())
def test_streams_cut_anywhere(data: st.DataObject):
    ends = data.draw(st.sampled_from(["\n\n", "\r\n\r\n"]))
    whole = HiddenStream(Api.CHAT)
    expected = whole.feed(streamed(0, ends)) + whole.end()
    text = streamed(960, ends)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    stream = HiddenStream(Api.CHAT)
    got = [stream.feed(text[start:stop]) for start, stop in zip([0, *places], [*places, len(text)], strict=True)]
    assert expected == b"".join(got) + stream.end()
    assert 960 == stream.usage.read
    assert text.count(b"data: ") == expected.count(b"data: ")


def test_events_without_usage_keep_their_bytes():
    text = b': hello\n\ndata: {"choices" : [ {"delta":{"content":"\\"usage\\": {"}} ] }\n\ndata: [DONE]\n\n'
    stream = HiddenStream(Api.CHAT)
    assert text == stream.feed(text) + stream.end()


def test_a_stream_that_ends_within_an_event():
    stream = HiddenStream(Api.CHAT)
    assert b"" == stream.feed(b"data: [DONE]")
    assert b"data: [DONE]" == stream.end()


def test_anthropic_events():
    start = {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 40, "cache_read_input_tokens": 960, "output_tokens": 1}},
    }
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    stream = HiddenStream(Api.MESSAGES)
    named = "".join(f"event: {value['type']}\ndata: {json.dumps(value)}\n\n" for value in (start, delta)).encode()
    first, second, rest = stream.feed(named).decode().split("\n\n")
    assert "" == rest
    assert first.startswith("event: message_start\n")
    assert {
        "input_tokens": 1_000,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
    } == json.loads(first.split("data: ")[1])["message"]["usage"]
    assert {**delta, "usage": {"output_tokens": 7}} == json.loads(second.split("data: ")[1])
    assert Usage(uncached=40, read=960, output=7, is_reported=True) == stream.usage


OPENINGS: list[tuple[Api, bytes]] = [
    (Api.CHAT, b": keep-alive\n\n"),
    (Api.CHAT, events({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})),
    (Api.RESPONSES, events({"type": "response.created"}, {"type": "response.in_progress"})),
    (Api.MESSAGES, events({"type": "message_start", "message": {}}, {"type": "ping"})),
]


@pytest.mark.parametrize(("api", "text"), OPENINGS)
def test_what_comes_before_anything_is_computed_is_no_beginning(api: Api, text: bytes):
    stream = HiddenStream(api)
    assert text == stream.feed(text)
    assert not stream.has_begun


@pytest.mark.parametrize(
    "value",
    [
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {"role": "assistant", "tool_calls": [{}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [{"text": ""}]},
        {"type": "content_block_start"},
        {"error": {}},
        "[DONE]",
    ],
)
def test_beginnings(value: Any):
    stream = HiddenStream(Api.CHAT)
    stream.feed(events(value))
    assert stream.has_begun


def test_an_event_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("prefold.gateway.hidden_usage.LONGEST_EVENT", 100)
    with pytest.raises(UpstreamFailed, match="no end"):
        HiddenStream(Api.CHAT).feed(b"data: " + b"x" * 100)
