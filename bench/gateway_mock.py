"""A server that answers at once, as upstream of the routers that `gateway.py` compares.

    python bench/gateway_mock.py PORT [PORT ...]

It speaks enough of OpenAI's API for a chat, whole or streamed, and has the pages by which routers find out what stands
behind them: health, models, and SGLang's own two. The model `slow` takes its time between the events of a stream.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from typing import Any, cast

import httptools

try:
    from uvloop import run
except ImportError:  # Windows
    from asyncio import run

EVENTS = 10
SLOW_SECONDS = 0.25
WORDS = [f"word{number} " for number in range(EVENTS)]
USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": EVENTS,
    "total_tokens": 1000 + EVENTS,
    "prompt_tokens_details": {"cached_tokens": 500},
}


def _answer(kind: str, **choice: Any) -> dict[str, Any]:
    choices = [{"index": 0, "finish_reason": None, **choice}]
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "m", "choices": choices}


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _whole(value: object) -> bytes:
    body = _encode(value)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def _event(value: object) -> bytes:
    return _chunk(b"data: %b\n\n" % _encode(value))


_CHAT = _whole(
    {
        **_answer("chat.completion", message={"role": "assistant", "content": "".join(WORDS)}, finish_reason="stop"),
        "usage": USAGE,
    }
)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_STREAM = [_event(_answer("chat.completion.chunk", delta={"role": "assistant", "content": word})) for word in WORDS]
_STREAM_END = (
    _event({**_answer("chat.completion.chunk", delta={}, finish_reason="stop"), "usage": USAGE})
    + _chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)
_MODEL = {"id": "m", "object": "model", "created": 1, "owned_by": "mock"}
_SERVED = {"model_path": "m", "served_model_name": "m", "is_generation": True, "tp_size": 1, "dp_size": 1}
_PAGES = {
    b"/health": _whole({"status": "ok"}),
    b"/health_generate": _whole({"status": "ok"}),
    b"/v1/models": _whole({"object": "list", "data": [_MODEL, {**_MODEL, "id": "slow"}]}),
    b"/get_server_info": _whole(_SERVED),
    b"/server_info": _whole(_SERVED),
    b"/get_model_info": _whole(_SERVED),
    b"/model_info": _whole(_SERVED),
}
_NOTHING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by class
        self._parser = httptools.HttpRequestParser(self)
        self._path = self._body = b""
        self._streams: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):  # routers ask whether HTTP/2 is spoken here
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        for stream in self._streams:
            stream.cancel()

    def on_url(self, url: bytes) -> None:
        self._path, self._body = url, b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._path != b"/v1/chat/completions":
            self._transport.write(_PAGES.get(self._path, _NOTHING))
            return
        fields = json.loads(self._body)
        if not fields.get("stream"):
            self._transport.write(_CHAT)
        elif fields["model"] == "slow":
            self._begin(self._stream_slowly())
        else:
            self._begin(self._stream())

    def _begin(self, stream: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(stream)
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _stream(self) -> None:
        self._transport.write(_STREAM_HEAD)
        for event in _STREAM:
            self._transport.write(event)
            await asyncio.sleep(0)
        self._transport.write(_STREAM_END)

    async def _stream_slowly(self) -> None:
        self._transport.write(_STREAM_HEAD)
        for event in _STREAM:
            await asyncio.sleep(SLOW_SECONDS)
            self._transport.write(event)
        self._transport.write(_STREAM_END)


async def main(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(_Connection, "127.0.0.1", port, backlog=4096) for port in ports]
    await asyncio.gather(*[server.serve_forever() for server in servers])


if __name__ == "__main__":
    run(main([int(port) for port in sys.argv[1:]]))
