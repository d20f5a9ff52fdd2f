"""Time the engine in process: a warm prefix against a cold one, and what a step costs beside the model.

    python bench/engine.py [--dtype bfloat16] [--rounds 7] [--json]

Cold and warm alternate within each round, on random tokens that the cache has not seen. Figures are medians with their
spread; the ratio is taken round by round.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

import platformdirs

from prefold import __version__
from prefold.core.tokens import pack
from prefold.engine.checkpoint import resolve
from prefold.engine.engine import Engine
from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.engine.request import Request, SamplingOptions

PROMPT, SHARED, BATCH, NEW = 2048, 2000, 32, 32


def seconds(engine: Engine, prompts: list[list[int]], new: int) -> float:
    """Time from submitting prompts until all of them have `new` tokens."""
    begin = time.perf_counter()
    for prompt in prompts:
        options = SamplingOptions(max_tokens=new, temperature=0.0, ignore_eos=True)
        engine.submit(Request(pack(prompt), options, lambda _: None))
    while engine.busy:
        engine.step()
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the engine in process.")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cache-dir", type=Path, default=platformdirs.user_cache_path("prefold"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    checkpoint = resolve(None, cache_dir=arguments.cache_dir, progress=lambda *_: None)
    begin = time.perf_counter()
    engine = load_engine(checkpoint, EngineOptions(dtype=arguments.dtype))
    loading = time.perf_counter() - begin
    rng = random.Random(time.time_ns())

    def tokens(count: int) -> list[int]:
        return [rng.randrange(40_000) for _ in range(count)]

    cold, warm, overhead = [], [], []
    for number in range(arguments.rounds + 1):  # the first one warms up and does not count
        print(f"round {number} of {arguments.rounds}", file=sys.stderr)
        shared = tokens(SHARED)
        pair = [seconds(engine, [shared + tokens(PROMPT - SHARED)], 1) for _ in range(2)]
        before = (engine.times.planning + engine.times.answering, engine.times.model)
        seconds(engine, [tokens(16) for _ in range(BATCH)], NEW)
        beside = engine.times.planning + engine.times.answering - before[0]
        if number:
            cold.append(pair[0])
            warm.append(pair[1])
            overhead.append(beside / (beside + engine.times.model - before[1]))
    ratios = [after / first for first, after in zip(cold, warm, strict=True)]
    rows = {
        f"TTFT of {PROMPT} tokens, cold, s": cold,
        f"TTFT with {SHARED} cached, s": warm,
        "warm / cold": ratios,
        f"beside the model, share of a step, {BATCH} decoding": overhead,
    }
    if arguments.json:
        figures = {
            name: {"median": statistics.median(row), "min": min(row), "max": max(row)} for name, row in rows.items()
        }
        print(json.dumps({"schema_version": 1, "prefold": __version__, "load_s": loading, "figures": figures}))
        return 0
    print(f"prefold {__version__}, {checkpoint.name}, {arguments.dtype}, loaded in {loading:.2f} s")
    for name, row in rows.items():
        print(f"{name:52} {statistics.median(row):8.4f}   {min(row):.4f}..{max(row):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
