import io
import json
import os
from pathlib import Path

import pytest

from prefold.analysis.logs import gateway
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.errors import UsageError
from prefold.gateway import request_log
from prefold.gateway.call import Api
from prefold.gateway.config import Kind
from prefold.gateway.meter import CallRecord, Outcome
from prefold.gateway.redact import Redactor
from prefold.gateway.request_log import RequestLog
from prefold.prompts.prompt import Dialect
from prefold.providers.usage import Usage

KEY = b"k" * 32
CHAT = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be kind to Ada."}, {"role": "user", "content": "Where is it?"}],
}


def record(body=b"", **changes):
    fields = {
        "time": 1_780_000_000.25,
        "api": Api.CHAT,
        "model": "m",
        "model_label": "m",
        "tenant": "acme",
        "session": "s1",
        "request_id": "r1",
        "replica": "a",
        "kind": Kind.VLLM,
        "why": "exact",
        "status": 200,
        "outcome": Outcome.DONE,
        "cache": "off",
        "duration": 1.5,
        "ttft": 0.25,
        "usage": Usage(200, 800, 10, 10, 0, 50, is_reported=True),
        "matched": 768,
        "body": body,
    }
    return CallRecord(**{**fields, **changes})


def written(path, *records, bodies="no", key=KEY):
    log = RequestLog(path, bodies=bodies, key=key)
    for each in records:
        log(each)
    log.close()
    assert 0 == log.lost
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def read(path):
    """What the analysis reads of a log."""
    content = path.read_bytes()
    reader = gateway.Gateway()
    assert reader.recognises(Head.of("log", content[:1000]))
    return list(reader.read(Source("log", io.BufferedReader(io.BytesIO(content)))))


def test_a_line_has_what_is_known_of_a_call(tmp_path):
    (line,) = written(tmp_path / "log", record(b'{"model": "m"}'))
    assert {
        "prefold_log": 1,
        "time": 1_780_000_000.25,
        "api": "/v1/chat/completions",
        "model": "m",
        "tenant": "acme",
        "session": "s1",
        "request_id": "r1",
        "replica": "a",
        "kind": "vllm",
        "why": "exact",
        "status": 200,
        "outcome": "done",
        "cache": "off",
        "duration": 1.5,
        "ttft": 0.25,
        "usage": {
            "input_tokens": 200,
            "output_tokens": 50,
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 10,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
        },
        "predicted_hit_tokens": 768,
    } == line


def test_what_is_not_known_is_left_out(tmp_path):
    (line,) = written(tmp_path / "log", record(ttft=None, usage=None, matched=None, session="", replica="", status=0))
    assert {"ttft", "usage", "predicted_hit_tokens", "session", "replica", "kind"}.isdisjoint(line)
    assert 0 == line["status"]


def test_whole_bodies_stay_as_they_were_sent(tmp_path):
    body = b'{"b": 10.0,\r\n  "a" :[1,\n 2], "text": "\\n \xc3\xa9"}'
    path = tmp_path / "log"
    written(path, record(body), bodies="whole")
    assert b'"request":' + body.replace(b"\r\n", b"  ").replace(b"\n", b" ") in path.read_bytes()


@pytest.mark.parametrize("bodies", ["whole", "redacted"])
def test_salts_are_never_written(tmp_path, bodies):
    body = json.dumps({**CHAT, "cache_salt": "a tenant's own secret"}).encode()
    path = tmp_path / "log"
    first, second = written(path, record(body), record(body), bodies=bodies)
    assert b"secret" not in path.read_bytes()
    assert first["request"]["cache_salt"] == second["request"]["cache_salt"] != ""


@pytest.mark.parametrize("key", ["cache_salt", "cache\\u005fsalt", "\\u0063ache_sal\\u0074"])
def test_salts_are_not_written_however_their_key_is_spelt(tmp_path, key):
    path = tmp_path / "log"
    (line,) = written(path, record(b'{"model": "m", "%b": "SECRET"}' % key.encode()), bodies="whole")
    assert b"SECRET" not in path.read_bytes()
    assert line["request"]["cache_salt"].startswith("salt_")


