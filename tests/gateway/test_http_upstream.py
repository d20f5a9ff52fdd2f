"""The transport against real servers on loopback, that behave and that misbehave in each way."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from prefold.errors import InvalidRequest, UsageError
from prefold.gateway.config import UpstreamOptions
from prefold.gateway.http_upstream import HttpUpstream
from prefold.gateway.upstream import Outgoing, UpstreamFailed

ASK = Outgoing("POST", "/v1/chat/completions", [(b"content-type", b"application/json")], b'{"model":"m"}')
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
IMPATIENT = UpstreamOptions(connect_seconds=0.2, first_byte_seconds=0.2, idle_seconds=0.2)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine in either event loop."""
    factory = pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else None

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(main)

    return run


@dataclass
class Peer:
    """One connection as the server sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nobody serves it any more, as the client has closed it."""

    async def request(self) -> tuple[bytes, bytes]:
        """The next request's head and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        return head, await self.reader.readexactly(int(length[1]) if length else 0)

    async def say(self, *parts: bytes) -> None:
        """Send parts, each by itself."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def gone(self) -> None:
        """Return when the other side has closed the connection."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionResetError:
            pass


@dataclass
class Server:
    """A server on loopback."""

    port: int = 0
    scheme: str = "http"
    peers: list[Peer] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}"


@asynccontextmanager
async def serving(
    handle: Callable[[Peer], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that gives each connection to a function, and closes it behind it."""
    server = Server(scheme="https" if tls else "http")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.current_task())
        server.peers.append(peer := Peer(reader, writer, len(server.peers)))
        try:
            await handle(peer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()
            tasks.discard(task)
            peer.left.set()

    listener = await asyncio.start_server(serve, "localhost", 0, ssl=tls, family=socket.AF_INET)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def upstream_to(
    handle: Callable[[Peer], Awaitable[None]], options: UpstreamOptions | None = None, **more: Any
) -> AsyncIterator[tuple[HttpUpstream, Server]]:
    async with serving(handle) as server:
        upstream = HttpUpstream(server.url, options or UpstreamOptions(), **more)
        try:
            yield upstream, server
        finally:
            await upstream.close()


async def body_of(answer: Any) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


def answering(*parts: bytes) -> Callable[[Peer], Awaitable[None]]:
    """Answers every request with the same bytes, and closes the connection only when the client does."""

    async def handle(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(*parts)

    return handle


def answering_once(*parts: bytes) -> Callable[[Peer], Awaitable[None]]:
    """Answers one request and closes the connection."""

    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.say(*parts)

    return handle


# What goes out


def head_sent(run: Any, headers: list[tuple[bytes, bytes]], path: str = "", **options: Any) -> list[bytes]:
    heads = []

    async def handle(peer: Peer) -> None:
        head, body = await peer.request()
        assert ASK.body == body
        heads.append(head.replace(b":%d\r\n" % peer.writer.get_extra_info("sockname")[1], b":PORT\r\n"))
        await peer.say(OK)

    async def main() -> None:
        async with serving(handle) as server:
            upstream = HttpUpstream(server.url + path, UpstreamOptions(), **options)
            answer = await upstream.send(Outgoing("POST", "/v1/completions", headers, ASK.body))
            assert b"ok" == await body_of(answer)
            await upstream.close()

    run(main())
    return heads[0].removesuffix(b"\r\n\r\n").split(b"\r\n")


def test_headers_go_on_but_for_those_of_the_hop(run):
    sent = [
        (b"host", b"gateway"),
        (b"content-length", b"99"),
        (b"connection", b"keep-alive, X-Mine"),
        (b"connection", b"X-Too"),
        (b"x-mine", b"1"),
        (b"x-too", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"expect", b"100-continue"),
        (b"upgrade", b"h2c"),
        (b"accept-encoding", b"gzip, br"),
        (b"authorization", b"Bearer the-client's"),
        (b"x-twice", b"1"),
        (b"x-twice", b"2"),
    ]
    assert [
        b"POST /v1/completions HTTP/1.1",
        b"host: localhost:PORT",
        b"accept-encoding: gzip, br",
        b"authorization: Bearer the-client's",
        b"x-twice: 1",
        b"x-twice: 2",
        b"content-length: 13",
    ] == head_sent(run, sent)


@pytest.mark.parametrize(
    ("header", "line"),
    [("authorization", b"authorization: Bearer ours"), ("x-api-key", b"x-api-key: ours")],
)
def test_a_key_of_ours_replaces_the_clients(run, header, line):
    sent = [(b"authorization", b"Bearer the-client's"), (b"x-api-key", b"the-client's"), (b"x-other", b"1")]
    assert [
        b"POST /base/v1/completions HTTP/1.1",
        b"host: localhost:PORT",
        line,
        b"x-other: 1",
        b"content-length: 13",
    ] == head_sent(run, sent, "/base/", api_key="ours", key_header=header)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/models/a\r\nx-evil: 1", []),
        ("/v1/models/a b", []),
        ("/v1/models", [(b"x-a", b"1\r\nx-evil: 1")]),
        ("/v1/models", [(b"x-a", b"1\nx-evil: 1")]),
        ("/v1/models", [(b"x-a", b"1\rx-evil: 1")]),
    ],
)
def test_no_header_is_smuggled_in(run, path, headers):
    async def main() -> None:
        async with upstream_to(answering(OK)) as (upstream, server):
            with pytest.raises(InvalidRequest, match="line break"):
                await upstream.send(Outgoing("GET", path, headers, b""))
            assert [] == server.peers

    run(main())


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://a", "http://", "http://a:port", "http://me:pw@a", "http://a/?b=1", "http://ä"]
)
def test_a_url_that_cannot_be_used_is_refused(url):
    with pytest.raises(UsageError):
        HttpUpstream(url, UpstreamOptions())


