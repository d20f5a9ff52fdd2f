"""Requests that mean the same, made the same."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path as FilePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import InvalidRequest
from prefold.prompts.canonical.canonicalize import DEFAULT_STEPS, Canonical, Step, canonicalize
from prefold.prompts.canonical.moments import Granularity
from prefold.prompts.prompt import Dialect, Prompt
from prefold.prompts.view import view_of

BREAKS = FilePath(__file__).parents[4] / "shared" / "data" / "breaks"
MARKER = {"type": "ephemeral"}


def of(body: Any, dialect: str | None = None) -> Prompt:
    return Prompt.parse(json.dumps(body), dialect)


def done(body: Any, *steps: Step, dialect: str | None = None, **options: Any) -> Any:
    return canonicalize(of(body, dialect), steps or DEFAULT_STEPS, **options).prompt.value


def told(found: Canonical) -> list[tuple[str, str]]:
    return [(str(change.path), change.step.value) for change in found.changes]


def schema(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def anthropic(**fields: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Hi"}], **fields}


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [tool["name"] for tool in tools]


# Tools


TOOL_BODIES = {
    "anthropic": anthropic(
        tools=[
            {"name": "b", "input_schema": {}},
            {"type": "web_search_20250305", "name": "a"},
            {"name": "B", "input_schema": {}},
        ]
    ),
    "openai": {
        "messages": [],
        "tools": [
            {"type": "function", "function": {"name": "b"}},
            {"type": "custom", "custom": {"name": "c"}},
            {"type": "function", "function": {"name": "a"}},
        ],
    },
    "responses": {
        "input": "Hi",
        "tools": [
            {"type": "web_search"},
            {"type": "function", "name": "b"},
            {"type": "mcp", "server_label": "z"},
            {"type": "mcp", "server_label": "y"},
        ],
    },
    "gemini": {
        "contents": [],
        "tools": [
            {"googleSearch": {}},
            {"functionDeclarations": [{"name": "b"}, {"name": "a"}]},
            {"codeExecution": {}},
        ],
    },
    "bedrock": {
        "messages": [],
        "toolConfig": {"tools": [{"toolSpec": {"name": "b"}}, {"toolSpec": {"name": "a"}}]},
    },
}
SORTED_TOOLS = {
    "anthropic": [
        {"name": "B", "input_schema": {}},
        {"type": "web_search_20250305", "name": "a"},
        {"name": "b", "input_schema": {}},
    ],
    "openai": [
        {"type": "function", "function": {"name": "a"}},
        {"type": "function", "function": {"name": "b"}},
        {"type": "custom", "custom": {"name": "c"}},
    ],
    "responses": [
        {"type": "function", "name": "b"},
        {"type": "mcp", "server_label": "y"},
        {"type": "mcp", "server_label": "z"},
        {"type": "web_search"},
    ],
    "gemini": [
        {"functionDeclarations": [{"name": "a"}, {"name": "b"}]},
        {"codeExecution": {}},
        {"googleSearch": {}},
    ],
    "bedrock": [{"toolSpec": {"name": "a"}}, {"toolSpec": {"name": "b"}}],
}


@pytest.mark.parametrize("dialect", TOOL_BODIES)
def test_tools_by_name_in_every_dialect(dialect: str) -> None:
    value = done(TOOL_BODIES[dialect], Step.TOOL_ORDER, dialect=dialect)
    assert SORTED_TOOLS[dialect] == (value["toolConfig"] if dialect == "bedrock" else value)["tools"]


def test_old_functions_are_sorted_too() -> None:
    value = done({"messages": [], "functions": [{"name": "b"}, {"name": "a"}]}, Step.TOOL_ORDER)
    assert ["a", "b"] == names(value["functions"])


@pytest.mark.parametrize(
    "tools",
    [
        [{"name": "a", "n": 1}, {"name": "a", "n": 2}, {"name": "b"}],
        [{"type": "mcp", "server_label": "s", "server_url": url} for url in ("https://a", "https://b", "https://c")],
        [schema("p", "q"), schema("q", "p"), {**schema("p", "q"), "x": 1}],
    ],
)
def test_tools_with_one_name_are_sorted_by_what_is_in_them(tools: list[dict[str, Any]]) -> None:
    orders = list(itertools.permutations(tools))
    found = {json.dumps(done({"input": "Hi", "tools": order}, Step.TOOL_ORDER)) for order in orders}
    assert 1 == len(found)
    marked = [{**tools[1], "cache_control": MARKER}, tools[0]]  # a marker stays at its place, and counts for nothing
    assert marked == done({"input": "Hi", "tools": marked}, Step.TOOL_ORDER)["tools"]


def test_a_marker_on_the_last_tool_stays_on_the_last_tool() -> None:
    tools = [{"name": "c"}, {"name": "a"}, {"name": "b", "cache_control": MARKER}]
    value = done(anthropic(tools=tools), Step.TOOL_ORDER)
    assert [{"name": "a"}, {"name": "b"}, {"name": "c", "cache_control": MARKER}] == value["tools"]


def test_no_tool_is_moved_across_a_marker() -> None:
    tools = [{"name": "z"}, {"name": "y", "cache_control": MARKER}, {"name": "b"}, {"name": "a"}]
    value = done(anthropic(tools=tools), Step.TOOL_ORDER)
    assert ["y", "z", "a", "b"] == names(value["tools"])
    assert [1] == [index for index, tool in enumerate(value["tools"]) if "cache_control" in tool]


def test_bedrock_cache_points_stay_at_their_place() -> None:
    point = {"cachePoint": {"type": "default"}}
    tools = [{"toolSpec": {"name": "b"}}, {"toolSpec": {"name": "a"}}, point, {"toolSpec": {"name": "0"}}]
    value = done({"messages": [], "toolConfig": {"tools": tools}}, Step.TOOL_ORDER)
    assert [tools[1], tools[0], point, tools[3]] == value["toolConfig"]["tools"]


def test_a_marker_never_moves_to_a_deferred_tool() -> None:
    tools = [{"name": "z", "defer_loading": True}, {"name": "b"}, {"name": "a", "cache_control": MARKER}]
    value = done(anthropic(tools=tools), Step.TOOL_ORDER)
    assert ["z", "a", "b"] == names(value["tools"])
    assert "cache_control" in value["tools"][2]


def test_moved_and_marked_tools_keep_the_spelling_of_their_numbers() -> None:
    source = (
        '{"model":"claude","messages":[],"tools":[{"name":"b","x":0.1000000000000000055511151231257827},'
        '{"name":"a","x":1.50,"cache_control":{"type":"ephemeral"}}],"system":""}'
    )
    found = canonicalize(Prompt.parse(source), [Step.TOOL_ORDER, Step.KEY_ORDER])
    assert (
        '{"model":"claude","messages":[],"tools":[{"name":"a","x":1.50},'
        '{"name":"b","x":0.1000000000000000055511151231257827,"cache_control":{"type":"ephemeral"}}],"system":""}'
    ) == found.prompt.render().decode()


# Keys


def test_keys_of_schemas_are_sorted_and_properties_are_not() -> None:
    definition = {"type": "object", "properties": {"z": {"type": "string", "enum": ["b", "a"]}, "a": {}}, "$defs": {}}
    value = done(anthropic(tools=[{"name": "t", "input_schema": definition}]))
    (tool,) = value["tools"]
    assert ["input_schema", "name"] == list(tool)
    assert ["$defs", "properties", "type"] == list(tool["input_schema"])
    assert ["z", "a"] == list(tool["input_schema"]["properties"])
    assert ["enum", "type"] == list(tool["input_schema"]["properties"]["z"])
    assert ["b", "a"] == tool["input_schema"]["properties"]["z"]["enum"]


def test_a_property_may_have_the_name_of_a_field() -> None:
    inner = {"properties": {"properties": {"type": "object", "properties": {"b": {}, "a": {}}}, "default": {"b": 1}}}
    value = done(anthropic(tools=[{"name": "t", "input_schema": inner}]), Step.KEY_ORDER)
    properties = value["tools"][0]["input_schema"]["properties"]
    assert ["properties", "default"] == list(properties)
    assert ["properties", "type"] == list(properties["properties"])
    assert ["b", "a"] == list(properties["properties"]["properties"])


@pytest.mark.parametrize("name", ["enum", "const", "default", "examples", "input_examples"])
def test_data_shown_to_the_model_stays_as_it_is(name: str) -> None:
    shown = {name: [{"b": 1, "a": {"d": 1, "c": 2}}]}
    for steps in (DEFAULT_STEPS, list(Step)):
        value = done(anthropic(tools=[{"input_schema": {"type": "object", **shown}, "name": "t"}]), *steps)
        assert json.dumps(shown[name]) == json.dumps(value["tools"][0]["input_schema"][name])


def test_properties_are_sorted_when_asked() -> None:
    found = canonicalize(
        of(anthropic(tools=[{"name": "t", "input_schema": schema("b", "a")}])), [Step.SCHEMA_PROPERTY_ORDER]
    )
    (tool,) = found.prompt.value["tools"]
    assert ["name", "input_schema"] == list(tool)  # the other keys were not asked for
    assert ["a", "b"] == list(tool["input_schema"]["properties"])
    assert ["a", "b"] == tool["input_schema"]["required"]
    assert [
        ("tools[0].input_schema.properties", "schema_property_order"),
        ("tools[0].input_schema.required", "schema_property_order"),
    ] == told(found)


def test_structured_content_is_sorted_with_markers_last() -> None:
    block = {
        "type": "tool_use",
        "cache_control": MARKER,
        "id": "t1",
        "name": "f",
        "input": {"b": 1, "a": [{"d": 1, "c": 2}]},
    }
    body = anthropic(messages=[{"role": "assistant", "content": [block]}], tools=[])
    found = canonicalize(of(body), [Step.KEY_ORDER])
    (new,) = found.prompt.value["messages"][0]["content"]
    assert ["id", "input", "name", "type", "cache_control"] == list(new)
    assert '{"a": [{"c": 2, "d": 1}], "b": 1}' == json.dumps(new["input"])
    path = "messages[0].content[0]"
    assert [(path, "key_order"), (f"{path}.input", "key_order"), (f"{path}.input.a[0]", "key_order")] == told(found)
    assert ["role", "content"] == list(found.prompt.value["messages"][0])


# Texts


MESSY = "cafe\u0301  \r\nnext\t\n"
TIDY = "caf\u00e9  \nnext\t\n"


def test_texts_of_system_and_tools_and_no_others() -> None:
    tool = {"name": "cafe\u0301", "description": MESSY, "input_schema": {"properties": {"p": {"description": MESSY}}}}
    messages = [
        {"role": "user", "content": MESSY},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": MESSY}, {"type": "tool_use", "id": "1", "name": "f"}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": MESSY}]},
    ]
    body = anthropic(tools=[tool], system=[{"type": "text", "text": MESSY}], messages=messages)
    value = done(body)
    assert TIDY == value["system"][0]["text"]
    assert TIDY == value["tools"][0]["description"]
    assert TIDY == value["tools"][0]["input_schema"]["properties"]["p"]["description"]
    assert "cafe\u0301" == value["tools"][0]["name"]
    assert [MESSY, MESSY, MESSY] == [
        value["messages"][0]["content"],
        value["messages"][1]["content"][0]["text"],
        value["messages"][2]["content"][0]["content"],
    ]

    value = done(body, in_messages=True)
    assert [TIDY, TIDY, TIDY] == [
        value["messages"][0]["content"],
        value["messages"][1]["content"][0]["text"],
        value["messages"][2]["content"][0]["content"],
    ]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": [{"role": "developer", "content": MESSY}]}, "messages[0].content"),
        ({"input": "Hi", "instructions": MESSY}, "instructions"),
        ({"contents": [], "systemInstruction": {"parts": [{"text": MESSY}]}}, "systemInstruction.parts[0].text"),
        ({"messages": [], "system": [{"text": MESSY}], "modelId": "m"}, "system[0].text"),
    ],
)
def test_the_system_of_every_dialect(body: dict[str, Any], path: str) -> None:
    steps = {Step.LINE_ENDS, Step.UNICODE, Step.TRAILING_SPACE}
    assert [(path, step) for step in ("line_ends", "unicode", "trailing_space")] == told(canonicalize(of(body), steps))


def test_a_completion_is_the_users_text() -> None:
    for prompt in (Prompt.parse(MESSY), of({"prompt": MESSY})):
        assert {""} >= {str(change.path) for change in canonicalize(prompt).changes}
        assert TIDY == view_of(canonicalize(prompt, in_messages=True).prompt).text.removeprefix("\n")


def test_datetimes_and_uuids_only_when_asked() -> None:
    text = "Now 2026-11-30T08:54:12Z for A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11."
    body = anthropic(system=text)
    assert text == done(body)["system"]
    assert "Now 2026-11-30 for A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11." == done(body, Step.DATETIMES)["system"]
    assert "Now 2026-11-30T08:54:12Z for a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11." == done(body, Step.UUIDS)["system"]
    hour = done(body, Step.DATETIMES, granularity=Granularity.HOUR)["system"]
    assert hour.startswith("Now 2026-11-30T08:00Z for")


def test_spaces_that_break_lines_stay_unless_asked() -> None:
    body = anthropic(system="One  \ntwo\t\n")
    assert body["system"] == done(body)["system"]
    assert "One\ntwo\n" == done(body, Step.TRAILING_SPACE)["system"]


def test_date_times_in_doubt_are_noted_and_are_no_change() -> None:
    body = anthropic(system="Now: 11/12/2026 08:54.", tools=[{"name": "t", "description": "At 1/2/2026 08:54."}])
    found = canonicalize(of(body), [Step.DATETIMES])
    assert (body, ()) == (found.prompt.value, found.changes)
    reason = "its day and month may be either way round"
    assert [
        {"path": "tools[0].description", "step": "datetimes", "text": "1/2/2026 08:54", "reason": reason},
        {"path": "system", "step": "datetimes", "text": "11/12/2026 08:54", "reason": reason},
    ] == [note.as_json() for note in found.notes]
    assert () == canonicalize(of(body)).notes


ANSWER = {"schema": {"type": "object", "properties": {"b": {"type": "string", "description": "x\r\n"}, "a": {}}}}
SORTED_ANSWER = '{"properties":{"b":{"description":"x\\n","type":"string"},"a":{}},"type":"object"}'


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": [], "response_format": {"type": "json_schema", "json_schema": ANSWER}}, "response_format"),
        ({"input": "Hi", "text": {"format": {"type": "json_schema", **ANSWER}}}, "text.format"),
        (anthropic(output_format={"type": "json_schema", **ANSWER}), "output_format"),
        (anthropic(output_config={"format": {"type": "json_schema", **ANSWER}}), "output_config.format"),
        ({"contents": [], "generationConfig": {"responseSchema": ANSWER}}, "generationConfig.responseSchema"),
    ],
)
def test_schemas_of_answers_are_written_like_those_of_tools(body: dict[str, Any], path: str) -> None:
    found = canonicalize(of(body), DEFAULT_STEPS - {Step.JSON_WHITESPACE, Step.JSON_ESCAPES})
    assert {"line_ends", "key_order"} == {step for _, step in told(found)}
    assert all(place.startswith(path) for place, _ in told(found))
    assert SORTED_ANSWER in canonicalize(of(body)).prompt.render().decode()


# Numbers and embedded JSON


def test_numbers_are_told_with_their_paths() -> None:
    source = '{"messages":[],"tools":[{"function":{"name":"f","x":[1e5,10.0,7]},"type":"function"}],"top_p":0.90}'
    found = canonicalize(Prompt.parse(source))
    assert [("tools[0].function.x[0]", "numbers"), ("top_p", "numbers")] == told(found)
    assert source.replace("1e5", "100000.0").replace("0.90", "0.9") == found.prompt.render().decode()
    whole = canonicalize(Prompt.parse(source), [Step.WHOLE_NUMBERS])
    assert [("tools[0].function.x[0]", "whole_numbers"), ("tools[0].function.x[1]", "whole_numbers")] == told(whole)
    assert [100_000, 10, 7] == whole.prompt.value["tools"][0]["function"]["x"]
    assert b"0.90" in whole.prompt.render()


LOOSE = '{"price": 10.00, "id": 17, "name": "caf\\u00e9"}'
STRICT = '{"id":17,"name":"café","price":10.0}'


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (
            anthropic(
                messages=[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": LOOSE}]}]
            ),
            "messages[0].content[0].content",
        ),
        (
            anthropic(
                messages=[
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": LOOSE}]}
                        ],
                    }
                ]
            ),
            "messages[0].content[0].content[0].text",
        ),
        ({"messages": [{"role": "tool", "tool_call_id": "1", "content": LOOSE}]}, "messages[0].content"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": LOOSE}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": LOOSE}}]},
            "messages[0].function_call.arguments",
        ),
        ({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": LOOSE}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": LOOSE}]}, "input[0].output"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [{"text": LOOSE}]}}]}
                ],
                "modelId": "m",
            },
            "messages[0].content[0].toolResult.content[0].text",
        ),
    ],
)
def test_embedded_json_when_asked(body: dict[str, Any], path: str) -> None:
    assert [] == [step for _, step in told(canonicalize(of(body))) if step not in ("key_order", "json_whitespace")]
    found = canonicalize(of(body), [Step.EMBEDDED_JSON])
    assert [(path, "embedded_json")] == told(found)
    assert json.dumps(STRICT) in json.dumps(found.prompt.value)


@pytest.mark.parametrize(
    "text", ["plain words", '{"a": 1', "17", '"text"', "[" * 5000, "[" * 900 + "]" * 900, "", "{1: 2}"]
)
def test_texts_that_cannot_be_read_as_json_stay(text: str) -> None:
    body = {"messages": [{"role": "tool", "tool_call_id": "1", "content": text}]}
    assert () == canonicalize(of(body), [Step.EMBEDDED_JSON]).changes


def test_users_words_are_no_embedded_json() -> None:
    body = {"messages": [{"role": "user", "content": LOOSE}, {"role": "assistant", "content": LOOSE}]}
    assert () == canonicalize(of(body), set(Step) - {Step.JSON_WHITESPACE}).changes


# Documents


def test_document_blocks_when_asked() -> None:
    one, two = ({"type": "document", "title": name, "source": {"type": "text", "data": name}} for name in "ab")
    question = {"type": "text", "text": "?"}
    body = anthropic(messages=[{"role": "user", "content": [question, two, {**one, "cache_control": MARKER}]}])
    assert body["messages"] == done(body, *(DEFAULT_STEPS - {Step.KEY_ORDER}))["messages"]
    found = canonicalize(of(body), [Step.DOCUMENT_ORDER])
    assert [("messages[0].content", "document_order")] == told(found)
    assert [question, one, {**two, "cache_control": MARKER}] == found.prompt.value["messages"][0]["content"]
    popular = done(body, Step.DOCUMENT_ORDER, popularity={"b": 5, "a": 1})
    assert body["messages"] == popular["messages"]


def test_search_results_in_a_tool_result() -> None:
    results = [{"type": "search_result", "source": source, "content": []} for source in ("https://b", "https://a")]
    body = anthropic(
        messages=[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": results}]}]
    )
    found = canonicalize(of(body), [Step.DOCUMENT_ORDER])
    assert [("messages[0].content[0].content", "document_order")] == told(found)
    assert results[::-1] == found.prompt.value["messages"][0]["content"][0]["content"]


def test_documents_with_one_name_are_sorted_by_what_is_in_them() -> None:
    results: list[dict[str, Any]] = [
        {"type": "search_result", "title": "t", "source": f"https://{name}", "content": []} for name in "abc"
    ]
    elements = [f'<document index="1" title="t">{name}</document>' for name in "abc"]
    found = set()
    for blocks, texts in zip(itertools.permutations(results), itertools.permutations(elements), strict=True):
        content = [*blocks, {"type": "text", "text": "".join(texts)}]
        value = done(anthropic(messages=[{"role": "user", "content": content}]), Step.DOCUMENT_ORDER)
        found.add(json.dumps(value))
    assert 1 == len(found)


def test_document_elements_in_a_text() -> None:
    text = 'See:\n<document id="b">B</document>\n<document id="a">A</document>\nWhat?'
    found = canonicalize(of(anthropic(messages=[{"role": "user", "content": text}])), [Step.DOCUMENT_ORDER])
    assert [("messages[0].content", "document_order")] == told(found)
    expected = 'See:\n<document id="a">A</document>\n<document id="b">B</document>\nWhat?'
    assert expected == found.prompt.value["messages"][0]["content"]


# All steps together


def test_a_body_in_canonical_form_is_given_back_as_it_is() -> None:
    prompt = Prompt.parse('{"model":"claude-x","system":"S","messages":[{"role":"user","content":"Hi"}]}')
    found = canonicalize(prompt, list(Step), in_messages=True)
    assert found.prompt is prompt
    assert () == found.changes


def test_nothing_is_done_without_steps() -> None:
    prompt = Prompt.parse('{ "messages": [{"content": "Hi \\r\\n", "role": "user"}], "tools": [] }')
    assert Canonical(prompt, ()) == canonicalize(prompt, [])


def test_white_space_is_told_once_for_the_body() -> None:
    (change,) = canonicalize(Prompt.parse('{ "messages": [\n] }')).changes
    assert ("", Step.JSON_WHITESPACE) == (str(change.path), change.step)
    assert {"path", "step", "before", "after", "description"} == change.as_json().keys()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (r'{"input":"\u4f60\/\u00E9"}', '{"input":"你/é"}'),
        (r'{"input":"\ud83d\ude00 \n \u000A \" \\ \u0007"}', r'{"input":"😀 \n \n \" \\ \u0007"}'),
        (r'{"input":"\uD83D"}', r'{"input":"\ud83d"}'),
        (r'{"\u0069nput":"Hi"}', '{"input":"Hi"}'),
    ],
)
def test_one_spelling_of_escapes(source: str, expected: str) -> None:
    found = canonicalize(Prompt.parse(source))
    assert expected == found.prompt.render().decode()
    assert [("", "json_escapes")] == told(found)
    assert source == canonicalize(Prompt.parse(source), DEFAULT_STEPS - {Step.JSON_ESCAPES}).prompt.render().decode()


@pytest.mark.parametrize("case", ["tool_order", "schema_key_order", "number_format"])
def test_broken_pairs_become_equal(case: str) -> None:
    file = BREAKS / f"{case}.json"
    if not file.exists():
        pytest.skip("the shared data is not here")
    pair = json.loads(file.read_text())
    steps = {*DEFAULT_STEPS, Step.SCHEMA_PROPERTY_ORDER, Step.EMBEDDED_JSON, Step.WHOLE_NUMBERS}
    before, after = (view_of(canonicalize(of(pair[side]), steps).prompt).text for side in ("before", "after"))
    assert after.startswith(before)
    before, after = (view_of(of(pair[side])).text for side in ("before", "after"))
    assert not after.startswith(before)


def test_too_deep_for_python() -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"b": 1, "a": [deep]}
    prompt = of(anthropic(tools=[{"name": "t", "input_schema": deep}]))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)
    try:
        with pytest.raises(InvalidRequest, match="nested too deeply"):
            canonicalize(prompt)
    finally:
        sys.setrecursionlimit(limit)


# Properties

TEXTS = st.text() | st.lists(
    st.sampled_from(["\r\n", "\r", "\n", " ", "\t", "e", "\u0301", "2026-11-30", "T08:54:12Z", " 08:54", "é"])
    | st.sampled_from(["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", '{"b": 1.50, "a": 1}', "[1, 2]", "text"])
    | st.sampled_from(['<document id="b">x</document>', '<document index="1">y</document>', "<document>z</document>"]),
    max_size=8,
).map("".join)
KEYS = (
    st.sampled_from(["name", "type", "properties", "required", "description", "enum", "cache_control", "a", "b"])
    | st.text()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)
MARKERS = st.sampled_from([{}, {}, {}, {"cache_control": MARKER}])
NAMES = st.sampled_from(["a", "b", "c", "B", "é"])


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of some fields in any order, an unknown one among them."""
    known = st.fixed_dictionaries(fields)
    return st.tuples(known, OBJECTS.map(lambda value: {"unknown": value} if value else {}), MARKERS, st.randoms()).map(
        lambda parts: _mixed({**parts[0], **parts[1], **parts[2]}, parts[3])
    )