@pytest.mark.parametrize("body", [b'{"prompt": "\\u005f cache_salt", "temperature": 1.0}', b'["cache_salt"]'])
def test_bodies_that_only_speak_of_salts_stay_as_they_were_sent(tmp_path, body):
    path = tmp_path / "log"
    written(path, record(body), bodies="whole")
    assert b'"request":' + body in path.read_bytes()


def test_the_analysis_reads_it_back(tmp_path):
    path = tmp_path / "log"
    body = json.dumps(CHAT).encode()
    written(path, record(body), bodies="whole")
    (found,) = read(path)
    assert (1_780_000_000.25, "m", "acme", "s1", "a", 1.5, 0.25, "r1") == (
        found.time,
        found.model,
        found.tenant,
        found.session,
        found.replica,
        found.duration,
        found.ttft,
        found.request_id,
    )
    assert record().usage == found.usage
    assert body == found.content.content
    assert Dialect.OPENAI is found.content.dialect


def test_the_analysis_reads_what_was_reported_where_there_are_no_bodies(tmp_path):
    path = tmp_path / "log"
    written(path, record(b"{}"))
    (found,) = read(path)
    assert (1010, 0) == (found.content.tokens, found.content.blocks)


def test_the_analysis_passes_over_calls_that_no_replica_read(tmp_path):
    path = tmp_path / "log"
    body = json.dumps(CHAT).encode()
    unread = ({"status": 429}, {"cache": "hit"}, {"cache": "shared"}, {"replica": ""}, {"api": Api.EMBEDDINGS})
    written(path, *(record(body, **changes) for changes in unread), record(body, cache="observed"), bodies="whole")
    assert 1 == len(read(path))


def test_the_analysis_reads_token_ids(tmp_path):
    path = tmp_path / "log"
    body = b'{"model": "m", "prompt": [1, 2, 3]}'
    written(path, record(body, api=Api.COMPLETIONS), bodies="redacted")
    (found,) = read(path)
    assert (3, 1) == (found.content.tokens, found.content.block_tokens)


@pytest.mark.parametrize("line", [b'{"prefold_log": 2}', b'{"prefold_log": 1, "status": "x"}', b"[]", b"{"])
def test_other_lines_are_bad(tmp_path, line):
    path = tmp_path / "log"
    written(path, record())
    path.write_bytes(path.read_bytes() + line + b"\n")
    good, bad = read(path)
    assert isinstance(bad, BadLine)
    assert "a" == good.replica


def test_both_sides_mean_the_same_format():
    assert (gateway.MARK, gateway.VERSION) == (request_log.MARK, request_log.VERSION)


# Redacted


def test_texts_keep_their_length_and_how_far_they_agree():
    redactor = Redactor(KEY)
    text = "The quick brown fox jumps over the lazy dog. " * 10
    first, second = redactor.text(text), redactor.text(text[:200] + "!" + text[201:])
    assert len(text) == len(first) == len(second)
    assert first[:192] == second[:192]
    assert first[192:224] != second[192:224]
    assert first == redactor.text(text)
    assert first != Redactor(b"other").text(text)
    assert "" == redactor.text("")


def test_token_ids_agree_as_far_as_they_did():
    redactor = Redactor(KEY)
    first, second = redactor.tokens([5, 6, 7, 8]), redactor.tokens([5, 6, 9, 8])
    assert [True, True, False, False] == [one == other for one, other in zip(first, second, strict=True)]
    assert {5, 6, 7, 8}.isdisjoint(first)


