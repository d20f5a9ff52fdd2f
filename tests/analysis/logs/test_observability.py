"""Logs of LiteLLM, Langfuse, OpenTelemetry and vLLM."""

import io
import json

import pytest

from prefold.analysis.logs.formats import READERS, names, reader_named, recognise
from prefold.analysis.logs.log import open_log
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.record import Record
from prefold.core.tokens import unpack
from prefold.errors import InvalidRequest, UsageError
from prefold.providers.usage import Usage

MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]


def read(content, expected):
    """What the reader of a format, recognised by content, makes of a file."""
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    reader = recognise(Head.of("log", content))
    assert expected == reader.name
    return list(reader.read(Source("log", io.BytesIO(content))))


def read_one(content, expected):
    (record,) = read(content, expected)
    assert isinstance(record, Record), record
    return record


def told(record):
    return [(segment.role, segment.text) for segment in record.content.prompt.segments]


def test_formats_have_names():
    assert len(READERS) == len({reader.name for reader in READERS})
    for reader in READERS:
        assert reader is reader_named(reader.name.upper())
        assert reader.name in names()
    with pytest.raises(UsageError, match="no log format 'x'"):
        reader_named("x")


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@pytest.mark.parametrize("content", [b"", b"\0\1\2", b"words\nof no format\n", b"{}", b"[]", b"[[[", b"1\n2\n"])
def test_no_format_is_seen_where_there_is_none(reader, content):
    assert not reader.recognises(Head.of("log", content))


