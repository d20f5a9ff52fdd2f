"""Requests as segments, in every dialect."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import InvalidRequest
from prefold.prompts.dialects import tool_name
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect, Prompt, Section, Segment, Stability
from prefold.prompts.view import view_of

from .divergence.breaks import DIALECTS, conversation, written

TEXT = {"type": "text", "text": "Hello."}


def rows(body: dict[str, Any], dialect: str | None = None) -> list[tuple[str, str, str, str]]:
    return [(str(s.path), s.section, s.role, s.text) for s in Prompt.of(body, dialect).segments]


def test_anthropic() -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [TEXT, {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1.0}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "12", "cache_control": {"type": "ephemeral"}}],
                        "cache_control": {"type": "ephemeral"},
                    }
                ],
            },
        ],
        "system": [{"type": "text", "text": "Rules", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "tools": [{"name": "f", "input_schema": {}, "cache_control": {"type": "ephemeral"}}],
        "metadata": {"user_id": "u"},
    }
    expected = [
        ("tools[0]", "tools", "tool", '{"name":"f","input_schema":{}}'),
        ("system[0]", "system", "system", "Rules"),
        ("messages[0]", "messages", "user", "Hi"),
        ("messages[1].content[0]", "messages", "assistant", "Hello."),
        (
            "messages[1].content[1]",
            "messages",
            "assistant",
            '{"type":"tool_use","id":"t1","name":"f","input":{"b":1.0}}',
        ),
        ("messages[2].content[0]", "messages", "user", '{"type":"tool_result","tool_use_id":"t1"}\n12'),
    ]
    prompt = Prompt.of(body)
    assert expected == rows(body)
    assert Dialect.ANTHROPIC is prompt.dialect
    assert {"model": "claude-sonnet-4-5", "metadata": {"user_id": "u"}} == prompt.parameters
    assert [{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}, None, None, None, {"type": "ephemeral"}] == [
        segment.marker for segment in prompt.segments
    ]
    assert [True, True, True, True, False, True] == [segment.begins_message for segment in prompt.segments]


def test_openai_chat() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    body = {
        "model": "gpt-5.2",
        "messages": [
            {"role": "developer", "content": "Rules"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "x"}}],
            },
            {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "7"},
            {"role": "system", "content": "Stay polite."},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }
    dumped = json.dumps(call, separators=(",", ":"))
    expected = [
        ("tools[0]", "tools", "tool", '{"type":"function","function":{"name":"f"}}'),
        ("messages[0]", "system", "developer", "Rules"),
        ("messages[1].content[0]", "messages", "user", "Look"),
        ("messages[1].content[1]", "messages", "user", '{"type":"image_url","image_url":{"url":"x"}}'),
        ("messages[2].tool_calls[0]", "messages", "assistant", dumped),
        ("messages[3].tool_call_id", "messages", "tool", 'tool_call_id: "c1"'),
        ("messages[3]", "messages", "tool", "7"),
        ("messages[4]", "messages", "system", "Stay polite."),
    ]
    assert expected == rows(body)


def test_openai_responses() -> None:
    body = {
        "model": "gpt-5.2",
        "instructions": "Rules",
        "input": [
            {"role": "user", "content": "Hi"},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c", "output": "7"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And?"}]},
        ],
    }
    expected = [
        ("instructions", "system", "system", "Rules"),
        ("input[0]", "messages", "user", "Hi"),
        ("input[1]", "messages", "", '{"type":"function_call","call_id":"c","name":"f"}\n{}'),
        ("input[2]", "messages", "", '{"type":"function_call_output","call_id":"c"}\n7'),
        ("input[3].content[0]", "messages", "user", "And?"),
    ]
    assert expected == rows(body)
    assert [("input", "messages", "user", "Hi")] == rows({"input": "Hi"})


def test_gemini() -> None:
    body = {
        "systemInstruction": {"parts": [{"text": "Rules"}]},
        "tools": [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}, {"googleSearch": {}}],
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        ],
    }
    expected = [
        ("tools[0].functionDeclarations[0]", "tools", "tool", '{"name":"f"}'),
        ("tools[0].functionDeclarations[1]", "tools", "tool", '{"name":"g"}'),
        ("tools[1]", "tools", "tool", '{"googleSearch":{}}'),
        ("systemInstruction.parts[0]", "system", "system", "Rules"),
        ("contents[0].parts[0]", "messages", "user", "Hi"),
        ("contents[1].parts[0]", "messages", "model", '{"functionCall":{"name":"f","args":{}}}'),
    ]
    assert expected == rows(body)
    snake = {"system_instruction": "Rules", "contents": ["Hi"], "tools": [{"function_declarations": [{"name": "f"}]}]}
    assert ["tools[0].function_declarations[0]", "system_instruction", "contents[0]"] == [row[0] for row in rows(snake)]


def test_bedrock() -> None:
    point = {"cachePoint": {"type": "default"}}
    body = {
        "modelId": "anthropic.claude-sonnet-4-5",
        "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}, point]},
        "system": [{"text": "Rules"}, point],
        "messages": [{"role": "user", "content": [{"text": "Hi"}, point, {"text": "there"}]}],
    }
    prompt = Prompt.of(body)
    assert Dialect.BEDROCK is prompt.dialect
    assert [
        ("toolConfig.tools[0]", {"type": "default"}),
        ("system[0]", {"type": "default"}),
        ("messages[0].content[0]", {"type": "default"}),
        ("messages[0].content[2]", None),
    ] == [(str(segment.path), segment.marker) for segment in prompt.segments]
    assert "anthropic.claude-sonnet-4-5" == prompt.model


def test_completions_and_plain_text() -> None:
    assert [("prompt", "messages", "", "Once")] == rows({"prompt": "Once"})
    assert ["prompt[0]", "prompt[1]"] == [row[0] for row in rows({"prompt": ["a", "b"]})]
    assert [("prompt", "messages", "", "[1,2,3]")] == rows({"prompt": [1, 2, 3]})
    plain = Prompt.parse("Once upon\r\n a time")
    assert Dialect.COMPLETION is plain.dialect
    assert "Once upon\r\n a time" == view_of(plain).text
    assert "Twice" == plain.replaced({plain.segments[0].text_path: "Twice"}).plain_text


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects_are_recognised_and_say_the_same(dialect: str, language: str) -> None:
    talk = conversation(language)
    prompt = Prompt.of(written(talk, dialect))
    assert dialect == prompt.dialect
    text = view_of(prompt).text
    assert all(part in text for part in (talk.system, *talk.turns))
    if dialect != "completion":
        sections = [segment.section for segment in prompt.segments]
        assert sorted(sections, key=list(Section).index) == sections
        texts = [s.text for s in prompt.segments if s.section is Section.MESSAGES]
        assert talk.turns == texts
        assert [talk.system] == [s.text for s in prompt.segments if s.section is Section.SYSTEM]
        assert len(talk.tools) == sum(s.section is Section.TOOLS for s in prompt.segments)


@pytest.mark.parametrize("dialect", [dialect for dialect in DIALECTS if dialect != "completion"])
def test_stability_follows_from_the_place(dialect: str) -> None:
    prompt = Prompt.of(written(conversation("en"), dialect))
    history = [segment.stability for segment in prompt.segments if segment.section is Section.MESSAGES]
    assert {Stability.STATIC} == {s.stability for s in prompt.segments if s.section is not Section.MESSAGES}
    assert [Stability.SESSION] * 4 + [Stability.REQUEST] == history


def test_text_paths_lead_to_the_texts() -> None:
    for dialect in DIALECTS:
        prompt = Prompt.of(written(conversation("zh"), dialect))
        for segment in prompt.segments:
            if segment.text_path is not None:
                assert segment.text == segment.text_path.get(prompt.value)


def test_pieces_of_the_view_are_the_segments() -> None:
    prompt = Prompt.of(written(conversation("en"), "anthropic"))
    view = view_of(prompt)
    assert [segment.text for segment in prompt.segments] == [view.text[p.header_end : p.end] for p in view.pieces]
    assert [segment.path for segment in prompt.segments] == [piece.path for piece in view.pieces]
    assert 0 == view.pieces[0].start
    assert len(view.text) == view.pieces[-1].end
    assert all(one.end == other.start for one, other in zip(view.pieces, view.pieces[1:], strict=False))


def test_order_of_message_fields_and_escapes_are_no_difference() -> None:
    one = Prompt.parse(b'{"messages": [{"role": "user", "content": "\\u00e9"}]}')
    other = Prompt.parse('{"messages":[{"content":"é","role":"user","refusal":null}],"tools":[]}'.encode())
    assert [s.text for s in one.segments] == [s.text for s in other.segments]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["messages", "system", "tools", "input", "contents", "prompt", "model", "instructions", "x"])


@given(st.dictionaries(FIELDS, JSON), st.sampled_from([None, 1, 3]), st.booleans())
def test_rendering_is_the_inverse_of_parsing(body: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    """Bodies of any content, many of them malformed: the bytes come back, and reading them never crashes."""
    try:
        data = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        data = json.dumps(body, indent=indent).encode()
    for dialect in (None, *Dialect):
        try:
            prompt = Prompt.parse(data, dialect)
        except InvalidRequest:
            assert not {"messages", "input", "contents", "prompt", "instructions"} & body.keys() or dialect is None
            continue
        assert data == prompt.render()
        try:
            segments = prompt.segments
        except InvalidRequest:
            continue
        for segment in segments:
            assert segment.path.get(body) is not None or segment.text == "null"


MESSAGES = st.lists(
    st.builds(
        lambda role, content, extra: {"role": role, "content": content, **extra},
        st.sampled_from(["user", "assistant", "system", "tool"]),
        st.text()
        | st.lists(st.text() | st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}), max_size=3),
        st.dictionaries(st.sampled_from(["name", "x_unknown", "tool_call_id"]), st.text(), max_size=2),
    ),
    max_size=5,
)


@given(MESSAGES, st.dictionaries(st.text(), JSON, max_size=3))
def test_unknown_fields_survive_a_change(messages: list[Any], others: dict[str, Any]) -> None:
    body = {**others, "messages": messages}
    prompt = Prompt.of(body, "openai")
    texts = {s.text_path: s.text + "!" for s in prompt.segments if s.text_path is not None}
    changed = json.loads(prompt.replaced(texts).render())
    assert [s.text for s in prompt.segments if s.text_path] == [path.get(body) for path in texts]
    assert {key: value for key, value in body.items() if key != "messages"} == {
        key: value for key, value in changed.items() if key != "messages"
    }
    assert all(path.get(changed) == text for path, text in texts.items())


@pytest.mark.parametrize(
    ("body", "dialect", "message"),
    [
        (b"", None, "empty"),
        (b" \n", None, "empty"),
        (b"\xff\xfe{", None, "byte 0 is 0xFF"),
        (b"abc\x00def", None, "NUL at character 3"),
        (b'{"messages": [}', None, "line 1, column 15"),
        (b"[1, 2]", None, "not a JSON object"),
        (b'{"a": 1}', None, "dialect is unknown"),
        (b"{}", "klingon", "no dialect 'klingon'"),
        (b'{"messages": null}', None, "messages is not a list of messages, but null"),
        (b'{"messages": [], "tools": {"a": 1}}', "openai", "tools is not a list of tools, but an object"),
        (b'{"messages": {"role": "user"}}', "openai", "messages is not a list of messages, but an object"),
        (b'{"messages": ["a", 3]}', "anthropic", r"messages\[1\] is not a message, but a number"),
        (b'{"messages": [{"role": "user", "content": 7}]}', "openai", r"messages\[0\].content is not a text or a list"),
        (b'{"messages": [{"role": 5, "content": "a"}]}', "openai", r"messages\[0\].role is not a text"),
        (b'{"system": [null], "messages": []}', "anthropic", r"system\[0\] is not a block, but null"),
    ],
)
def test_faults_name_the_place(body: bytes, dialect: str | None, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        _ = Prompt.parse(body, dialect).segments
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "dialect"), [("OpenAI-Chat", "openai"), ("claude", "anthropic"), ("generateContent", "gemini")]
)
def test_dialects_have_other_names(name: str, dialect: str) -> None:
    assert dialect == Dialect.named(name)


def test_a_byte_order_mark_comes_back() -> None:
    data = '\ufeff{"prompt": "a"}'.encode()
    assert data == Prompt.parse(data).render()
    assert '\ufeff{"prompt": "b"}'.encode() == Prompt.parse(data).replaced({Path.of("prompt"): "b"}).render()


def test_the_message_of_a_segment() -> None:
    prompt = Prompt.of(written(conversation("en"), "anthropic"))
    assert Path.of("messages", 1) == next(s for s in prompt.segments if str(s.path) == "messages[1].content[0]").message
    assert prompt.segments[0].message is None
    assert Segment(Path.of("prompt"), Section.MESSAGES, "", "a", "a").message is None


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ({"name": "a", "input_schema": {}}, "a"),
        ({"type": "function", "function": {"name": "a"}}, "a"),
        ({"toolSpec": {"name": "a"}}, "a"),
        ({"functionDeclarations": [{"name": "a"}, {"name": "b"}]}, "a"),
        ({"type": "web_search", "cache_control": {}}, "web_search"),
        ({"type": "mcp", "server_label": "shop"}, "mcp shop"),
        ({"googleSearch": {}}, "googleSearch"),
        ("a", "a"),
    ],
)
def test_names_of_tools(tool: Any, name: str) -> None:
    assert name == tool_name(tool)