def _mixed(value: dict[str, Any], random: Any) -> dict[str, Any]:
    keys = list(value)
    random.shuffle(keys)
    return {key: value[key] for key in keys}


TOOLS = st.lists(
    objects(name=NAMES, description=TEXTS, input_schema=OBJECTS, defer_loading=st.sampled_from([False, True, None])),
    max_size=4,
)
BLOCKS = st.lists(
    objects(type=st.just("text"), text=TEXTS)
    | objects(type=st.just("document"), title=NAMES)
    | objects(type=st.just("document"), content=st.lists(objects(type=st.just("text"), text=TEXTS), max_size=2))
    | objects(type=st.just("tool_use"), id=NAMES, name=NAMES, input=OBJECTS)
    | objects(type=st.just("tool_result"), tool_use_id=NAMES, content=TEXTS)
    | objects(
        type=st.just("tool_result"), content=st.lists(objects(type=st.just("search_result"), source=NAMES), max_size=3)
    ),
    max_size=4,
)
ROLES = st.sampled_from(["user", "assistant"])
CACHE_POINT = st.just({"cachePoint": {"type": "default"}})


def of_dialect(dialect: Dialect) -> st.SearchStrategy[dict[str, Any]]:
    match dialect:
        case Dialect.ANTHROPIC:
            messages = st.lists(objects(role=ROLES, content=TEXTS | BLOCKS), max_size=4)
            return objects(model=st.just("claude"), tools=TOOLS, system=TEXTS | BLOCKS, messages=messages)
        case Dialect.OPENAI:
            call = objects(id=NAMES, type=st.just("function"), function=objects(name=NAMES, arguments=TEXTS))
            message = (
                objects(role=st.sampled_from(["system", "user", "tool"]), content=TEXTS)
                | objects(role=st.just("assistant"), content=st.none(), tool_calls=st.lists(call, max_size=2))
                | objects(role=st.just("user"), content=BLOCKS)
            )
            tools = st.lists(
                objects(type=st.just("function"), function=objects(name=NAMES, parameters=OBJECTS)), max_size=4
            )
            return objects(tools=tools, messages=st.lists(message, max_size=4), temperature=st.floats(0, 1))
        case Dialect.RESPONSES:
            item = (
                objects(role=ROLES, content=TEXTS | BLOCKS)
                | objects(type=st.just("function_call"), call_id=NAMES, name=NAMES, arguments=TEXTS)
                | objects(type=st.just("function_call_output"), call_id=NAMES, output=TEXTS)
            )
            tools = st.lists(
                objects(type=st.just("function"), name=NAMES, parameters=OBJECTS) | objects(type=NAMES), max_size=4
            )
            return objects(tools=tools, instructions=TEXTS, input=TEXTS | st.lists(item, max_size=4))
        case Dialect.GEMINI:
            declarations = st.lists(objects(name=NAMES, description=TEXTS, parameters=OBJECTS), max_size=3)
            tool = objects(functionDeclarations=declarations) | objects(googleSearch=OBJECTS)
            parts = st.lists(objects(text=TEXTS) | objects(functionCall=objects(name=NAMES, args=OBJECTS)), max_size=3)
            return objects(
                tools=st.lists(tool, max_size=3),
                systemInstruction=objects(parts=parts),
                contents=st.lists(objects(role=ROLES, parts=parts), max_size=3),
            )
        case Dialect.BEDROCK:
            spec = objects(name=NAMES, description=TEXTS, inputSchema=OBJECTS)
            tools = st.lists(st.fixed_dictionaries({"toolSpec": spec}) | CACHE_POINT, max_size=4)
            result = objects(toolUseId=NAMES, content=st.lists(objects(text=TEXTS) | objects(json=OBJECTS), max_size=2))
            document = objects(name=NAMES, format=st.just("txt"))
            block = (
                objects(text=TEXTS)
                | objects(toolResult=result)
                | st.fixed_dictionaries({"document": document})
                | CACHE_POINT
            )
            blocks = st.lists(block, max_size=4)
            messages = st.lists(objects(role=ROLES, content=blocks), max_size=3)
            return objects(toolConfig=objects(tools=tools), system=blocks, messages=messages)
        case _:
            return objects(prompt=TEXTS | st.lists(TEXTS, max_size=2) | st.lists(st.integers(0), max_size=2))


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """A request of any dialect, in any layout of its JSON."""
    dialect = draw(st.sampled_from(Dialect))
    body = draw(of_dialect(dialect))
    source = json.dumps(
        body,
        indent=draw(st.sampled_from([None, None, 1])),
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([None, (",", ":"), (" , ", " : ")])),
    )
    return Prompt.parse(source, dialect)