def test_a_key_of_two_lines_is_refused_without_being_told():
    with pytest.raises(UsageError, match="not one line") as refused:
        HttpUpstream("http://a", UpstreamOptions(), "sk-secret\r\nx-evil: 1")
    assert "sk-secret" not in str(refused.value)


# What comes back

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-A: 1\r\n\r\n"
    b"3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nX-T: 1\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nhello"
FORMS = {
    "length": (LENGTH, [(b"content-type", b"text/plain"), (b"content-length", b"5"), (b"x-a", b"1")]),
    "chunked": (CHUNKED, [(b"x-a", b"1")]),
    "interim": (INTERIM + LENGTH, [(b"content-type", b"text/plain"), (b"content-length", b"5"), (b"x-a", b"1")]),
    "until close": (UNTIL_CLOSE, [(b"x-a", b"1")]),
}


@pytest.mark.parametrize("form", FORMS)
def test_answers_are_read_wherever_they_are_cut(run, form):
    data, headers = FORMS[form]

    async def handle(peer: Peer) -> None:
        head, _ = await peer.request()
        cut = int(head.split(b" ", 2)[1].lstrip(b"/"))
        await peer.say(data[:cut], data[cut:])

    async def main() -> None:
        async with upstream_to(handle) as (upstream, _):
            for cut in range(1, len(data)):
                answer = await upstream.send(Outgoing("GET", f"/{cut}", [], b""))
                assert (200, headers, b"hello") == (answer.status, answer.headers, await body_of(answer))

    run(main())


def test_a_short_answer_is_one_chunk(run):
    async def main() -> None:
        async with upstream_to(answering(CHUNKED)) as (upstream, _):
            answer = await upstream.send(ASK)
            assert [b"hello"] == [chunk async for chunk in answer.chunks()]

    run(main())


def test_chunks_come_as_they_are_sent(run):
    async def main() -> None:
        more = asyncio.Event()

        async def handle(peer: Peer) -> None:
            await peer.request()
            await peer.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\ndata: \r\n")
            await more.wait()
            await peer.say(b"3\r\n1\n\n\r\n0\r\n\r\n")

        async with upstream_to(handle) as (upstream, _):
            chunks = (await upstream.send(ASK)).chunks()
            assert b"data: " == await anext(chunks)
            more.set()
            assert b"1\n\n" == await anext(chunks)
            with pytest.raises(StopAsyncIteration):
                await anext(chunks)

    run(main())


