"""Requests of Anthropic's clients for upstreams with OpenAI's API."""

import pytest

from prefold.errors import InvalidRequest
from prefold.gateway.config import Kind
from prefold.gateway.translate.anthropic_client.request import to_openai

from .support import valid_for_anthropic, valid_for_openai

MARK = {"cache_control": {"type": "ephemeral"}}
TOOL = {
    "name": "weather",
    "description": "Weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def request(*messages, **fields):
    body = {"model": "m", "max_tokens": 9, "messages": list(messages) or [{"role": "user", "content": "Hi"}], **fields}
    valid_for_anthropic(body)
    return body


def translated(*messages, kind=Kind.OTHER, **fields):
    return valid_for_openai(to_openai(request(*messages, **fields), kind))


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def test_the_least():
    expected = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    assert expected == translated()


def test_system_is_the_first_message_and_later_ones_stay_where_they_are():
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Well?"},
    ]
    assert [{"role": "system", "content": "Be kind."}, *turns] == translated(*turns, system="Be kind.")["messages"]
    blocks = [text("Be kind."), text("Be brief.", **MARK)]
    assert {"role": "system", "content": blocks} == translated(system=blocks)["messages"][0]


def test_a_conversation_with_tools():
    messages = translated(
        user(text("Weather?")),
        assistant(
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "redacted_thinking", "data": "xyz"},
            text("I look."),
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Zürich", "days": [1, 2]}},
            {"type": "tool_use", "id": "t2", "name": "weather", "input": {}},
        ),
        user(
            {"type": "tool_result", "tool_use_id": "t1", "content": "Sun"},
            {"type": "tool_result", "tool_use_id": "t2", "content": [text("Rain")], "is_error": True},
            text("And?"),
        ),
        tools=[TOOL],
    )["messages"]
    call = {"name": "weather", "arguments": '{"city": "Zürich", "days": [1, 2]}'}
    assert [
        {"role": "user", "content": [text("Weather?")]},
        {
            "role": "assistant",
            "content": [text("I look.")],
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": call},
                {"id": "t2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "Sun"},
        {"role": "tool", "tool_call_id": "t2", "content": [text("Rain")]},
        {"role": "user", "content": [text("And?")]},
    ] == messages


@pytest.mark.parametrize(
    ("kind", "name"), [(Kind.VLLM, "reasoning"), (Kind.SGLANG, "reasoning_content"), (Kind.OPENAI, None)]
)
def test_thinking_goes_back_under_the_name_that_the_upstream_reads(kind, name):
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    answer = translated(user(text("a")), assistant(thinking, text("b")), user(text("c")), kind=kind)["messages"][1]
    assert ({name} if name else set()) == answer.keys() - {"role", "content"}


def test_an_assistant_that_only_calls_has_no_content():
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t"}
    messages = translated(user(text("a")), assistant(call), user(result))["messages"]
    assert messages[1]["content"] is None
    assert {"role": "tool", "tool_call_id": "t", "content": ""} == messages[2]


def test_images_and_documents():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}, **MARK}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}
    parts = translated(
        user(
            image,
            linked,
            {"type": "document", "source": pdf, "title": "a.pdf", "context": "A paper."},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Words"}, "title": "T"},
            {"type": "document", "source": {"type": "content", "content": [text("x"), image]}, **MARK},
            {"type": "search_result", "title": "T", "source": "S", "content": [text("u"), text("v")]},
        )
    )["messages"][0]["content"]
    png = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    assert [
        png,
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}, **MARK},
        text("A paper."),
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
        text("T\n\nWords"),
        text("x"),
        {**png, **MARK},
        text("T\nS\nu\nv"),
    ] == parts


def test_images_of_results_follow_all_results():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    calls = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("t1", "t2")]
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [text("one"), image]},
        {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
    ]
    messages = translated(user(text("a")), assistant(*calls), user(*results, text("b")))["messages"]
    assert ["tool", "tool", "user"] == [message["role"] for message in messages[2:]]
    part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    assert [part, text("b")] == messages[4]["content"]


def test_tools_and_their_choice():
    made = translated(
        tools=[{**TOOL, "strict": True, **MARK}, {"name": "bare", "input_schema": {}}],
        tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    )
    function = {
        "name": "weather",
        "description": TOOL["description"],
        "parameters": TOOL["input_schema"],
        "strict": True,
    }
    bare = {"name": "bare", "parameters": {"type": "object", "properties": {}}}
    assert [{"type": "function", "function": function, **MARK}, {"type": "function", "function": bare}] == made["tools"]
    assert {"type": "function", "function": {"name": "weather"}} == made["tool_choice"]
    assert made["parallel_tool_calls"] is False
    for name, expected in (("auto", "auto"), ("any", "required"), ("none", "none")):
        assert expected == translated(tools=[TOOL], tool_choice={"type": name})["tool_choice"]


def test_options():
    made = translated(
        stop_sequences=["END"],
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        metadata={"user_id": "u"},
        stream=True,
        service_tier="auto",
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        cache_salt="mine",
        min_p=0.1,
    )
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    assert {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "stop": ["END"],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "user": "u",
        "stream": True,
        "stream_options": {"include_usage": True},
        "reasoning_effort": "high",
        "response_format": {"type": "json_schema", "json_schema": schema},
        "cache_salt": "mine",
        "min_p": 0.1,
    } == made


def test_openai_itself():
    made = translated(kind=Kind.OPENAI, metadata={"user_id": "u" * 200})
    assert 9 == made["max_completion_tokens"]
    assert "max_tokens" not in made
    assert 64 == len(made["user"])
    assert translated(metadata={"user_id": "v" * 200})["user"] != made["user"]