SOME_STEPS = st.sets(st.sampled_from(Step)) | st.just(set(Step)) | st.just(set(DEFAULT_STEPS))


@given(prompts(), SOME_STEPS, st.sampled_from(Granularity), st.booleans())
def test_twice_is_once(prompt: Prompt, steps: set[Step], granularity: Granularity, in_messages: bool) -> None:
    once = canonicalize(prompt, steps, granularity=granularity, in_messages=in_messages)
    twice = canonicalize(once.prompt, steps, granularity=granularity, in_messages=in_messages)
    assert ((), once.prompt.render()) == (twice.changes, twice.prompt.render())
    again = canonicalize(Prompt.parse(once.prompt.render(), prompt.dialect), steps, granularity=granularity)
    assert in_messages or ((), once.prompt.render()) == (again.changes, again.prompt.render())


@given(prompts(), SOME_STEPS, st.booleans())
def test_changes_are_told_and_the_body_is_what_it_says(prompt: Prompt, steps: set[Step], in_messages: bool) -> None:
    found = canonicalize(prompt, steps, in_messages=in_messages)
    assert (found.prompt.render() != prompt.render()) == bool(found.changes)
    assert {change.step for change in found.changes} <= steps
    assert found.prompt.value == json.loads(found.prompt.render())
    for change in found.changes:
        change.path.get(prompt.value)  # every path leads somewhere in the request as it was given


