"""The `anthropic` SDK before the embedded engine."""

import http.client
import json

import anthropic
import pytest
from tests.server.support import MODEL, running_server

from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.gateway.config import Kind
from prefold.gateway.translate.counting import TOKENIZE_PATH, read_count, tokenize_request

from .support import gateway

SYSTEM = [{"type": "text", "text": "You are kind. " * 40, "cache_control": {"type": "ephemeral"}}]
HI = [{"role": "user", "content": [{"type": "text", "text": "Name a colour."}]}]


@pytest.fixture(scope="module")
def engine(default_checkpoint):
    options = EngineOptions(dtype="float32", kv_memory=96 << 20, threads=2)
    with running_server(load_engine(default_checkpoint, options)) as running:
        yield running


@pytest.fixture
def client(engine):
    def upstream(body):
        connection = http.client.HTTPConnection(engine.host, engine.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        chunks = [response.read()]
        connection.close()
        return response.status, chunks

    with (
        gateway(Kind.PREFOLD, upstream) as url,
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as made,
    ):
        yield made


def test_a_message_whole_and_streamed(client, engine):
    asked = {"model": MODEL, "max_tokens": 5, "system": SYSTEM, "messages": HI, "extra_body": {"temperature": 0}}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert whole.content[0].text == streamed.content[0].text
    assert ("max_tokens", 5) == (whole.stop_reason, whole.usage.output_tokens)
    body = tokenize_request({"model": MODEL, "system": SYSTEM, "messages": HI}, Kind.PREFOLD)
    counted = read_count(engine.post(TOKENIZE_PATH, body).json)["input_tokens"]
    assert (1, counted - 1) == (streamed.usage.input_tokens, streamed.usage.cache_read_input_tokens)


def test_a_marker_that_moves_costs_no_prefix(client):
    asked = {"model": MODEL, "max_tokens": 1, "messages": HI, "extra_body": {"temperature": 0}}
    client.messages.create(**asked, system=SYSTEM)
    again = client.messages.create(**asked, system=[{"type": "text", "text": SYSTEM[0]["text"]}])
    assert 1 == again.usage.input_tokens


def test_a_stop_sequence_and_an_error(client):
    message = client.messages.create(
        model=MODEL, max_tokens=40, messages=HI, extra_body={"temperature": 0}, stop_sequences=["e"]
    )
    assert "e" not in message.content[0].text
    with pytest.raises(anthropic.NotFoundError, match="no model"):
        client.messages.create(model="another", max_tokens=1, messages=HI)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "word " * 9_000}])
