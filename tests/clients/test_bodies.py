"""Bodies as applications write them, read as the SDKs read them."""

import datetime as dt
import io
import json
from collections import UserDict, deque
from pathlib import Path

import anthropic
import pytest
from anthropic._utils._json import openapi_dumps
from anthropic._utils._prepare import prepare_request_data
from anthropic.types import TextBlock
from anthropic.types.parsed_message import ParsedTextBlock

from prefold.clients.bodies import UnreadableIterator, read_body

BLOCK = TextBlock(type="text", text="Blau ☂")
PARSED = ParsedTextBlock[dict](type="text", text="{}", parsed_output={"hidden": 1})


@pytest.mark.parametrize(
    "make",
    [
        lambda: [{"role": "user", "content": "Hi"}],
        lambda: [{"role": "assistant", "content": [BLOCK, PARSED]}],
        lambda: iter([{"role": "user", "content": (block for block in [BLOCK])}]),
        lambda: ({"role": "user", "content": anthropic.omit}, UserDict(role="user", name=anthropic.NOT_GIVEN)),
        lambda: deque([{"at": dt.date(2026, 11, 1)}, {"set": {1}, "keys": {"a": 1}.keys()}]),
    ],
)
def test_a_body_is_read_as_the_sdk_sends_it(make):
    as_sent = openapi_dumps(prepare_request_data({"messages": make()}, location="body")).decode()
    assert as_sent == read_body({"messages": make()}).text


def test_a_plain_body_stays_the_object_that_it_is():
    value = {"messages": [{"role": "assistant", "content": [BLOCK]}]}
    assert read_body(value).value is value


def test_files_come_back_to_their_places():
    opened, path = io.BytesIO(b"abc"), Path("picture.png")
    body = read_body({"a": [{"data": opened}], "b": [path, path]})
    read = json.loads(body.text)
    assert read["b"][0] != read["b"][1]
    assert {"b": [path, path], "a": [{"data": opened}]} == body.with_files({"b": read["b"], "a": read["a"]})
    assert b"abc" == opened.read()


def test_what_is_not_json_is_refused():
    for value in (b"abc", object()):
        with pytest.raises(TypeError, match="is not JSON"):
            read_body({"messages": [value]})


def test_an_iterator_that_fails():
    error = LookupError("gone")

    def failing():
        yield 1
        raise error

    with pytest.raises(UnreadableIterator) as caught:
        read_body({"messages": [{"content": failing()}]})
    assert caught.value.error is error
