"""Real clients, in front of one upstream."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import (
    HELLO,
    MODEL,
    Peer,
    RunningGateway,
    Upstream,
    chunk_of,
    completion_of,
    config_of,
    serving,
    sse,
)

GREEDY = {**HELLO, "temperature": 0}
STREAM = {**GREEDY, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def gateway(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway in front of one upstream that has both APIs."""
    config = config_of(upstream_server, replica='speaks = ["openai", "anthropic"]')
    with serving(config, tmp_path_factory.mktemp("gateway")) as running_gateway:
        yield running_gateway


@pytest.fixture(scope="module")
def translating(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway in front of one upstream that has OpenAI's API alone."""
    with serving(config_of(upstream_server), tmp_path_factory.mktemp("gateway")) as running_gateway:
        yield running_gateway


@pytest.fixture
def openai(gateway: RunningGateway):
    sdk = pytest.importorskip("openai")
    with sdk.OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-own", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic(gateway: RunningGateway):
    sdk = pytest.importorskip("anthropic")
    with sdk.Anthropic(base_url=gateway.url, api_key="sk-own", max_retries=0) as client:
        yield client


@pytest.fixture
def translated(translating: RunningGateway):
    """Anthropic's client in front of an upstream that has never heard of it."""
    sdk = pytest.importorskip("anthropic")
    with sdk.Anthropic(base_url=translating.url, api_key="sk-own", max_retries=0) as client:
        yield client


TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}


def test_openais_client(openai, upstream: Upstream) -> None:
    answer = openai.chat.completions.create(**HELLO, tools=[TOOL], prompt_cache_key="k", extra_body={"top_k": 3})
    assert "You said: Hello" == answer.choices[0].message.content
    assert 6 == answer.usage.prompt_tokens_details.cached_tokens
    sent = upstream.requests[0].json
    assert ([TOOL], "k", 3) == (sent["tools"], sent["prompt_cache_key"], sent["top_k"])
    assert "Bearer sk-own" == upstream.requests[0].headers["authorization"]


def test_openais_client_reads_streams(openai) -> None:
    stream = openai.chat.completions.create(**STREAM)
    chunks = list(stream)
    assert "You said: Hello" == "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert 6 == chunks[-1].usage.prompt_tokens_details.cached_tokens


def test_openais_client_gets_tools(openai, upstream: Upstream) -> None:
    calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"it"}'}}]

    async def call(peer: Peer) -> None:
        await peer.answer(200, completion_of(None, tool_calls=calls))

    upstream.behaviour = call
    [tool_call] = openai.chat.completions.create(**HELLO, tools=[TOOL]).choices[0].message.tool_calls
    assert ("look", '{"at":"it"}') == (tool_call.function.name, tool_call.function.arguments)


def test_openais_client_understands_refusals(openai, upstream: Upstream) -> None:
    sdk = pytest.importorskip("openai")
    with pytest.raises(sdk.NotFoundError, match="There is no model 'other'") as caught:
        openai.chat.completions.create(model="other", messages=HELLO["messages"])
    assert ("model_not_found", "model") == (caught.value.code, caught.value.param)
    with pytest.raises(sdk.BadRequestError):
        openai.chat.completions.create(**HELLO, prompt_cache_key=7)

    async def die(peer: Peer) -> None:
        if peer.request.json.get("stream"):
            await peer.begin_events()
            await peer.events(sse(chunk_of({"content": "Once"})))
        peer.writer.transport.abort()

    upstream.behaviour = die
    with pytest.raises(sdk.InternalServerError) as caught:
        openai.chat.completions.create(**HELLO)
    assert 502 == caught.value.status_code
    with pytest.raises(sdk.APIError, match="no whole answer"):
        list(openai.chat.completions.create(**HELLO, stream=True))


MESSAGE = {"model": MODEL, "max_tokens": 9}
MARKED = [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize("client", ["anthropic", "translated"])
def test_anthropics_client(client: str, request: pytest.FixtureRequest, upstream: Upstream) -> None:
    messages = request.getfixturevalue(client).messages
    answer = messages.create(**MESSAGE, messages=[{"role": "user", "content": MARKED}])
    assert "You said: Hello" == answer.content[0].text
    assert (4, 6, 2) == (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens)
    [sent] = upstream.requests
    assert ("/v1/messages" if client == "anthropic" else "/v1/chat/completions") == sent.path
    if client == "anthropic":
        assert MARKED == sent.json["messages"][0]["content"]
        assert "anthropic-version" in sent.headers
        assert "sk-own" in sent.headers.get("x-api-key", sent.headers.get("authorization", ""))


@pytest.mark.parametrize("client", ["anthropic", "translated"])
def test_anthropics_client_reads_streams(client: str, request: pytest.FixtureRequest) -> None:
    messages = request.getfixturevalue(client).messages
    with messages.stream(**MESSAGE, messages=[{"role": "user", "content": "Hello"}]) as stream:
        text = "".join(stream.text_stream)
        answer = stream.get_final_message()
    assert "You said: Hello" == text
    assert ("end_turn", 4, 6) == (
        answer.stop_reason,
        answer.usage.input_tokens,
        answer.usage.cache_read_input_tokens,
    )


def test_anthropics_client_gets_tools_of_the_other_api(translated, upstream: Upstream) -> None:
    calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"it"}'}}]

    async def call(peer: Peer) -> None:
        await peer.answer(200, completion_of(None, tool_calls=calls))

    upstream.behaviour = call
    tool = {"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}
    answer = translated.messages.create(**MESSAGE, messages=HELLO["messages"], tools=[tool])
    assert ("tool_use", "look", {"at": "it"}) == (
        answer.stop_reason,
        answer.content[0].name,
        answer.content[0].input,
    )
    assert "look" == upstream.requests[0].json["tools"][0]["function"]["name"]


@pytest.mark.parametrize("client", ["anthropic", "translated"])
def test_anthropics_client_understands_refusals(
    client: str, request: pytest.FixtureRequest, upstream: Upstream
) -> None:
    sdk = pytest.importorskip("anthropic")
    messages = request.getfixturevalue(client).messages
    ask = {"max_tokens": 9, "messages": HELLO["messages"]}
    with pytest.raises(sdk.NotFoundError) as caught:
        messages.create(**ask, model="other")
    assert "not_found_error" == caught.value.body["error"]["type"]

    async def refuse(peer: Peer) -> None:
        await peer.answer(429, {"error": {"message": "slow down", "type": "t"}}, retry_after="3")

    upstream.behaviour = refuse
    with pytest.raises(sdk.RateLimitError, match="slow down") as caught:
        messages.create(**ask, model=MODEL)
    assert "3" == caught.value.response.headers["retry-after"]


def test_counts_of_tokens(anthropic, upstream: Upstream) -> None:
    async def count(peer: Peer) -> None:
        await peer.answer(200, {"input_tokens": 11})

    upstream.behaviour = count
    assert 11 == anthropic.messages.count_tokens(model=MODEL, messages=HELLO["messages"]).input_tokens
    assert "/v1/messages/count_tokens" == upstream.requests[0].path


def test_curl(gateway: RunningGateway) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    url = f"{gateway.url}/v1/chat/completions"
    big = {**STREAM, "messages": [{"role": "user", "content": "x" * 2_000_000}]}  # curl then waits for 100 Continue
    done = subprocess.run(
        [curl, "-sSN", url, "-H", "content-type: application/json", "--data-binary", "@-"],
        input=json.dumps(big).encode(),
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.endswith(b"data: [DONE]\n\n")
    assert b"x" * 1_000 in done.stdout
