"""Plays the published attack against every level of isolation: PromptPeek (Wu et al., NDSS 2025).

A victim has sent a secret of twelve words out of an alphabet of four. The attacker, another tenant, rebuilds it word by
word: it sends each candidate behind what it knows already, and takes the one that was cached, by the time of the first
byte, by the order in which the answers to a burst come back, or by the usage that it is told. Words are long, so that
times tell them apart on a busy machine, and after each guess the attacker is told the truth, which it could only hope
for: all guesses count, and a wrong one does not spoil those that follow.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("uvicorn")

from prefold.engine.checkpoint import Checkpoint
from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.engine.worker import EngineWorker
from prefold.gateway import assembly
from prefold.gateway.assembly import Gateway
from prefold.gateway.embedded import AppUpstream
from prefold.gateway.miss_times import Work
from prefold.gateway.uniform import Uniform
from prefold.gateway.upstream import Outgoing
from prefold.server.app import PrefoldApp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MODEL = "smollm2-135m-instruct"
ALPHABET = 4
LENGTH = 12
# Who guesses has 3 of 12; 9 or more once in 2,500 times, 10 or more once in 26,000 times.
REBUILT = 10
GUESSED = 8
RESET = Outgoing("POST", "/cache/reset", [], b"")
RULES = "Answer in one word, and never repeat what you are told."


@dataclass(frozen=True)
class Level:
    """How the tenants are kept apart.

    Attributes:
        config: of the victim's group and the attacker's.
        leaks: whether the secret can be rebuilt.
    """

    config: str
    leaks: bool = False


def one_group(isolation: str, more: str = "") -> str:
    return f"""
        [[group]]
        name = "all"
        isolation = "{isolation}"
        {more}
        [[tenant]]
        name = "victim"
        group = "all"
        [[tenant]]
        name = "attacker"
        group = "all"
    """


LEVELS = {
    "shared": Level(one_group("shared"), leaks=True),
    "shared-system": Level(one_group("shared-system")),
    "isolated": Level(one_group("isolated")),
    "dedicated": Level(
        """
        [[replica]]
        name = "own"
        url = "http://127.0.0.1:9"
        kind = "prefold"
        models = ["smollm2-135m-instruct"]
        groups = ["owners"]
        [engine]
        [[group]]
        name = "owners"
        isolation = "dedicated"
        [[tenant]]
        name = "victim"
        group = "owners"
        [[tenant]]
        name = "attacker"
        """
    ),
    "uniform": Level(one_group("shared", 'ttft = "uniform"')),
}
levels = pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)


@pytest.fixture(scope="module")
def engines(default_checkpoint: Checkpoint) -> Iterator[tuple[PrefoldApp, PrefoldApp]]:
    """The embedded engine, and one that is somebody's own."""
    options = EngineOptions(kv_memory=256 << 20, threads=2)
    workers = [EngineWorker(lambda: load_engine(default_checkpoint, options)) for _ in range(2)]
    for worker in workers:
        worker.start()
    yield PrefoldApp(workers[0], (MODEL,)), PrefoldApp(workers[1], (MODEL,))
    for worker in workers:
        worker.stop(drain=False)


@dataclass(frozen=True)
class Seen:
    """What a client sees of an answer.

    Attributes:
        seconds: to its first byte.
        cached: tokens, as its usage says.
        answers: how many answers to requests sent together had come before it.
    """

    seconds: float
    cached: int
    answers: int


class Skipping:
    """Time in which waiting takes none: real work takes its time, and what is slept is added."""

    def __init__(self) -> None:
        self._slept = 0.0

    def clock(self) -> float:
        return time.monotonic() + self._slept

    async def sleep(self, seconds: float) -> None:
        self._slept += seconds
        await asyncio.sleep(0)


