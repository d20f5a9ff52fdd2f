"""Chats beside long prompts, in one process and in two roles: how long do tokens wait for one another?

    python bench/roles.py                       # five rounds of 40 s for each set-up
    python bench/roles.py --setup one --setup disk --rounds 3 --seconds 20 --json

Every set-up stands behind the same gateway, on the same cores, and gets the same requests at the same times, from a
seed: chats (short prompts, 64 new tokens, streamed) and long prompts (about 3,000 tokens, 8 new ones, streamed).

    one    one process with two threads
    small  the same in steps of 256 prompt tokens: shorter pauses, slower prompts
    pair   two processes with one thread each, that do both; `least_pending`
    disk   one process with one thread for prompts, one for answers, K/V through a folder in memory (/dev/shm)
    redis  the same through a Redis server (needs `redis-server`)

Set-ups take turns within each round, each with processes of its own, and prompts that no cache has seen. What counts is
the time between two events of a chat's stream: its median and 99th percentile over all chats of a round.

    python bench/roles.py --lengths 128,256,512,1024,2048

asks instead from which length on a hand-over pays: prompts of so many words come one by one while a chat is streamed,
straight and through both (`disk`). It prints their time to the first token, and the longest gap of the chat.

Exit codes: 0, 1 when a request failed or a set-up did not begin, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

SHM = Path("/dev/shm")
MODEL = "smollm2-135m-instruct"
WORDS = ("the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "as", "with", "his", "they")
SECONDS_TO_START = 120
TOLD = ("gap p50", "gap p99", "chat ttft p50", "long ttft p50")  # of each round, as it ends

talk = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Load:
    """What clients send.

    Attributes:
        seconds: that they come.
        chats: a second.
        longs: a second.
        chat_words, long_words: of a prompt; a word is a token.
        chat_tokens, long_tokens: new ones.
    """

    seconds: float
    chats: float
    longs: float
    chat_words: int = 40
    long_words: int = 2_960
    chat_tokens: int = 64
    long_tokens: int = 8

    def requests(self, seed: str) -> list[Request]:
        """In the order of their times: Poisson arrivals."""
        rng = random.Random(seed)
        found = []
        for kind, rate, words, tokens in (
            ("chat", self.chats, self.chat_words, self.chat_tokens),
            ("long", self.longs, self.long_words, self.long_tokens),
        ):
            at = rng.expovariate(rate)
            while at < self.seconds:
                found.append(Request(at, kind, " ".join(rng.choices(WORDS, k=words)), tokens))
                at += rng.expovariate(rate)
        return sorted(found, key=lambda request: request.at)


@dataclass(frozen=True)
class Request:
    """One of them."""

    at: float
    kind: str
    text: str
    tokens: int

    def body(self) -> bytes:
        """Encoded before the clock runs."""
        return json.dumps(
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": self.text}],
                "max_tokens": self.tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()


@dataclass
class Answer:
    """When the parts of an answer came, in seconds."""

    kind: str
    ttft: float = 0.0
    gaps: list[float] = field(default_factory=list)
    prompt: int = 0
    tokens: int = 0
    prefill: str = ""


# Set-ups


@contextmanager
def process(command: Sequence[str], ready: str) -> Iterator[str]:
    """A process that says something when it is ready; what it said is what the pattern finds."""
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(command, stdout=said, stderr=said, text=True)
        try:
            end = time.monotonic() + SECONDS_TO_START
            while True:
                said.seek(0)
                text = said.read()
                if found := re.search(ready, text):
                    yield found[1]
                    return
                if running.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{command[:4]} did not begin:\n{text[-2000:]}")
                time.sleep(0.1)
        finally:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def engine(*options: str) -> Any:
    command = [sys.executable, "-m", "prefold", "serve", "--port", "0", "--kv-memory", "1GiB", *options]
    return process(command, r"(http://127\.0\.0\.1:\d+)")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def one(stack: ExitStack) -> list[tuple[str, str]]:
    return [(stack.enter_context(engine("--threads", "2")), "both")]


def small(stack: ExitStack) -> list[tuple[str, str]]:
    return [(stack.enter_context(engine("--threads", "2", "--step-tokens", "256")), "both")]


def pair(stack: ExitStack) -> list[tuple[str, str]]:
    return [(stack.enter_context(engine("--threads", "1")), "both") for _ in range(2)]


def two_roles(stack: ExitStack, tier: str) -> list[tuple[str, str]]:
    return [
        (stack.enter_context(engine("--threads", "1", "--role", role, "--tier", tier)), role)
        for role in ("prefill", "decode")
    ]


def disk(stack: ExitStack) -> list[tuple[str, str]]:
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None))
    return two_roles(stack, f"disk={folder},4GiB")


def redis(stack: ExitStack) -> list[tuple[str, str]]:
    server = shutil.which("redis-server")
    if server is None:
        raise RuntimeError("there is no redis-server")
    port = free_port()
    command = [server, "--port", str(port), "--save", "", "--maxmemory", "4gb", "--maxmemory-policy", "allkeys-lru"]
    stack.enter_context(process(command, "(Ready to accept connections)"))
    return two_roles(stack, f"redis://127.0.0.1:{port}/0")


SETUPS: dict[str, Callable[[ExitStack], list[tuple[str, str]]]] = {
    "one": one,
    "small": small,
    "pair": pair,
    "disk": disk,
    "redis": redis,
}


@contextmanager
def serving(setup: str, prefill_tokens: int) -> Iterator[str]:
    """A set-up behind a gateway."""
    with ExitStack() as stack:
        replicas = SETUPS[setup](stack)
        tables = [
            f'[[replica]]\nname = "{role}-{number}"\nurl = "{url}"\nkind = "prefold"\nrole = "{role}"\n'
            for number, (url, role) in enumerate(replicas)
        ]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = folder / "gateway.toml"
        routing = f'[routing]\npolicy = "least_pending"\nprefill-tokens = {prefill_tokens}\n'
        path.write_text("\n".join([*tables, routing, "[health]\nverify-caching = false\n"]))
        command = [sys.executable, "-m", "prefold", "serve", "--config", str(path), "--port", "0"]
        yield stack.enter_context(process(command, r"(http://127\.0\.0\.1:\d+)"))


# Measuring


async def ask(session: aiohttp.ClientSession, url: str, kind: str, body: bytes) -> Answer:
    """Send a request, and note when events came."""
    answer = Answer(kind)
    begun = time.perf_counter()
    last = 0.0
    headers = {"content-type": "application/json"}
    async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {(await response.text())[:200]}")
        answer.prefill = response.headers.get("x-prefold-prefill", "")
        async for line in response.content:
            now = time.perf_counter()
            if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                continue
            event = json.loads(line[5:])
            if usage := event.get("usage"):
                answer.prompt, answer.tokens = usage["prompt_tokens"], usage["completion_tokens"]
            elif event["choices"] and event["choices"][0]["delta"].get("content"):
                if last:
                    answer.gaps.append(now - last)
                else:
                    answer.ttft = now - begun
                last = now
    return answer


async def play(url: str, load: Load, seed: str) -> dict[str, float]:
    """One round at one set-up. Returns its figures, by their names."""
    requests = [(request, request.body()) for request in load.requests(seed)]
    connector, timeout = aiohttp.TCPConnector(limit=0, force_close=True), aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        for kind, words in (("long", 1_500), ("chat", load.chat_words)):  # what is only slow at first
            rng = random.Random(f"{seed}/warm/{kind}")
            warm = Request(0, kind, " ".join(rng.choices(WORDS, k=words)), 8)
            for _ in range(2):
                await ask(session, url, kind, warm.body())
        begun = time.perf_counter()

        async def at_its_time(request: Request, body: bytes) -> Answer:
            await asyncio.sleep(max(0.0, begun + request.at - time.perf_counter()))
            return await ask(session, url, request.kind, body)

        answers = await asyncio.gather(*[at_its_time(request, body) for request, body in requests])
        seconds = time.perf_counter() - begun
    return figures(answers, seconds)


async def one_by_one(url: str, lengths: Sequence[int], times: int, seed: str) -> dict[int, dict[str, float]]:
    """Prompts of each length beside a chat. Returns medians, by length."""
    found: dict[int, dict[str, float]] = {}
    rng = random.Random(seed)
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as session:
        for length in (lengths[-1], *lengths):  # the first one is not counted
            ttfts, gaps = [], []
            for _ in range(times):
                chat = Request(0, "chat", " ".join(rng.choices(WORDS, k=40)), 400)
                running = asyncio.create_task(ask(session, url, "chat", chat.body()))
                await asyncio.sleep(1.0)
                prompt = Request(0, "long", " ".join(rng.choices(WORDS, k=length)), 4)
                ttfts.append((await ask(session, url, "long", prompt.body())).ttft)
                gaps.append(max((await running).gaps[10:]))  # behind its own beginning
            found[length] = {"ttft": statistics.median(ttfts), "gap": statistics.median(gaps)}
    return found


def compare(lengths: Sequence[int], rounds: int, seed: str) -> dict[str, dict[int, dict[str, float]]]:
    """Prompts straight to the engine for answers, and through both."""
    found = {}
    for name, least in (("straight", 1_000_000), ("through both", 1)):
        with serving("disk", least) as url:
            found[name] = asyncio.run(one_by_one(url, lengths, rounds, f"{seed}/{name}"))
    return found


def figures(answers: list[Answer], seconds: float) -> dict[str, float]:
    chats = [answer for answer in answers if answer.kind == "chat"]
    longs = [answer for answer in answers if answer.kind == "long"]
    gaps = [gap for answer in chats for gap in answer.gaps]
    return {
        "gap p50": percentile(gaps, 50),
        "gap p99": percentile(gaps, 99),
        "gap max": max(gaps),
        "chat ttft p50": percentile([answer.ttft for answer in chats], 50),
        "chat ttft p99": percentile([answer.ttft for answer in chats], 99),
        "long ttft p50": percentile([answer.ttft for answer in longs], 50),
        "long ttft p99": percentile([answer.ttft for answer in longs], 99),
        "tokens/s": sum(answer.prompt + answer.tokens for answer in answers) / seconds,
        "long prompt": statistics.mean(answer.prompt for answer in longs),
        "handed over": sum(bool(answer.prefill) for answer in answers),
    }


def percentile(values: Sequence[float], percent: int) -> float:
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-len(ordered) * percent // 100) - 1)]


def draw(results: dict[str, list[dict[str, float]]]) -> Table:
    table = Table(title="Medians of the rounds (least..most), times in ms", title_justify="left")
    names = list(next(iter(results.values()))[0])
    table.add_column("set-up")
    for name in names:
        table.add_column(name, justify="right")
    for setup, rounds in results.items():
        cells = []
        for name in names:
            values = [one_round[name] for one_round in rounds]
            if "gap" in name or "ttft" in name:
                values = [1_000 * value for value in values]
            cells.append(f"{statistics.median(values):,.0f} ({min(values):,.0f}..{max(values):,.0f})")
        table.add_row(setup, *cells)
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--setup", action="append", choices=[*SETUPS], help="repeatable; all where none is named")
    add("--rounds", type=int, default=5)
    add("--seconds", type=float, default=40.0, help="of arrivals in a round (40)")
    add("--chats", type=float, default=0.6, help="a second (0.6)")
    add("--longs", type=float, default=0.12, help="a second (0.12)")
    add("--long-words", type=int, default=2_960, help="of a long prompt (2,960)")
    add("--prefill-tokens", type=int, default=512, help="from which on prompts are handed over (512)")
    add("--lengths", default="", metavar="N,...", help="compare prompts of so many words, straight and through both")
    add("--seed", default="", help="repeat the requests of an earlier run")
    add("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or min(options.seconds, options.chats, options.longs) <= 0:
        parser.error("--rounds, --seconds, --chats and --longs must be positive")
    load = Load(options.seconds, options.chats, options.longs, long_words=options.long_words)
    seed, busy, cpus = options.seed or secrets.token_hex(4), os.getloadavg()[0], os.cpu_count() or 1
    if busy > cpus / 4:
        talk.print(f"the machine is busy (load {busy:.1f} on {cpus} cores): these figures are noisy", style="yellow")
    if options.lengths:
        lengths = [int(length) for length in options.lengths.split(",")]
        print(json.dumps(compare(lengths, options.rounds, seed), indent=2))
        return 0
    setups = options.setup or [*SETUPS]
    results: dict[str, list[dict[str, float]]] = {setup: [] for setup in setups}
    try:
        for number in range(options.rounds):
            turn = number % len(setups)
            for setup in setups[turn:] + setups[:turn]:
                with serving(setup, options.prefill_tokens) as url:
                    found = asyncio.run(play(url, load, f"{seed}/{number}"))
                results[setup].append(found)
                told = ", ".join(f"{name} {1_000 * found[name]:.0f} ms" for name in TOLD)
                talk.print(f"round {number + 1} of {options.rounds}: {setup}, {told}")
    except (RuntimeError, aiohttp.ClientError, TimeoutError) as error:
        talk.print(f"failed: {error}", style="red")
        return 1
    about = {"rounds": options.rounds, "seed": seed, "cpus": cpus, "load_before": round(busy, 2), "load": asdict(load)}
    if options.json:
        print(json.dumps({"schema_version": 1, **about, "results": results}, indent=2))
    else:
        Console(width=max(Console().width, 200)).print(draw(results))
        print(", ".join(f"{key} {value}" for key, value in about.items() if key != "load"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
