import json

import pytest

from prefold.engine.request import Output, TokenInfo, TokenLogprob, Usage
from prefold.errors import (
    CapacityError,
    EngineStopped,
    InvalidRequest,
    InvalidSalt,
    InvalidTokens,
    ModelError,
    PromptTooLong,
)
from prefold.server.asgi import HttpError, encode_json
from prefold.server.openai_responses import (
    ChatForm,
    Choice,
    CompletionForm,
    Head,
    as_http_error,
    error_body,
    usage_object,
)

HEAD = Head("id-1", 1_700_000_000, "a-model")
COMMON = {"id": "id-1", "created": 1_700_000_000, "model": "a-model"}


def info(token, logprob, *others):
    return TokenInfo(TokenLogprob(token, logprob), tuple(TokenLogprob(*other) for other in others))


@pytest.fixture(scope="module")
def tokens(model):
    """Ids of ` sky`, of ` blue`, and of a token that is a part of a character."""
    (sky,) = model.tokenizer.encode(" sky", add_special=False)
    (blue,) = model.tokenizer.encode(" blue", add_special=False)
    part = model.tokenizer.encode("\U0001fad6", add_special=False)[-1]
    return sky, blue, part


def chat_form(model, *, logprobs=False, include_usage=False):
    return ChatForm(HEAD, model.tokenizer, logprobs=logprobs, include_usage=include_usage)


def completion_form(model, *, logprobs=False, include_usage=False):
    return CompletionForm(HEAD, model.tokenizer, logprobs=logprobs, include_usage=include_usage)


def test_a_choice_is_the_sum_of_its_outputs():
    choice = Choice()
    for output in (Output(0, "a", infos=(info(1, -0.5),)), Output(0, "b", infos=(info(2, -1.0),), finish="stop")):
        choice.add(output)
    assert Choice("ab", [info(1, -0.5), info(2, -1.0)], "stop") == choice


def test_a_whole_chat(model):
    usage = usage_object([Usage(10, 7, 2)])
    assert {
        **COMMON,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage,
    } == chat_form(model).whole([Choice("Hi", [], "stop")], usage)


def test_chunks_of_a_chat(model):
    form = chat_form(model, include_usage=True)
    outputs = [Output(0, "Hi"), Output(0, ""), Output(0, "!", finish="length")]
    chunks = [chunk for output in outputs for chunk in form.chunks(0, output)]
    assert [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "Hi"}, None),
        ({"content": "!"}, None),
        ({}, "length"),
    ] == [(chunk["choices"][0]["delta"], chunk["choices"][0]["finish_reason"]) for chunk in chunks]
    assert all(chunk["object"] == "chat.completion.chunk" and chunk["usage"] is None for chunk in chunks)
    last = form.usage_chunk({"prompt_tokens": 1})
    assert ([], {"prompt_tokens": 1}) == (last["choices"], last["usage"])


def test_every_choice_of_a_stream_begins_with_its_role(model):
    form = chat_form(model)
    first = [next(form.chunks(index, Output(index, "a")))["choices"][0] for index in (0, 1)]
    assert [(0, "assistant"), (1, "assistant")] == [(choice["index"], choice["delta"]["role"]) for choice in first]
    assert "usage" not in next(form.chunks(0, Output(0, "b")))


def test_log_probabilities_of_a_chat(model, tokens):
    sky, blue, part = tokens
    infos = [info(sky, -0.5, (sky, -0.5), (blue, -1.0)), info(part, float("-inf"))]
    logprobs = chat_form(model, logprobs=True).whole([Choice("", infos, "length")], {})["choices"][0]["logprobs"]
    entry = {"token": " sky", "logprob": -0.5, "bytes": list(b" sky")}
    assert {
        **entry,
        "top_logprobs": [entry, {"token": " blue", "logprob": -1.0, "bytes": list(b" blue")}],
    } == logprobs["content"][0]
    assert {
        "token": "\ufffd",
        "logprob": -9999.0,
        "bytes": [0x96],
        "top_logprobs": [],
    } == logprobs["content"][1]


def test_a_whole_completion(model, tokens):
    sky, blue, _ = tokens
    choices = [
        Choice(" sky blue", [info(sky, -0.5, (blue, -0.25)), info(blue, -1.0, (blue, -1.0))], "length"),
        Choice("", [], "stop"),
    ]
    body = completion_form(model, logprobs=True).whole(choices, {})
    assert {
        "index": 0,
        "text": " sky blue",
        "logprobs": {
            "tokens": [" sky", " blue"],
            "token_logprobs": [-0.5, -1.0],
            "top_logprobs": [{" blue": -0.25, " sky": -0.5}, {" blue": -1.0}],
            "text_offset": [0, 4],
        },
        "finish_reason": "length",
    } == body["choices"][0]
    assert {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []} == body["choices"][1]["logprobs"]


def test_chunks_of_a_completion(model, tokens):
    sky, blue, _ = tokens
    form = completion_form(model, logprobs=True)
    outputs = [
        Output(0, " sky", infos=(info(sky, -0.5),)),
        Output(0),
        Output(0, infos=(info(blue, -1.0),), finish="stop"),
    ]
    chunks = [chunk["choices"][0] for output in outputs for chunk in form.chunks(0, output)]
    assert [(" sky", [0], None), ("", [4], "stop")] == [
        (chunk["text"], chunk["logprobs"]["text_offset"], chunk["finish_reason"]) for chunk in chunks
    ]


def test_usage_is_summed_over_prompts():
    assert {
        "prompt_tokens": 15,
        "completion_tokens": 3,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 7},
    } == usage_object([Usage(10, 7, 2), Usage(5, 0, 1)])


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (InvalidRequest("m", param="n"), 400, "invalid_request_error", "n", None),
        (PromptTooLong("m", param="prompt"), 400, "invalid_request_error", "prompt", "context_length_exceeded"),
        (InvalidTokens("m"), 400, "invalid_request_error", "prompt", None),
        (InvalidSalt("m"), 400, "invalid_request_error", "cache_salt", None),
        (CapacityError("m"), 409, "invalid_request_error", None, "insufficient_memory"),
        (EngineStopped("m"), 503, "server_error", None, "engine_stopped"),
        (ModelError("m"), 500, "server_error", None, None),
        (HttpError(405, "m", code="method_not_allowed"), 405, "invalid_request_error", None, "method_not_allowed"),
    ],
)
def test_errors(error, status, kind, param, code):
    found = as_http_error(error)
    assert status == found.status
    assert {"error": {"message": "m", "type": kind, "param": param, "code": code}} == error_body(found)


def test_the_message_of_an_error_includes_the_hint():
    assert "m (h)" == error_body(as_http_error(EngineStopped("m", hint="h")))["error"]["message"]


def test_json_keeps_every_text():
    texts = ["né", "\0", "\ud800", "\u2028", "日本"]
    assert texts == json.loads(encode_json(texts))
    assert "né".encode() in encode_json("né")
