"""Logs of requests."""

import io
import json
from typing import Any

import pytest

from prefold.errors import InvalidRequest
from prefold.prompts.logged import Conversations, Logged, RequestLog, parse_logged, with_body
from prefold.prompts.prompt import Dialect, Prompt

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}


def log_of(text: str, dialect: Dialect | None = None, name: str = "requests") -> RequestLog:
    return RequestLog(io.StringIO(text, newline=""), name, dialect)


def logged_of(record: dict[str, Any]) -> Logged:
    return parse_logged(json.dumps(record).encode())


@pytest.mark.parametrize("field", ["request", "body", "request_body", "kwargs", "input"])
def test_bodies_in_records(field: str) -> None:
    assert BODY == logged_of({"id": 1, field: BODY}).prompt.value
    assert BODY == logged_of({"id": 1, field: json.dumps(BODY)}).prompt.value
    assert BODY == logged_of({"http": 1, "request": {"headers": {}, field: BODY}}).prompt.value


def test_a_body_whose_own_field_is_called_input() -> None:
    body = {"model": "m", "input": [{"role": "user", "content": "Hello."}]}
    assert Dialect.RESPONSES is logged_of(body).prompt.dialect
    assert body == logged_of({"body": body}).prompt.value


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"timestamp": "2026-11-01T10:00:00Z"}, 1_793_527_200.0),
        ({"timestamp": "2026-11-01T10:00:00"}, 1_793_527_200.0),
        ({"time": "2026-11-01T12:00:00+02:00"}, 1_793_527_200.0),
        ({"created": 1_793_527_200}, 1_793_527_200.0),
        ({"ts": 1_793_527_200_000}, 1_793_527_200.0),
        ({"ts": "yesterday"}, None),
        ({"ts": True, "time": None}, None),
        ({}, None),
    ],
)
def test_times(record: dict[str, Any], expected: float | None) -> None:
    assert expected == logged_of({**record, "body": BODY}).time


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"session": "a", "body": BODY}, "a"),
        ({"conversation_id": 7, "body": BODY}, "7"),
        ({"body": {**BODY, "user": "u1"}}, "u1"),
        ({"body": {**BODY, "metadata": {"user_id": "u2"}}}, "u2"),
        ({"body": {**BODY, "metadata": None}}, ""),
        ({"session": "", "body": BODY}, ""),
    ],
)
def test_sessions(record: dict[str, Any], expected: str) -> None:
    assert expected == logged_of(record).session


def test_a_log_can_be_read_again() -> None:
    log = log_of("".join(json.dumps({"body": BODY, "session": str(number)}) + "\r\n\n" for number in range(3)))
    assert ["0", "1", "2"] == [logged.session for logged in log] == [logged.session for logged in log]


@pytest.mark.parametrize("text", [json.dumps(BODY), json.dumps(BODY, indent=2), json.dumps({"request": BODY}) + "\n"])
def test_one_body(text: str) -> None:
    assert [BODY] == [logged.prompt.value for logged in log_of(text)]


def test_bodies_keep_their_bytes() -> None:
    text = '{"model":"m",  "messages":[{"role":"user","content":"1.0 \\u00e9"}]}'
    assert [text.encode()] == [logged.prompt.render() for logged in log_of(text)]
    assert [text.encode()] * 2 == [logged.prompt.render() for logged in log_of(f"{text}\r\n{text}\n")]


def test_one_text() -> None:
    assert ["Now: {now}\n\nWhy?"] == [logged.prompt.value for logged in log_of("Now: {now}\n\nWhy?")]


@pytest.mark.parametrize(
    "record",
    [
        '{"model": "m",  "messages": [], "temperature": 1.50}',
        '{"ts": 1,  "request": %s, "cost": 1.0}',
        '{"http": {"a": [1e5]}, "request": {"headers": {},  "body" : %s } , "n": 1.0}',
    ],
)
def test_a_body_keeps_its_bytes_in_whatever_it_is(record: str) -> None:
    body = '{"model": "m",  "messages": [], "temperature": 1.50}'
    line = record.replace("%s", body).encode()
    assert body.encode() == parse_logged(line).prompt.render()
    assert record.replace("%s", '{"messages":[]}').encode() == with_body(line, b'{"messages":[]}') or "%s" not in record
    assert line == with_body(line, body.encode())


