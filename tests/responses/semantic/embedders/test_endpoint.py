"""Embeddings over HTTP, from a real server that misbehaves in every way."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("numpy", reason="the extra answers is not installed")

from urllib.parse import urlsplit

from prefold.errors import UsageError
from prefold.responses.semantic.embedders import make_embedder
from prefold.responses.semantic.embedders.embedding import Embedding
from prefold.responses.semantic.embedders.endpoint import EndpointEmbedder
from prefold.responses.semantic.embedders.faults import Failed, Late
from prefold.responses.semantic.types import Reason

GOOD = [[3.0, 4.0], [0.0, 2.0]]


class Server:
    """Answers each request on a connection with the bytes that `answer` makes; ends the connection where it makes none.

    An answer may be a list: its parts are sent one after the other, a pause between them.
    """

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.connections = 0
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def name(self, rest="#m"):
        return f"http://127.0.0.1:{self.port}/v1{rest}"

    def close(self):
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join(10)

    def drop(self):
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection):
        try:
            with connection, connection.makefile("rb") as reader:
                while line := reader.readline():
                    headers = {}
                    while (header := reader.readline().strip()) != b"":
                        name, _, value = header.decode().partition(": ")
                        headers[name.lower()] = value
                    body = json.loads(reader.read(int(headers["content-length"])))
                    self.requests.append((line.decode().strip(), headers, body))
                    answer = self.answer
                    if answer is None:
                        return
                    for part in answer if isinstance(answer, list) else [answer]:
                        connection.sendall(part)
                        if isinstance(answer, list) and self._ended.wait(0.02):
                            return
        except OSError:
            pass


def response(body, status="200 OK", headers=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


def embeddings(vectors, model="m-1"):
    rows = [{"object": "embedding", "index": number, "embedding": vector} for number, vector in enumerate(vectors)]
    return {"object": "list", "data": rows, "model": model, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


@contextmanager
def serving(answer):
    server = Server(answer)
    try:
        yield server
    finally:
        server.close()


def embedder_of(server, **options):
    return EndpointEmbedder(urlsplit(f"http://127.0.0.1:{server.port}/v1"), "m", "", **options)


def test_vectors_are_asked_for_and_scaled():
    answer = embeddings(GOOD)
    answer["data"].reverse()
    with serving(response(answer)) as server:
        embedder = make_embedder(server.name(), {"OPENAI_API_KEY": "sk-1"})
        assert [[0.6, 0.8], [0.0, 1.0]] == [pytest.approx(row) for row in embedder.embed(["one", "两"]).tolist()]
        embedder.embed(["one", "两"])
        embedder.close()
    line, headers, body = server.requests[0]
    assert "POST /v1/embeddings HTTP/1.1" == line
    assert {"model": "m", "input": ["one", "两"]} == body
    assert "Bearer sk-1" == headers["authorization"]
    assert (1, 2) == (server.connections, len(server.requests))
    assert 2 == embedder.size


def test_key_comes_from_the_variable_that_is_named():
    with serving(response(embeddings(GOOD[:1]))) as server:
        for rest, environ in (
            ("?key=MINE#m", {"OPENAI_API_KEY": "sk-1", "MINE": "sk-2"}),
            ("#@cf/baai/bge-m3", {}),
        ):
            embedder = make_embedder(server.name(rest), environ)
            embedder.embed(["one"])
            embedder.close()
    (_, first, _), (_, second, body) = server.requests
    assert "Bearer sk-2" == first["authorization"]
    assert "authorization" not in second
    assert "@cf/baai/bge-m3" == body["model"]


@pytest.mark.parametrize(
    ("name", "environ", "said"),
    [
        ("http://127.0.0.1/v1", {}, "cannot be used"),
        ("http:///v1#m", {}, "cannot be used"),
        ("https://user:secret@host/v1#m", {}, "cannot be used"),
        ("https://host/v1?api_key=secret#m", {}, "cannot be used"),
        ("https://host:port/v1#m", {}, "cannot be read"),
        ("https://[host/v1#m", {}, "cannot be read"),
        ("https://host/v1?key=MINE#m", {"OPENAI_API_KEY": "secret"}, "MINE is not set"),
        ("https://host/v1#m", {"OPENAI_API_KEY": "secret\r\nx: y"}, "OPENAI_API_KEY holds a character"),
    ],
)
def test_addresses_that_cannot_be_used(name, environ, said):
    with pytest.raises(UsageError, match=said) as failed:
        make_embedder(name, environ)
    assert "secret" not in str(failed.value)


BAD_ANSWERS = {
    "not json": b"<html>busy</html>",
    "cut": json.dumps(embeddings(GOOD[:1])).encode()[:-9],
    "no data": {"object": "list"},
    "null": {"data": None},
    "no vector": embeddings([None]),
    "too few": embeddings([]),
    "too many": embeddings(GOOD),
    "of no index": {"data": [{"index": 1, "embedding": [1.0]}]},
    "words": embeddings([["a", "b"]]),
    "base64": embeddings(["AACAPw=="]),
    "nested": embeddings([[[1.0]]]),
    "empty": embeddings([[]]),
    "zero": embeddings([[0.0, 0.0]]),
    "nan": json.dumps(embeddings([[1.0, float("nan")]])).encode(),
    "infinite": b'{"data": [{"index": 0, "embedding": [1e999, 1.0]}]}',
    "huge numbers": embeddings([[1e200, 1e200]]),
    "not utf-8": b'{"data": [{"index": 0, "embedding": [1.0]}], "model": "\xff"}',
    "too long": b" " * (2 << 20),
}


@pytest.mark.parametrize("body", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_answers_that_are_no_vectors(body):
    with serving(response(body)) as server:
        embedder = embedder_of(server)
        with pytest.raises(Failed) as failed:
            embedder.embed(["one"])
        assert Reason.EMBEDDER_FAILED == failed.value.reason
        server.answer = response(embeddings(GOOD[:1]))
        assert 2 == embedder.embed(["one"]).shape[1]  # it goes on
        embedder.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (response(b"{}", "500 Internal Server Error"), Reason.EMBEDDER_FAILED),
        (response(b"{}", "401 Unauthorized"), Reason.EMBEDDER_FAILED),
        (response(b"{}", "429 Too Many Requests"), Reason.EMBEDDER_FAILED),
        (response(b"", "302 Found", "location: http://127.0.0.1/\r\n"), Reason.EMBEDDER_FAILED),
        (response(b"{}", "404 Not Found"), Reason.EMBEDDER_MISSING),
        (response(b"{}", "503 Service Unavailable"), Reason.EMBEDDER_MISSING),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Reason.EMBEDDER_FAILED),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000, Reason.EMBEDDER_FAILED),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1_000, Reason.EMBEDDER_FAILED),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", Reason.EMBEDDER_FAILED),
        (None, Reason.EMBEDDER_FAILED),
    ],
)
def test_refusals_and_other_protocols(answer, reason):
    with serving(answer) as server:
        embedder = make_embedder(server.name(), {"OPENAI_API_KEY": "sk-secret"})
        with pytest.raises(Failed) as failed:
            embedder.embed(["private"])
        assert reason == failed.value.reason
        assert "private" not in str(failed.value)
        assert "sk-secret" not in str(failed.value)
        server.answer = response(embeddings(GOOD[:1]))
        assert 2 == embedder.embed(["one"]).shape[1]
        embedder.close()


def test_nobody_listens():
    with serving(None) as server:
        pass
    with pytest.raises(Failed, match="cannot be reached: ConnectionRefusedError") as failed:
        embedder_of(server).embed(["one"])
    assert Reason.EMBEDDER_MISSING == failed.value.reason


@pytest.mark.parametrize(
    "answer",
    [
        [b""] * 200,
        [b"HTTP/1.1 200 OK\r\n", *[b"a: b\r\n"] * 90],
        [b"H"] * 200,
        [b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\n", *[b" "] * 200],
    ],
    ids=["silent", "headers drip", "first line drips", "body drips"],
)
def test_slow_answers_end_in_time(answer):
    with serving(answer) as server:
        embedder = embedder_of(server, budget_seconds=0.3)
        with pytest.raises(Late, match=r"took longer than 0.3 s") as late:
            embedder.embed(["one"])
        assert Reason.EMBEDDER_SLOW == late.value.reason
        embedder.close()


def test_a_connection_that_the_server_ended_is_made_anew():
    with serving(response(embeddings(GOOD[:1]))) as server:
        embedder = embedder_of(server)
        embedder.embed(["one"])
        server.drop()
        embedder.embed(["two"])
        assert 2 == server.connections
        server.answer = response(embeddings(GOOD[:1]), headers="connection: close\r\n")
        embedder.embed(["three"])
        embedder.embed(["four"])
        embedder.close()
    assert 3 == server.connections


@pytest.mark.parametrize("other", [embeddings([[1.0, 2.0, 3.0]]), embeddings(GOOD[:1], "m-2")], ids=["size", "model"])
def test_another_model_behind_the_same_name_is_never_mixed_in(other):
    with serving(response(embeddings(GOOD[:1]))) as server:
        embedder = embedder_of(server)
        embedder.embed(["one"])
        before = embedder.fingerprint
        server.answer = response(other)
        for _ in range(2):
            with pytest.raises(Failed, match="another model or size") as failed:
                embedder.embed(["one"])
            assert Reason.EMBEDDER_FAILED == failed.value.reason
        assert (before, 2) == (embedder.fingerprint, embedder.size)
        embedder.close()
        anew = embedder_of(server)
        anew.embed(["one"])
        assert before != anew.fingerprint
        anew.close()


def test_fingerprint_is_of_address_and_model():
    prints = {make_embedder(name, {}).fingerprint for name in ("http://a/v1#m", "http://a/v1#n", "http://b/v1#m")}
    assert 3 == len(prints)
    assert make_embedder("http://a/v1#m", {"OPENAI_API_KEY": "sk-1"}).fingerprint in prints


def test_half_a_character():
    with serving(None) as server, pytest.raises(Failed) as failed:
        embedder_of(server).embed(["\ud83d"])
    assert Reason.UNREADABLE == failed.value.reason
    assert 0 == server.connections


def test_closing_ends_a_call_under_way():
    before = threading.active_count()

    async def scenario(server):
        embedding = Embedding(embedder_of(server, budget_seconds=60))
        with pytest.raises(Late, match=r"took longer than 0.05 s"):
            await embedding("one")
        while not server.requests:  # noqa: ASYNC110 - the server has threads of its own
            await asyncio.sleep(0.01)
        await asyncio.wait_for(embedding.close(), 30)

    with serving([b""] * 3_000) as server:
        asyncio.run(scenario(server))
    assert before == threading.active_count()


def test_through_the_whole_way_each_fault_has_its_reason():
    faults = {
        response(embeddings(GOOD[:1])): None,
        response(embeddings([[1.0, 0.0, 0.0]])): Reason.EMBEDDER_FAILED,
        response(b"garbage"): Reason.EMBEDDER_FAILED,
        response(b"", "404 Not Found"): Reason.EMBEDDER_MISSING,
        b"": Reason.EMBEDDER_SLOW,
    }

    async def scenario(server):
        embedding = Embedding(embedder_of(server, budget_seconds=0.4), deadline_seconds=20)
        found = []
        for number, answer in enumerate(faults):
            server.answer = answer
            try:
                assert (2,) == (await embedding(f"question {number}")).shape
                found.append(None)
            except (Late, Failed) as error:
                found.append(error.reason)
        await embedding.close()
        return found

    with serving(b"") as server:
        assert list(faults.values()) == asyncio.run(scenario(server))
