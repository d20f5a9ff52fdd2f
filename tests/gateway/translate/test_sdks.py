"""The official SDKs through a translating server on loopback."""

import json
from contextlib import contextmanager

import anthropic
import openai
import pytest

from prefold.gateway.config import Kind

from .support import gateway, sse
from .test_streams import ANSWER, CHUNKS, EVENTS, MESSAGE

TOOLS = [{"name": "f", "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}}}]
HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def seen():
    return []


def answering(seen, whole, stream, size=7):
    """An upstream with one answer; streams come in pieces of `size` bytes."""

    def upstream(body):
        seen.append(body)
        data = stream if body.get("stream") else json.dumps(whole).encode()
        return 200, [data[start : start + size] for start in range(0, len(data), size)]

    return upstream


def failing(status, body):
    return lambda _: (status, [json.dumps(body).encode()])


@contextmanager
def anthropic_client(upstream):
    with (
        gateway(Kind.VLLM, upstream) as url,
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
    ):
        yield client


@contextmanager
def openai_client(upstream):
    with (
        gateway(Kind.ANTHROPIC, upstream) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


@pytest.fixture
def for_anthropic(seen):
    whole = {**ANSWER, "object": "chat.completion", "created": 1}
    with anthropic_client(answering(seen, whole, sse(*CHUNKS, "[DONE]", newline="\r\n"))) as client:
        yield client


@pytest.fixture
def for_openai(seen):
    with openai_client(answering(seen, MESSAGE, sse(*EVENTS))) as client:
        yield client


def test_the_anthropic_sdk_and_a_turn_with_tools(for_anthropic, seen):
    message = for_anthropic.messages.create(model="m", max_tokens=9, messages=HI, tools=TOOLS, system="Be kind.")
    assert ["thinking", "text", "tool_use", "tool_use"] == [block.type for block in message.content]
    assert {"x": 1} == message.content[2].input
    assert (36, 64, 7) == (
        message.usage.input_tokens,
        message.usage.cache_read_input_tokens,
        message.usage.output_tokens,
    )
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "ok"}
        for block in message.content
        if block.type == "tool_use"
    ]
    turns = [*HI, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    for_anthropic.messages.create(model="m", max_tokens=9, messages=turns, tools=TOOLS, system="Be kind.")
    first, second = seen
    assert first["messages"] == second["messages"][:2]
    assert ["assistant", "tool", "tool"] == [entry["role"] for entry in second["messages"][2:]]
    assert "Hm." == second["messages"][2]["reasoning"]


def test_the_anthropic_sdk_and_a_stream(for_anthropic):
    whole = for_anthropic.messages.create(model="m", max_tokens=9, messages=HI, tools=TOOLS)
    with for_anthropic.messages.stream(model="m", max_tokens=9, messages=HI, tools=TOOLS) as stream:
        assert "Grüß Gott" == "".join(stream.text_stream)
        message = stream.get_final_message()
    expected = whole.model_dump(exclude_none=True, exclude={"content": {"__all__": {"parsed_output"}}})
    assert expected == message.model_dump(exclude_none=True, exclude={"content": {"__all__": {"parsed_output"}}})


def test_the_anthropic_sdk_and_errors():
    body = {"error": {"message": "Slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    with anthropic_client(failing(429, body)) as client, pytest.raises(anthropic.RateLimitError, match="Slow down"):
        client.messages.create(model="m", max_tokens=9, messages=HI)
    broken = sse(CHUNKS[0], CHUNKS[3], {"error": {"message": "Out of memory", "code": 500}})
    with (
        anthropic_client(lambda _: (200, [broken])) as client,
        client.messages.stream(model="m", max_tokens=9, messages=HI) as stream,
        pytest.raises(anthropic.APIStatusError, match="Out of memory"),
    ):
        stream.get_final_message()


def test_the_openai_sdk_and_a_turn_with_tools(for_openai, seen):
    tools = [{"type": "function", "function": {"name": "f", "parameters": TOOLS[0]["input_schema"]}}]
    answer = for_openai.chat.completions.create(model="m", messages=HI, tools=tools)
    spoken = answer.choices[0].message
    assert ["f", "g", "h"] == [call.function.name for call in spoken.tool_calls]
    assert [{"x": 1}, {}, {"y": 2}] == [json.loads(call.function.arguments) for call in spoken.tool_calls]
    assert (83, 64, 9) == (
        answer.usage.prompt_tokens,
        answer.usage.prompt_tokens_details.cached_tokens,
        answer.usage.completion_tokens,
    )
    results = [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in spoken.tool_calls]
    for_openai.chat.completions.create(
        model="m", messages=[*HI, spoken.model_dump(exclude_none=True), *results], tools=tools
    )
    # Thinking comes back as Anthropic wrote it, or it would refuse the turn.
    assert MESSAGE["content"] == seen[1]["messages"][1]["content"]
    assert 3 == len(seen[1]["messages"][2]["content"])


def test_the_openai_sdk_and_a_stream(for_openai):
    whole = for_openai.chat.completions.create(model="m", messages=HI)
    with for_openai.chat.completions.stream(model="m", messages=HI, stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    assert whole.choices[0].message.content == answer.choices[0].message.content
    assert whole.choices[0].finish_reason == answer.choices[0].finish_reason
    calls = [(call.id, call.function.name, call.function.arguments) for call in answer.choices[0].message.tool_calls]
    assert [
        (call.id, call.function.name, call.function.arguments) for call in whole.choices[0].message.tool_calls
    ] == calls
    assert whole.usage == answer.usage


def test_thinking_put_together_by_the_openai_sdk_can_be_sent_back(for_openai, seen):
    with for_openai.chat.completions.stream(model="m", messages=HI) as stream:
        spoken = stream.get_final_completion().choices[0].message
    turns = [*HI, spoken.model_dump(exclude_none=True), {"role": "user", "content": "And?"}]
    for_openai.chat.completions.create(model="m", messages=turns)
    assert MESSAGE["content"][:3] == seen[1]["messages"][1]["content"][:3]


def test_the_openai_sdk_and_errors():
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}
    with openai_client(failing(529, body)) as client, pytest.raises(openai.InternalServerError, match="Busy"):
        client.chat.completions.create(model="m", messages=HI)
    with (
        openai_client(lambda _: (200, [sse(*EVENTS[:11], body)])) as client,
        client.chat.completions.create(model="m", messages=HI, stream=True) as stream,
        pytest.raises(openai.APIError, match="Busy"),
    ):
        list(stream)


def test_structured_output_of_the_anthropic_sdk(seen):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    answer = {"id": "c", "model": "m", "choices": [{"message": {"content": '{"a": 1}'}, "finish_reason": "stop"}]}
    with anthropic_client(answering(seen, answer, b"")) as client:
        message = client.messages.create(
            model="m",
            max_tokens=9,
            messages=HI,
            output_config={"format": {"type": "json_schema", "schema": schema}},
            extra_body={"cache_salt": "mine"},
        )
    assert {"a": 1} == json.loads(message.content[0].text)
    assert schema == seen[0]["response_format"]["json_schema"]["schema"]
    assert "mine" == seen[0]["cache_salt"]
