"""A gateway as clients see it, in front of servers on loopback that do what a test says."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefold.gateway.assembly import Gateway
from prefold.gateway.run import _Server
from prefold.server.asgi import App
from prefold.server.run import bind, url_of

MODEL = "m"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
PATIENCE = 60.0


def eventually(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.005)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def sse(*events: object) -> bytes:
    """Server-sent events with JSON data; text stands as it is."""
    return b"".join(
        b"data: %b\n\n" % (event if isinstance(event, str) else json.dumps(event)).encode() for event in events
    )


# Upstreams


@dataclass(frozen=True)
class Request:
    """What an upstream was sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Peer:
    """An upstream's side of the connection of a request."""

    request: Request
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *parts: bytes) -> None:
        """Send parts, each by itself."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self, status: int, body: bytes | object, **headers: str) -> None:
        """Send a whole answer in JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"content-type": "application/json", "content-length": str(len(data))}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self.send(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + data)

    async def begin_events(self) -> None:
        """Send the head of a stream."""
        await self.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

    async def events(self, data: bytes) -> None:
        """Send a part of a stream."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_events(self) -> None:
        """Send what ends a stream."""
        await self.send(b"0\r\n\r\n")

    async def until_left(self) -> None:
        """Return when the gateway has closed the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass


Behaviour = Callable[[Peer], Awaitable[None]]


async def well(peer: Peer) -> None:
    """Answer in OpenAI's words, or in Anthropic's at its path; the text tells the prompt back."""
    fields = peer.request.json
    text = f"You said: {prompt_of(fields)}"
    if peer.request.path.partition("?")[0] == "/v1/messages":
        await _message(peer, fields, text)
    elif fields.get("stream"):
        await peer.begin_events()
        for piece in (text[:3], text[3:]):
            await peer.events(sse(chunk_of({"content": piece})))
        await peer.events(sse(chunk_of({}, "stop")))
        await peer.events(sse({**chunk_of({}), "choices": [], "usage": USAGE}))
        await peer.events(sse("[DONE]"))
        await peer.end_events()
    else:
        await peer.answer(200, completion_of(text))


USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 2,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 6},
}


def prompt_of(fields: dict[str, Any]) -> str:
    """The last message, or the prompt."""
    content = fields["messages"][-1]["content"] if "messages" in fields else fields.get("prompt", fields.get("input"))
    return content if isinstance(content, str) else content[-1].get("text", "")


def completion_of(text: str, **message: Any) -> dict[str, Any]:
    finish = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
        "usage": USAGE,
    }


def chunk_of(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


async def _message(peer: Peer, fields: dict[str, Any], text: str) -> None:
    usage = {"input_tokens": 4, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 0, "output_tokens": 2}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    if not fields.get("stream"):
        await peer.answer(200, message)
        return
    started = {**message, "content": [], "stop_reason": None}
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    await peer.begin_events()
    for event in (
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ):
        await peer.events(f"event: {event['type']}\n".encode() + sse(event))
    await peer.end_events()


@dataclass
class Upstream:
    """A server on loopback.

    Attributes:
        name: of its replica.
        behaviour: what it does with a POST; may be set anew at any time.
        is_well: whether `/health` says so.
        requests: the POSTs that came.
        running: POSTs that are being answered.
        connections: that were opened for anything.
    """

    name: str
    behaviour: Behaviour = well
    is_well: bool = True
    requests: list[Request] = field(default_factory=list)
    running: int = 0
    connections: int = 0
    port: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = await _read(reader)
                if request.method == "GET":
                    await self._page(Peer(request, reader, writer))
                    continue
                self.requests.append(request)
                self.running += 1
                try:
                    await self.behaviour(Peer(request, reader, writer))
                finally:
                    self.running -= 1
                if writer.is_closing():
                    break
        writer.close()
        self.writers.remove(writer)

    async def _page(self, peer: Peer) -> None:
        if peer.request.path == "/health":
            await peer.answer(200 if self.is_well else 503, b"")
        elif peer.request.path == "/v1/models":
            await peer.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            await peer.answer(404, {})


async def _read(reader: asyncio.StreamReader) -> Request:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@contextmanager
def running(*upstreams: Upstream) -> Iterator[None]:
    """Upstreams, running in a thread until the end of the block."""
    ready, stopping = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        servers = []
        for upstream in upstreams:
            server = await asyncio.start_server(upstream.serve, "127.0.0.1", upstream.port, limit=1 << 26)
            upstream.port = server.sockets[0].getsockname()[1]
            servers.append(server)
        ready.set()
        await stopping.wait()
        for server in servers:
            server.close()
        for upstream in upstreams:
            for writer in upstream.writers:
                writer.transport.abort()
        mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*mine)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, name="upstreams")
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


