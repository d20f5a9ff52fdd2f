"""Answers in every form and back."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import UsageError
from prefold.responses.endings import event_data, has_last_event
from prefold.responses.semantic.forms import read_answer, render
from prefold.responses.semantic.types import Answer

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
ALL = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
JSON = {b"content-type": b"application/json"}
STREAM = {b"content-type": b"text/event-stream; charset=utf-8"}
ANSWER = Answer("Go to settings.", "m-1", "stop", 11, 4, (3, 3, 9))


def rendered(answer=ANSWER, api=CHAT, *, stream=False, include_usage=True, provenance=None, **named):
    provenance = {"entry": "e" * 32, "age_seconds": 7.5} if provenance is None else provenance
    return render(
        answer,
        api,
        stream=stream,
        include_usage=include_usage,
        id="0123",
        created=1_764_547_200.9,
        provenance=provenance,
        **named,
    )


def events(chunks):
    return [json.loads(data) for data in event_data(b"".join(chunks)) if data != b"[DONE]"]


def stream_of(*events, done=True):
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    return body + b"data: [DONE]\n\n" if done else body


def chat(message=None, finish="stop", **fields):
    message = {"role": "assistant", "content": "Yes."} if message is None else message
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"object": "chat.completion", "model": "m", "choices": [choice], **fields}


def chunk(delta, finish=None, **choice):
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **choice}],
    }


def message(*blocks, stop="end_turn", **fields):
    return {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(blocks),
        "stop_reason": stop,
        **fields,
    }


def response(*output, status="completed"):
    return {"object": "response", "model": "m", "status": status, "output": list(output)}


def item(*content, **fields):
    return {"type": "message", "status": "completed", "role": "assistant", "content": list(content), **fields}


def read(document, api=CHAT, headers=JSON):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_answer(api, headers, body)


awkward = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from("\u2028\u2029\x85\n\r\t\"'\\\x00，。中文日本語한국어😀👩‍🚀é\u0301\ufeff"),
    ),
    max_size=60,
)


@given(
    st.sampled_from(ALL),
    awkward,
    st.lists(st.integers(0, 9), max_size=12).map(tuple),
    st.booleans(),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_what_is_written_is_what_is_read(api, text, lengths, stream, read_tokens, written_tokens):
    text = f"Well: {text}."
    answer = Answer(text, "m", "stop", read_tokens, written_tokens, lengths)
    headers, chunks = rendered(answer, api, stream=stream)
    again = read_answer(api, dict(headers), b"".join(chunks))
    assert replace(answer, deltas=()) == replace(again, deltas=())
    assert (len(text) if stream else 0) == sum(again.deltas)
    # Pieces are kept, but for empty ones and lengths that say more than there is.
    assert not stream or rendered(again, api, stream=True) == (headers, chunks)


@given(awkward)
def test_no_client_can_cut_an_event_into_lines(text):
    for api in ALL:
        for body in rendered(Answer(f"Well: {text}"), api, stream=True)[1]:
            assert body.endswith(b"\n\n")
            assert body.decode().splitlines() == body[:-1].decode().split("\n")


@pytest.mark.parametrize("api", ALL)
def test_pieces_are_replayed_as_they_came(api):
    headers, chunks = rendered(api=api, stream=True)
    assert ANSWER == read_answer(api, dict(headers), b"".join(chunks))
    assert has_last_event(b"".join(chunks))
    for piece in ("Go ", "to ", "settings."):
        assert 1 == sum(f'"{piece}"'.encode() in body for body in chunks)


@pytest.mark.parametrize("api", ALL)
@pytest.mark.parametrize("stream", [False, True])
def test_a_hit_says_that_it_is_one(api, stream):
    headers, chunks = rendered(api=api, stream=stream, provenance={"entry": "e1", "age_seconds": 7.5, "cache": "x"})
    mark = {"entry": "e1", "age_seconds": 7.5, "cache": "semantic"}
    assert (b"semantic", b"e1") == (dict(headers)[b"x-prefold-cache"], dict(headers)[b"x-prefold-entry"])
    first = events(chunks)[0] if stream else json.loads(chunks[0])
    assert mark == first["prefold"]
    assert b"x-prefold-entry" not in dict(rendered(api=api, stream=stream, provenance={})[0])


def test_a_whole_answer_says_how_long_it_is():
    headers, (body,) = rendered()
    assert str(len(body)).encode() == dict(headers)[b"content-length"]


def test_usage_comes_with_chat_only_if_asked_for():
    for api in (CHAT, COMPLETIONS):
        *before, last = events(rendered(api=api, stream=True)[1])
        assert {None} == {event["usage"] for event in before}
        assert [] == last["choices"]
        assert (11, 4, 15, 11) == (
            last["usage"]["prompt_tokens"],
            last["usage"]["completion_tokens"],
            last["usage"]["total_tokens"],
            last["usage"]["prompt_tokens_details"]["cached_tokens"],
        )
        without = events(rendered(api=api, stream=True, include_usage=False)[1])
        assert len(before) == len(without)
        assert not any("usage" in event for event in without)


def test_a_response_repeats_what_was_asked():
    request = {"temperature": 0, "instructions": "Be brief.", "store": False, "tools": [], "input": "hi", "x": 1}
    document = json.loads(rendered(api=RESPONSES, request=request)[1][0])
    assert (0, "Be brief.", False) == (document["temperature"], document["instructions"], document["store"])
    assert not {"input", "x"} & document.keys()
    last = events(rendered(api=RESPONSES, stream=True, request=request)[1])[-1]
    assert document == last["response"]


def test_what_was_cut_off_is_rendered_as_cut_off():
    short = replace(ANSWER, finish="length")
    assert "length" == json.loads(rendered(short)[1][0])["choices"][0]["finish_reason"]
    assert "max_tokens" == json.loads(rendered(short, MESSAGES)[1][0])["stop_reason"]
    assert "incomplete" == json.loads(rendered(short, RESPONSES)[1][0])["status"]
    assert "response.incomplete" == events(rendered(short, RESPONSES, stream=True)[1])[-1]["type"]
    for api in ALL:
        for stream in (False, True):
            headers, chunks = rendered(short, api, stream=stream)
            assert read_answer(api, dict(headers), b"".join(chunks)) is None


def test_an_unknown_api_has_no_form():
    with pytest.raises(UsageError, match="/v1/embeddings"):
        rendered(api="/v1/embeddings")
    assert read_answer("/v1/embeddings", JSON, b'{"object": "list", "data": [1]}') is None


TEXT = {"type": "text", "text": "Yes."}
OUTPUT = {"type": "output_text", "text": "Yes.", "annotations": []}


@pytest.mark.parametrize(
    ("api", "document"),
    [
        (CHAT, chat()),
        (f"{CHAT}?api-version=1", chat()),
        (CHAT, chat({"role": "assistant", "content": "Yes.", "refusal": None, "annotations": [], "tool_calls": []})),
        (CHAT, chat({"role": "assistant", "content": "Yes.", "reasoning_content": None}, usage=None)),
        (COMPLETIONS, {"model": "m", "choices": [{"index": 0, "text": "Yes.", "finish_reason": "stop"}]}),
        (MESSAGES, message(TEXT)),
        (MESSAGES, message({**TEXT, "citations": None}, stop_sequence=None)),
        (RESPONSES, response(item(OUTPUT))),
        (RESPONSES, response(item({**OUTPUT, "logprobs": []}, id="msg_1", phase="final_answer"))),
    ],
)
def test_a_plain_answer_is_read(api, document):
    assert Answer("Yes.", "m") == read(document, api)


@pytest.mark.parametrize(
    ("api", "document"),
    [
        (CHAT, chat(finish="length")),
        (CHAT, chat(finish="content_filter")),
        (CHAT, chat({"content": None, "tool_calls": [{"id": "c"}]}, "tool_calls")),
        (CHAT, chat({"content": "Let me see.", "tool_calls": [{"id": "c"}]})),
        (CHAT, chat({"content": None, "refusal": "No."})),
        (CHAT, chat({"content": ""})),
        (CHAT, chat({"content": " \n"})),
        (CHAT, chat({"content": None})),
        (CHAT, chat({"content": [TEXT]})),
        (CHAT, chat({"content": "Yes.", "annotations": [{"type": "url_citation"}]})),
        (CHAT, chat({"content": "Yes.", "reasoning_content": "Hm."})),
        (CHAT, chat({"content": "Yes.", "audio": {"id": "a"}})),
        (CHAT, chat({"content": "I'm sorry, but I can't help with that."})),
        (CHAT, chat(citations=["https://example.org"])),
        (CHAT, {**chat(), "choices": chat()["choices"] * 2}),
        (CHAT, {**chat(), "choices": [{**chat()["choices"][0], "logprobs": {"content": [{}]}}]}),
        (CHAT, chat(error={"message": "no"})),
        (CHAT, {"error": {"message": "no"}}),
        (CHAT, b'{"choices": [{"message": {"content": "half a pair: \\ud83d"}, "finish_reason": "stop"}]}'),
        (CHAT, b"[]"),
        (CHAT, b"not JSON"),
        (CHAT, message(TEXT)),
        (COMPLETIONS, {"choices": [{"index": 0, "text": None, "finish_reason": "stop"}]}),
        (COMPLETIONS, {"choices": [{"index": 0, "text": "Yes.", "finish_reason": "length"}]}),
        (MESSAGES, chat()),
        (MESSAGES, message()),
        (MESSAGES, message(TEXT, TEXT)),
        (MESSAGES, message({"type": "thinking", "thinking": "Hm.", "signature": "s"}, TEXT)),
        (MESSAGES, message({**TEXT, "citations": [{"type": "char_location"}]})),
        (MESSAGES, message({"type": "tool_use", "id": "t", "name": "f", "input": {}}, stop="tool_use")),
        (MESSAGES, message(TEXT, stop="refusal")),
        (MESSAGES, message(TEXT, stop="max_tokens")),
        (MESSAGES, message(TEXT, stop="stop_sequence", stop_sequence="x")),
        (MESSAGES, message(TEXT, stop="pause_turn")),
        (RESPONSES, response()),
        (RESPONSES, response(item(OUTPUT), status="incomplete")),
        (RESPONSES, response(item({**OUTPUT, "annotations": [{"type": "file_citation"}]}))),
        (RESPONSES, response(item({"type": "refusal", "refusal": "No."}))),
        (RESPONSES, response({"type": "reasoning", "summary": []}, item(OUTPUT))),
        (RESPONSES, response({"type": "function_call", "name": "f", "arguments": "{}"})),
        (RESPONSES, response(item(OUTPUT, OUTPUT))),
    ],
)
def test_what_is_more_or_less_than_one_text_is_not_read(api, document):
    assert read(document, api) is None


def test_what_is_compressed_is_not_read():
    assert read(chat(), headers={**JSON, b"content-encoding": b"gzip"}) is None
    assert read(chat(), headers={b"content-type": b"text/html"}) is None


START = chunk({"role": "assistant", "content": ""})
END = chunk({}, "stop")


def test_a_stream_of_chat_is_read_with_its_pieces_and_usage():
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}, "model": "m"}
    filtered = {"choices": [], "prompt_filter_results": [{"prompt_index": 0}], "model": ""}
    body = stream_of(filtered, START, chunk({"content": "Ye"}), chunk({"content": "s."}, logprobs=None), END, usage)
    assert Answer("Yes.", "m", "stop", 7, 2, (2, 2)) == read(body, headers=STREAM)


@pytest.mark.parametrize(
    "body",
    [
        stream_of(START, chunk({"content": "Yes."}), END, done=False),
        stream_of(START, chunk({"content": "Yes."}), chunk({}, "length")),
        stream_of(START, chunk({"content": "Yes."})),
        stream_of(START, END),
        stream_of(START, chunk({"reasoning_content": "Hm."}), chunk({"content": "Yes."}), END),
        stream_of(START, chunk({"refusal": "No."}), END),
        stream_of(START, chunk({"content": "Yes."}), chunk({"tool_calls": [{"index": 0}]}), END),
        stream_of(START, chunk({"content": "Yes."}, logprobs={"content": [{}]}), END),
        stream_of(START, chunk({"content": "Yes."}, index=1), END),
        stream_of(START, {"error": {"message": "no"}}, chunk({"content": "Yes."}), END),
        stream_of(START, chunk({"content": "抱歉，我无法回答这个问题。"}), END),
        stream_of([START], chunk({"content": "Yes."}), END),
    ],
)
def test_a_stream_of_chat_that_says_more_or_less_is_not_read(body):
    assert read(body, headers=STREAM) is None


def of_messages(*between, stop="end_turn"):
    return stream_of(
        {"type": "message_start", "message": {**message(stop=None), "usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "ping"},
        *between,
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
        done=False,
    )


BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
YES = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}}
STOP = {"type": "content_block_stop", "index": 0}


def test_a_stream_of_messages_is_read():
    assert Answer("Yes.", "m", "stop", 5, 2, (4,)) == read(of_messages(BLOCK, YES, STOP), MESSAGES, STREAM)


@pytest.mark.parametrize(
    "body",
    [
        of_messages(BLOCK, YES, STOP, stop="refusal"),
        of_messages(BLOCK, YES, STOP, stop="max_tokens"),
        of_messages({**BLOCK, "content_block": {"type": "thinking", "thinking": ""}}, YES, STOP),
        of_messages(BLOCK, YES, {**YES, "delta": {"type": "citations_delta", "citation": {}}}, STOP),
        of_messages(BLOCK, YES, STOP, {**BLOCK, "index": 1}, {**YES, "index": 1}),
        of_messages(BLOCK, YES, {"type": "something_new"}),
        of_messages(),
    ],
)
def test_a_stream_of_messages_that_says_more_or_less_is_not_read(body):
    assert read(body, MESSAGES, STREAM) is None


def test_a_stream_of_responses_must_say_what_its_end_says():
    delta = {"type": "response.output_text.delta", "delta": "Yes."}
    end = {"type": "response.completed", "response": response(item(OUTPUT))}
    assert Answer("Yes.", "m", deltas=(4,)) == read(stream_of(delta, end, done=False), RESPONSES, STREAM)
    assert read(stream_of({**delta, "delta": "No."}, end, done=False), RESPONSES, STREAM) is None
    assert read(stream_of(delta, {**end, "response": response()}, done=False), RESPONSES, STREAM) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)


@given(st.sampled_from(ALL), st.data())
def test_whatever_comes_is_read_or_not(api, data):
    """Any member of a good answer replaced by anything."""
    documents = {CHAT: chat(), COMPLETIONS: chat(), MESSAGES: message(TEXT), RESPONSES: response(item(OUTPUT))}
    document = json.loads(json.dumps(documents[api]))
    holder = document
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(holder[key], dict | list) and data.draw(st.booleans()):
            holder = holder[key]
        else:
            holder[key] = data.draw(json_values)
            break
    answer = read(document, api)
    assert answer is None or answer.text.strip()
