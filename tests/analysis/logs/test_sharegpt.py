import io
import json
from collections.abc import Iterable
from typing import Any

import pytest

from prefold.analysis.logs.formats import recognise
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.sharegpt import READERS
from prefold.analysis.record import Body, Record

[READER] = READERS

TALK = {
    "id": "talk_0",
    "conversations": [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "Name a bird."},
        {"from": "gpt", "value": "Wren."},
        {"from": "human", "value": "Another?"},
        {"from": "gpt", "value": "Lark."},
    ],
}
OTHER = {
    "conversation_id": "talk_1",
    "model": "vicuna-13b",
    "conversation": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
}
ITEMS = {"id": "talk_2", "items": TALK["conversations"]}
MESSAGES = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}


def lines(values: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def read(content: bytes, name: str = "log.jsonl") -> list[Record | BadLine]:
    return list(READER.read(Source(name, io.BytesIO(content))))


def prompt(record: Record | BadLine) -> dict[str, Any]:
    assert isinstance(record, Record)
    assert isinstance(record.content, Body)
    value: dict[str, Any] = json.loads(record.content.content)
    return value


def test_each_answer_is_a_request() -> None:
    first, second = read(lines([TALK]))
    system = {"role": "system", "content": "Be brief."}
    asked = {"role": "user", "content": "Name a bird."}
    assert {"messages": [system, asked]} == prompt(first)
    assert {
        "messages": [
            system,
            asked,
            {"role": "assistant", "content": "Wren."},
            {"role": "user", "content": "Another?"},
        ]
    } == prompt(second)
    assert isinstance(first, Record)
    assert ("talk_0", "Wren.", "log.jsonl:1") == (first.session, first.answer, str(first.place))
    assert (None, None, "") == (first.time, first.usage, first.stop)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_reads_as_lines_do(indent: int | None) -> None:
    values = [TALK, OTHER, MESSAGES]
    as_list = read(json.dumps(values, indent=indent).encode(), "log.json")
    assert [prompt(record) for record in read(lines(values))] == [prompt(record) for record in as_list]
    assert 4 == len(as_list)


def test_other_fields() -> None:
    [record] = read(lines([OTHER]))
    assert isinstance(record, Record)
    assert ("vicuna-13b", "talk_1") == (record.model, record.session)
    assert {"model": "vicuna-13b", "messages": [{"role": "user", "content": "Hi"}]} == prompt(record)


def test_items_are_conversations_too() -> None:
    assert [prompt(record) for record in read(lines([TALK]))] == [prompt(record) for record in read(lines([ITEMS]))]


def test_what_was_not_asked_for_is_no_request() -> None:
    greeting = {"conversations": [{"from": "gpt", "value": "Welcome."}, *TALK["conversations"][1:3]]}
    [record] = read(lines([greeting]))
    assert {"role": "assistant", "content": "Welcome."} == prompt(record)["messages"][0]


@pytest.mark.parametrize("line", [b"[1]", b'{"id": "x"}', b"{", b'{"conversations": null}'])
def test_bad_lines(line: bytes) -> None:
    good, bad, better, _ = read(lines([OTHER]) + line + b"\n" + lines([TALK]))
    assert isinstance(bad, BadLine)
    assert "log.jsonl:2" == str(bad.place)
    assert isinstance(good, Record)
    assert isinstance(better, Record)


def test_half_a_surrogate_pair() -> None:
    talk = b'{"conversations":[{"from":"human","value":"\\ud83d"},{"from":"gpt","value":"?"}]}'
    [record] = read(talk)
    assert "\ud83d" == prompt(record)["messages"][0]["content"]


@pytest.mark.parametrize("values", [[TALK], [TALK, OTHER], [ITEMS], [MESSAGES]])
def test_recognised(values: list[Any]) -> None:
    for content in (lines(values), json.dumps(values).encode()):
        reader = recognise(Head.of("log", content))
        assert reader is not None
        assert "sharegpt" == reader.name


@pytest.mark.parametrize(
    "body",
    [
        {"model": "gpt-4o", "messages": MESSAGES["messages"]},
        {"messages": MESSAGES["messages"][:1]},
        {"request": MESSAGES},
        {"prompt": "Hi"},
        {"items": []},
        {"items": [{"name": "x"}]},
    ],
)
def test_bodies_are_not_conversations(body: dict[str, Any]) -> None:
    assert not READER.recognises(Head.of("log.jsonl", lines([body])))
