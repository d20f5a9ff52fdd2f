"""Time the gateway beside other routers, all in front of one mock upstream that answers at once.

    python bench/gateway.py [--sglang-router PYTHON] [--litellm LITELLM] [--rounds 5] [--seconds 3] [--json]

PYTHON is an interpreter that has sglang-router, LITELLM the command of LiteLLM's proxy. Rounds alternate between the
sides; what a figure is worth, only its ratio to another one of the same round says. No side is measured that answers
with errors, or with something else than the mock did.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway_load import Load, generator, load
from gateway_mock import EVENTS, SLOW_SECONDS, USAGE, WORDS

CONNECTIONS = 32
CHAT = "/v1/chat/completions"
FOLDER = Path(__file__).parent


def bodies(*, stream: bool) -> list[bytes]:
    """Conversations of some 600 tokens, each with rules of its own."""
    made = []
    for number in range(64):
        rules = f"Rules of assistant {number}. " + "You are a helpful assistant that answers questions. " * 40
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": f"Hello, {number}"}]
        fields: dict[str, Any] = {"model": "m", "messages": messages, "max_tokens": EVENTS}
        if stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        made.append(json.dumps(fields, separators=(",", ":")).encode())
    return made


WHOLE, STREAM = bodies(stream=False), bodies(stream=True)


@dataclass(frozen=True)
class Side:
    """A server to measure.

    Attributes:
        name: of it.
        url: where chats are sent.
        process: that serves it.
    """

    name: str
    url: str
    process: subprocess.Popen[bytes]

    def memory(self) -> int:
        """KiB that the process holds."""
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, check=True)
        return int(shown.stdout)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def check(url: str, body: bytes) -> None:
    """See that a server answers a chat as the mock does.

    Raises:
        RuntimeError: if it is not what the mock says.
        OSError: if there is none.
    """
    request = urllib.request.Request(url, body, {"content-type": "application/json", "authorization": "Bearer sk-x"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        data = answer.read()
    if not json.loads(body).get("stream"):
        whole = json.loads(data)
        text = whole["choices"][0]["message"]["content"]
        is_right = all(whole["usage"][name] == USAGE[name] for name in ("prompt_tokens", "completion_tokens"))
    else:
        *events, end = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
        choices = [choice for event in events for choice in json.loads(event)["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        is_right = end.strip() == b"[DONE]"
    if text != "".join(WORDS) or not is_right:
        raise RuntimeError(f"{url} answers {data[:300]!r}")


@contextlib.contextmanager
def running(name: str, command: list[str], url: str, log: Path, seconds: float = 120.0) -> Iterator[Side]:
    """A server, from the time when it answers on."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "LITELLM_LOG": "ERROR"})
    try:
        end = time.monotonic() + seconds
        while True:
            try:
                check(url, WHOLE[0])
                break
            except (OSError, RuntimeError) as error:
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{name} does not answer: {error}\n{log.read_text()[-2000:]}") from None
                time.sleep(0.2)
        yield Side(name, url, process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def all_sides(arguments: argparse.Namespace) -> Iterator[list[Side]]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        ports = free_ports(6)
        upstreams = [f"http://127.0.0.1:{port}" for port in ports[:2]]

        def start(name: str, command: list[str], port: int) -> Side:
            print(f"starting {name}", file=sys.stderr)
            url = f"http://127.0.0.1:{port}{CHAT}"
            return stack.enter_context(running(name, command, url, folder / f"{name}.log"))

        mock = [sys.executable, str(FOLDER / "gateway_mock.py"), *map(str, ports[:2])]
        sides = [start("mock", mock, ports[0])]
        gateway = folder / "gateway.toml"
        gateway.write_text(
            f'[server]\nport = {ports[2]}\n[routing]\npolicy = "prefix_hash"\n'
            + "".join(
                f'[[replica]]\nname = "{number}"\nurl = "{url}"\nkind = "sglang"\nmodels = ["m", "slow"]\n'
                for number, url in enumerate(upstreams)
            )
        )
        sides.append(start("prefold", [sys.executable, "-m", "prefold", "serve", "--config", str(gateway)], ports[2]))
        if arguments.sglang_router:
            command = [arguments.sglang_router, "-m", "sglang_router.launch_router", "--worker-urls", *upstreams]
            command += ["--host", "127.0.0.1", "--port", str(ports[3]), "--prometheus-port", str(ports[4])]
            command += ["--policy", "cache_aware", "--log-level", "warn"]
            sides.append(start("sglang-router", command, ports[3]))
        if arguments.litellm:
            models = [
                {
                    "model_name": model,
                    "litellm_params": {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "x"},
                }
                for url in upstreams
                for model in ("m", "slow")
            ]
            config = folder / "litellm.yaml"
            # Without a key, as the others here: it listens on the loopback, before a mock. JSON is YAML.
            open_to_all = {"dangerously_permit_weak_or_unset_master_key": True}
            config.write_text(json.dumps({"model_list": models, "general_settings": open_to_all}))
            command = [arguments.litellm, "--config", str(config), "--host", "127.0.0.1", "--port", str(ports[5])]
            sides.append(start("litellm", command, ports[5]))
        yield sides


def measured(side: Side, sent: list[bytes], connections: int, seconds: float) -> Load:
    """One measurement, between two looks at what the answers are.

    Raises:
        RuntimeError: if any of them is wrong.
    """
    check(side.url, sent[0])
    result = load(side.url, sent, connections=connections, seconds=seconds)
    check(side.url, sent[-1])
    if result.errors:
        raise RuntimeError(f"{side.name} gave {result.errors} errors among {result.requests} requests")
    return result


# 1,000 streams


async def one_stream(url: str, body: bytes, all_open: asyncio.Barrier) -> bool:
    """Whether a stream came whole, from a server on which all others were open at the same time."""
    host, port = url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: "
    writer.write(head.encode() + b"%d\r\n\r\n" % len(body) + body)
    first = await reader.readuntil(b"data: ")
    await all_open.wait()
    data = first + await reader.read()
    writer.close()
    return data.startswith(b"HTTP/1.1 200") and all(word.encode() in data for word in WORDS) and b"[DONE]" in data


async def streams(side: Side, count: int) -> int:
    """How many of so many streams at once went wrong. None may end before all have begun."""
    slow = [body.replace(b'"m"', b'"slow"', 1) for body in STREAM]
    all_open = asyncio.Barrier(count)
    try:
        async with asyncio.timeout(60 + 2 * EVENTS * SLOW_SECONDS):
            results = await asyncio.gather(
                *[one_stream(side.url, slow[number % len(slow)], all_open) for number in range(count)],
                return_exceptions=True,
            )
    except TimeoutError:
        return count
    return sum(result is not True for result in results)


# Figures


def spread(values: list[float], scale: float = 1.0, digits: int = 2) -> str:
    numbers = [value * scale for value in values]
    return f"{statistics.median(numbers):,.{digits}f} ({min(numbers):,.{digits}f}..{max(numbers):,.{digits}f})"


def rounds(sides: list[Side], arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Of each side, by round: requests a second, whole and streamed, and the median latency at one connection."""
    figures: dict[str, dict[str, list[float]]] = {
        side.name: {"whole": [], "streams": [], "latency": []} for side in sides
    }
    for number in range(arguments.rounds + 1):  # the first one warms up and does not count
        print(f"round {number} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        turn = number % len(sides)
        for side in sides[turn:] + sides[:turn]:
            of: list[tuple[str, Callable[[], float]]] = [
                ("whole", lambda side=side: measured(side, WHOLE, CONNECTIONS, arguments.seconds).rate),
                ("streams", lambda side=side: measured(side, STREAM, CONNECTIONS, arguments.seconds).rate),
                ("latency", lambda side=side: measured(side, WHOLE, 1, arguments.seconds).median),
            ]
            for name, measure in of:
                figure = measure()
                if number:
                    figures[side.name][name].append(figure)
    return figures


def memory(side: Side, requests: int, seconds: float) -> tuple[int, int, int]:
    """KiB after a tenth of so many requests and after all of them, and how many there were."""
    sent = early = 0
    while sent < requests:
        sent += measured(side, WHOLE if sent % 2 else STREAM, CONNECTIONS, seconds).requests
        if not early and sent >= requests // 10:
            early = side.memory()
    return early, side.memory(), sent


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the gateway beside other routers.")
    parser.add_argument("--sglang-router", metavar="PYTHON", help="an interpreter that has sglang-router")
    parser.add_argument("--litellm", metavar="LITELLM", help="the command of LiteLLM's proxy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--streams", type=int, default=1000, help="at once; 0 to leave that out")
    parser.add_argument("--requests", type=int, default=100_000, help="between the looks at memory; 0 to leave it out")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    with all_sides(arguments) as sides:
        mock, prefold, *peers = sides
        figures = rounds(sides, arguments)
        rows = {}
        for side in sides:
            rows[f"{side.name}: requests/s, whole"] = spread(figures[side.name]["whole"], digits=0)
            rows[f"{side.name}: requests/s, streams"] = spread(figures[side.name]["streams"], digits=0)
        for peer in peers:
            for name in ("whole", "streams"):
                pairs = zip(figures[prefold.name][name], figures[peer.name][name], strict=True)
                rows[f"prefold / {peer.name}, {name}"] = spread([ours / theirs for ours, theirs in pairs])
        for side in [prefold, *peers]:
            added = zip(figures[side.name]["latency"], figures[mock.name]["latency"], strict=True)
            rows[f"{side.name}: added median latency, ms"] = spread([own - bare for own, bare in added], 1000, 3)
        failed = 0
        if arguments.streams:
            print(f"{arguments.streams} streams", file=sys.stderr)
            failed = asyncio.run(streams(prefold, arguments.streams))
            rows[f"prefold: errors in {arguments.streams} streams at once"] = str(failed)
        if arguments.requests:
            print("memory", file=sys.stderr)
            early, late, sent = memory(prefold, arguments.requests, arguments.seconds)
            rows[f"prefold: MiB after {sent // 10:,} and {sent:,} requests"] = f"{early / 1024:.1f}, {late / 1024:.1f}"
    if arguments.json:
        print(json.dumps({"generator": generator(), "figures": figures, "rows": rows}))
    else:
        print(f"load by {generator()}; medians of {arguments.rounds} rounds with their spread")
        width = max(map(len, rows))
        for name, text in rows.items():
            print(f"{name:{width}}  {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(str(error))