LITELLM = {
    "id": "chatcmpl-7",
    "trace_id": "trace-1",
    "call_type": "acompletion",
    "status": "success",
    "cache_hit": None,
    "startTime": 1700000000.25,
    "endTime": 1700000002.25,
    "completionStartTime": 1700000000.75,
    "model": "gpt-4o",
    "custom_llm_provider": "openai",
    "model_id": "deployment-2",
    "prompt_tokens": 50,
    "completion_tokens": 9,
    "total_tokens": 59,
    "end_user": "acme",
    "messages": MESSAGES,
    "model_parameters": {"tools": [{"type": "function", "function": {"name": "f"}}]},
    "response": {
        "id": "chatcmpl-7",
        "choices": [{"message": {"role": "assistant", "content": "A"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 32}},
    },
    "metadata": {"user_api_key_team_id": "team", "user_api_key_hash": "hash"},
}


@pytest.mark.parametrize("held", [LITELLM, {"standard_logging_object": LITELLM}, {"kwargs": {"payload": LITELLM}}])
def test_a_standard_logging_payload_of_litellm(held):
    record = read_one(held, "litellm")
    assert [("tool", '{"type":"function","function":{"name":"f"}}'), ("system", "S"), ("user", "U")] == told(record)
    assert (1700000000.25, 2.0, 0.5) == (record.time, record.duration, record.ttft)
    assert ("gpt-4o", "openai", "acme", "trace-1", "deployment-2") == (
        *(record.model, record.provider, record.tenant, record.session, record.replica),
    )
    assert Usage(uncached=18, read=32, output=9, is_reported=True) == record.usage
    assert ("A", "stop", "chatcmpl-7", 9) == (record.answer, record.stop, record.request_id, record.output_tokens)


def test_a_row_of_litellms_spend_logs():
    row = {
        "request_id": "r1",
        "call_type": "acompletion",
        "startTime": "2026-01-02T03:04:05.000Z",
        "endTime": "2026-01-02T03:04:06.500Z",
        "completionStartTime": "2026-01-02T03:04:06.500Z",
        "model": "claude-opus-5",
        "user": "ann",
        "team_id": "",
        "session_id": "s9",
        "prompt_tokens": 1000,
        "completion_tokens": 5,
        "messages": {},
        "response": {},
        "proxy_server_request": json.dumps({"model": "best", "messages": MESSAGES}),
        "metadata": json.dumps(
            {"additional_usage_values": {"cache_read_input_tokens": 600, "cache_creation_input_tokens": 100}}
        ),
    }
    record = read_one([row], "litellm")
    assert [("system", "S"), ("user", "U")] == told(record)
    assert Usage(uncached=300, read=600, write=100, output=5, is_reported=True) == record.usage
    assert (1.5, None, "ann", "s9", "claude-opus-5") == (
        *(record.duration, record.ttft, record.tenant, record.session, record.model),
    )


def test_what_litellm_answered_itself_was_never_sent_and_what_it_did_not_keep_is_bad():
    kept, *_ = read(json.dumps(LITELLM).encode(), "litellm")
    assert isinstance(kept, Record)
    assert [] == read({**LITELLM, "cache_hit": True}, "litellm")
    (bad,) = read({**LITELLM, "messages": {}}, "litellm")
    assert "holds no messages" in bad.problem


GENERATION = {
    "id": "obs-1",
    "traceId": "trace-1",
    "type": "GENERATION",
    "startTime": "2026-01-02T03:04:05.000Z",
    "completionStartTime": "2026-01-02T03:04:05.500Z",
    "endTime": "2026-01-02T03:04:07.000Z",
    "model": "gpt-4o",
    "input": MESSAGES,
    "output": {"role": "assistant", "content": "A"},
    "userId": "ann",
    "sessionId": "s1",
    "usageDetails": {"input": 18, "input_cached_tokens": 32, "output": 9, "total": 59},
}
SNAKE = {
    "id": "obs-1",
    "trace_id": "trace-1",
    "type": "generation",
    "start_time": "2026-01-02 03:04:05.000000",
    "completion_start_time": "2026-01-02 03:04:05.500000",
    "end_time": "2026-01-02 03:04:07.000000",
    "provided_model_name": "gpt-4o",
    "input": json.dumps(MESSAGES),
    "output": json.dumps({"role": "assistant", "content": "A"}),
    "user_id": "ann",
    "session_id": "s1",
    "usage_details": json.dumps({"input": 50, "input_cached_tokens": 32, "output": 9, "total": 59}),
}
SPAN = {"id": "span", "traceId": "trace-1", "type": "SPAN", "startTime": "2026-01-02T03:04:04Z", "input": "x"}


def csv_of(row):
    fields = [str(value).replace('"', '""') for value in row.values()]
    return (",".join(row) + "\n" + ",".join(f'"{field}"' for field in fields) + "\n").encode()


@pytest.mark.parametrize(
    "content",
    [
        GENERATION,
        [GENERATION],
        SNAKE,
        json.dumps(SPAN).encode() + b"\n" + json.dumps(GENERATION).encode() + b"\n",
        {"data": [SPAN, GENERATION], "meta": {"page": 1}},
        {"id": "trace-1", "userId": "ann", "sessionId": "s1", "observations": [SPAN, GENERATION]},
        {"trace": {"id": "trace-1", "userId": "ann"}, "observations": [GENERATION]},
        json.dumps([SPAN, GENERATION], indent=1).encode(),
        csv_of(SNAKE),
    ],
)
def test_generations_of_langfuse(content):
    record = read_one(content, "langfuse")
    assert [("system", "S"), ("user", "U")] == told(record)
    assert (1767323045.0, 2.0, 0.5) == (record.time, record.duration, record.ttft)
    assert ("gpt-4o", "ann", "s1", "obs-1") == (record.model, record.tenant, record.session, record.request_id)
    assert "A" == record.answer
    assert Usage(uncached=18, read=32, output=9, is_reported=True) == record.usage


@pytest.mark.parametrize(
    ("details", "usage"),
    [
        ({"input": 10, "output": 2}, Usage(uncached=10, output=2)),
        (
            {"input": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 20, "output": 2},
            Usage(uncached=10, read=90, write=20, output=2, is_reported=True),
        ),
        ({}, None),
    ],
)
def test_usage_types_of_langfuse(details, usage):
    assert usage == read_one({**GENERATION, "usageDetails": details}, "langfuse").usage


def test_what_langfuse_calls_input_may_be_a_body_or_words():
    body = {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f"}}]}
    assert 3 == len(told(read_one({**GENERATION, "input": body}, "langfuse")))
    assert [("", "just words")] == told(read_one({**GENERATION, "input": "just words"}, "langfuse"))
    chain = [{"type": "human", "content": "U"}, {"type": "ai", "content": "A"}]
    assert [("user", "U"), ("assistant", "A")] == told(read_one({**GENERATION, "input": chain}, "langfuse"))
    (bad,) = read({**GENERATION, "input": None}, "langfuse")
    assert "no prompt" in bad.problem


INPUT = [
    {"role": "user", "parts": [{"type": "text", "content": "U"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "R"}]},
]
ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.id": "resp-1",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.conversation.id": "s1",
    "user.id": "ann",
    "server.address": "pod-1",
    "gen_ai.usage.input_tokens": 50,
    "gen_ai.usage.cache_read.input_tokens": 32,
    "gen_ai.usage.cache_creation.input_tokens": 8,
    "gen_ai.usage.output_tokens": 9,
    "gen_ai.server.time_to_first_token": 0.5,
    "gen_ai.system_instructions": [{"type": "text", "content": "S"}],
    "gen_ai.input.messages": INPUT,
    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "A"}]}],
}


