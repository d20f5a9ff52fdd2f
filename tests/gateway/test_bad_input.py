"""Bad input, from the outside: each has the outcome that docs/gateway.md states."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import (
    HELLO,
    PATIENCE,
    Peer,
    RunningGateway,
    Upstream,
    completion_of,
    config_of,
    serving,
)

MESSAGE = {**HELLO, "max_tokens": 9}


@pytest.fixture(scope="module")
def gateway(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    limits = '[server]\nbody_limit = "64KiB"\nbody_seconds = 0.3\n'
    with serving(config_of(upstream_server, more=limits), tmp_path_factory.mktemp("gateway")) as running_gateway:
        yield running_gateway


def head_of(length: int, *more: str) -> bytes:
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: g", f"content-length: {length}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "not a JSON object"),
        (b'{"model": "m", ', 400, "not a JSON object"),
        (b"[]", 400, "not a JSON object"),
        (b'{"model": "m\xff"}', 400, "not a JSON object"),
        (b'{"model": NaN}', 400, "not a JSON object"),
        (b'{"model": "\\ud800"}', 400, "not a JSON object"),
        (b'{"model": 7}', 400, "model is 7"),
        (b'{"model": "m", "prompt_cache_key": []}', 400, "prompt_cache_key"),
        (b'{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}", 400, "nested"),
        (b"{}", 404, "no model ''"),
        (b'{"model": "gpt-9"}', 404, "no model 'gpt-9'"),
        (b'{"model": "' + b"x" * 9_000 + b'"}', 404, "no model 'xxx"),
        (b'{"model": "m\\u0000\\r\\nx-evil: 1"}', 404, "no model"),
        (b'{"model": "' + b"x" * 70_000 + b'"}', 413, "larger than 65536 bytes"),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else None,
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_body_that_cannot_be_used_is_refused_in_the_words_of_the_api(
    gateway: RunningGateway, upstream: Upstream, path: str, body: bytes, status: int, said: str
) -> None:
    before = gateway.metric("prefold_requests_total", outcome="refused", status=str(status))
    reply = gateway.post(body, path)
    assert status == reply.status
    error = reply.json["error"]
    assert said in error["message"]
    assert len(error["message"]) < 300
    assert ("error" == reply.json.get("type")) is (path == "/v1/messages")
    assert set(error) == ({"type", "message"} if path == "/v1/messages" else {"message", "type", "param", "code"})
    assert [] == upstream.requests
    assert before + 1 == gateway.metric("prefold_requests_total", outcome="refused", status=str(status))


def test_a_body_longer_than_announced_is_no_second_request(gateway: RunningGateway, upstream: Upstream) -> None:
    body = json.dumps(HELLO).encode()
    smuggled = head_of(len(body)) + body + b"GET /v1/models HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"
    answer = gateway.raw(smuggled)
    assert 2 == answer.count(b"HTTP/1.1 200")  # two requests on one connection, as HTTP has it
    assert [body] == [request.body for request in upstream.requests]


@pytest.mark.parametrize(
    "lines",
    [
        (b"x-a: b\nx-c",),
        (b"x-a: b\rx-evil: 1",),
        (b"x-a: \x00",),
        (b"x a: b",),
        (b"transfer-encoding: chunked",),  # beside a content-length: one of the two lies
    ],
    ids=repr,
)
def test_a_header_that_is_none_is_refused_before_anybody_reads_it(
    gateway: RunningGateway, upstream: Upstream, lines: tuple[bytes, ...]
) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n"
    answer = gateway.raw(head + b"\r\n".join(lines) + b"\r\n\r\n{}")
    assert answer.startswith(b"HTTP/1.1 400")
    assert [] == upstream.requests


def test_headers_of_the_connection_and_of_ours_do_not_go_upstream(gateway: RunningGateway, upstream: Upstream) -> None:
    reply = gateway.post(
        HELLO,
        authorization="Bearer sk-own",
        x_prefold_session="s",
        x_prefold_replica="b",
        te="trailers",
        accept_encoding="br",
        x_kept="1",
    )
    assert 200 == reply.status
    [request] = upstream.requests
    assert {"authorization": "Bearer sk-own", "x-kept": "1", "accept-encoding": "identity"}.items() <= (
        request.headers.items()
    )
    assert not {name for name in request.headers if name.startswith("x-prefold")} | {"te"} & request.headers.keys()
    assert f"127.0.0.1:{upstream.port}" == request.headers["host"]


@pytest.mark.parametrize("head", [b"x-a: " + b"a" * (64 << 10), b"x: y\r\n" * 100], ids=["bytes", "headers"])
def test_a_head_without_measure_is_refused(gateway: RunningGateway, upstream: Upstream, head: bytes) -> None:
    answer = gateway.raw(head_of(0)[:-2] + head + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert [] == upstream.requests


@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost: "])
def test_a_head_that_does_not_come_is_given_up(gateway: RunningGateway, begun: bytes) -> None:
    assert (b"HTTP/1.1 408 " if begun else b"") == gateway.raw(begun)[:13]


def test_trailers_are_no_headers(gateway: RunningGateway, upstream: Upstream) -> None:
    body = json.dumps(HELLO).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nx-who: ann\r\nconnection: close\r\n"
    chunks = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nx-who: bob\r\nx-more: 1\r\n\r\n" % (len(body), body)
    assert gateway.raw(head + chunks).startswith(b"HTTP/1.1 200 ")
    [request] = upstream.requests
    assert body == request.body
    assert "ann" == request.headers["x-who"]
    assert "x-more" not in request.headers


def test_there_is_one_date(gateway: RunningGateway, upstream: Upstream) -> None:
    async def dated(peer: Peer) -> None:
        await peer.answer(200, completion_of("Hello"), date="Thu, 01 Jan 1970 00:00:00 GMT")

    upstream.behaviour = dated
    body = json.dumps(HELLO).encode()
    answer = gateway.raw(head_of(len(body), "connection: close") + body)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert 1 == answer.count(b"\r\ndate: ")
    assert b"1970" not in answer


def test_absurd_usage_is_not_believed(gateway: RunningGateway, upstream: Upstream) -> None:
    async def boasting(peer: Peer) -> None:
        usage = {"prompt_tokens": 10**30, "completion_tokens": 10**30}
        await peer.answer(200, {**completion_of("Hello"), "usage": usage})

    upstream.behaviour = boasting
    before = gateway.metric("prefold_answers_without_usage_total")
    assert 200 == gateway.post().status
    assert before + 1 == gateway.metric("prefold_answers_without_usage_total")
    assert not {str(10**30), "1e+30"} & set(gateway.metrics.split())


def test_a_body_without_an_end_is_given_up(gateway: RunningGateway, upstream: Upstream) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE) as connection:
        connection.sendall(head)
        for _ in range(5):
            connection.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
        answer = connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 413")
    assert [] == upstream.requests


def test_a_slow_body_is_given_up(gateway: RunningGateway, upstream: Upstream) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE) as connection:
        connection.sendall(head_of(1_000) + b'{"model"')
        answer = connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 408")
    assert [] == upstream.requests


def test_slow_clients_keep_nobody_else_waiting(gateway: RunningGateway) -> None:
    slow = [socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE) for _ in range(20)]
    try:
        for connection in slow:
            connection.sendall(head_of(1_000) + b"{")
        assert 200 == gateway.post().status
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/messages", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/nothing", 404),
        ("GET", "/%0d%0ax-evil:1", 404),
        ("GET", "/v1/../metrics", 404),
    ],
)
def test_what_is_not_there(gateway: RunningGateway, method: str, path: str, status: int) -> None:
    reply = gateway.send(method, path)
    assert status == reply.status
    assert "x-evil" not in reply.headers


def test_headers_that_stand_twice_count_both(gateway: RunningGateway, upstream: Upstream) -> None:
    body = json.dumps(HELLO).encode()
    lines = ["connection: X-One", "connection: close, X-Two", "x-one: 1", "x-two: 2", "x-list: a", "x-list: b"]
    head = "\r\n".join(["POST /v1/chat/completions HTTP/1.1", "host: g", *lines, f"content-length: {len(body)}"])
    assert gateway.raw(f"{head}\r\n\r\n".encode() + body).startswith(b"HTTP/1.1 200")
    sent = upstream.requests[-1].headers
    assert set() == {"x-one", "x-two"} & sent.keys()
    assert "a, b" == sent["x-list"]


# Keys and tenants

KEYED = """
[access]
by = "key"
[[tenant]]
name = "ann"
key_hashes = ["sha256:{}"]
"""


def test_wrong_keys_are_refused_and_right_ones_stay_here(upstream: Upstream, tmp_path: Path) -> None:
    hashed = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"  # of foo
    with serving(config_of(upstream, more=KEYED.format(hashed)), tmp_path) as gateway:
        for headers in ({}, {"authorization": "Bearer bar"}, {"x_api_key": "bar"}, {"authorization": "Basic foo"}):
            reply = gateway.post(**headers)
            assert (401, "invalid_api_key") == reply.code
            assert "bar" not in reply.body.decode()
            assert 'Bearer realm="prefold"' == reply.headers["www-authenticate"]
        assert "authentication_error" == gateway.post(MESSAGE, "/v1/messages").json["error"]["type"]
        assert 401 == gateway.get("/v1/models").status
        assert [] == upstream.requests
        assert 200 == gateway.post(authorization="Bearer foo").status
        assert 200 == gateway.post(x_api_key="foo").status
        assert not any({"authorization", "x-api-key"} & request.headers.keys() for request in upstream.requests)
        assert 5 == gateway.metric("prefold_requests_total", outcome="refused", status="401")
        assert 404 == gateway.get("/metrics").status  # which tell of all tenants
        assert 404 == gateway.get("/prefold/replicas").status