@pytest.mark.parametrize("status", [204, 304, 401, 500])
def test_any_status_is_an_answer(run, status):
    async def main() -> None:
        reply = b"HTTP/1.1 %d X\r\n%b\r\n" % (status, b"content-length: 0\r\n" if status >= 400 else b"")
        async with upstream_to(answering(reply)) as (upstream, server):
            for _ in range(2):
                answer = await upstream.send(ASK)
                assert (status, b"") == (answer.status, await body_of(answer))
            assert 1 == len(server.peers)

    run(main())


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (b"HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nx a: 1\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: 1\r\n" * 101 + b"\r\n", "too many headers"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000, "too many headers"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\ncontent-length: 2\r\n\r\nok", "too many headers"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000, "too many headers"),
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "in its answer"),
    ],
    ids=lambda value: None if isinstance(value, str) else value[:24].decode(),
)
def test_what_is_no_answer_fails(run, reply, problem):
    async def main() -> None:
        async with upstream_to(answering_once(reply)) as (upstream, _):
            with pytest.raises(UpstreamFailed, match=problem) as failed:
                await upstream.send(ASK)
            assert not failed.value.is_safe

    run(main())


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", "in its answer"),
        (CHUNKED_HEAD + b"5\r\nhello\r\n", "in its answer"),
        (CHUNKED_HEAD + b"5\r\nhello\r\nzz\r\n", "not HTTP"),
    ],
    ids=["length", "chunked", "garbage"],
)
def test_an_answer_that_breaks_off_gives_what_came_and_fails(run, reply, problem):
    async def main() -> None:
        async with upstream_to(answering_once(reply)) as (upstream, _):
            answer = await upstream.send(ASK)
            chunks = answer.chunks()
            assert b"hello" == await anext(chunks)
            with pytest.raises(UpstreamFailed, match=problem):
                await anext(chunks)
            await answer.close()

    run(main())


def test_trailers_have_a_limit(run):
    async def main() -> None:
        trailers = [b"x-%d: %b\r\n" % (number, b"a" * 900) for number in range(100)]
        async with upstream_to(answering_once(CHUNKED_HEAD + b"5\r\nhello\r\n0\r\n", *trailers)) as (upstream, _):
            answer = await upstream.send(ASK)
            with pytest.raises(UpstreamFailed, match="too many headers"):
                await body_of(answer)

    run(main())


def test_a_reset_does_not_end_an_answer_that_ends_by_closing(run):
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.say(UNTIL_CLOSE)
        await peer.request()

    async def main() -> None:
        async with upstream_to(handle) as (upstream, server):
            chunks = (await upstream.send(ASK)).chunks()
            assert b"hello" == await anext(chunks)
            waiting = asyncio.ensure_future(anext(chunks))
            linger = struct.pack("ii", 1, 0)  # closing sends a reset
            peer = server.peers[0].writer
            peer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            peer.transport.abort()
            with pytest.raises(UpstreamFailed, match="in its answer"):
                await waiting

    run(main())


# Connections


def test_connections_are_kept(run):
    async def main() -> None:
        async with upstream_to(answering(LENGTH)) as (upstream, server):
            for _ in range(5):
                assert b"hello" == await body_of(await upstream.send(ASK))
            assert 1 == len(server.peers)

    run(main())


def test_many_at_once_each_get_their_own(run):
    async def handle(peer: Peer) -> None:
        while True:
            _, body = await peer.request()
            await asyncio.sleep(0)
            await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), body)

    async def main() -> None:
        async with upstream_to(handle) as (upstream, server):

            async def ask(number: int) -> None:
                body = b"%d" % number * (number % 50 + 1)
                assert body == await body_of(await upstream.send(Outgoing("POST", "/", [], body)))

            for start in range(0, 400, 100):
                await asyncio.gather(*(ask(start + number) for number in range(100)))
            assert 100 >= len(server.peers)

    run(main())


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        OK + b"evil",
        CHUNKED_HEAD + b"2\r\nok\r\n0\r\n\r\nevil",
    ],
    ids=["close", "1.0", "second answer", "surplus", "surplus of chunks"],
)
def test_a_connection_is_not_kept(run, reply):
    async def main() -> None:
        async with upstream_to(answering(reply)) as (upstream, server):
            for _ in range(2):
                assert b"ok" == await body_of(await upstream.send(ASK))
            assert 2 == len(server.peers)

    run(main())