def any_value(value):
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    return {"kvlistValue": {"values": [{"key": key, "value": any_value(item)} for key, item in value.items()]}}


def otlp(attributes, **more):
    listed = [{"key": key, "value": any_value(value)} for key, value in attributes.items()]
    span = {"spanId": "a1", "startTimeUnixNano": "1767323045000000000", "endTimeUnixNano": "1767323047000000000"}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "attributes": listed, **more}]}]}]}


AS_TEXT = {
    key: value if isinstance(value, str | int | float) else json.dumps(value) for key, value in ATTRIBUTES.items()
}
FLAT = {
    "name": "chat gpt-4o",
    "context": {"span_id": "0xa1"},
    "start_time": "2026-01-02T03:04:05.000000Z",
    "end_time": "2026-01-02T03:04:07.000000Z",
    "attributes": AS_TEXT,
}
WITHOUT = {key: value for key, value in ATTRIBUTES.items() if "messages" not in key and "instructions" not in key}


@pytest.mark.parametrize(
    "content",
    [
        otlp(ATTRIBUTES),
        otlp(AS_TEXT),
        FLAT,
        json.dumps(otlp(ATTRIBUTES), indent=1).encode(),
        {**FLAT, "attributes": WITHOUT, "events": [
            {"name": "gen_ai.client.inference.operation.details", "attributes": AS_TEXT}
        ]},
    ],
    ids=["otlp", "otlp with texts", "flat", "indented", "event"],
)  # fmt: skip
def test_spans_of_opentelemetry(content):
    record = read_one(content, "otel")
    call = '[{"id":"c","type":"function","function":{"name":"f","arguments":"{\\"a\\":1}"}}]'
    body = record.content.prompt.value
    assert ["system", "user", "assistant", "tool"] == [message["role"] for message in body["messages"]]
    assert ["S", "U", None, "R"] == [message["content"] for message in body["messages"]]
    assert json.loads(call) == body["messages"][2]["tool_calls"]
    assert (1767323045.0, 2.0, 0.5) == (record.time, record.duration, record.ttft)
    assert ("gpt-4o", "openai", "ann", "s1", "pod-1", "resp-1") == (
        *(record.model, record.provider, record.tenant, record.session, record.replica, record.request_id),
    )
    assert Usage(uncached=10, read=32, write=8, output=9, is_reported=True) == record.usage
    assert ("A", "stop", 9) == (record.answer, record.stop, record.output_tokens)


def test_messages_that_are_events_or_numbered():
    events = [
        {"name": "gen_ai.system.message", "attributes": {"content": "S"}},
        {"name": "gen_ai.user.message", "attributes": {"gen_ai.event.content": '{"content": "U"}'}},
        {"name": "gen_ai.choice", "attributes": {"message": "A"}},
    ]
    assert [("system", "S"), ("user", "U")] == told(read_one({**FLAT, "attributes": WITHOUT, "events": events}, "otel"))
    numbered = {
        **WITHOUT,
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": "U",
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "S",
        "gen_ai.completion.0.content": "A",
    }
    record = read_one(otlp(numbered), "otel")
    assert [("system", "S"), ("user", "U")] == told(record)
    assert "A" == record.answer


def test_usage_that_was_counted_beside_the_cache():
    counts = {**ATTRIBUTES, "gen_ai.usage.input_tokens": 4}
    usage = read_one(otlp(counts), "otel").usage
    assert Usage(uncached=4, read=32, write=8, output=9, is_reported=True) == usage


