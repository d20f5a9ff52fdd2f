"""Measure answers by meaning on every set of their bars, and GPTCache beside them.

    python bench/answers.py [--verifier onnx:FOLDER] [--gptcache PYTHON] [--only NAME] [--json]

What is fitted comes from other pairs, or from earlier questions, than what is reported; every share has its Wilson
interval. The same figures, set by set, come from `prefold answers bench`; the line for it is shown with each.

PYTHON is an interpreter that has gptcache, faiss-cpu and sqlalchemy. GPTCache runs as its documentation sets it up,
with the vectors of our embedder in place of its own, which it would fetch from a hub: what is compared is what each
decides about the same vectors. Of conversations and of questions over a passage it sees the last turn, as by default.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from prefold.responses.semantic.decision.decision import DecisionOptions
from prefold.responses.semantic.decision.shares import Share
from prefold.responses.semantic.embedders import make_embedder
from prefold.responses.semantic.embedders.verifiers import make_verifier
from prefold.responses.semantic.trial.contexts import read_contexts, try_contexts
from prefold.responses.semantic.trial.labelled import read_pairs
from prefold.responses.semantic.trial.run import run_pairs, run_stream

DATA = Path(__file__).resolve().parents[2] / "shared/data/semantic"
LIMIT = 0.01
SEED = 0
PEER_PAIRS = 600
"""Most pairs that GPTCache is asked about, drawn by the seed: it takes a fresh cache, some 0.2 s, for each."""


@dataclass(frozen=True)
class Job:
    """One set.

    Attributes:
        name: shown.
        goal: of the bar.
        source: of pairs, or path of a stream.
        kind: "pairs", "stream" or "contexts".
        fit: pairs to fit on, where the set has only traps.
        max_wrong: share of served answers that may be wrong, for a stream.
    """

    name: str
    goal: str
    source: str
    kind: str
    fit: str | None = None
    max_wrong: float = 0.005

    @property
    def command(self) -> str:
        """The same from the command line."""
        fit = f" --fit {self.fit}" if self.fit else ""
        limit = f" --max-wrong {self.max_wrong:g}" if self.kind == "stream" else ""
        source = os.path.relpath(self.source) if os.sep in self.source else self.source
        return f"prefold answers bench --{'pairs' if self.kind == 'pairs' else 'stream'} {source}{fit}{limit}"


JOBS = (
    Job("fow-cache", "traps at most 1 %, should-hits 45 %; with a verifier 60 %", "fow-cache", "pairs"),
    Job("fow-cache conversations", "traps at most 1 %, should-hits 85 %", "fow-cache:conversations", "pairs"),
    Job(
        "CLINC150",
        "wrong at most 0.5 % of requests, hits 45 %",
        str(DATA / "clinc150_test.jsonl"),
        "stream",
        max_wrong=0.02,
    ),
    Job(
        "BANKING77",
        "wrong at most 1 % of requests, hits 45 %",
        str(DATA / "banking77_test.jsonl"),
        "stream",
        max_wrong=0.04,
    ),
    Job("CondaQA", "nothing wrong at all", str(DATA / "condaqa_dev.jsonl"), "contexts"),
    Job("PAWS-X Chinese", "traps at most 1 %", str(DATA / "pawsx_zh_dev.jsonl"), "pairs"),
    Job("ScoNe negation", "traps at most 1 %", str(DATA / "scone_nli_test.jsonl"), "pairs", fit="fow-cache"),
)


@dataclass(frozen=True)
class Row:
    """What one side came to on one set: of pairs, should-hits and traps served; of requests, hits and wrong ones."""

    set: str
    side: str
    served: Share
    wrong: Share


def ours(job: Job, embedder: Any, verifier: Any) -> Iterator[Row]:
    """Our figures."""
    if job.kind == "pairs":
        trial = run_pairs(job.source, embedder, verifier, fit=job.fit, limits=(LIMIT,), seed=SEED)
        for point in trial.operating_points:
            yield Row(job.name, point.scorer, point.should_hit, point.traps)
    elif job.kind == "stream":
        stream = run_stream(Path(job.source), embedder, options=DecisionOptions(max_wrong=job.max_wrong))
        yield Row(job.name, "held out", stream.held_out.served, stream.held_out.wrong)
        yield Row(job.name, "whole, cold start", stream.whole.served, stream.whole.wrong)
    else:
        contexts = try_contexts(read_contexts(Path(job.source)))
        yield Row(job.name, "exact context", contexts.exact.served, contexts.exact.wrong)
        yield Row(job.name, "last turn alone", contexts.last_turn.served, contexts.last_turn.wrong)


def gptcache(job: Job, embedder: Any, python: str) -> Row:
    """The peer's figures."""
    if job.kind == "pairs":
        pairs = read_pairs(job.source)
        random.Random(SEED).shuffle(pairs)
        pairs = pairs[:PEER_PAIRS]
        work: dict[str, Any] = {"pairs": [(pair.a, pair.b) for pair in pairs]}
        texts = {text for pair in pairs for text in (pair.a, pair.b)}
    else:
        if job.kind == "stream":
            rows = [json.loads(line) for line in Path(job.source).read_text("utf-8").splitlines()]
            asked = [(row["text"], row["intent"]) for row in rows]
            random.Random(SEED).shuffle(asked)
        else:
            asked = [(each.text, each.answer) for each in read_contexts(Path(job.source))]
        work = {"stream": asked}
        texts = {text for text, _ in asked}
    served = _run_peer(work, sorted(texts), embedder, python)
    if job.kind == "pairs":
        same = [is_served for pair, is_served in zip(pairs, served, strict=True) if pair.same]
        traps = [is_served for pair, is_served in zip(pairs, served, strict=True) if not pair.same]
        return Row(job.name, "GPTCache", Share(sum(same), len(same)), Share(sum(traps), len(traps)))
    wrong = sum(found not in (None, answer) for (_, answer), found in zip(asked, served, strict=True))
    hits = sum(found is not None for found in served)
    return Row(job.name, "GPTCache", Share(hits, len(asked)), Share(wrong, len(asked)))


