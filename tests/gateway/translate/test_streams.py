"""Streams: blocks, numbers, cuts, errors, and agreement with whole answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.gateway.translate.anthropic_client.answer import to_anthropic
from prefold.gateway.translate.anthropic_client.stream import MessageStream
from prefold.gateway.translate.openai_client.answer import to_openai
from prefold.gateway.translate.openai_client.stream import ChatStream

from .support import CREATED, anthropic_events, openai_events, sse

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 7,
    "total_tokens": 107,
    "prompt_tokens_details": {"cached_tokens": 64},
}


def chunk(delta=None, finish=None, **more):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}


def call(index, **function):
    identity = {"id": f"t{index}", "type": "function"} if "name" in function else {}
    return {"index": index, **identity, "function": function}


CHUNKS = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "Hm"}),
    chunk({"reasoning_content": "."}),
    chunk({"content": "Grüß"}),
    chunk({"content": " Gott"}),
    chunk({"tool_calls": [call(0, name="f", arguments="")]}),
    chunk({"tool_calls": [call(0, arguments='{"x"')]}),
    chunk({"tool_calls": [call(0, arguments=": 1}")]}),
    chunk({"tool_calls": [call(1, name="g", arguments="{}")]}),
    chunk({}, "tool_calls"),
    chunk(usage=USAGE),
)
ANSWER = {
    "id": "c",
    "model": "m",
    "choices": [
        {
            "message": {
                "reasoning_content": "Hm.",
                "content": "Grüß Gott",
                "tool_calls": [call(0, name="f", arguments='{"x": 1}'), call(1, name="g", arguments="{}")],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": USAGE,
}


def to_message(*pieces):
    stream = MessageStream()
    return anthropic_events(b"".join(map(stream.feed, pieces)) + stream.end())


def to_chat(*pieces, include_usage=False):
    stream = ChatStream(CREATED, include_usage=include_usage)
    return openai_events(b"".join(map(stream.feed, pieces)) + stream.end())


def assembled(events):
    """The message that events tell of; checks their order on the way."""
    assert "message_start" == events[0]["type"]
    assert ["message_delta", "message_stop"] == [event["type"] for event in events[-2:]]
    message = json.loads(json.dumps(events[0]["message"]))
    is_open = False
    arguments = {}
    for event in events[1:-2]:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert len(message["content"]) == event["index"]
                is_open = True
                message["content"].append(event["content_block"])
            case "content_block_stop":
                assert is_open
                assert len(message["content"]) - 1 == event["index"]
                is_open = False
            case "content_block_delta":
                assert is_open
                block, delta = message["content"][event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "input_json_delta":
                        arguments[event["index"]] = arguments.get(event["index"], "") + delta["partial_json"]
    assert not is_open
    for index, written in arguments.items():
        message["content"][index]["input"] = json.loads(written)
    message["usage"] |= events[-2]["usage"]
    return message | events[-2]["delta"]


def test_a_stream_tells_what_the_whole_answer_does():
    assert to_anthropic(ANSWER) == assembled(to_message(sse(*CHUNKS, "[DONE]")))


@given(st.data())
def test_where_a_stream_is_cut_changes_nothing(data):
    newline = data.draw(st.sampled_from(["\n", "\r\n"]))
    stream = b": keep-alive\n\n" + sse(*CHUNKS, "[DONE]", newline=newline)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=40)))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert to_message(stream) == to_message(*pieces)


def test_usage_in_the_finishing_chunk_and_no_done():
    finishing = {**chunk({}, "stop"), "usage": USAGE}
    events = to_message(sse(chunk({"content": "a"}), finishing))
    assert {
        "input_tokens": 36,
        "cache_read_input_tokens": 64,
        "cache_creation_input_tokens": 0,
        "output_tokens": 7,
    } == (events[-2]["usage"])


def test_usage_is_in_the_first_event_where_it_is_known():
    first = {**chunk({"role": "assistant"}), "usage": {**USAGE, "completion_tokens": 0}}
    events = to_message(sse(first, chunk({}, "stop"), "[DONE]"))
    assert (36, 64) == tuple(
        events[0]["message"]["usage"][name] for name in ("input_tokens", "cache_read_input_tokens")
    )


def test_text_after_a_call_is_a_block_of_its_own():
    events = to_message(
        sse(
            chunk({"content": "a"}),
            chunk({"tool_calls": [call(0, name="f", arguments="{}")]}),
            chunk({"content": "b"}),
            chunk({}, "stop"),
            "[DONE]",
        )
    )
    message = assembled(events)
    assert ["text", "tool_use", "text"] == [block["type"] for block in message["content"]]
    assert "tool_use" == message["stop_reason"]


def test_calls_that_come_interleaved_keep_their_arguments():
    events = to_message(
        sse(
            chunk({"tool_calls": [call(0, name="f", arguments='{"a"'), call(1, name="g", arguments='{"b"')]}),
            chunk({"tool_calls": [call(0, arguments=": 1}")]}),
            chunk({"tool_calls": [call(1, arguments=": 2}")]}),
            chunk({}, "tool_calls"),
            "[DONE]",
        )
    )
    written = ["", ""]
    for event in events:
        if event["type"] == "content_block_delta":
            written[event["index"]] += event["delta"]["partial_json"]
    assert ['{"a": 1}', '{"b": 2}'] == written


def test_a_refusal_and_a_stop_sequence():
    events = to_message(sse(chunk({"refusal": "No."}), chunk({}, "stop"), "[DONE]"))
    assert "refusal" == events[-2]["delta"]["stop_reason"]
    last = chunk({}, "stop")
    last["choices"][0]["stop_reason"] = "END"
    events = to_message(sse(chunk({"content": "a"}), last, "[DONE]"))
    assert {"stop_reason": "stop_sequence", "stop_sequence": "END"} == events[-2]["delta"]


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("api_error", b""),
        ("api_error", b"data: [DONE]\n\n"),
        ("api_error", b"data: {broken\n\n"),
        ("api_error", b"data: [1]\n\n"),
        ("api_error", b'data: {"error": {"message": "x", "code": null}}\n\n'),
        ("overloaded_error", b'data: {"error": {"message": "x", "code": 503}}\n\n'),
        ("invalid_request_error", b'data: {"object": "error", "message": "x", "code": 400}\n\n'),
    ],
)
def test_a_stream_for_anthropic_that_breaks(kind, rest):
    more = sse(chunk({"content": "more"}), chunk({}, "stop"), "[DONE]") if rest else b""
    events = to_message(sse(CHUNKS[0], CHUNKS[3]), rest, more)
    assert {"type": "error", "error": events[-1]["error"]} == events[-1]
    assert kind == events[-1]["error"]["type"]
    assert events[-1]["error"]["message"]
    assert "message_stop" not in [event["type"] for event in events]


def test_an_empty_stream_is_an_error():
    assert ["error"] == [event["type"] for event in to_message()]
    assert "error" in to_chat()[0]


# For OpenAI's clients


START = {
    "type": "message_start",
    "message": {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_read_input_tokens": 64,
            "cache_creation_input_tokens": 16,
            "output_tokens": 1,
        },
    },
}


def begun(index, block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def grown(index, kind, **delta):
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **delta}}


def ended(index):
    return {"type": "content_block_stop", "index": index}


THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
HIDDEN = {"type": "redacted_thinking", "data": "x"}
FINISH = {
    "type": "message_delta",
    "delta": {"stop_reason": "tool_use", "stop_sequence": None},
    "usage": {"output_tokens": 9},
}
STOP = {"type": "message_stop"}
EVENTS = (
    START,
    {"type": "ping"},
    begun(0, {"type": "thinking", "thinking": "", "signature": ""}),
    grown(0, "thinking", thinking="Hm"),
    grown(0, "thinking", thinking="."),
    grown(0, "signature", signature="sig"),
    ended(0),
    begun(1, HIDDEN),
    ended(1),
    begun(2, {"type": "text", "text": ""}),
    grown(2, "text", text="Grüß"),
    grown(2, "text", text=" Gott"),
    ended(2),
    begun(3, {"type": "tool_use", "id": "t0", "name": "f", "input": {}}),
    grown(3, "input_json", partial_json=""),
    grown(3, "input_json", partial_json='{"x"'),
    grown(3, "input_json", partial_json=": 1}"),
    ended(3),
    begun(4, {"type": "tool_use", "id": "t1", "name": "g", "input": {}}),
    ended(4),
    begun(5, {"type": "tool_use", "id": "t2", "name": "h", "input": {"y": 2}}),
    ended(5),
    FINISH,
    STOP,
)
MESSAGE = {
    **START["message"],
    "content": [
        THINKING,
        HIDDEN,
        {"type": "text", "text": "Grüß Gott"},
        {"type": "tool_use", "id": "t0", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "t1", "name": "g", "input": {}},
        {"type": "tool_use", "id": "t2", "name": "h", "input": {"y": 2}},
    ],
    "stop_reason": "tool_use",
    "usage": {**START["message"]["usage"], "output_tokens": 9},
}


def collected(events):
    """The answer that chunks tell of."""
    message = {"role": None, "content": "", "refusal": None}
    for event in events:
        for choice in event["choices"]:
            for name, value in choice["delta"].items():
                if name == "tool_calls":
                    calls = message.setdefault("tool_calls", [])
                    for piece in value:
                        if piece["index"] == len(calls):
                            calls.append(
                                {"id": piece["id"], "type": piece["type"], "function": dict(piece["function"])}
                            )
                        else:
                            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
                elif isinstance(value, list):
                    blocks = message.setdefault(name, [])
                    assert [len(blocks)] == [piece.pop("index") for piece in value]
                    blocks += value
                else:
                    message[name] = (message.get(name) or "") + value
    return message


def test_a_stream_for_openai_tells_what_the_whole_answer_does():
    events = to_chat(sse(*EVENTS), include_usage=True)
    assert "[DONE]" == events.pop()
    assert ": ping" == events.pop(1)
    whole = to_openai(MESSAGE, CREATED)
    assert whole["choices"][0]["message"] == collected(events)
    assert ([], whole["usage"]) == (events[-1]["choices"], events[-1]["usage"])
    assert all(event["usage"] is None for event in events[:-1])
    assert ["tool_calls"] == [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
    assert {("msg", CREATED, "m")} == {(event["id"], event["created"], event["model"]) for event in events}


def test_usage_only_where_it_is_asked_for():
    assert all("usage" not in event for event in to_chat(sse(*EVENTS)) if isinstance(event, dict))


@given(st.sets(st.integers(0, 4000), max_size=40))
def test_where_a_stream_for_openai_is_cut_changes_nothing(cuts):
    stream = sse(*EVENTS, newline="\r\n")
    edges = sorted(cut for cut in cuts if cut < len(stream))
    pieces = [stream[start:stop] for start, stop in zip([0, *edges], [*edges, len(stream)], strict=True)]
    assert to_chat(stream) == to_chat(*pieces)


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("server_error", b""),
        ("server_error", b"event: x\ndata: {broken\n\n"),
        (
            "server_error",
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Busy"}}\n\n',
        ),
        (
            "invalid_request_error",
            b'event: error\ndata: {"type":"error","error":{"type":"rate_limit_error","message":"Slow"}}\n\n',
        ),
    ],
)
def test_a_stream_for_openai_that_breaks(kind, rest):
    pieces = [sse(*EVENTS[:11]), rest]
    events = to_chat(*pieces, *([sse(FINISH, STOP)] if rest else []))
    assert "[DONE]" == events[-1]
    assert kind == events[-2]["error"]["type"]
    assert events[-2]["error"]["message"]
    assert not [c for e in events[:-2] if isinstance(e, dict) for c in e["choices"] if c["finish_reason"]]
