"""The dispatcher, over the real transport, at real servers on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import MODEL, Peer, Upstream, chunk_of, completion_of, running, sse, well

from prefold.errors import InvalidRequest
from prefold.gateway.call import Api, Call, Tenant
from prefold.gateway.config import GroupTable, Isolation, Kind, ReplicaTable, UpstreamOptions
from prefold.gateway.dispatch import Dispatcher
from prefold.gateway.http_upstream import HttpUpstream
from prefold.gateway.tenants import derived_salt
from prefold.gateway.upstream import UpstreamFailed
from prefold.server.asgi import HttpError

SHARED = GroupTable(name="default")
ISOLATED = GroupTable(name="i", isolation=Isolation.ISOLATED)
SALT = derived_salt("s" * 64, "t", ISOLATED)


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    upstream = Upstream("a")
    with running(upstream):
        yield upstream


@pytest.fixture(autouse=True)
def anew(server: Upstream) -> Iterator[None]:
    yield
    server.behaviour = well
    server.requests.clear()


def call_of(api: Api = Api.CHAT, group: GroupTable = SHARED, body: bytes = b"", **more: Any) -> Call:
    if not body:
        fields = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 9, **more}
        body = json.dumps(fields).encode()
    fields = json.loads(body)
    tenant = Tenant("t", group, SALT if group is ISOLATED else None)
    headers = {b"x-api-key": b"k", b"x-prefold-session": b"s", b"x-other": b"o", b"host": b"g", b"te": b"trailers"}
    return Call(api, body, fields, MODEL, bool(fields.get("stream")), tenant, headers)


def ask(
    server: Upstream, call: Call, kind: Kind = Kind.OTHER, private: frozenset[bytes] = frozenset(), **table: Any
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of the answer."""

    async def main() -> tuple[int, dict[bytes, bytes], bytes]:
        upstream = HttpUpstream(server.url, UpstreamOptions())
        replica = ReplicaTable(name="a", url=server.url, kind=kind, **table)
        try:
            answer = await Dispatcher(private, lambda: 7.9).ask(call, replica, upstream)
            try:
                return answer.status, dict(answer.headers), b"".join([chunk async for chunk in answer.chunks()])
            finally:
                await answer.close()
        finally:
            await upstream.close()

    return asyncio.run(main())


def test_bytes_go_as_they_are(server: Upstream):
    body = b'{ "model":"m", "messages" : [{"role":"user","content":"\\u00e9"}]}'
    assert 200 == ask(server, call_of(body=body))[0]
    assert [body] == [request.body for request in server.requests]


def test_what_is_for_the_gateway_alone_stays_there(server: Upstream):
    ask(server, call_of(), private=frozenset({b"x-api-key"}))
    [request] = server.requests
    assert {"host", "x-other", "accept-encoding", "content-length"} == request.headers.keys()
    assert ("o", "identity") == (request.headers["x-other"], request.headers["accept-encoding"])


def test_what_the_client_names_for_this_hop_stays_here(server: Upstream):
    call = call_of()
    ask(server, replace(call, headers={**call.headers, b"connection": b"close,  X-Other", b"x-more": b"m"}))
    [request] = server.requests
    assert {"host", "x-api-key", "x-more", "accept-encoding", "content-length"} == request.headers.keys()


def test_a_request_is_named_to_servers_only_where_tenants_share(server: Upstream):
    for call in (call_of(), call_of(group=ISOLATED)):
        ask(server, replace(call, headers={**call.headers, b"x-request-id": b"one"}), Kind.VLLM)
    assert ["one", None] == [request.headers.get("x-request-id") for request in server.requests]


@pytest.mark.parametrize("kind", [Kind.PREFOLD, Kind.VLLM, Kind.SGLANG])
def test_salts_go_along(server: Upstream, kind: Kind):
    ask(server, call_of(group=ISOLATED), kind)
    assert SALT == server.requests[0].json["cache_salt"]


def test_a_replica_that_drops_salts_is_asked_in_the_other_words(server: Upstream):
    status, _, body = ask(server, call_of(Api.MESSAGES, ISOLATED), Kind.SGLANG, speaks=("openai", "anthropic"))
    assert (200, "message") == (status, json.loads(body)["type"])
    [request] = server.requests
    assert ("/v1/chat/completions", SALT) == (request.path, request.json["cache_salt"])


@pytest.mark.parametrize("api", [Api.RESPONSES, Api.CHAT])
def test_where_nobody_keeps_tenants_apart_nobody_is_asked(server: Upstream, api: Api):
    kind = Kind.PREFOLD if api is Api.RESPONSES else Kind.LLAMACPP
    with pytest.raises(HttpError, match="keeps tenants apart") as caught:
        ask(server, call_of(api, ISOLATED), kind)
    assert 503 == caught.value.status
    assert [] == server.requests


@pytest.mark.parametrize("api", [Api.COMPLETIONS, Api.RESPONSES, Api.EMBEDDINGS])
def test_what_the_other_api_has_no_words_for(server: Upstream, api: Api):
    with pytest.raises(HttpError, match=f"no {api.value}") as caught:
        ask(server, call_of(api), speaks=("anthropic",))
    assert 400 == caught.value.status
    with pytest.raises(InvalidRequest):
        ask(server, call_of(Api.MESSAGES, messages=7))
    assert [] == server.requests


