"""Requests of OpenAI's clients for upstreams with Anthropic's API."""

import pytest

from prefold.errors import InvalidRequest
from prefold.gateway.translate.openai_client.request import DEFAULT_MAX_TOKENS, to_anthropic, wants_usage

from .support import valid_for_anthropic, valid_for_openai

MARK = {"cache_control": {"type": "ephemeral"}}
HI = {"role": "user", "content": "Hi"}
FUNCTION = {"name": "weather", "description": "Weather.", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": FUNCTION}


def translated(*messages, **fields):
    body = {"model": "m", "messages": list(messages) or [HI], **fields}
    return valid_for_anthropic(to_anthropic(valid_for_openai(body)))


def text(words, **more):
    return {"type": "text", "text": words, **more}


def test_the_least():
    assert {"model": "m", "max_tokens": DEFAULT_MAX_TOKENS, "messages": [HI]} == translated()


def test_only_system_messages_at_the_front_become_system():
    later = {"role": "system", "content": "Be short."}
    made = translated({"role": "system", "content": "Be kind."}, HI, later, HI)
    assert "Be kind." == made["system"]
    assert [HI, later, HI] == made["messages"]
    made = translated(
        {"role": "developer", "content": "One."}, {"role": "system", "content": [text("Two.", **MARK)]}, HI
    )
    assert [text("One."), text("Two.", **MARK)] == made["system"]
    assert "system" not in translated(HI, {"role": "developer", "content": "x"})
    assert {"role": "system", "content": "x"} == translated(HI, {"role": "developer", "content": "x"})["messages"][1]


def test_a_conversation_with_tools():
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    calls = [
        {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}},
        {"id": "t2", "type": "function", "function": {"name": "weather", "arguments": ""}},
    ]
    made = translated(
        HI,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": calls,
            "thinking_blocks": [thinking],
            "reasoning_content": "Hm.",
        },
        {"role": "tool", "tool_call_id": "t1", "content": "Sun"},
        {"role": "tool", "tool_call_id": "t2", "content": [text("Rain")]},
        {"role": "user", "content": [text("And?")]},
        {"role": "assistant", "content": "Fine."},
        {"role": "assistant", "content": None, "refusal": "No."},
        tools=[TOOL],
    )
    assert [
        HI,
        {
            "role": "assistant",
            "content": [
                thinking,
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}},
                {"type": "tool_use", "id": "t2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "Sun"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [text("Rain")]},
            ],
        },
        {"role": "user", "content": [text("And?")]},
        {"role": "assistant", "content": "Fine."},
        {"role": "assistant", "content": [text("No.")]},
    ] == made["messages"]
    expected = {"name": "weather", "description": "Weather.", "input_schema": FUNCTION["parameters"]}
    assert [expected] == made["tools"]


def test_images_and_files():
    made = translated(
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
            ],
        }
    )
    assert [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
            "title": "a.pdf",
        },
    ] == made["messages"][0]["content"]


def test_markers():
    long = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    parts = [
        text("a", **long),
        text("b", prompt_cache_breakpoint={"mode": "explicit"}),
        text("c", prompt_cache_breakpoint={"mode": "explicit", "ttl": "30m"}),
    ]
    call = {"id": "t", "type": "function", "function": {"name": "weather", "arguments": "{}"}, **MARK}
    made = translated(
        {"role": "user", "content": parts},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": [text("r", **long)]},
        {**HI, **MARK},
        tools=[{**TOOL, **MARK}],
        prompt_cache_options={"mode": "implicit"},
    )
    assert [text("a", **long), text("b", **MARK), text("c", **long)] == made["messages"][0]["content"]
    assert MARK["cache_control"] == made["messages"][1]["content"][0]["cache_control"]
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text("r")], **long}
    assert [result] == made["messages"][2]["content"]
    assert [text("Hi", **MARK)] == made["messages"][3]["content"]
    assert MARK["cache_control"] == made["tools"][0]["cache_control"]
    assert MARK["cache_control"] == made["cache_control"]
    assert "cache_control" not in translated(prompt_cache_options={"mode": "explicit"})