def test_spans_that_are_no_requests_are_passed_over():
    assert [] == read(otlp({**ATTRIBUTES, "gen_ai.operation.name": "execute_tool"}), "otel")
    (bad,) = read(otlp(WITHOUT), "otel")
    assert isinstance(bad, BadLine)
    assert "no prompt" in bad.problem


TEXT = 'It\'s \\n "quoted", prompt_token_ids: [9, 9], é'


@pytest.mark.parametrize(
    "line",
    [
        # 0.1 and 0.3, 0.5 to 0.10, and later versions at level DEBUG
        (
            "INFO 04-12 22:07:44 async_llm_engine.py:379] Received request cmpl-1: prompt: {0!r}, sampling params: "
            "SamplingParams(n=1), prompt token ids: [1, 2, 3]."
        ),
        (
            "INFO 04-12 22:07:44 async_llm_engine.py:433] Received request cmpl-1: prompt: {0!r}, prefix_pos: None,"
            "sampling_params: SamplingParams(n=1), prompt_token_ids: [1, 2, 3], lora_request: None."
        ),
        (
            "INFO 04-12 22:07:44 [logger.py:39] Received request cmpl-1: prompt: {0!r}, params: SamplingParams("
            "stop=['a, prompt_token_ids: None']), prompt_token_ids: [1, 2, 3], lora_request: None, "
            "prompt_adapter_request: None."
        ),
        (
            "(APIServer pid=1) DEBUG 04-12 22:07:44 [logger.py:50] Request cmpl-1 details: prompt: {0!r}, "
            "prompt_token_ids: [1, 2, 3], prompt_embeds shape: None."
        ),
        (
            "INFO 04-12 22:07:44 [logger.py:39] Received request cmpl-1: prompt: None, params: S, prompt_token_ids: "
            "[1, 2, 3], prompt_embeds shape: None, lora_request: None."
        ),
    ],
)
def test_lines_of_vllm(line):
    content = ("INFO 04-12 22:07:40 api_server.py:1] started\n" + line.format(TEXT) + "\nINFO: 200 OK\n").encode()
    record = read_one(content, "vllm")
    assert [1, 2, 3] == unpack(record.content.run)
    assert (1, 3) == (record.content.block_tokens, record.content.tokens)
    assert (71964464.0, "cmpl-1", "log:2") == (record.time, record.request_id, str(record.place))


def test_prompts_of_vllm_without_ids():
    line = "INFO 2026-04-12 22:07:44,250 [logger.py:39] Received request cmpl-1: prompt: {!r}, params: S, "
    record = read_one((line.format(TEXT) + "prompt_token_ids: None, lora_request: None.\n").encode(), "vllm")
    assert [("", TEXT)] == told(record)
    assert 1776031664.25 == record.time
    bad, none = read((line.format(TEXT)[:90] + "\n" + line.format(None) + "\n").encode(), "vllm")
    assert "cut off" in bad.problem
    assert "neither the prompt nor its token ids" in none.problem


LIMITED = "INFO 04-12 22:07:44 [logger.py:1] Received request {0}: params: S, lora_request: None.\n"
DETAILS = "DEBUG 04-12 22:07:44 [logger.py:1] Request {0} details: prompt: 'a', prompt_token_ids: [1], x.\n"


def test_a_log_of_vllm_without_prompts_says_so(tmp_path):
    path = tmp_path / "vllm.log"
    path.write_text("".join(map(LIMITED.format, "abc")))
    log = open_log([str(path)], lenient=True)
    assert [] == list(log)
    assert {"bad_line": 3} == dict(log.notes.problems)
    assert [1, 2, 3] == [place.line for place in log.notes.skipped_places]
    with pytest.raises(InvalidRequest, match="logged without its prompt") as caught:
        list(open_log([str(path)]))
    assert "VLLM_LOGGING_LEVEL=DEBUG" in caught.value.hint


def test_requests_of_vllm_whose_prompts_stand_before_them(tmp_path):
    content = LIMITED.format("a") + "".join(DETAILS.format(name) + LIMITED.format(name) for name in "bc")
    assert 2 == len(read(content.encode(), "vllm"))  # the prompt of the first stands in the file before
