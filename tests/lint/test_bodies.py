"""Rules for request bodies and logs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import InvalidRequest
from prefold.lint.bodies import BODY_RULES, lint_body, lint_log
from prefold.lint.findings import Finding, Rule
from prefold.lint.fixes import fixed

CLOCK = "Now: 2026-11-01T10:00:00Z"
RULES = "You are an agent. " * 20


def spans(text: str, found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.rule, finding.path, text[finding.start : finding.end]) for finding in found]


def body_of(dialect: str, system: str, question: str = "Hello") -> dict[str, Any]:
    match dialect:
        case "anthropic":
            return {
                "model": "m",
                "system": [{"type": "text", "text": system}],
                "messages": [{"role": "user", "content": question}],
            }
        case "openai":
            return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": question}]}
        case "responses":
            return {"instructions": system, "input": question}
        case "gemini":
            return {
                "systemInstruction": {"parts": [{"text": system}]},
                "contents": [{"role": "user", "parts": [{"text": question}]}],
            }
        case "bedrock":
            return {
                "modelId": "m",
                "system": [{"text": system}],
                "messages": [{"role": "user", "content": [{"text": question}]}],
            }
        case _:
            return {"prompt": system}


@pytest.mark.parametrize("dialect", ["anthropic", "openai", "responses", "gemini", "bedrock", "completion"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_clock_in_the_system_is_found_in_every_dialect(dialect: str, indent: int | None) -> None:
    text = json.dumps(body_of(dialect, f"{CLOCK}\n{RULES}"), indent=indent)
    (found,) = lint_body(text, "body.json")
    assert "2026-11-01T10:00:00Z" == text[found.start : found.end]
    assert "PF101" == found.rule
    assert found.lost_tokens is not None
    assert found.lost_tokens > 60


@pytest.mark.parametrize("dialect", ["anthropic", "openai", "responses", "gemini", "bedrock"])
def test_what_the_user_says_is_not_looked_at(dialect: str) -> None:
    assert [] == lint_body(json.dumps(body_of(dialect, RULES, CLOCK)), "body.json")


def test_descriptions_of_tools_are_looked_at_and_examples_in_schemas_are_not() -> None:
    tool = {
        "name": "search",
        "description": f"Search orders. {CLOCK}",
        "input_schema": {
            "type": "object",
            "properties": {"format": {"type": "string", "description": "Session ID: 8842"}},
            "examples": [CLOCK],
        },
    }
    text = json.dumps({"tools": [tool], "messages": []})
    assert [
        ("PF101", "tools[0]", "2026-11-01T10:00:00Z"),
        ("PF105", "tools[0]", "8842"),
    ] == spans(text, lint_body(text, "body.json"))


def test_the_span_is_right_behind_escapes() -> None:
    text = json.dumps({"system": f'"Say"\n\t你好 \\ 😀 {CLOCK}', "messages": []})
    assert [("PF101", "system", "2026-11-01T10:00:00Z")] == spans(text, lint_body(text, "body.json"))


@pytest.mark.parametrize("wrap", [lambda body: {"request": body}, lambda body: {"t": 1, "body": json.dumps(body)}])
def test_a_record_with_a_body(wrap) -> None:
    text = json.dumps(wrap(body_of("anthropic", CLOCK)))
    assert [("PF101", "system[0]", "2026-11-01T10:00:00Z")] == spans(text, lint_body(text, "body.json"))


TOOLS = {
    "anthropic": {
        "tools": [{"name": "search", "input_schema": {}}, {"name": "read", "input_schema": {}}],
        "messages": [],
    },
    "openai": {
        "tools": [{"type": "function", "function": {"name": name}} for name in ("search", "read")],
        "messages": [],
    },
    "gemini": {"tools": [{"functionDeclarations": [{"name": "search"}, {"name": "read"}]}], "contents": []},
    "bedrock": {"toolConfig": {"tools": [{"toolSpec": {"name": name}} for name in ("search", "read")]}, "messages": []},
}


@pytest.mark.parametrize("dialect", TOOLS)
@pytest.mark.parametrize("indent", [None, 1])
def test_unsorted_tools_are_found_and_fixed(dialect: str, indent: int | None) -> None:
    text = json.dumps(TOOLS[dialect], indent=indent)
    (found,) = lint_body(text, "body.json")
    assert ("PF201", '"read"') == (found.rule, text[found.start : found.end])
    new = fixed(text, [found])
    assert 1 == new.count
    assert [] == lint_body(new.text, "body.json")
    assert sorted(text) == sorted(new.text)


def test_sorted_tools_and_tools_on_both_sides_of_a_marker_are_left_alone() -> None:
    marker = {"cache_control": {"type": "ephemeral"}}
    tools = [{"name": "search", "input_schema": {}, **marker}, {"name": "read", "input_schema": {}}]
    assert [] == lint_body(json.dumps({"tools": tools, "messages": []}), "body.json")
    assert [] == lint_body(json.dumps({"tools": tools[::-1], "messages": []}), "body.json")


@pytest.mark.parametrize(
    ("numbers", "span", "fix"),
    [
        ('{"maximum": 1e5}', "1e5", "100000.0"),
        ('{"maximum": 0.30000000000000004}', "0.30000000000000004", None),
        ('{"a": {"step": 1}, "b": {"step": 1.0}}', "1.0", None),
    ],
)
def test_unstable_numbers(numbers: str, span: str, fix: str | None) -> None:
    text = f'{{"tools": [{{"name": "a1 b1e5", "input_schema": {numbers}}}], "messages": []}}'
    (found,) = lint_body(text, "body.json")
    assert ("PF202", span) == (found.rule, text[found.start : found.end])
    assert ([fix] if fix else []) == [replacement.text for replacement in found.fix]


@pytest.mark.parametrize("written", ["1E-7", "1e-7", "1.0e-07", "1E16", "1e16"])
def test_a_mended_exponent_is_not_found_again(written: str) -> None:
    text = f'{{"tools": [{{"name": "a", "input_schema": {{"maximum": {written}}}}}], "messages": []}}'
    new = fixed(text, lint_body(text, "body.json"))
    assert 1 == new.count
    assert [] == lint_body(new.text, "body.json")


@pytest.mark.parametrize("rule", BODY_RULES, ids=lambda rule: rule.id)
def test_the_examples_of_each_rule_are_true(rule: Rule) -> None:
    assert rule.id in {found.rule for found in lint_body(rule.before, "body.json")}
    assert [] == lint_body(rule.after, "body.json")


def test_usual_numbers_are_left_alone() -> None:
    text = '{"tools": [{"name": "a", "input_schema": {"minimum": 0.5, "maximum": 10, "step": 1.0}}], "messages": []}'
    assert [] == lint_body(text, "body.json")


def test_a_marker_on_the_newest_message_only() -> None:
    marked = {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
    body = {"system": [{"type": "text", "text": RULES}], "messages": [{"role": "user", "content": [marked]}]}
    text = json.dumps(body)
    assert [("PF203", "messages[0].content[0]", '{"type": "ephemeral"}')] == spans(text, lint_body(text, "body.json"))
    body["system"][0]["cache_control"] = {"type": "ephemeral"}
    assert [] == lint_body(json.dumps(body), "body.json")


def test_a_log_says_once_what_many_lines_have() -> None:
    lines = [json.dumps(body_of("anthropic", f"Now: 2026-11-01T10:00:0{second}Z\n{RULES}")) for second in range(6)]
    text = "\n".join([*lines[:3], "", *lines[3:], json.dumps(body_of("openai", "Session ID: 8842 \u2028 x"))])
    clock, session = lint_log(text, "log.jsonl")
    assert text.index("2026-11") == clock.start
    assert ("The same in 6 lines of this log, also in 2, 3, 5, ...",) == clock.notes
    assert "8842" == text[session.start : session.end]
    assert () == session.notes


def test_a_log_is_not_fixed() -> None:
    (found,) = lint_log(json.dumps(TOOLS["openai"]), "log.jsonl")
    assert ("PF201", ()) == (found.rule, found.fix)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n "messages": [\n}', "line 3, column 1"),
        ("[1]", "not a JSON object"),
        ('{"name": "package"}', "dialect is unknown"),
        ('{"messages": [1]}', "messages[0] is not a message"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_bodies(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        lint_body(text, "body.json")
    assert message in error.value.message


def test_a_bad_line_of_a_log_is_named() -> None:
    with pytest.raises(InvalidRequest) as error:
        lint_log('{"prompt": "x"}\n{"prompt": \n', "log.jsonl")
    assert "In line 2 of log.jsonl: The body is not valid JSON" in error.value.message
    assert "line 1" not in error.value.message


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.sampled_from([CLOCK, "x", "", 1, 1.0, 'a\n"b']),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "type", "text", "role", "content", "function", "parts"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["tools", "system", "messages", "contents", "prompt", "input", "instructions", "toolConfig"]),
        JSON_VALUES | st.lists(JSON_VALUES),
    )
)
def test_any_json_is_linted_or_refused(body: dict[str, Any]) -> None:
    text = json.dumps(body)
    try:
        found = lint_body(text, "body.json")
    except InvalidRequest:
        return
    for finding in found:
        assert finding.start < finding.end <= len(text)
        assert "PF101" != finding.rule or "2026-11-01T10:00:00Z" == text[finding.start : finding.end]