def test_a_body_that_is_a_text_keeps_its_bytes() -> None:
    body = '{"messages":  [{"role": "user", "content": "\\u00e9 \\n 你"}]}'
    line = json.dumps({"ts": 1.0, "body": json.dumps({"request": body})}).encode()
    assert body.encode() == parse_logged(line).prompt.render()
    assert line == with_body(line, body.encode())
    changed = with_body(line, b'{"messages":[]}')
    assert b'{"messages":[]}' == parse_logged(changed).prompt.render()
    assert changed.startswith(b'{"ts": 1.0, "body": "')


def test_plain_text_and_a_bare_body_are_replaced_as_a_whole() -> None:
    assert "Why?" == parse_logged(b"Why?").prompt.value
    assert b"How?" == with_body(b"Why?", b"How?")
    assert b"{}" == with_body(b'{"messages": []}', b"{}")


def test_words_of_a_user_that_are_json_are_no_body() -> None:
    body = {"model": "gpt-4.1", "input": json.dumps({"prompt": "Hi"})}
    assert body == logged_of(body).prompt.value


def test_the_dialect_can_be_given_by_name() -> None:
    line = json.dumps({"body": {"system": "Hi", "messages": []}})
    assert Dialect.BEDROCK is parse_logged(line, "converse").prompt.dialect
    with pytest.raises(InvalidRequest, match="no dialect 'latin'"):
        parse_logged(line, "latin")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(BODY) + "\n{\n", r"Line 2 of requests: .* not valid JSON: .* column 2"),
        (json.dumps(BODY) + "\n[1]\n", "Line 2 of requests: The body is not a JSON object"),
        (json.dumps(BODY) + "\nnot json\n", "Line 2 of requests: There is no JSON object"),
        (json.dumps(BODY) + '\n{"a": 1}\n', "Line 2 of requests: The body has none of messages"),
        (json.dumps(BODY) + '\n{"messages": [7]}\n', r"Line 2 of requests: messages\[0\] is not a message"),
        ('{"a": 1}', "none of messages"),
        ('{"messages": [', "line 1, column"),
        ("", "empty"),
        ("\n \n", "empty"),
        ('{"a":' * 100_000, "."),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        list(log_of(text))


def test_a_file_of_lines_is_known_by_its_name() -> None:
    assert 1 == len(list(log_of(json.dumps({"body": BODY}), name="log.jsonl")))
    with pytest.raises(InvalidRequest, match=r"Line 1 of log\.ndjson: There is no JSON object"):
        list(log_of("not json\n", name="log.ndjson"))
    with pytest.raises(InvalidRequest, match="empty"):
        list(log_of("\n", name="log.jsonl"))


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        parse_logged(b'{"messages":\xff')
    stream = io.TextIOWrapper(io.BytesIO(b"\xff\xfe{}\n"), encoding="utf-8", newline="")
    with pytest.raises(InvalidRequest, match=r"log\.gz is not UTF-8"):
        list(RequestLog(stream, "log.gz"))


def test_conversations_are_known_by_their_beginning() -> None:
    def request(*turns: str) -> Logged:
        roles = ("user", "assistant") * len(turns)
        messages = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]
        return Logged(Prompt.of({"model": "m", "messages": messages}))

    conversations = Conversations()
    first = conversations.of(request("Hello.", "Hi.", "Why?"))
    other = conversations.of(request("Hello.", "Hi.", "How?"))
    assert first != other
    assert first == conversations.of(request("Hello.", "Hi.", "Why?", "So.", "And?"))
    assert first == conversations.of(request("Hello.", "Hi.", "Why?", "So.", "And?", "No.", "Oh?"))
    assert other == conversations.of(request("Hello.", "Hi.", "How?", "So.", "And?"))
    assert "logged a" == conversations.of(Logged(request("Hello.").prompt, session="a"))


def test_old_conversations_are_forgotten() -> None:
    def request(number: int, *more: str) -> Logged:
        messages = [{"role": "user", "content": text} for text in (f"Hello {number}.", *more)]
        return Logged(Prompt.of({"model": "m", "messages": messages}))

    conversations = Conversations(remembered=2)
    names = [conversations.of(request(number)) for number in range(3)]
    assert names[2] == conversations.of(request(2, "More."))
    assert names[0] != conversations.of(request(0, "More."))
