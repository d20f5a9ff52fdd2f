"""Engines on loopback: pages that real ones gave, and a cache whose work is counted on a clock of its own.

The pages of vLLM (0.32) and llama.cpp (b11434) were recorded; those of SGLang (0.5.23) and ollama were written after
their sources.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"


def recorded(engine: str) -> dict[str, bytes]:
    """The pages of an engine by their paths."""
    names = {file.name: file.read_bytes() for file in (RECORDED / engine).iterdir()}
    return {f"/{name.replace('v1_', 'v1/').replace('api_', 'api/')}": body for name, body in names.items()}


class Clock:
    """Seconds that pass when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Request:
    """What the engine was sent."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        if "prompt" in self.body:
            return self.body["prompt"]
        content = self.body["messages"][0]["content"]
        return content if isinstance(content, str) else content[0]["text"]


@dataclass
class LoopbackEngine:
    """An engine that knows whole prompts.

    Attributes:
        caches: whether it does.
        usage: what it says of a prompt, from its tokens and those that it had.
        seconds: how long it takes for a number of computed tokens, for request number n (from 0).
        pages: by path.
        refusal: status and body of what it answers prompts with instead.
    """

    caches: bool = True
    usage: Callable[[int, int], dict[str, Any]] = lambda total, cached: {
        "prompt_tokens": total,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    seconds: Callable[[int, int], float] = lambda computed, number: 0.01 + 0.001 * computed
    pages: dict[str, bytes] = field(default_factory=dict)
    refusal: tuple[int, bytes] | None = None
    clock: Clock = field(default_factory=Clock)
    requests: list[Request] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Paths of all GET requests."""

    def answer(self, request: Request) -> tuple[int, bytes]:
        total = len(request.prompt.split())
        cached = total - 1 if self.caches and any(request.prompt == before.prompt for before in self.requests) else 0
        self.clock.now += self.seconds(total - cached, len(self.requests))
        self.requests.append(request)
        if self.refusal is not None:
            return self.refusal
        return 200, json.dumps({"usage": self.usage(total, cached)}).encode()


def silent(total: int, cached: int) -> dict[str, Any]:
    """Usage as vLLM has it without its flag."""
    return {"prompt_tokens": total, "prompt_tokens_details": None}


@contextmanager
def serving(engine: LoopbackEngine) -> Iterator[str]:
    """The engine's URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            engine.asked.append(self.path)
            body = engine.pages.get(self.path)
            self.reply(404 if body is None else 200, b'{"detail":"Not Found"}' if body is None else body)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.reply(*engine.answer(Request(self.path, headers, body)))

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:  # the client has had enough
                self.close_connection = True

        def log_message(self, *_: object) -> None:  # to nobody
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
