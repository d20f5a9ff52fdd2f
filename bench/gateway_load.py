"""Load on a server: by wrk where it is installed, else by a client of ours, which is slower.

    python bench/gateway_load.py URL CONNECTIONS SECONDS < BODIES

The second form is the client of ours, as a process of its own: JSON bodies come one a line, and it prints a `Load`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httptools

try:
    from uvloop import run
except ImportError:  # Windows
    from asyncio import run

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Load:
    """What a server did under load.

    Attributes:
        requests: that were answered.
        rate: of them in a second.
        median: seconds that one took.
        errors: connections that broke and answers with another status than 200.
    """

    requests: int
    rate: float
    median: float
    errors: int


def generator() -> str:
    """What makes the load."""
    return "wrk" if shutil.which("wrk") else "a client in Python (install wrk for more load)"


def load(url: str, bodies: list[bytes], *, connections: int, seconds: float) -> Load:
    """Send bodies in turn, over so many connections, for so long."""
    if wrk := shutil.which("wrk"):
        return _by_wrk(wrk, url, bodies, connections, seconds)
    command = [sys.executable, __file__, url, str(connections), str(seconds)]
    done = subprocess.run(command, input=b"\n".join(bodies), capture_output=True, check=True)
    return Load(**json.loads(done.stdout))


def _by_wrk(wrk: str, url: str, bodies: list[bytes], connections: int, seconds: float) -> Load:
    quoted = ",\n".join(f"[==[{body.decode()}]==]" for body in bodies)
    script = f"""
local bodies = {{{quoted}}}
local requests, turn = {{}}, 0
function init()
  for index, body in ipairs(bodies) do
    requests[index] = wrk.format("POST", nil, {{["content-type"] = "application/json"}}, body)
  end
end
function request()
  turn = turn % #requests + 1
  return requests[turn]
end
"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bodies.lua"
        file.write_text(script)
        options = ["-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "30s", "--latency"]
        done = subprocess.run([wrk, *options, "-s", str(file), url], capture_output=True, text=True, check=True)
    text = done.stdout
    requests = re.search(r"(\d+) requests in", text)
    rate = re.search(r"Requests/sec:\s*([\d.]+)", text)
    median = re.search(r"50%\s*([\d.]+)(us|ms|s)", text)
    if requests is None or rate is None or median is None:
        raise RuntimeError(f"wrk says: {text}{done.stderr}")
    broken = re.search(r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    errors = sum(map(int, broken.groups())) if broken else 0
    errors += int(refused[1]) if refused else 0
    return Load(int(requests[1]), float(rate[1]), float(median[1]) * _UNITS[median[2]], errors)


class _Client(asyncio.Protocol):
    """One connection, that sends the next request when an answer is there."""

    def __init__(self, requests: list[bytes], until: float, times: list[float]) -> None:
        self.errors = 0
        self.over = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._until = until
        self._times = times
        self._turn = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by class
        self._send()

    def _send(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._sent = time.perf_counter()
        self._transport.write(self._requests[self._turn % len(self._requests)])
        self._turn += 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        self._times.append(now - self._sent)
        self.errors += self._parser.get_status_code() != 200
        if now >= self._until:
            self.over.set_result(None)
            self._transport.close()
        else:
            asyncio.get_running_loop().call_soon(self._send)  # a parser must not be replaced while it calls

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        if not self.over.done():
            self.errors += 1
            self.over.set_result(None)


async def _load(url: str, bodies: list[bytes], connections: int, seconds: float) -> Load:
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\ncontent-length: "
    requests = [head.encode() + b"%d\r\n\r\n" % len(body) + body for body in bodies]
    loop = asyncio.get_running_loop()
    times: list[float] = []
    began = time.perf_counter()
    clients = []
    for number in range(connections):
        own = requests[number % len(requests) :] + requests[: number % len(requests)]
        _, client = await loop.create_connection(
            lambda own=own: _Client(own, began + seconds, times), parts.hostname, parts.port
        )
        clients.append(client)
    await asyncio.gather(*[client.over for client in clients])
    median = statistics.median(times) if times else 0.0
    errors = sum(client.errors for client in clients)
    return Load(len(times), len(times) / (time.perf_counter() - began), median, errors)


if __name__ == "__main__":
    lines = sys.stdin.buffer.read().split(b"\n")
    print(json.dumps(asdict(run(_load(sys.argv[1], lines, int(sys.argv[2]), float(sys.argv[3]))))))