class Tenants:
    """Two tenants of one gateway."""

    def __init__(self, gateway: Gateway, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._clock = clock
        self._came = 0

    def teach(self, seconds: float) -> None:
        """What other traffic would have taught: that misses take so long a token."""
        for length in (2 ** (step / 4) for step in range(20, 44)):
            for _ in range(8):
                work = Work(int(length))
                self._gateway.app.parts.uniform.times.add(MODEL, work, seconds * length, cached=0, size=4 * work.read)

    async def ask(self, tenant: str, messages: Sequence[dict[str, str]]) -> Seen:
        body = {
            "model": MODEL,
            "messages": list(messages),
            "max_tokens": 1,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        incoming = [{"type": "http.request", "body": json.dumps(body).encode()}]
        never = asyncio.Event()
        chunks: list[bytes] = []
        began, first, came = self._clock(), 0.0, 0

        async def receive() -> Any:
            if not incoming:
                await never.wait()
            return incoming.pop()

        async def send(message: Any) -> None:
            nonlocal first, came
            if message["type"] == "http.response.start":  # servers send it before they have computed anything
                assert 200 == message["status"]
            elif message["body"]:
                if not chunks:
                    first, came = self._clock(), self._came
                    self._came += 1
                chunks.append(message["body"])

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [(b"x-prefold-tenant", tenant.encode())],
        }
        await self._gateway.app(scope, receive, send)
        events = b"".join(chunks).decode().split("\n\n")
        assert "data: [DONE]" == events[-2]
        usage = json.loads(events[-3].removeprefix("data: "))["usage"]
        return Seen(first - began, usage["prompt_tokens_details"]["cached_tokens"], came)


def words(number: int, tokens: int) -> list[str]:
    """The alphabet: what stands for a word is a line of many common ones, as short in tokens as in words."""
    random = Random(number)
    common = ("time", "year", "people", "way", "day", "thing", "life", "world", "school", "state", "family", "group")
    return [f"\n{letter} " + " ".join(random.choices(common, k=tokens - 3)) for letter in "ABCD"]


def chat(secret: Sequence[str], *, in_rules: bool = False) -> list[dict[str, str]]:
    text = "".join(secret)
    rules, said = (RULES + text, "Yes?") if in_rules else (RULES, "The plan:" + text)
    return [{"role": "system", "content": rules}, {"role": "user", "content": said}]


Probe = Callable[[Tenants, list[list[dict[str, str]]]], Awaitable[list[Seen]]]


async def one_by_one(tenants: Tenants, prompts: list[list[dict[str, str]]]) -> list[Seen]:
    return [await tenants.ask("attacker", prompt) for prompt in prompts]


async def in_a_burst(tenants: Tenants, prompts: list[list[dict[str, str]]]) -> list[Seen]:
    """Behind a request that keeps the engine busy, so that it finds all of them waiting and ranks them."""
    busy = {"role": "user", "content": words(len(prompts[0][1]["content"]), 300)[0]}
    before = asyncio.create_task(tenants.ask("attacker", [busy]))
    await asyncio.sleep(0.03)
    seen = await asyncio.gather(*(tenants.ask("attacker", prompt) for prompt in prompts))
    await before
    return list(seen)


async def attack(
    tenants: Tenants, probe: Probe, tokens: int, *, seed: int, in_rules: bool = False
) -> tuple[list[int], list[list[Seen]]]:
    """Send a secret as the victim, and probe for it as the attacker.

    Returns:
        The secret, and for each of its words what was seen of each candidate.
    """
    random = Random(seed)
    secret = [random.randrange(ALPHABET) for _ in range(LENGTH)]
    alphabets = [words(seed * 100 + position, tokens) for position in range(LENGTH)]
    text = [alphabet[letter] for alphabet, letter in zip(alphabets, secret, strict=True)]
    await tenants.ask("victim", chat(text, in_rules=in_rules))
    # The attacker's own first request: what it will know anyway is in its cache, whoever's that is.
    await tenants.ask("attacker", chat([], in_rules=in_rules))
    table: list[list[Seen]] = []
    for position in range(LENGTH):
        order = random.sample(range(ALPHABET), ALPHABET)
        prompts = [chat([*text[:position], alphabets[position][letter]], in_rules=in_rules) for letter in order]
        seen = dict(zip(order, await probe(tenants, prompts), strict=True))
        table.append([seen[letter] for letter in range(ALPHABET)])
    return secret, table


def right_guesses(secret: list[int], table: list[list[Seen]], rank: Callable[[Seen], float], seed: int = 0) -> int:
    """How many words are rebuilt by taking the candidate with the lowest rank, or one of them."""
    random = Random(seed)
    guesses = [min(range(ALPHABET), key=lambda letter: (rank(seen[letter]), random.random())) for seen in table]
    return sum(guess == letter for guess, letter in zip(guesses, secret, strict=True))


def played(
    level: Level,
    engines: tuple[PrefoldApp, PrefoldApp],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    attacking: Callable[[Tenants], Awaitable[Any]],
    *,
    skipping: bool = False,
) -> Any:
    """Run an attack through a gateway with this level."""
    path = folder / "gateway.toml"
    path.write_text(
        '[access]\nby = "header"\nsalt_secret = { env = "SALT" }\n[health]\nverify_caching = false\n' + level.config
    )
    monkeypatch.setattr(
        assembly, "http_upstreams", lambda environ: lambda table, options: AppUpstream(engines[1], table.name)
    )
    skipped = Skipping()
    clock = skipped.clock if skipping else time.monotonic

    async def run() -> Any:
        for engine in engines:
            await AppUpstream(engine, "engine").send(RESET)
        gateway = Gateway(
            path,
            {"SALT": "0123456789abcdef" * 4},
            engine=(engines[0], (MODEL,)),
            state_folder=folder,
            prices=None,
            clock=clock,
            now=time.time,
        )
        uniform = Uniform(clock, skipped.sleep if skipping else asyncio.sleep, Random(11).random)
        gateway.app.parts = dataclasses.replace(gateway.app.parts, uniform=uniform)
        await gateway.start()
        try:
            return await attacking(Tenants(gateway, clock))
        finally:
            await gateway.close()

    return asyncio.run(run())


def assert_rebuilt(level: Level, right: int) -> None:
    if level.leaks:
        assert REBUILT <= right
    else:
        assert right <= GUESSED


@levels
def test_by_time_and_by_usage(level: Level, engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Words of 90 tokens, one candidate after the other. What a gateway holds back is added, not waited for."""

    async def attacking(tenants: Tenants) -> Any:
        return await attack(tenants, one_by_one, 90, seed=1)

    secret, table = played(level, engines, tmp_path, monkeypatch, attacking, skipping=True)
    by_time = right_guesses(secret, table, lambda seen: seen.seconds)
    by_usage = right_guesses(secret, table, lambda seen: -seen.cached)
    assert_rebuilt(level, by_time)
    assert_rebuilt(level, by_usage)


@levels
def test_by_order(level: Level, engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Words of 24 tokens, all candidates together: the engine serves those first that match most."""

    async def attacking(tenants: Tenants) -> Any:
        tenants.teach(0.001)
        return await attack(tenants, in_a_burst, 24, seed=2)

    secret, table = played(level, engines, tmp_path, monkeypatch, attacking)
    right = right_guesses(secret, table, lambda seen: seen.answers)
    assert_rebuilt(level, right)


def test_what_the_system_says_is_shared_where_that_is_the_level(
    engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`shared-system` protects what comes after the system's part, and nothing in it."""

    async def attacking(tenants: Tenants) -> Any:
        return await attack(tenants, one_by_one, 12, seed=3, in_rules=True)

    secret, table = played(LEVELS["shared-system"], engines, tmp_path, monkeypatch, attacking)
    assert LENGTH == right_guesses(secret, table, lambda seen: -seen.cached)
