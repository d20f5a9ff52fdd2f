"""What a miss of answers by meaning costs in CPU time, without a verifier.

    python bench/answers_cost.py [--entries 1000] [--questions 300] [--json]

Questions of CLINC150: some become entries of one context, others are looked up, once each, through the whole path
(request read, vector, nearest entries, clusters, guards, prior, decision), with the default embedder, SQLite on disk,
and a warm cache. A round that looks up all of them fresh comes first: it also embeds the wordings that it comes upon in
the background. Then the cache forgets the questions, but not the wordings, and they are looked up again.

CPU time is that of the process, all threads together; the clock's resolution is that of `time.process_time`. Parts are
timed by themselves, one after the other, and so come out a little lower than in their places.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prefold.errors import PrefoldError
from prefold.responses.semantic.decision.clusters import Clusters
from prefold.responses.semantic.decision.decision import Decision
from prefold.responses.semantic.decision.weigh import weigh
from prefold.responses.semantic.embedders.embedding import Embedding
from prefold.responses.semantic.embedders.onnx_embedder import minilm
from prefold.responses.semantic.open_cache import open_cache
from prefold.responses.semantic.question import QuestionOptions, read_question
from prefold.responses.semantic.types import Answer, Entry, Question
from prefold.responses.semantic.wording.facts import facts
from prefold.responses.semantic.wording.features import pair_features

DATA = Path(__file__).resolve().parents[2] / "shared/data/semantic/clinc150_test.jsonl"
API = "/v1/chat/completions"
BAR_MS = 6.0


def request(text: str) -> dict[str, Any]:
    """As a client sends it."""
    return {"model": "any", "temperature": 0, "messages": [{"role": "user", "content": text}]}


def read(text: str) -> Question | None:
    """The question in a request; None where it may not be answered by meaning."""
    found = read_question(
        API, request(text), partition="bench", principal="", options=QuestionOptions(), by_credentials=False
    )
    return found if isinstance(found, Question) else None


async def cpu_ms(work: Callable[[str], Awaitable[object]], texts: Sequence[str], embedding: Embedding) -> list[float]:
    """CPU time of each call, what it left for the background included."""
    spent = []
    for text in texts:
        begun = time.process_time()
        await work(text)
        if embedding._running:
            await asyncio.wait(embedding._running.values())
        spent.append(1000 * (time.process_time() - begun))
    return spent


async def measure(entries: int, questions: int, folder: Path) -> dict[str, Any]:
    """All figures."""
    texts = [json.loads(line)["text"] for line in DATA.read_text("utf-8").splitlines()]
    known, asked = texts[0::2][:entries], texts[1::2]
    asked = [text for text in asked[:: max(1, len(asked) // (2 * questions))] if read(text)][:questions]
    embedder = minilm()
    async with open_cache(folder, embedder=embedder, deadline_seconds=5.0) as cache:
        for number, text in enumerate(known):
            question = read(text)
            if question is None:
                continue
            vector = embedder.embed([text])[0].tobytes()
            fingerprint, name, now = embedder.fingerprint, f"{number:032x}", time.time()
            await cache.entries.put(
                Entry(name, question, vector, fingerprint, Answer("An answer."), name, now, now + 3600)
            )

        async def look_up(text: str) -> None:
            question = read(text)
            if question is not None and (await cache.look_up(question)).hit is not None:
                raise SystemExit("answers_cost: a hit where there must be none")

        for text in asked[:20]:
            await look_up(text.upper())  # loads what is loaded lazily
        embedding = cache._embedding
        first = await cpu_ms(look_up, asked, embedding)
        for text in asked:  # so that only their wordings are remembered
            forget(embedding, text)
        again = await cpu_ms(look_up, asked, embedding)
        parts = await measure_parts(embedder, cache.entries, asked)
        counted = {reason.value: count for reason, count in cache.counts.misses.items()}
    return {
        "entries": len(known),
        "questions": len(asked),
        "misses": counted,
        "first_ms": spread(first),
        "again_ms": spread(again),
        "parts_ms": parts,
        "bar_ms": BAR_MS,
    }


def forget(embedding: Embedding, text: str) -> None:
    """Let a text be embedded again."""
    known = embedding._recent.pop(text)
    embedding._rows -= known.rows


async def measure_parts(embedder: Any, entries: Any, asked: Sequence[str]) -> dict[str, Any]:
    """Each part by itself, on the same questions."""
    clusters, decision = Clusters(embedder.size), Decision()
    questions = [question for text in asked if (question := read(text)) is not None]
    for known in await entries.wordings(questions[0], embedder.fingerprint):
        clusters.add(known.cluster, np.frombuffer(known.vector, "<f4"), known.text)
    if clusters.due:
        clusters.refresh()
    spent: dict[str, list[float]] = {}

    def timed(name: str, begun: float) -> None:
        spent.setdefault(name, []).append(1000 * (time.process_time() - begun))

    for question in questions:
        begun = time.process_time()
        read(question.text)
        timed("request read", begun)
        begun = time.process_time()
        embedder.embed([question.text])
        timed("vector", begun)
        begun = time.process_time()
        vector, own = embedder.embed_tokens(question.text)
        timed("vector, with those of tokens", begun)
        begun = time.process_time()
        near = await entries.nearest(question, vector.tobytes(), embedder.fingerprint, 8)
        timed("nearest entries", begun)
        _, other = embedder.embed_tokens(near[0].wording)
        both = {question.text: own, near[0].wording: other}
        one, two = facts(question.text), facts(near[0].wording)
        begun = time.process_time()
        pair_features(one, two, near[0].similarity, (own, other))
        timed("features of a pair", begun)
        begun = time.process_time()
        weighed = weigh(question, vector, near, clusters, both.get)
        timed("weighed: clusters, facts of both, features", begun)
        begun = time.process_time()
        decision.judge(weighed.pair)
        timed("decision", begun)
    return {name: spread(values) for name, values in spent.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, median and 95th percentile."""
    ordered = sorted(values)
    return {
        "mean": round(statistics.fmean(values), 3),
        "median": round(statistics.median(values), 3),
        "p95": round(ordered[int(0.95 * len(ordered))], 3),
    }


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(measure(arguments.entries, arguments.questions, Path(folder)))
    except (OSError, PrefoldError) as error:
        print(f"answers_cost: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(found))
        return 0
    print(f"{found['questions']} questions beside {found['entries']} entries; misses: {found['misses']}")
    print(f"{'CPU, ms':46}{'mean':>8}{'median':>8}{'p95':>8}")
    rows = {
        "miss, wordings met for the first time": found["first_ms"],
        "miss, wordings met before": found["again_ms"],
        **{f"  {name}": values for name, values in found["parts_ms"].items()},
    }
    for name, values in rows.items():
        print(f"{name:46}{values['mean']:8.2f}{values['median']:8.2f}{values['p95']:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
