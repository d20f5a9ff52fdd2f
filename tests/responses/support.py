"""Answers, an upstream in memory, and a Redis server."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prefold.responses.cache import AnswerCache
from prefold.responses.store import StoredAnswer

JSON = (b"content-type", b"application/json")
EVENT_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
KEY = bytes(range(32))
NOW = 1_764_547_200.0


def sse(*events: object) -> bytes:
    """Events with JSON data; text stands as it is."""
    return b"".join(
        b"data: %b\n\n" % (event if isinstance(event, str) else json.dumps(event)).encode() for event in events
    )


def chat_chunk(content: str | None = None, finish: str | None = None, index: int = 0) -> dict:
    delta = {} if content is None else {"content": content}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
    }


USAGE_CHUNK = {**chat_chunk(), "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}
CHAT_EVENTS = (
    sse(chat_chunk("Hel")),
    sse(chat_chunk("lo")),
    sse(chat_chunk(finish="stop"), USAGE_CHUNK),
    sse("[DONE]"),
)
"""A stream of chat in the chunks in which it came."""

CHAT = {
    "id": "chatcmpl-2",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}

MESSAGE_EVENTS = tuple(
    b"event: %b\n%b" % (str(event["type"]).encode(), sse(event))
    for event in (
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 4, "cache_read_input_tokens": 3, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    )
)


def stored(chunks: tuple[bytes, ...] = CHAT_EVENTS, created: float = NOW) -> StoredAnswer:
    return StoredAnswer(200, (EVENT_STREAM,), chunks, created, 7, 2)


class FakeAnswer:
    """An answer whose chunks come when `tickets` allows: one for each that is released, all with None."""

    def __init__(self, chunks=CHAT_EVENTS, status=200, headers=(EVENT_STREAM,), tickets=None, fails=None):
        self.status = status
        self.headers = list(headers)
        self.is_closed = False
        self.sent = 0
        self._chunks = chunks
        self._tickets = tickets
        self._fails = fails

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if self._tickets is not None:
                await self._tickets.acquire()
            self.sent += 1
            yield chunk
        if self._fails is not None:
            raise self._fails

    async def close(self) -> None:
        self.is_closed = True


class FakeUpstream:
    """Gives the same answer to everybody, or the next of several, and counts how often it was asked.

    Args:
        answers: what each call is given, an answer or an error; the last one also to all further calls.
        gate: waited for before each answer.
    """

    def __init__(self, *answers, gate: asyncio.Event | None = None):
        self.calls = 0
        self.is_asked = asyncio.Event()
        self._answers = answers
        self._gate = gate

    async def fetch(self) -> FakeAnswer:
        answer = self._answers[min(self.calls, len(self._answers) - 1)]
        self.calls += 1
        self.is_asked.set()
        if self._gate is not None:
            await self._gate.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


async def at_rest(cache: AnswerCache) -> None:
    """Return when every answer is kept, or not to be."""
    await asyncio.gather(*(flight.task for flight in cache._flights._all), return_exceptions=True)
    await settle()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running_redis(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Redis server of our own, and its URL; skips where there is none to run."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("no redis-server here")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b"Ready to accept connections" in line:
                    break
            yield f"redis://127.0.0.1:{port}/0", process
        finally:
            process.kill()  # ends a stopped process too