def secret_places():
    """Bodies with a secret at every place where users put texts."""
    secret = "Zanzibar77"
    yield {"messages": [{"role": "user", "content": secret, "name": secret}], "user": secret, secret: secret}
    yield {"messages": [{"role": "user", "content": [{"type": "text", "text": secret}]}], "metadata": {secret: secret}}
    yield {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": secret}}]}]}
    yield {"system": [{"type": "text", "text": secret, "cache_control": {"type": "ephemeral"}}], "messages": []}
    yield {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": secret,
                    "description": secret,
                    "parameters": {
                        "type": "object",
                        "properties": {secret: {"type": "string", "enum": [secret], "default": {"type": secret}}},
                        "required": [secret],
                    },
                },
            }
        ],
        "messages": [
            {
                "role": "assistant",
                "tool_calls": [{"id": secret, "type": "function", "function": {"name": secret, "arguments": secret}}],
            },
            {"role": "tool", "tool_call_id": secret, "content": secret},
        ],
    }
    tool = {"type": "tool_use", "id": secret, "name": secret, "input": {"role": secret, "in": {"type": [secret]}}}
    yield {"messages": [{"role": "assistant", "content": [tool]}], "stop_sequences": [secret]}
    yield {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": secret}]}]}
    yield {"input": secret, "instructions": secret, "prompt_cache_key": secret, "prompt": [secret]}
    yield {"messages": [], "tool_choice": {"type": "tool", "name": secret}, "chat_template_kwargs": {"type": secret}}


@pytest.mark.parametrize("body", list(secret_places()))
def test_no_text_is_left(body):
    redacted = Redactor(KEY).body(body)
    assert "Zanzibar" in json.dumps(body)
    assert "Zanzibar" not in json.dumps(redacted)


def test_what_the_api_prescribes_stays():
    body = {
        "model": "gpt-5",
        "temperature": 0.5,
        "tool_choice": "auto",
        "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    }
    redacted = Redactor(KEY).body(body)
    assert ("gpt-5", 0.5, "auto") == (redacted["model"], redacted["temperature"], redacted["tool_choice"])
    assert ["system", "user"] == [message["role"] for message in redacted["messages"]]
    assert {"type": "object", "properties": {}} == redacted["tools"][0]["function"]["parameters"]


def test_names_stay_alike():
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "x"}]
    redacted = Redactor(KEY).body({"messages": messages})["messages"]
    assert redacted[0]["tool_calls"][0]["id"] == redacted[1]["tool_call_id"]


def test_redacted_bodies_can_still_be_parsed(tmp_path):
    path = tmp_path / "log"
    written(path, record(json.dumps(CHAT).encode()), bodies="redacted")
    (found,) = read(path)
    segments = [segment.text for segment in found.content.prompt.segments]
    assert [15, 12] == [len(text) for text in segments]


# Faults


def test_a_renamed_file_is_left_alone_after_reopening(tmp_path):
    path = tmp_path / "log"
    log = RequestLog(path, key=KEY)
    log(record(request_id="old"))
    log.reopen()
    path.rename(tmp_path / "log.1")
    log.reopen()
    log(record(request_id="new"))
    log.close()
    assert "new" == json.loads(path.read_bytes())["request_id"]
    assert b"old" in (tmp_path / "log.1").read_bytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_loses_lines_and_is_counted():
    log = RequestLog(Path("/dev/full"), key=KEY)
    for _ in range(3):
        log(record())
    log.close()
    assert 3 == log.lost


def test_a_line_that_was_cut_by_a_full_disk_is_closed(tmp_path, monkeypatch):
    path = tmp_path / "log"
    real_write, answers = os.write, iter([30, OSError(28, "No space left on device")])

    def write(file, content):
        answer = next(answers, None)
        if isinstance(answer, OSError):
            raise answer
        return real_write(file, content[:answer] if answer else content)

    log = RequestLog(path, key=KEY)
    monkeypatch.setattr(os, "write", write)
    log._write([record(request_id="cut")])
    log._write([record(request_id="whole")])
    log.close()
    _, line = path.read_bytes().splitlines()
    assert "whole" == json.loads(line)["request_id"]
    assert 1 == log.lost


def test_a_body_that_is_no_json_is_lost_and_nothing_else(tmp_path):
    path = tmp_path / "log"
    log = RequestLog(path, bodies="redacted", key=KEY)
    log(record(b"{"))
    log(record(b'{"a":' * 5000 + b"1" + b"}" * 5000))
    log(record(b"{}"))
    log.close()
    assert 1 == len(path.read_bytes().splitlines())
    assert 2 == log.lost


def test_too_much_that_waits_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log, "_MOST_BYTES", 10)
    log = RequestLog(tmp_path / "log", bodies="whole", key=KEY)
    log(record(b'"' + b"x" * 20 + b'"'))
    assert 1 == log.lost
    log(record(b"{}"))
    log.close()
    assert 1 == len((tmp_path / "log").read_bytes().splitlines())


def test_a_file_that_cannot_be_opened_is_told_at_once(tmp_path):
    with pytest.raises(UsageError, match="cannot be opened"):
        RequestLog(tmp_path / "no such folder" / "log", key=KEY)
