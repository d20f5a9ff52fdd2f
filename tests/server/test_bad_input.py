"""Whatever is sent, the answer is an error in OpenAI's form, and the server goes on."""

import json
import socket

import pytest

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(autouse=True)
def _goes_on(server):
    """After each test the server still answers."""
    yield
    assert 200 == server.get("/health").status
    assert 200 == server.post(PLAIN, {"prompt": "Still here?", "max_tokens": 1}).status


def assert_refused(reply, status, *, code=None, mentions=""):
    assert status == reply.status
    error = reply.error
    assert {"message", "type", "param", "code"} == set(error)
    assert "invalid_request_error" == error["type"]
    assert code == error["code"]
    assert mentions in error["message"]
    assert "Traceback" not in error["message"]


@pytest.mark.parametrize("path", [CHAT, PLAIN, "/tokenize", "/detokenize", "/cache/pins"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe{}", b'{"a": NaN}', b"[" * 50_000, b"\0"])
def test_bodies_that_are_no_json_object(server, path, body):
    assert_refused(server.send("POST", path, body), 400, mentions="The body")


def test_the_place_of_a_fault_in_json(server):
    reply = server.send("POST", PLAIN, b'{\n  "prompt": "a",\n  "n": 1,,\n}')
    assert_refused(reply, 400, mentions="line 3, column 10")


@pytest.mark.parametrize(
    ("path", "body", "mentions"),
    [
        (CHAT, {"messages": []}, "no messages"),
        (CHAT, {"messages": [{"role": "user"}]}, "does not accept"),
        (CHAT, {"messages": [{"role": "user", "content": "a\ud800"}]}, "lone surrogate"),
        (PLAIN, {"prompt": ""}, "empty"),
        (PLAIN, {"prompt": [-1]}, "-1"),
        (PLAIN, {"prompt": [49152]}, "49152"),
        (PLAIN, {"prompt": [0.5]}, "0.5"),
        (PLAIN, {"prompt": "a", "cache_salt": "a/b"}, "cache_salt"),
        (PLAIN, {"prompt": "a", "temperature": 3}, "temperature is 3"),
        (PLAIN, {"prompt": "a", "max_tokens": 10**100}, "max_tokens"),
        (PLAIN, {"prompt": "a", "stop": ["\ud800"] * 17}, "stop"),
        (PLAIN, {"prompt": "a", "n": True}, "n is True"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [2**40]}, "tokens[0]"),
        ("/tokenize", {}, "neither"),
        ("/cache/pins", {"prompt": "a", "cache_salt": ""}, "cache_salt"),
    ],
)
def test_bad_values(server, path, body, mentions):
    reply = server.post(path, body)
    code = "context_length_exceeded" if "max_tokens" in mentions else None
    assert_refused(reply, 400, code=code, mentions=mentions)


@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_a_stream_that_has_not_begun_have_their_status(server, stream):
    assert_refused(server.post(PLAIN, {"prompt": "a", "stream": stream, "top_p": 0}), 400, mentions="top_p")


def test_an_unknown_model(server):
    for path, prompt in ((CHAT, {"messages": [{"role": "user", "content": "Hi"}]}), (PLAIN, {"prompt": "Hi"})):
        reply = server.post(path, {"model": "gpt-5\ud800", **prompt})
        assert_refused(reply, 404, code="model_not_found", mentions="smollm2")


def test_an_unsupported_field(server):
    reply = server.post(PLAIN, {"prompt": "a", "logit_bias": {"1": 2}})
    assert_refused(reply, 400, code="unsupported_parameter", mentions="logit_bias")
    assert "logit_bias" == reply.error["param"]


def test_a_prompt_that_could_never_fit(server):
    capacity = server.worker.engine.cache.capacity
    for body in ({"prompt": [5] * capacity}, {"prompt": "Hi", "max_tokens": capacity}):
        assert_refused(server.post(PLAIN, body), 400, code="context_length_exceeded", mentions=str(capacity))
    long = {"messages": [{"role": "user", "content": "word " * capacity}]}
    assert_refused(server.post(CHAT, long), 400, code="context_length_exceeded")


def test_one_bad_prompt_refuses_all(server):
    before = server.metric("prefold_steps_total")
    capacity = server.worker.engine.cache.capacity
    assert_refused(server.post(PLAIN, {"prompt": [[5], [5] * capacity]}), 400, code="context_length_exceeded")
    assert before == server.metric("prefold_steps_total")


def test_objects_nested_as_deep_as_json_allows(server):
    deep = "[" * 900 + "]" * 900
    for body in (
        '{"messages": [{"role": "user", "content": %s}]}',
        '{"messages": [{"role": "user", "content": "a", "x": %s}], "max_tokens": 1}',
        '{"messages": [{"role": "user", "content": "a"}], "tools": [{"x": %s}], "max_tokens": 1}',
        '{"messages": [{"role": "user", "content": "a"}], "logit_bias": %s}',
        '{"messages": [{"role": "user", "content": "a"}], "stop": %s}',
    ):
        reply = server.send("POST", CHAT, (body % deep).encode())
        assert reply.status in (200, 400)
        if reply.status == 400:
            assert reply.error["message"]


def test_paths_and_methods(server):
    assert_refused(server.get("/v2/none"), 404, code="not_found", mentions="/v2/none")
    assert_refused(server.get("/"), 404, code="not_found")
    for method, path, allowed in (("GET", CHAT, "POST"), ("POST", "/health", "GET"), ("DELETE", "/v1/models/x", "GET")):
        reply = server.send(method, path, b"")
        assert_refused(reply, 405, code="method_not_allowed", mentions=method)
        assert allowed == reply.headers["allow"]


def test_a_body_that_says_it_is_too_large(server):
    reply = server.send("POST", PLAIN, b"{}", content_length=str(33 << 20))
    assert_refused(reply, 413, mentions="larger than")


def test_a_body_that_is_too_large_and_does_not_say_so(server):
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        client.sendall(f"POST {PLAIN} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"%x\r\n%b\r\n" % (1 << 20, b" " * (1 << 20))
        for _ in range(33):
            client.sendall(chunk)
        client.sendall(b"0\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # the beginning of a TLS handshake
        b"GET\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_what_is_not_http(server, text):
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        client.sendall(text)
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_leaves_amid_its_headers_or_body(server):
    for text in (b"POST /v1/comp", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"):
        with socket.create_connection((server.host, server.port), timeout=30) as client:
            client.sendall(text)


def test_two_requests_in_one_packet(server):
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        client.sendall(request + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answers = b""
        while part := client.recv(65536):
            answers += part
    assert 2 == answers.count(b"HTTP/1.1 200 OK")
    assert answers.endswith(b'{"status":"ok"}')
