"""Time K/V that comes back from memory and from disk, and count what tiers save.

    python bench/tiers.py [--rounds 5] [--sessions 20] [--turns 10] [--part first|restart|sessions] [--json]

The default model, in process. First: 2,048 tokens of which 2,000 were evicted into memory, against the same number
cold, alternating. Restart: the same from disk, by an engine that was just made. Sessions: chats that take turns and
whose K/V is four times the pool, with the pool alone and with memory and disk below it. Figures are medians with their
spread; ratios are taken round by round.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from prefold import __version__
from prefold.core.tokens import pack
from prefold.engine.checkpoint import Checkpoint, resolve
from prefold.engine.engine import Engine
from prefold.engine.loading import load_engine
from prefold.engine.options import DType, EngineOptions
from prefold.engine.request import Output, Request, SamplingOptions

PROMPT, SHARED = 2048, 2000
PARTS = ("first", "restart", "sessions")


class Bench:
    """Engines on one model, and prompts that no cache has seen."""

    def __init__(self, checkpoint: Checkpoint, dtype: DType) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._draw = random.Random(time.time_ns())
        probe = load_engine(checkpoint, EngineOptions(dtype=dtype, kv_memory=64 << 20))
        self._bytes_per_token = probe.kv.bytes_per_token
        probe.close()

    def engine(self, pool_tokens: int, *tiers: str) -> Engine:
        """An engine whose pool has room for so many tokens."""
        memory = pool_tokens * self._bytes_per_token
        return load_engine(self._checkpoint, EngineOptions(dtype=self._dtype, kv_memory=memory, tiers=tiers))

    def size(self, tokens: int) -> str:
        """Memory for so many tokens, as an option takes it."""
        return f"{tokens * self._bytes_per_token}B"

    def tokens(self, count: int) -> list[int]:
        """Tokens drawn anew."""
        return [self._draw.randrange(40_000) for _ in range(count)]


def ask(engine: Engine, prompts: Sequence[list[int]], new: int = 1) -> tuple[float, list[list[int]]]:
    """Seconds until all prompts have `new` tokens, and these."""
    answers: list[list[int]] = [[] for _ in prompts]
    begin = time.perf_counter()
    for prompt, answer in zip(prompts, answers, strict=True):

        def take(output: Output, answer: list[int] = answer) -> None:
            answer.extend(output.tokens)

        options = SamplingOptions(max_tokens=new, temperature=0.0, ignore_eos=True)
        engine.submit(Request(pack(prompt), options, take))
    while engine.busy:
        if not engine.step() and engine.loading is not None:
            time.sleep(1e-4)
    return time.perf_counter() - begin, answers


def first_token(bench: Bench, rounds: int) -> dict[str, list[float]]:
    """Cold, from the pool, and from memory, alternating."""
    engine = bench.engine(PROMPT * 5 // 4, f"host={bench.size(8 * PROMPT)}")
    rows: dict[str, list[float]] = {"cold, s": [], "in the pool, s": [], "from memory, s": [], "memory / cold": []}
    for number in range(-1, rounds + 1):  # the first ones warm up, and use all of the memory for the first time
        print(f"first token: round {number} of {rounds}", file=sys.stderr)
        shared = bench.tokens(SHARED)
        cold, _ = ask(engine, [shared + bench.tokens(PROMPT - SHARED)])
        pool, _ = ask(engine, [shared + bench.tokens(PROMPT - SHARED)])
        ask(engine, [bench.tokens(engine.cache.capacity - 2)])  # evicts what is shared; the others evict as well
        before = sum(engine.ladder.loaded.values()) if engine.ladder else 0
        memory, _ = ask(engine, [shared + bench.tokens(PROMPT - SHARED)])
        if not engine.ladder or sum(engine.ladder.loaded.values()) - before < SHARED - 64:
            print("  (not loaded from memory)", file=sys.stderr)
        if number > 0:
            for name, value in zip(rows, (cold, pool, memory, memory / cold), strict=True):
                rows[name].append(value)
    engine.close(lambda: True)
    return {f"{PROMPT} tokens, {SHARED} known: {name}": row for name, row in rows.items()}


def restart(bench: Bench, rounds: int) -> dict[str, list[float]]:
    """Cold, and from disk in an engine that was just made."""
    rows: dict[str, list[float]] = {"cold, s": [], "from disk, s": [], "disk / cold": []}
    for number in range(rounds + 1):
        print(f"restart: round {number} of {rounds}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            disk = f"disk={folder},4GiB"
            shared = bench.tokens(SHARED)
            engine = bench.engine(2 * PROMPT, disk)
            for _ in range(2):
                ask(engine, [shared + bench.tokens(PROMPT - SHARED)])
            engine.close()
            engine = bench.engine(2 * PROMPT, disk)
            ask(engine, [bench.tokens(512)])  # torch's own warm-up
            cold, _ = ask(engine, [bench.tokens(PROMPT)])
            warm, _ = ask(engine, [shared + bench.tokens(PROMPT - SHARED)])
            if engine.ladder is None or engine.ladder.loaded["disk"] < SHARED - 64:
                print("  (not loaded from disk)", file=sys.stderr)
            engine.close(lambda: True)
        if number:
            for name, value in zip(rows, (cold, warm, warm / cold), strict=True):
                rows[name].append(value)
    return {f"{PROMPT} tokens, {SHARED} known, after a restart: {name}": row for name, row in rows.items()}


def sessions(bench: Bench, rounds: int, number: int, turns: int) -> dict[str, list[float]]:
    """Chats that take turns, with and without tiers; their K/V is four times the pool at the end."""
    opening, question, new = 600, 60, 40
    longest = opening + turns * (question + new)
    pool = number * longest // 4
    needed = number * (opening + turns * question)  # input tokens that were never seen before
    kinds = {"pool alone": False, "memory and disk": True}
    rows: dict[str, list[float]] = {}
    for at in range(rounds):
        openings = [bench.tokens(opening) for _ in range(number)]
        questions = [[bench.tokens(question) for _ in range(number)] for _ in range(turns)]
        order = list(kinds) if at % 2 == 0 else list(kinds)[::-1]
        took: dict[str, float] = {}
        for kind in order:
            print(f"sessions: round {at + 1} of {rounds}, {kind}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as folder:
                tiers = (f"host={bench.size(2 * pool)}", f"disk={folder},8GiB") if kinds[kind] else ()
                engine = bench.engine(pool, *tiers)
                ask(engine, [bench.tokens(512)])
                base, before = engine.scheduler.computed_tokens, engine.cache.counters.input
                chats = [list(tokens) for tokens in openings]
                begin = time.perf_counter()
                for turn in questions:
                    for chat, words in zip(chats, turn, strict=True):
                        chat.extend(words)
                        chat.extend(ask(engine, [chat], new)[1][0])
                took[kind] = time.perf_counter() - begin
                total = engine.cache.counters.input - before
                again = engine.scheduler.computed_tokens - base - needed
                rows.setdefault(f"sessions, {kind}: computed again, share of input", []).append(again / total)
                rows.setdefault(f"sessions, {kind}, s", []).append(took[kind])
                if engine.ladder is not None:
                    print(f"  loaded {dict(engine.ladder.loaded)}, late {engine.ladder.late}", file=sys.stderr)
                engine.close(lambda: True)
        rows.setdefault("sessions: time with tiers / without", []).append(took["memory and disk"] / took["pool alone"])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="Time K/V tiers.")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--part", choices=PARTS, action="append", help="leave out the others")
    parser.add_argument("--cache-dir", type=Path, default=platformdirs.user_cache_path("prefold"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    checkpoint = resolve(None, cache_dir=arguments.cache_dir, progress=lambda *_: None)
    bench = Bench(checkpoint, arguments.dtype)
    parts = arguments.part or PARTS
    rows: dict[str, list[float]] = {}
    if "first" in parts:
        rows |= first_token(bench, arguments.rounds)
    if "restart" in parts:
        rows |= restart(bench, arguments.rounds)
    if "sessions" in parts:
        rows |= sessions(bench, min(arguments.rounds, 3), arguments.sessions, arguments.turns)
    if arguments.json:
        figures = {
            name: {"median": statistics.median(row), "min": min(row), "max": max(row)} for name, row in rows.items()
        }
        print(json.dumps({"schema_version": 1, "prefold": __version__, "figures": figures}))
        return 0
    print(f"prefold {__version__}, {checkpoint.name}, {arguments.dtype}")
    for name, row in rows.items():
        print(f"{name:72} {statistics.median(row):8.4f}   {min(row):.4f}..{max(row):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
