"""Bodies of all providers, with and without the record that holds them."""

import io
import json

import pytest

from prefold.analysis.logs.bodies import Bodies, dialect_of
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.record import Blocks, Record
from prefold.core.tokens import unpack
from prefold.errors import InvalidRequest
from prefold.prompts.dialects import recognise
from prefold.prompts.prompt import Dialect
from prefold.providers.usage import Usage

OPENAI = {"model": "gpt-4o", "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]}
PLAIN_CHAT = {"model": "gpt-4o", "messages": [{"role": "user", "content": "U"}]}
ANTHROPIC = {"model": "claude-opus-5", "system": "S", "messages": [{"role": "user", "content": "U"}]}
ANTHROPIC_BLOCKS = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]},
    ],
}
TOOLS_OF_OPENAI = {**PLAIN_CHAT, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
TOOLS_OF_ANTHROPIC = {**PLAIN_CHAT, "tools": [{"name": "f", "input_schema": {}}]}
CALLS = {
    "messages": [
        {"role": "user", "content": 'thinking of "tool_use"'},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
    ]
}
RESPONSES = {"model": "gpt-5.6", "input": [{"role": "user", "content": "U"}]}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "U"}]}]}
BEDROCK = {"modelId": "anthropic.claude", "messages": [{"role": "user", "content": [{"text": "U"}]}]}
BEDROCK_BARE = {"messages": [{"role": "user", "content": [{"text": "U"}]}]}
COMPLETION = {"model": "llama", "prompt": "U"}
ALL = [
    *(OPENAI, PLAIN_CHAT, ANTHROPIC, ANTHROPIC_BLOCKS, TOOLS_OF_OPENAI, TOOLS_OF_ANTHROPIC, CALLS, RESPONSES),
    *(GEMINI, BEDROCK, BEDROCK_BARE, COMPLETION),
]


def read(*values, dialect=None):
    content = b"".join((value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n" for value in values)
    return list(Bodies(dialect).read(Source("log", io.BytesIO(content))))


def record_of(value):
    (record,) = read(value)
    assert isinstance(record, Record), record
    return record


@pytest.mark.parametrize("body", ALL)
def test_a_body_keeps_its_bytes_and_gets_its_dialect(body):
    assert Head.of("x", json.dumps(body).encode() + b"\n").objects
    assert Bodies().recognises(Head.of("x", json.dumps(body).encode()))
    record = record_of(body)
    assert json.dumps(body).encode() == record.content.content
    assert recognise(body) == record.content.dialect
    assert recognise(body) == record.content.prompt.dialect
    assert str(body.get("model") or body.get("modelId") or "") == record.model
    assert "log:1" == str(record.place)


@pytest.mark.parametrize("body", ALL)
@pytest.mark.parametrize("field", ["request", "body", "request_body", "kwargs", "params", "input", "requestBody"])
def test_a_record_holds_a_body_as_object_or_text(body, field):
    text = json.dumps(body)
    assert text.encode() == record_of(f'{{"time": 5, "{field}": {text}}}'.encode()).content.content
    assert text.encode() == record_of({"time": 5, field: text}).content.content
    assert text.encode() == record_of({"request": {"method": "POST", "body": body}}).content.content


def test_all_fields_of_a_record():
    record = record_of(
        {
            "timestamp": "2026-01-02T03:04:05Z",
            "session_id": "s1",
            "team": "blue",
            "user": "ann",
            "server": "pod-3",
            "provider": "openai",
            "duration_ms": 1500,
            "ttft_ms": 200,
            "request_id": "req-1",
            "request": OPENAI,
            "response": {
                "id": "chatcmpl-1",
                "choices": [{"message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 7,
                    "prompt_tokens_details": {"cached_tokens": 64},
                },
            },
        }
    )
    assert 1767323045.0 == record.time
    assert ("s1", "blue", "pod-3", "openai") == (record.session, record.tenant, record.replica, record.provider)
    assert (1.5, 0.2) == (record.duration, record.ttft)
    assert ("gpt-4o", "req-1", "Yes.", "stop", 7) == (
        *(record.model, record.request_id, record.answer, record.stop, record.output_tokens),
    )
    assert Usage(uncached=36, read=64, output=7, is_reported=True) == record.usage


@pytest.mark.parametrize(
    ("response", "answer", "stop", "request_id"),
    [
        (
            {
                "id": "msg_1",
                "content": [{"type": "text", "text": "A"}, {"type": "tool_use"}],
                "stop_reason": "tool_use",
            },
            *("A", "tool_use", "msg_1"),
        ),
        (
            {
                "id": "resp_1",
                "status": "completed",
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "A"}]}],
            },
            *("A", "completed", "resp_1"),
        ),
        ({"id": "resp_2", "output": [{"type": "function_call", "name": "f"}]}, None, "tool_call", "resp_2"),
        (
            {"responseId": "g", "candidates": [{"content": {"parts": [{"text": "A"}]}, "finishReason": "STOP"}]},
            *("A", "STOP", "g"),
        ),
        ({"output": {"message": {"content": [{"text": "A"}]}}, "stopReason": "end_turn"}, "A", "end_turn", ""),
        ({"choices": [{"text": "A", "finish_reason": "length"}]}, "A", "length", ""),
        ({"status": 200, "body": {"id": "m", "content": [{"text": "A"}]}}, "A", "", "m"),
        ({"type": "succeeded", "message": {"id": "m", "role": "assistant", "usage": {}, "content": []}}, None, "", "m"),
        ("just words", "just words", "", ""),
        ('{"id": "t", "content": [{"text": "A"}]}', "A", "", "t"),
    ],
)
def test_answers_of_all_providers(response, answer, stop, request_id):
    record = record_of({"request": OPENAI, "response": response})
    assert (answer, stop, request_id) == (record.answer, record.stop, record.request_id)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"diagnostics": {"cache_miss_reason": {"type": "tools_changed"}}}, "tools_changed"),
        ({"diagnostics": {"cache_miss_reason": "system_changed"}}, "system_changed"),
        ({"diagnostics": {"cache_miss_reason": None}}, ""),
        ({"diagnostics": None}, ""),
        ({"prompt_cache_diagnostics": {"type": "cache_miss", "reason": "input_changed"}}, "input_changed"),
        ({"prompt_cache_diagnostics": {"type": "cache_miss", "reason": {"type": "model_changed"}}}, "model_changed"),
        ({"prompt_cache_diagnostics": {"type": "cache_hit"}}, ""),
    ],
)
def test_the_providers_own_reason_for_a_miss(response, reason):
    assert reason == record_of({"request": OPENAI, "response": {"id": "r", **response}}).miss_reason