def test_options():
    made = translated(
        max_completion_tokens=7,
        max_tokens=8,
        stop="END",
        temperature=0.5,
        top_p=0.9,
        stream=True,
        stream_options={"include_usage": True},
        user="u",
        safety_identifier="s",
        seed=1,
        store=True,
        n=1,
        prompt_cache_key="k",
        metadata={"a": "b"},
        frequency_penalty=0,
        reasoning_effort="minimal",
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        top_k=3,
        thinking={"type": "adaptive"},
    )
    assert {
        "model": "m",
        "max_tokens": 7,
        "messages": [HI],
        "stop_sequences": ["END"],
        "temperature": 0.5,
        "stream": True,
        "metadata": {"user_id": "s"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "top_p": 0.9,
        "top_k": 3,
        "thinking": {"type": "adaptive"},
    } == made
    assert {"type": "disabled"} == translated(reasoning_effort="none")["thinking"]
    assert {"effort": "xhigh"} == translated(reasoning_effort="xhigh")["output_config"]


def test_tool_choice():
    for given, expected in (
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ({"type": "function", "function": {"name": "weather"}}, {"type": "tool", "name": "weather"}),
    ):
        assert expected == translated(tools=[TOOL], tool_choice=given)["tool_choice"]
    single = {"type": "auto", "disable_parallel_tool_use": True}
    assert single == translated(tools=[TOOL], parallel_tool_calls=False)["tool_choice"]
    assert "tool_choice" not in translated(tools=[TOOL], parallel_tool_calls=True)
    none = translated(tools=[TOOL], tool_choice="none", parallel_tool_calls=False)
    assert {"type": "none"} == none["tool_choice"]


def test_whether_a_stream_ends_with_its_usage():
    assert wants_usage({"stream_options": {"include_usage": True}})
    assert not wants_usage({"stream_options": {}})
    assert not wants_usage({})


def assistant_calls(arguments):
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [{"role": "assistant", "tool_calls": [call]}]}


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("n", {"n": 2}),
        ("logprobs", {"logprobs": True}),
        ("logit_bias", {"logit_bias": {"1": 5}}),
        ("presence_penalty", {"presence_penalty": 0.5}),
        ("functions", {"functions": [FUNCTION]}),
        ("web_search_options", {"web_search_options": {}}),
        ("verbosity", {"verbosity": "low"}),
        ("temperature", {"temperature": 1.5}),
        ("temperature", {"temperature": "hot"}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}),
        ("tools[0]", {"tools": [{"type": "custom", "custom": {"name": "x"}}]}),
        ("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
        ("messages[0].role", {"messages": [{"role": "function", "content": "x"}]}),
        ("messages[0].tool_call_id", {"messages": [{"role": "tool", "content": "x"}]}),
        ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
        (
            "messages[0].content[0].image_url.url",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}]},
        ),
        (
            "messages[0].content[0].file.file_id",
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        ),
        (
            "messages[0].content[0].file.file_data",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "file", "file": {"file_data": "data:text/csv;base64,QQ"}}]}
                ]
            },
        ),
        ("messages[0].tool_calls[0].function.arguments", assistant_calls("{broken")),
        ("messages[0].tool_calls[0].function.arguments", assistant_calls("[1]")),
    ],
)
def test_what_is_refused_by_name(param, fields):
    with pytest.raises(InvalidRequest) as caught:
        to_anthropic({"model": "m", "messages": [HI], **fields})
    assert param == caught.value.param
    assert caught.value.hint


def test_a_longer_conversation_begins_as_the_shorter_did():
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "system", "content": "s"},
        HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": "r"},
        {"role": "system", "content": "Now be short."},
        {"role": "assistant", "content": "c"},
        HI,
    ]
    whole = translated(*turns)
    for count in (2, 4, 5):
        part = translated(*turns[:count])
        assert whole["system"] == part["system"]
        assert part["messages"] == whole["messages"][: len(part["messages"])]
