"""Which answers may be kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.providers.usage import Usage
from prefold.responses.endings import Ending, cut_between_events, ending_of, event_data, has_last_event, usage_if_whole

from .support import CHAT, CHAT_EVENTS, EVENT_STREAM, JSON, MESSAGE_EVENTS, chat_chunk, sse

MESSAGE = {
    "type": "message",
    "content": [],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 4, "cache_read_input_tokens": 3, "output_tokens": 2},
}
RESPONSE = {"object": "response", "status": "completed", "error": None, "usage": None}


def of_document(value):
    return usage_if_whole(dict([JSON]), json.dumps(value).encode())


def of_stream(*parts):
    return usage_if_whole(dict([EVENT_STREAM]), b"".join(parts))


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (CHAT, (7, 2)),
        (MESSAGE, (7, 2)),
        (RESPONSE, (0, 0)),
        ({"object": "list", "data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 3}}, (3, 0)),
        ({"input_tokens": 5}, (5, 0)),
    ],
)
def test_whole_documents(answer, tokens):
    usage = of_document(answer)
    assert tokens == (usage.input, usage.output)


def choices(*reasons):
    return {**CHAT, "choices": [{"index": index, "finish_reason": reason} for index, reason in enumerate(reasons)]}


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"message": "no"}},
        {**CHAT, "error": {"message": "no"}},
        choices(),
        choices(None),
        choices("stop", None),
        choices("content_filter"),
        choices("abort"),
        choices("error"),
        choices(3),
        {**CHAT, "choices": "x"},
        {**CHAT, "choices": [3]},
        {**MESSAGE, "stop_reason": "refusal"},
        {**MESSAGE, "stop_reason": "pause_turn"},
        {**MESSAGE, "stop_reason": None},
        {**RESPONSE, "status": "incomplete"},
        {**RESPONSE, "status": "in_progress"},
        {**RESPONSE, "error": {"code": "x"}},
        {"object": "list", "data": []},
        {"type": "error", "error": {"type": "overloaded_error"}},
        {},
        [],
        "garbage",
    ],
    ids=str,
)
def test_documents_that_are_not_kept(answer):
    assert of_document(answer) is None


def test_whole_streams():
    assert (7, 2) == (of_stream(*CHAT_EVENTS).input, of_stream(*CHAT_EVENTS).output)
    assert (7, 3, 2) == (
        of_stream(*MESSAGE_EVENTS).input,
        of_stream(*MESSAGE_EVENTS).read,
        of_stream(*MESSAGE_EVENTS).output,
    )
    completed = {"type": "response.completed", "response": {"usage": {"input_tokens": 7, "output_tokens": 2}}}
    assert 2 == of_stream(sse({"type": "response.created"}, completed)).output


def test_a_stream_with_comments_other_line_ends_and_no_usage():
    body = b": ping\r\n\r\ndata:" + json.dumps(chat_chunk("a", "stop")).encode() + b"\r\n\r\ndata:[DONE]\r\n\r\n"
    assert Usage() == of_stream(body)


@given(st.integers(0, len(b"".join(CHAT_EVENTS)) - 1))
def test_a_chat_stream_cut_anywhere_is_not_whole(at):
    body = b"".join(CHAT_EVENTS)
    cut = of_stream(body[:at])
    # Only the line ends after the last event may be missing.
    assert (cut is not None) == (body[:at].rstrip() == body.rstrip())


@given(st.integers(0, len(b"".join(MESSAGE_EVENTS)) - 1))
def test_neither_is_a_stream_of_messages(at):
    body = b"".join(MESSAGE_EVENTS)
    cut = of_stream(body[:at])
    assert (cut is not None) == (body[:at].rstrip() == body.rstrip())


@pytest.mark.parametrize(
    "events",
    [
        (chat_chunk("a"), "[DONE]"),
        (chat_chunk("a"), {"error": {"message": "died"}}, "[DONE]"),
        (chat_chunk("a", "stop"), {"error": {"message": "died"}}, "[DONE]"),
        (chat_chunk("a", "abort"), "[DONE]"),
        (chat_chunk("a", "stop"), chat_chunk("b", index=1), "[DONE]"),
        (chat_chunk("a", "stop"), "[DONE]", {"error": "late"}),
        ("[DONE]",),
        ("garbage", "[DONE]"),
        (3, "[DONE]"),
        ({"type": "message_delta", "delta": {"stop_reason": "refusal"}}, {"type": "message_stop"}),
        ({"type": "message_stop"},),
        ({"type": "response.failed"},),
        ({"type": "response.incomplete"},),
        (),
    ],
    ids=str,
)
def test_streams_that_are_not_kept(events):
    assert of_stream(sse(*events)) is None


def test_an_empty_event_may_follow_the_one_with_the_reason():
    assert of_stream(sse(chat_chunk("a", "stop"), chat_chunk(""), "[DONE]")) is not None


def test_choices_may_end_at_different_times():
    assert of_stream(sse(chat_chunk("a", "stop"), chat_chunk("b", "length", index=1), "[DONE]")) is not None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"content-type": b"text/html"},
        {b"content-type": b"application/json", b"content-encoding": b"gzip"},
        {b"content-type": b"text/event-stream"},
    ],
    ids=str,
)
def test_headers_that_say_no(headers):
    assert usage_if_whole(headers, json.dumps(CHAT).encode()) is None


RESPONSE = {"id": "resp_1", "object": "response", "instructions": "x" * 9_000, "usage": None}
RESPONSE_USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens": 1,
    "total_tokens": 10,
}
RESPONSE_EVENTS = [
    sse({"type": "response.created", "response": RESPONSE}),
    sse({"type": "response.output_text.delta", "delta": '"usage": {"input_tokens": 1, "total_tokens": 2}'}),
    sse({"type": "response.completed", "response": {**RESPONSE, "usage": RESPONSE_USAGE, "user": None}}),
]


@pytest.mark.parametrize(
    "events", [CHAT_EVENTS, MESSAGE_EVENTS, RESPONSE_EVENTS], ids=["chat", "messages", "responses"]
)
def test_the_last_event_is_known_and_no_other(events):
    assert [False] * (len(events) - 1) + [True] == [has_last_event(event) for event in events]


def test_an_answer_that_speaks_of_the_end_has_not_come_to_it():
    assert not has_last_event(sse(chat_chunk('data: [DONE] "message_stop"')))


@given(st.lists(st.sampled_from(CHAT_EVENTS + MESSAGE_EVENTS), max_size=30), st.integers(1, 2_000))
def test_a_stream_is_cut_into_whole_events(events, size):
    body = b"".join(events)
    chunks = cut_between_events(body, size)
    assert body == b"".join(chunks)
    assert list(event_data(body)) == [data for chunk in chunks for data in event_data(chunk)]
    assert all(len(chunk) <= size or 1 == len(list(event_data(chunk))) for chunk in chunks)
    assert all(chunk.endswith(b"\n\n") for chunk in chunks)


def test_a_stream_without_a_border_stays_whole():
    assert (b"data: a\r\n\r\ndata: b",) == cut_between_events(b"data: a\r\n\r\ndata: b", 4)


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ((chat_chunk("a"), chat_chunk("", "stop"), "[DONE]"), Ending.WHOLE),
        ((chat_chunk("a", "stop"),), Ending.WHOLE),
        ((chat_chunk("a", "content_filter"), {"choices": [], "usage": {}}), Ending.WHOLE),
        (({"type": "response.incomplete", "response": {}},), Ending.WHOLE),
        (({"type": "message_stop"}, {"type": "ping"}), Ending.WHOLE),
        ((chat_chunk("a"), {"error": {"message": "no"}}), Ending.ERROR),
        (({"type": "error", "error": {}},), Ending.ERROR),
        (({"type": "response.failed"},), Ending.ERROR),
        ((chat_chunk("a"),), Ending.MISSING),
        ((chat_chunk("", "stop"), chat_chunk("b")), Ending.MISSING),
        ((chat_chunk("a"), "garbage"), Ending.MISSING),
        (({"type": "content_block_stop"},), Ending.MISSING),
        ((), Ending.MISSING),
    ],
    ids=str,
)
def test_how_streams_end(events, ending):
    assert ending is ending_of(sse(*events))


def test_a_comment_behind_the_end_changes_nothing():
    assert Ending.WHOLE is ending_of(sse(chat_chunk("a", "stop"), "[DONE]") + b": still here\n\n")


@pytest.mark.parametrize("text", [b"<html></html>", b'{"choices": []}', b"\xff", b"data: [1, 2]\n\n"])
def test_what_is_no_stream_has_no_end(text):
    assert Ending.MISSING is ending_of(text)