def _without_order(value: Any) -> Any:
    """A value in which neither the order of items nor markers count, nor texts."""
    match value:
        case dict():
            return tuple(sorted((key, _without_order(item)) for key, item in value.items() if key != "cache_control"))
        case list():
            return ("list", *sorted((_without_order(item) for item in value), key=repr))
        case str():
            return "text"
        case _:
            return repr(value + 0.0 if isinstance(value, float) else value)


@given(prompts(), SOME_STEPS)
def test_nothing_is_added_and_nothing_lost(prompt: Prompt, steps: set[Step]) -> None:
    value = canonicalize(prompt, steps - {Step.WHOLE_NUMBERS}).prompt.value
    assert repr(_without_order(prompt.value)) == repr(_without_order(value))


def _markers(value: Any, place: tuple[Any, ...] = ()) -> set[Any]:
    """Where markers are, for lists of tools and blocks: the place in the list, whatever stands there."""
    found = set()
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key in ("cache_control", "cachePoint") and item is not None:
            found.add(place)
        found |= _markers(item, (*place, key))
    return found


@given(of_dialect(Dialect.ANTHROPIC))
def test_markers_stay_where_they_are(body: dict[str, Any]) -> None:
    tools = [{key: item for key, item in tool.items() if key != "unknown"} for tool in body["tools"]]
    body = {**body, "tools": [{**tool, "input_schema": {}} for tool in tools]}
    value = done(body, *Step, dialect="anthropic")
    assert _markers(body["tools"]) == _markers(value["tools"])