def test_what_comes_between_answers_reaches_nobody(run):
    async def main() -> None:
        async with upstream_to(answering(OK)) as (upstream, server):
            assert b"ok" == await body_of(await upstream.send(ASK))
            await server.peers[0].say(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
            await server.peers[0].left.wait()
            assert b"ok" == await body_of(await upstream.send(ASK))
            assert 2 == len(server.peers)

    run(main())


def test_a_stale_connection_is_replaced_once(run):
    async def handle(peer: Peer) -> None:
        await peer.request()
        if peer.number < 2:
            await peer.say(OK)
            await peer.request()  # and closes without an answer

    async def main() -> None:
        async with upstream_to(handle) as (upstream, server):
            for _ in range(2):  # the second one's first connection is stale
                assert b"ok" == await body_of(await upstream.send(ASK))
            with pytest.raises(UpstreamFailed, match="without an answer") as failed:
                await upstream.send(ASK)
            assert not failed.value.is_safe
            assert 3 == len(server.peers)

    run(main())


def test_a_connection_that_breaks_in_its_answer_is_not_asked_again(run):
    requests = []

    async def handle(peer: Peer) -> None:
        requests.append(await peer.request())
        await peer.say(OK)
        requests.append(await peer.request())
        await peer.say(b"HTTP/1.1 20")

    async def main() -> None:
        async with upstream_to(handle) as (upstream, _):
            assert b"ok" == await body_of(await upstream.send(ASK))
            with pytest.raises(UpstreamFailed, match="in its answer"):
                await upstream.send(ASK)
            assert 2 == len(requests)

    run(main())


def test_an_idle_connection_that_the_server_closes_is_forgotten(run):
    async def main() -> None:
        async with upstream_to(answering_once(OK)) as (upstream, server):
            for _ in range(3):
                assert b"ok" == await body_of(await upstream.send(ASK))
                await server.peers[-1].left.wait()
            assert 3 == len(server.peers)

    run(main())


def test_nobody_there_is_safe_to_ask_another(run):
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        upstream = HttpUpstream(f"http://127.0.0.1:{port}", UpstreamOptions())
        with pytest.raises(UpstreamFailed, match="cannot be reached") as failed:
            await upstream.send(ASK)
        assert failed.value.is_safe
        with pytest.raises(UpstreamFailed) as failed:
            await HttpUpstream("http://no-such-host.invalid", UpstreamOptions()).send(ASK)
        assert failed.value.is_safe

    run(main())


def test_a_closed_upstream_takes_nothing_and_keeps_nothing(run):
    async def main() -> None:
        async with upstream_to(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok", b"ok")) as (
            upstream,
            server,
        ):
            await body_of(await upstream.send(ASK))
            running = await upstream.send(ASK)
            await upstream.close()
            assert b"okok" == await body_of(running)
            await server.peers[0].left.wait()
            with pytest.raises(UpstreamFailed, match="no longer used") as failed:
                await upstream.send(ASK)
            assert failed.value.is_safe

    run(main())


# Leaving, and waiting


@pytest.mark.parametrize("reply", [CHUNKED_HEAD + b"5\r\nhello\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"])
def test_closing_an_answer_closes_its_connection(run, reply):
    async def main() -> None:
        gone = asyncio.Event()

        async def handle(peer: Peer) -> None:
            await peer.request()
            await peer.say(reply)
            await peer.gone()
            gone.set()

        async with upstream_to(handle) as (upstream, _):
            answer = await upstream.send(ASK)
            reading = asyncio.ensure_future(body_of(answer))
            await asyncio.sleep(0.01)
            await answer.close()
            await answer.close()
            await gone.wait()
            with pytest.raises(UpstreamFailed, match="was left"):
                await reading

    run(main())


def test_closing_an_answer_after_its_end_leaves_the_next_one_alone(run):
    async def main() -> None:
        async with upstream_to(answering(CHUNKED)) as (upstream, server):
            first = await upstream.send(ASK)
            await body_of(first)
            second = asyncio.ensure_future(upstream.send(ASK))
            await asyncio.sleep(0)
            await first.close()
            assert b"hello" == await body_of(await second)
            assert 1 == len(server.peers)

    run(main())


def test_cancelling_a_request_closes_its_connection(run):
    async def main() -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        async def handle(peer: Peer) -> None:
            await peer.request()
            asked.set()
            await peer.gone()
            gone.set()

        async with upstream_to(handle) as (upstream, _):
            sending = asyncio.ensure_future(upstream.send(ASK))
            await asked.wait()
            sending.cancel()
            await gone.wait()
            with pytest.raises(asyncio.CancelledError):
                await sending

    run(main())


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (b"", "did not answer within 0.2 s"),
        (b"HTTP/1.1 200 OK\r\ncontent-length", "did not answer within 0.2 s"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "did not answer within 0.2 s"),
        (CHUNKED_HEAD, "sent nothing for 0.2 s"),
        (CHUNKED_HEAD + b"5\r\nhello\r\n", "sent nothing for 0.2 s"),
    ],
    ids=["nothing", "half a head", "interim", "head", "chunk"],
)
def test_patience_has_an_end(run, reply, problem):
    async def main() -> None:
        gone = asyncio.Event()

        async def handle(peer: Peer) -> None:
            await peer.request()
            await peer.say(reply)
            await peer.gone()
            gone.set()

        async with upstream_to(handle, IMPATIENT) as (upstream, _):
            with pytest.raises(UpstreamFailed, match=problem) as failed:
                await body_of(await upstream.send(ASK))
            assert not failed.value.is_safe
            await gone.wait()

    run(main())