def _run_peer(work: dict[str, Any], texts: Sequence[str], embedder: Any, python: str) -> list[Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "vectors.npy", np.concatenate([embedder.embed([text]) for text in texts]))
        job = {**work, "texts": texts, "vectors": str(folder / "vectors.npy")}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        script = Path(__file__).with_name("answers_gptcache.py")
        finished = subprocess.run(
            [python, script, folder / "job.json", folder], cwd=folder, capture_output=True, text=True, check=True
        )
        served: list[Any] = json.loads(finished.stdout.splitlines()[-1])
        return served


def show(job: Job, rows: Sequence[Row], console: Console) -> None:
    """Print one set."""
    columns = ("should-hits served", "traps served") if job.kind == "pairs" else ("hits", "wrong, of requests")
    table = Table(
        "side", *columns, title=f"{job.name}: {job.goal}", title_justify="left", box=None, padding=(0, 2, 0, 0)
    )
    for row in rows:
        table.add_row(row.side, _share(row.served), _share(row.wrong))
    console.print(table)
    console.print(job.command, style="dim", soft_wrap=True)
    console.print()


def _share(share: Share) -> str:
    if not share.of:
        return "-"
    low, high = share.interval
    return f"{share.count:,} of {share.of:,}, {share.value:.2%} ({low:.2%} to {high:.2%})"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--chinese-embedder", default="minilm", help="for PAWS-X")
    parser.add_argument("--verifier", help="onnx:FOLDER")
    parser.add_argument("--gptcache", metavar="PYTHON", help="an interpreter that has GPTCache")
    parser.add_argument("--only", action="append", choices=[job.name for job in JOBS])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    console = Console(stderr=arguments.json)
    verifier = make_verifier(arguments.verifier) if arguments.verifier else None
    made: dict[str, Any] = {}
    found: list[Row] = []
    for job in JOBS:
        if arguments.only and job.name not in arguments.only:
            continue
        if os.sep in job.source and not Path(job.source).exists():
            console.print(f"{job.name} is left out: {job.source} is not there.", soft_wrap=True)
            continue
        name = arguments.chinese_embedder if "Chinese" in job.name else arguments.embedder
        embedder = made.get(name) or made.setdefault(name, make_embedder(name, os.environ))
        rows = list(ours(job, embedder, verifier))
        if arguments.gptcache:
            rows.append(gptcache(job, embedder, arguments.gptcache))
        show(job, rows, console)
        found += rows
    if arguments.json:
        print(json.dumps([_as_json(row) for row in found]))
    return 0


def _as_json(row: Row) -> dict[str, Any]:
    return {
        **asdict(row),
        "served_interval": row.served.interval,
        "wrong_interval": row.wrong.interval,
    }


if __name__ == "__main__":
    sys.exit(main())
