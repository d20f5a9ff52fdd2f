"""Blending against full recompute: chunks of real text in a new order, on the default model.

    python bench/blend.py [--draws 10] [--shares 0.05,0.15,0.3] [--dtype bfloat16] [--kernel auto] [--json]

Each draw is a chat prompt of 8 chunks of 256 tokens, pieces of Python's own help texts (`pydoc_data.topics`) under
different headings, and a question. Every chunk's K and V are known, from the chunk alone. Then the prompt is computed
in full and blended at each share, by turns, and judged by what follows:

    TTFT         time of the step that gives the first token, beside full recompute's in the same draw
    next token   the share of 32 positions at which the likeliest token is the same, each after the full recompute's own
                 tokens up to there
    answer       the share of 32 tokens, generated freely, that are the same at the same place
    KL           of the distributions at these 32 positions, in nats, full recompute's first

No question has one right answer, and the texts are hard for a model of 135 M parameters: whether an answer is good is
not judged, only whether it is the same.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics

import platformdirs
import torch

from prefold import __version__
from prefold.core.keys import SHARED
from prefold.core.tokens import count, pack
from prefold.engine.blend.blender import Blender
from prefold.engine.checkpoint import resolve
from prefold.engine.engine import Engine
from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.engine.plan import Batch, Item

CHUNKS, CHUNK, NEW = 8, 256, 32
QUESTIONS = (
    "What do these passages say about names? Answer in one short paragraph.",
    "Which passage speaks of exceptions, and what does it say?",
    "Give three facts from the passages above.",
    "List the topics of the passages in order.",
    "What is the most important rule in the passages?",
    "Explain the second passage in simple words.",
)
SYSTEM = "You answer questions from the passages that you are given."


@dataclass(frozen=True)
class Draw:
    """A prompt and where its chunks stand."""

    prompt: bytes
    chunks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Outcome:
    """What one way of computing a prompt gave: seconds, and logits of the next tokens, (NEW, V)."""

    seconds: float
    logits: torch.Tensor


def draw(engine: Engine, rng: random.Random) -> Draw:
    """A prompt that nobody has sent."""

    def encode(text: str) -> list[int]:
        return engine.tokenizer.encode(text, add_special=False)

    run = encode(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n")
    chunks = []
    for name in rng.sample(sorted(name for name, text in topics.items() if len(text) > 3000), CHUNKS):
        text = encode(topics[name])
        start = rng.randrange(max(1, len(text) - CHUNK))
        chunks.append((len(run), len(run) + len(text[start : start + CHUNK])))
        run += [*text[start : start + CHUNK], *encode("\n\n")]
    run += encode(f"Question: {rng.choice(QUESTIONS)}<|im_end|>\n<|im_start|>assistant\n")
    return Draw(pack(run), tuple(chunks))


def compute(engine: Engine, blender: Blender, one: Draw, follow: list[int] | None) -> Outcome:
    """Run a prompt, chunks reused where the blender knows them, and then tokens that are given, or those it likes."""
    length = count(one.prompt)
    slots = ((0, length + NEW),)
    begin = one.chunks[0][0]
    decoder, pool = blender.decoder, engine.kv
    head = torch.frombuffer(bytearray(one.prompt), dtype=torch.int32).to(torch.int64)[:begin]
    start = time.perf_counter()
    everything = torch.arange(begin)
    items = (Item(((0, begin),), ((0, begin),), causal=True, first=True),)
    decoder.forward(Batch(head, everything, everything, everything[-1:], pool.prepare(items)), pool)
    first, _ = blender.run(one.prompt, one.chunks, SHARED, begin, slots)
    rows, seconds = [first[0]], time.perf_counter() - start

    def go_on(tokens: list[int], at: int) -> torch.Tensor:
        size = len(tokens)
        items = (
            Item(((0, size),), ((at, at + size),), causal=True, first=True),
            Item(((0, size),), ((0, at),), causal=False, first=False),
        )
        place = torch.arange(at, at + size)
        return decoder.forward(Batch(torch.tensor(tokens), place, place, torch.arange(size), pool.prepare(items)), pool)

    if follow is not None:
        return Outcome(seconds, torch.cat((first, go_on(follow[:-1], length))))
    while len(rows) < NEW:
        rows.append(go_on([int(rows[-1].argmax())], length + len(rows) - 1)[0])
    return Outcome(seconds, torch.stack(rows))


@dataclass
class Figures:
    """What came out, a number for each draw."""

    full: list[float] = field(default_factory=list)
    learning: list[float] = field(default_factory=list)
    by_share: dict[float, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, share: float, name: str, value: float) -> None:
        """Note one."""
        self.by_share.setdefault(share, {}).setdefault(name, []).append(value)


def measure(engine: Engine, draws: int, shares: list[float], seed: int) -> Figures:
    """Run all draws."""
    assert engine.blender is not None, engine.blend_refusal
    decoder = engine.blender.decoder
    full, known = (Blender(decoder, engine.kv, 0.0, 1 << 30, engine.device) for _ in range(2))  # the first never learns
    ways = {share: Blender(decoder, engine.kv, share, 0, engine.device) for share in shares}
    rng = random.Random(seed)
    figures = Figures()
    for number in range(draws):
        print(f"draw {number + 1} of {draws}", file=sys.stderr)
        one = draw(engine, rng)
        if not number:
            compute(engine, full, one, [0] * NEW)  # warms up
        exact = compute(engine, full, one, None)
        figures.full.append(exact.seconds)
        likeliest = exact.logits.argmax(-1).tolist()
        expected = exact.logits.log_softmax(-1)
        begin = time.perf_counter()
        known.note(one.prompt, one.chunks, SHARED)
        while known.learning:
            known.learn(engine.options.step_tokens)
        figures.learning.append((time.perf_counter() - begin) / exact.seconds)
        for share, way in ways.items():
            way.store = known.store
            again = compute(engine, full, one, likeliest).seconds
            outcome = compute(engine, way, one, likeliest)
            free = compute(engine, way, one, None).logits.argmax(-1).tolist()
            given = outcome.logits.log_softmax(-1)
            divergence = (expected.exp() * (expected - given)).sum(-1)
            figures.add(share, "TTFT", outcome.seconds / again)
            figures.add(share, "next token", equal(outcome.logits.argmax(-1).tolist(), likeliest))
            figures.add(share, "answer", equal(free, likeliest))
            figures.add(share, "KL", divergence.mean().item())
            figures.add(share, "KL of the first token", divergence[0].item())
    return figures


def equal(tokens: list[int], others: list[int]) -> float:
    """Share of places at which two lists of the same length are equal."""
    return statistics.mean(float(one == other) for one, other in zip(tokens, others, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description="Blending against full recompute.")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--shares", default="0.05,0.15,0.3", help="comma-separated")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--kernel", choices=("auto", "native", "torch"), default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache-dir", type=Path, default=platformdirs.user_cache_path("prefold"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    options = EngineOptions(
        dtype=arguments.dtype, kernel=arguments.kernel, threads=arguments.threads, kv_memory=256 << 20, blend=True
    )
    engine = load_engine(resolve(None, cache_dir=arguments.cache_dir, progress=lambda *_: None), options)
    shares = [float(share) for share in arguments.shares.split(",")]
    figures = measure(engine, arguments.draws, shares, arguments.seed)
    learning = statistics.median(figures.learning)
    if arguments.json:
        rows = {
            str(share): {name: spread(values) for name, values in row.items()}
            for share, row in figures.by_share.items()
        }
        print(json.dumps({"schema_version": 1, "prefold": __version__, "learning": learning, "shares": rows}))
        return 0
    print(f"prefold {__version__}, {arguments.dtype}, {type(engine.kv).__name__}, {arguments.draws} draws of")
    print(f"{CHUNKS} chunks of {CHUNK} tokens; full recompute {statistics.median(figures.full):.2f} s")
    print(f"computing the chunks by themselves takes {learning:.2f} of that, once, behind the first token")
    for share, row in figures.by_share.items():
        print(f"\nrecomputed {share:<4.0%}            median   mean   min .. max")
        for name, values in row.items():
            seen = spread(values)
            print(f"  {name:22}  {seen['median']:6.3f} {seen['mean']:6.3f}   {seen['min']:.3f} .. {seen['max']:.3f}")
    return 0


def spread(values: list[float]) -> dict[str, float]:
    """Median, mean and extremes."""
    return {
        "median": statistics.median(values),
        "mean": statistics.mean(values),
        "min": min(values),
        "max": max(values),
    }


if __name__ == "__main__":
    sys.exit(main())