@pytest.mark.parametrize(
    ("fields", "tenant", "session"),
    [
        ({"user": "ann"}, "ann", ""),
        ({"metadata": {"user_id": "ann", "session_id": "s"}}, "ann", "s"),
        (
            {"metadata": {"user_id": "user_0f_account_1_session_12345678-aaaa"}},
            *("user_0f_account_1", "12345678-aaaa"),
        ),
        ({"metadata": {"user_id": '{"account_uuid": "a", "session_id": "s"}'}}, "a", "s"),
        ({"metadata": {"user_id": "{not JSON"}}, "{not JSON", ""),
        ({"end_user": 17, "conversation_id": 3}, "17", "3"),
    ],
)
def test_tenant_and_session(fields, tenant, session):
    record = record_of({**OPENAI, **fields})
    assert (tenant, session) == (record.tenant, record.session)


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        (1_700_000_000, 1_700_000_000.0),
        (1_700_000_000_123, 1_700_000_000.123),
        (1_700_000_000_123_456, 1_700_000_000.123456),
        ("1700000000000000000", 1_700_000_000.0),
        ("2023-11-14 22:13:20.5", 1_700_000_000.5),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000.0),
        (12.5, 12.5),
        ("yesterday", None),
        (True, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        ([1], None),
    ],
)
def test_times(stamp, time):
    assert time == record_of({"time": stamp, "request": OPENAI}).time


def test_token_ids_are_exact_prompts():
    record = record_of({"model": "m", "prompt_token_ids": [1, 2, 2**32 - 1], "output_token_ids": [7]})
    assert Blocks(record.content.run, 1, 3) == record.content
    assert [1, 2, 2**32 - 1] == unpack(record.content.run)
    assert [7] == unpack(record.answer.run)
    assert 1 == record.output_tokens
    assert [5, 6] == unpack(record_of({"model": "m", "prompt": [5, 6]}).content.run)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"messages": [', "not valid JSON"),
        (b"garbage", "not valid JSON"),
        (b"[1, 2]", "no JSON object"),
        (b'{"a": 1}', "none of messages, input, contents or prompt"),
        (b'{"messages": "no list"}', "messages"),
        (b'{"messages": ["\xff"]}', "not UTF-8"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (b'{"prompt_token_ids": [-1]}', "Not a list of token ids"),
        (b'{"prompt_token_ids": ["a"]}', "not a list of whole numbers"),
        (b'{"prompt_token_ids": [1.5]}', "not a list of whole numbers"),
        (b'{"n": ' + b"9" * 5000 + b', "messages": "x"}', "thousands of digits"),
    ],
)
def test_bad_lines_say_what_is_wrong(line, problem):
    _first, bad, last = read(OPENAI, line, OPENAI)
    assert isinstance(bad, BadLine)
    assert problem in bad.problem
    assert "log:2" == str(bad.place)
    assert "log:3" == str(last.place)


def test_json_as_python_writes_it():
    nan, surrogate = read(
        b'{"messages": [{"role": "user", "content": "U"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}], "user": "\\udfff"}',
    )
    assert Dialect.OPENAI == nan.content.dialect
    assert "\ud800" == surrogate.content.prompt.segments[0].text


def test_a_named_dialect_counts():
    (record,) = read(PLAIN_CHAT, dialect=Dialect.ANTHROPIC)
    assert Dialect.ANTHROPIC == record.content.dialect
    assert "anthropic" == Bodies(Dialect.ANTHROPIC).name


def test_no_dialect_for_what_is_no_body():
    with pytest.raises(InvalidRequest):
        dialect_of({})