# The gateway


@dataclass(frozen=True)
class Reply:
    """A response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """What the model said."""
        return self.json["choices"][0]["message"]["content"]

    @property
    def code(self) -> Any:
        """Status, and OpenAI's code of the error."""
        return self.status, self.json["error"]["code"]


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What comes up to and with a mark."""
    read = b""
    while mark not in read:
        part = connection.recv(1 << 16)
        assert part, f"{mark!r} did not come"
        read += part
    return read


@dataclass(frozen=True)
class RunningGateway:
    """A gateway in this process."""

    gateway: Gateway
    url: str
    port: int
    loop: asyncio.AbstractEventLoop
    config: Path
    server: _Server
    thread: threading.Thread

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = self.connect()
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, fields, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, **headers)

    def post(self, value: object = HELLO, path: str = "/v1/chat/completions", **headers: str) -> Reply:
        return self.send("POST", path, value if isinstance(value, bytes) else json.dumps(value).encode(), **headers)

    def raw(self, *parts: bytes) -> bytes:
        """What comes back for bytes, up to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            for part in parts:
                connection.sendall(part)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    @contextmanager
    def asking(self, value: object, path: str = "/v1/chat/completions") -> Iterator[socket.socket]:
        """A connection with a request on it, closed at the end of the block."""
        body = json.dumps(value).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: g\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            connection.sendall(head + body)
            yield connection

    def reload(self, text: str) -> None:
        """Write the configuration anew, and have it read, as SIGHUP does."""
        self.config.write_text(text)
        asyncio.run_coroutine_threadsafe(self.gateway.reload(), self.loop).result(PATIENCE)

    def check(self) -> None:
        """Have the health of all replicas looked at now."""
        asyncio.run_coroutine_threadsafe(self.gateway.app.parts.fleet.check(), self.loop).result(PATIENCE)

    def stop(self, sig: int = signal.SIGTERM) -> None:
        """What a signal does."""
        self.server.handle_exit(sig, None)

    @property
    def metrics(self) -> str:
        return self.gateway.app.parts.metering.render().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of a metric with these labels."""
        total = 0.0
        for line in self.metrics.splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{key}="{text}"' in series for key, text in labels.items()):
                total += float(value)
        return total

    @property
    def states(self) -> dict[str, str]:
        """Of the replicas."""
        return {view["name"]: view["state"] for view in self.gateway.app.parts.fleet.as_json()}


def config_of(*upstreams: Upstream, more: str = "", kind: str = "other", replica: str = "") -> str:
    """A configuration with a replica for each upstream.

    Args:
        upstreams: that are running.
        more: other tables.
        kind: of each replica.
        replica: more keys of each replica.
    """
    tables = [
        f'[[replica]]\nname = "{upstream.name}"\nurl = "{upstream.url}"\nkind = "{kind}"\n{replica}\n'
        for upstream in upstreams
    ]
    return "\n".join([*tables, more])


@contextmanager
def serving(
    config: str,
    folder: Path,
    *,
    environ: Mapping[str, str] | None = None,
    engine: tuple[App, tuple[str, ...]] | None = None,
    now: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    drain_seconds: float = 5.0,
) -> Iterator[RunningGateway]:
    """A gateway in a thread of this process, under a real uvicorn."""
    path = folder / "gateway.toml"
    path.write_text(config)
    gateway = Gateway(path, environ or {}, engine=engine, state_folder=folder, prices=None, clock=clock, now=now)
    listener = bind("127.0.0.1", 0)
    listener.listen()
    ready = threading.Event()
    server = _Server(gateway, None, drain_seconds=drain_seconds, log_level="critical", on_ready=ready.set)
    loop = (server.config.get_loop_factory() or asyncio.new_event_loop)()  # uvloop, where it is there

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(server.serve(sockets=[listener]))

    thread = threading.Thread(target=run, name="gateway")
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield RunningGateway(gateway, url_of(listener), listener.getsockname()[1], loop, path, server, thread)
    finally:
        if thread.is_alive():
            server.handle_exit(signal.SIGTERM, None)
            thread.join(PATIENCE)
        assert not thread.is_alive()