def test_thinking_is_told_to_the_chat_template_of_engines():
    on = {"type": "enabled", "budget_tokens": 1024}
    assert {"enable_thinking": True} == translated(kind=Kind.VLLM, thinking=on)["chat_template_kwargs"]
    off = {"type": "disabled"}
    assert {"enable_thinking": False} == translated(kind=Kind.SGLANG, thinking=off)["chat_template_kwargs"]
    assert "chat_template_kwargs" not in translated(kind=Kind.PREFOLD, thinking=off)
    own = {"enable_thinking": False, "x": 1}
    assert own == translated(kind=Kind.VLLM, thinking=on, chat_template_kwargs=own)["chat_template_kwargs"]


def test_the_beginning_of_an_answer():
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    made = translated(*turns, kind=Kind.VLLM)
    assert (True, False) == (made["continue_final_message"], made["add_generation_prompt"])
    assert turns == translated(*turns, kind=Kind.LLAMACPP)["messages"]
    for kind in (Kind.OPENAI, Kind.PREFOLD, Kind.OTHER):
        with pytest.raises(InvalidRequest, match=r"messages\[1\]"):
            to_openai(request(*turns), kind)


def test_markers_by_kind():
    fields = {
        "system": [text("s", **MARK)],
        "tools": [{**TOOL, **MARK}],
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
    }
    call = {"type": "tool_use", "id": "t", "name": "weather", "input": {}, **MARK}
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": "r",
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
    }
    turns = [user(text("a")), assistant(call), user(result)]

    made = translated(*turns, **fields)
    assert [MARK["cache_control"]] * 3 == [
        made["messages"][0]["content"][0]["cache_control"],
        made["tools"][0]["cache_control"],
        made["messages"][2]["tool_calls"][0]["cache_control"],
    ]
    assert [text("r", cache_control={"type": "ephemeral", "ttl": "1h"})] == made["messages"][3]["content"]
    assert {"type": "ephemeral", "ttl": "1h"} == made["cache_control"]

    made = translated(*turns, **fields, kind=Kind.VLLM)
    assert MARK["cache_control"] == made["messages"][0]["content"][0]["cache_control"]
    assert 2 == str(made).count("cache_control")  # none where a chat template would print it

    assert "cache" not in str(translated(*turns, **fields, kind=Kind.OPENAI))

    made = translated(*turns, **{**fields, "model": "gpt-5.6"}, kind=Kind.OPENAI)
    assert [text("s", prompt_cache_breakpoint={"mode": "explicit"})] == made["messages"][0]["content"]
    long = {"mode": "explicit", "ttl": "12h"}
    assert [text("r", prompt_cache_breakpoint=long)] == made["messages"][3]["content"]
    assert "cache_control" not in str(made)
    assert "prompt_cache_options" not in made  # the body's marker is the breakpoint that OpenAI sets by itself
    del fields["cache_control"]
    made = translated(*turns, **{**fields, "model": "gpt-5.6"}, kind=Kind.OPENAI)
    assert {"mode": "explicit"} == made["prompt_cache_options"]
    assert "prompt_cache_options" not in translated(model="gpt-5.6", kind=Kind.OPENAI)


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": "many"}),
        ("model", {"model": None}),
        ("top_k", {"top_k": 5}),
        ("container", {"container": "c"}),
        ("mcp_servers", {"mcp_servers": [{}]}),
        ("inference_geo", {"inference_geo": "eu"}),
        ("tools[0]", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("tools[0].defer_loading", {"tools": [{**TOOL, "defer_loading": True}]}),
        ("tools[0].name", {"tools": [{"input_schema": {}}]}),
        ("tool_choice.type", {"tool_choice": {"type": "maybe"}}),
        ("output_config.format", {"output_config": {"format": {"type": "xml"}}}),
        ("system", {"system": 5}),
        ("system[0]", {"system": [{"type": "image"}]}),
        ("messages", {"messages": "Hi"}),
        ("messages[0].role", {"messages": [{"role": "robot", "content": ""}]}),
        ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
        ("messages[0].content[1]", {"messages": [user(text("a"), {"type": "container_upload"})]}),
        ("messages[0].content[0].text", {"messages": [user({"type": "text"})]}),
        ("messages[0].content[0].source", {"messages": [user({"type": "image", "source": {"type": "file"}})]}),
        (
            "messages[0].content[0].source",
            {"messages": [user({"type": "document", "source": {"type": "url", "url": "https://example.org"}})]},
        ),
        (
            "messages[0].content[0].citations",
            {"messages": [user({"type": "document", "source": {}, "citations": {"enabled": True}})]},
        ),
        ("messages[0].content[0]", {"messages": [assistant({"type": "server_tool_use"}), user(text("a"))]}),
        ("messages[0].content[0].tool_use_id", {"messages": [user({"type": "tool_result"})]}),
    ],
)
def test_what_is_refused_by_name(param, fields):
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], **fields}
    with pytest.raises(InvalidRequest) as caught:
        to_openai(body, Kind.OPENAI)
    assert param == caught.value.param
    assert caught.value.hint


def test_a_longer_conversation_begins_as_the_shorter_did():
    turns = [
        user(text("a")),
        assistant(text("b"), {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}),
        user({"type": "tool_result", "tool_use_id": "t", "content": "r"}),
        {"role": "system", "content": "Now be short."},
        assistant(text("c")),
        user(text("d")),
    ]
    whole = translated(*turns, system="s")["messages"]
    for count in (1, 3, 4):
        part = translated(*turns[:count], system="s")["messages"]
        assert part == whole[: len(part)]