@given(prompts())
def test_messages_keep_their_order_and_the_words_of_users(prompt: Prompt) -> None:
    value = canonicalize(prompt).prompt.value

    def words(body: dict[str, Any]) -> str:
        messages = body.get("messages", body.get("contents", body.get("input", body.get("prompt"))))
        return json.dumps(messages, sort_keys=True)

    leading = prompt.dialect is Dialect.OPENAI  # where system messages are messages, and theirs are changed
    assert leading or words(prompt.value).replace("-0.0", "0.0") == words(value)


@given(OBJECTS, st.data())
def test_equal_tools_become_equal_bytes(parameters: dict[str, Any], data: st.DataObject) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in "abc"]
    mixed = [_mixed(tool, data.draw(st.randoms())) for tool in data.draw(st.permutations(tools))]
    first, second = (canonicalize(of({"messages": [], "tools": found})).prompt.render() for found in (tools, mixed))
    assert first == second


def test_hash_seeds_make_no_difference() -> None:
    code = (
        "import json\nfrom prefold.prompts.canonical.canonicalize import Step, canonicalize\n"
        "from prefold.prompts.prompt import Prompt\n"
        f"found = canonicalize(Prompt.of({TOOL_BODIES['anthropic'] | {'system': MESSY}!r}), set(Step))\n"
        "print(found.prompt.render(), [change.as_json() for change in found.changes])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert 1 == len(said)
