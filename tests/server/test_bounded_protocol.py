"""What clients may send before an application hears of it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

import uvicorn

from prefold.server.asgi import WHOLE_BODY, Exchange, Receive, Scope, Send
from prefold.server.bounded_protocol import MAX_HEAD_BYTES, MAX_HEADERS, BoundedProtocol, end_overdue

GET = b"GET / HTTP/1.1\r\nhost: g\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: g\r\nx-who: alice\r\ntransfer-encoding: chunked\r\n\r\n"


class Served:
    """A server in this event loop, that tells its requests' headers and bodies back.

    Attributes:
        answers: set when it may answer.
        is_asked: set when a request has come.
        had_body: of each request, whether its whole body had come when the application was asked.
    """

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_asked = asyncio.Event()
        self.had_body: list[bool] = []
        config = uvicorn.Config(
            self._app, interface="asgi3", http=BoundedProtocol, ws="none", lifespan="off", log_config=None, port=0
        )
        self.server = uvicorn.Server(config)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.is_asked.set()
        self.had_body.append(WHOLE_BODY in scope.get("extensions", ()))
        exchange = Exchange(scope, receive, send)
        if exchange.path == "/unread":
            await exchange.reply(405, b"", "text/plain")
            return
        body = await exchange.body()
        await self.answers.wait()
        headers = [f"{name.decode()}: {value.decode()}" for name, value in exchange.headers]
        await exchange.reply_json(200, {"headers": headers, "body": body.decode()})

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self.server.servers[0].sockets[0].getsockname()[1]
        return await asyncio.open_connection("127.0.0.1", port)

    async def answer(self, *parts: bytes) -> bytes:
        """What comes back up to the end of the connection; each part is sent by itself."""
        reader, writer = await self.connect()
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        answer = await asyncio.wait_for(reader.read(), 3)
        writer.close()
        return answer

    def end_overdue(self) -> None:
        """End all that is overdue by now."""
        end_overdue(self.server.server_state.connections, 0)


def serving(test: Callable[[Served], Awaitable[None]]) -> None:
    async def run() -> None:
        served = Served()
        served.server.config.load()
        served.server.lifespan = served.server.config.lifespan_class(served.server.config)
        await served.server.startup()
        try:
            await test(served)
        finally:
            served.answers.set()
            for connection in served.server.server_state.connections:
                connection.transport.abort()
            await served.server.shutdown()

    asyncio.run(run())


def told(answer: bytes) -> dict[str, object]:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    "parts",
    [
        (b"GET / HTTP/1.1\r\nx-a: ", b"a" * (MAX_HEAD_BYTES - 20)),
        (b"GET /" + b"a" * MAX_HEAD_BYTES,),
        (GET, b"x: y\r\n" * (MAX_HEAD_BYTES // 6)),
        (GET + b"x-a: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n",),  # whole, in one piece
        (GET + b"x: y\r\n" * MAX_HEADERS + b"\r\n",),
        (b"\r\n" * (MAX_HEAD_BYTES // 2 + 1),),
        (CHUNKED, b"1\r\na\r\n0\r\n", b"x-t: " + b"a" * MAX_HEAD_BYTES),
        (CHUNKED, b"1;", b"a" * MAX_HEAD_BYTES),
    ],
    ids=["value", "target", "many", "at once", "count", "blank", "trailer", "extension"],
)
def test_a_head_without_measure_is_refused(parts: tuple[bytes, ...]) -> None:
    async def test(served: Served) -> None:
        answer = await served.answer(*parts)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert 1 == answer.count(b"HTTP/1.1 ")

    serving(test)


def test_a_long_head_is_read() -> None:
    async def test(served: Served) -> None:
        value = b"a" * (MAX_HEAD_BYTES - 1_000)
        close = b"\r\nconnection: close\r\n"
        headers = b"x: y\r\n" * (MAX_HEADERS - 3)
        answer = await served.answer(GET + headers + b"x-a: " + value[: -len(headers)] + close + b"\r\n")
        assert MAX_HEADERS == len(told(answer)["headers"])

    serving(test)


def test_heads_are_measured_one_by_one() -> None:
    async def test(served: Served) -> None:
        long = GET + b"x-a: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n"
        answer = await served.answer(*[long + b"\r\n"] * 3, long + b"connection: close\r\n\r\n")
        assert 4 == answer.count(b"HTTP/1.1 200 ")

    serving(test)


@pytest.mark.parametrize("is_split", [False, True])
def test_a_trailer_is_no_header(is_split: bool) -> None:
    async def test(served: Served) -> None:
        body = b"2\r\n{}\r\n0\r\nx-who: bob\r\nexpect: 100-continue\r\n\r\n"
        last = GET + b"connection: close\r\n\r\n"
        parts = (CHUNKED, body, last) if is_split else (CHUNKED + body, last)
        first, second = (await served.answer(*parts)).split(b"HTTP/1.1 200 ")[1:]
        assert ["host: g", "x-who: alice", "transfer-encoding: chunked"] == told(first)["headers"]
        assert "{}" == told(first)["body"]
        assert ["host: g", "connection: close"] == told(second)["headers"]

    serving(test)


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ((), b""),
        ((b"GET / HT",), b"HTTP/1.1 408 "),
        ((GET, b"x-a: "), b"HTTP/1.1 408 "),
        ((b"\r\n",), b"HTTP/1.1 408 "),
    ],
)
def test_a_head_that_does_not_come_is_not_waited_for(parts: tuple[bytes, ...], status: bytes) -> None:
    async def test(served: Served) -> None:
        answer = asyncio.create_task(served.answer(*parts))
        while not answer.done():
            await asyncio.sleep(0.2)
            served.end_overdue()
        assert status == answer.result()[: len(status) or None]

    serving(test)


@pytest.mark.parametrize("more", [b"", b"\r\n", b"GET / "])
def test_who_waits_for_an_answer_is_not_overdue(more: bytes) -> None:
    async def test(served: Served) -> None:
        served.answers.clear()
        reader, writer = await served.connect()
        writer.write(GET + b"\r\n")
        await served.is_asked.wait()
        writer.write(more)
        await asyncio.sleep(0.05)
        served.end_overdue()
        served.answers.set()
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()

    serving(test)


def test_connections_may_rest_between_requests() -> None:
    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        for _ in range(3):
            writer.write(GET + b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await reader.readuntil(b"}")
            await asyncio.sleep(0.02)
            served.end_overdue()
        writer.write(b"GET ")
        await asyncio.sleep(0.05)
        served.end_overdue()
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()

    serving(test)


def test_connections_rest_for_a_time_only() -> None:
    async def test(served: Served) -> None:
        served.server.config.timeout_keep_alive = 0
        reader, writer = await served.connect()
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"}")
        await asyncio.sleep(0.02)
        end_overdue(served.server.server_state.connections, 3_600)
        assert await asyncio.wait_for(reader.read(), 3) == b""
        writer.close()

    serving(test)


@pytest.mark.parametrize(
    ("parts", "is_whole"), [((b"2\r\n{}\r\n0\r\n\r\n",), True), ((b"", b"2\r\n{}\r\n0\r\n\r\n"), False)]
)
def test_the_application_is_told_whether_the_body_has_come(parts: tuple[bytes, ...], is_whole: bool) -> None:
    async def test(served: Served) -> None:
        last = GET + b"connection: close\r\n\r\n"
        await served.answer(CHUNKED + parts[0], *parts[1:], last)
        assert is_whole == served.had_body[0]

    serving(test)


def test_a_body_that_nobody_reads_is_not_waited_for() -> None:
    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(b"POST /unread HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\n1")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        writer.write(b"2")
        await asyncio.sleep(0.05)
        served.end_overdue()
        await asyncio.wait_for(reader.read(), 3)
        writer.close()

    serving(test)


@pytest.mark.parametrize("bad", [b"\x00\r\n\r\n", b"GET / HTTP/1.1\r\nx-a: " + b"a" * MAX_HEAD_BYTES])
def test_a_refusal_is_no_answer_to_an_earlier_request(bad: bytes) -> None:
    async def test(served: Served) -> None:
        served.answers.clear()
        reader, writer = await served.connect()
        writer.write(GET + b"\r\n")
        await served.is_asked.wait()
        writer.write(bad)
        try:
            answer = await asyncio.wait_for(reader.read(), 3)
        except ConnectionResetError:
            answer = b""
        assert answer == b""
        writer.close()

    serving(test)


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
def test_offers_of_another_protocol_are_passed_over(protocol: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def test(served: Served) -> None:
        upgrade = b"connection: upgrade\r\nupgrade: " + protocol + b"\r\n\r\n"
        answer = await served.answer(GET + upgrade, GET + b"connection: close\r\n\r\n")
        assert 2 == answer.count(b"HTTP/1.1 200 ")

    with caplog.at_level(logging.WARNING):
        serving(test)
    assert [] == caplog.messages