@pytest.mark.parametrize(("api", "speaks"), [(Api.MESSAGES, "openai"), (Api.CHAT, "anthropic")])
@pytest.mark.parametrize("stream", [False, True])
def test_translation(server: Upstream, api: Api, speaks: str, stream: bool):
    status, headers, body = ask(server, call_of(api, stream=stream), speaks=(speaks,))
    assert 200 == status
    assert (b"text/event-stream" if stream else b"application/json") == headers[b"content-type"]
    assert stream or str(len(body)).encode() == headers[b"content-length"]
    assert b"You said: Hello" in body or (stream and b"You" in body and b" said: Hello" in body)
    assert (b"event: message_start" in body) is (stream and api is Api.MESSAGES)
    assert (b'"object":"chat.completion' in body) is (api is Api.CHAT)
    assert server.requests[0].path == ("/v1/chat/completions" if speaks == "openai" else "/v1/messages")


def test_errors_are_translated_and_their_headers_stay(server: Upstream):
    async def refuse(peer: Peer) -> None:
        await peer.answer(429, {"error": {"message": "slow down", "type": "t"}}, retry_after="3")

    server.behaviour = refuse
    status, headers, body = ask(server, call_of(Api.MESSAGES, stream=True))
    assert (429, b"3", "rate_limit_error") == (status, headers[b"retry-after"], json.loads(body)["error"]["type"])


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"choices":[]}', b'{"choices":7}', b"\xff"])
def test_what_cannot_be_translated_is_no_answer(server: Upstream, body: bytes):
    async def nonsense(peer: Peer) -> None:
        await peer.answer(200, body)

    server.behaviour = nonsense
    with pytest.raises(UpstreamFailed):
        ask(server, call_of(Api.MESSAGES))


def test_a_translated_answer_that_breaks_off_has_not_begun(server: Upstream):
    async def half(peer: Peer) -> None:
        data = json.dumps(completion_of("Hello")).encode()
        await peer.send(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n" + data)
        peer.writer.transport.abort()

    server.behaviour = half
    with pytest.raises(UpstreamFailed):
        ask(server, call_of(Api.MESSAGES))


def test_a_translated_stream_that_breaks_off_says_so(server: Upstream):
    async def half(peer: Peer) -> None:
        await peer.begin_events()
        await peer.events(sse(chunk_of({"content": "Hello"})))
        peer.writer.transport.abort()

    server.behaviour = half
    with pytest.raises(UpstreamFailed):
        ask(server, call_of(Api.MESSAGES, stream=True))


# Counts of tokens


def test_counts_come_from_the_replica_that_has_them(server: Upstream):
    async def count(peer: Peer) -> None:
        await peer.answer(200, {"input_tokens": 11} if "messages" in peer.request.path else {"count": 12})

    server.behaviour = count
    own = ask(server, call_of(Api.COUNT_TOKENS), Kind.ANTHROPIC)
    tokenised = ask(server, call_of(Api.COUNT_TOKENS), Kind.PREFOLD)
    assert all(b"x-prefold-tokens" not in headers for _, headers, _ in (own, tokenised))
    assert [{"input_tokens": 11}, {"input_tokens": 12}] == [json.loads(own[2]), json.loads(tokenised[2])]
    assert ["/v1/messages/count_tokens", "/tokenize"] == [request.path for request in server.requests]


def test_counts_are_estimated_where_nobody_has_them_and_say_so(server: Upstream):
    call = call_of(Api.COUNT_TOKENS, messages=[{"role": "user", "content": "word " * 100}])
    status, headers, body = ask(server, call, Kind.LLAMACPP)
    assert (200, b"estimated") == (status, headers[b"x-prefold-tokens"])
    assert 80 < json.loads(body)["input_tokens"] < 250
    assert [] == server.requests


def test_a_replica_that_cannot_count_says_so_in_the_clients_words(server: Upstream):
    async def refuse(peer: Peer) -> None:
        await peer.answer(400, {"error": {"message": "no such model", "type": "t"}})

    server.behaviour = refuse
    status, _, body = ask(server, call_of(Api.COUNT_TOKENS), Kind.PREFOLD)
    assert (400, "error", "no such model") == (status, json.loads(body)["type"], json.loads(body)["error"]["message"])

    async def nonsense(peer: Peer) -> None:
        await peer.answer(200, b"{}")

    server.behaviour = nonsense
    with pytest.raises(UpstreamFailed):
        ask(server, call_of(Api.COUNT_TOKENS), Kind.PREFOLD)


MISSING = [
    (404, {"detail": "Not Found"}),
    (404, {"error": {"message": "Not Found", "type": "Not Found", "param": None, "code": 404}}),
    (404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}),
    (404, {"error": {"message": "There is no /v1/responses; see", "code": "not_found"}}),
    (404, b"<html>404</html>"),
    (405, {"detail": "Method Not Allowed"}),
]


@pytest.mark.parametrize(("status", "body"), MISSING)
def test_an_endpoint_that_a_server_lacks_is_named(server: Upstream, status: int, body: object):
    server.behaviour = lambda peer: peer.answer(status, body)
    with pytest.raises(HttpError, match="no /v1/responses") as caught:
        ask(server, call_of(Api.RESPONSES))
    assert (400, "unsupported_endpoint") == (caught.value.status, caught.value.code)


@pytest.mark.parametrize("error", [{"message": "no such model", "code": 404}, "model 'x' not found"])
def test_what_else_is_not_found_passes(server: Upstream, error: object):
    server.behaviour = lambda peer: peer.answer(404, {"error": error}, x_request_id="r")
    status, headers, body = ask(server, call_of(Api.RESPONSES))
    assert (404, b"r", {"error": error}) == (status, headers[b"x-request-id"], json.loads(body))