def test_a_connection_that_nobody_takes_is_safe_to_give_up(run):
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            address = full.getsockname()
            fillers = []
            for _ in range(3):  # the queue of what was not accepted has room for one or two
                fillers.append(filler := socket.socket())
                filler.setblocking(False)
                filler.connect_ex(address)
            with pytest.raises(UpstreamFailed, match="did not take a connection") as failed:
                await HttpUpstream(f"http://127.0.0.1:{address[1]}", IMPATIENT).send(ASK)
            assert failed.value.is_safe
            for filler in fillers:
                filler.close()

    run(main())


def test_a_reader_who_is_slow_slows_the_upstream_and_is_not_its_fault(run):
    total = 64 << 20
    sent = 0

    async def handle(peer: Peer) -> None:
        nonlocal sent
        while True:
            await peer.request()
            sent = 0
            await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
            while sent < total:
                await peer.say(b"x" * (1 << 18))
                sent += 1 << 18

    async def main() -> None:
        async with upstream_to(handle, IMPATIENT) as (upstream, server):
            for _ in range(2):  # the second one finds the connection as it should be
                answer = await upstream.send(ASK)
                before = -1
                while before != sent:
                    before = sent
                    await asyncio.sleep(0.5)  # longer than the idle time
                assert total > sent  # the rest waits in the server, beyond what the kernel's buffers hold
                assert total == sum([len(chunk) async for chunk in answer.chunks()])
            assert 1 == len(server.peers)

    run(main())


def test_an_answer_before_the_request_was_read_is_taken_and_the_connection_left(run):
    async def handle(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.writer.transport.pause_reading()
        await peer.say(b"HTTP/1.1 413 X\r\ncontent-length: 2\r\n\r\nno")
        if peer.number:
            return
        await asyncio.sleep(60)

    async def main() -> None:
        async with upstream_to(handle) as (upstream, server):
            large = Outgoing("POST", "/", [], b"x" * (32 << 20))
            answer = await upstream.send(large)
            assert (413, b"no") == (answer.status, await body_of(answer))
            await upstream.send(ASK)
            assert 2 == len(server.peers)

    run(main())


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        " -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("is_trusted", [True, False])
def test_certificates_are_verified(run, certificate, monkeypatch, is_trusted):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    async def main() -> None:
        async with serving(answering(CHUNKED), tls) as server:
            upstream = HttpUpstream(server.url, UpstreamOptions())
            if is_trusted:
                for _ in range(2):
                    assert b"hello" == await body_of(await upstream.send(ASK))
                assert 1 == len(server.peers)
                other_name = HttpUpstream(server.url.replace("localhost", "127.0.0.1"), UpstreamOptions())
                with pytest.raises(UpstreamFailed, match="cannot be trusted"):
                    await other_name.send(ASK)
            else:
                with pytest.raises(UpstreamFailed, match="cannot be trusted") as failed:
                    await upstream.send(ASK)
                assert failed.value.is_safe
            await upstream.close()

    run(main())
