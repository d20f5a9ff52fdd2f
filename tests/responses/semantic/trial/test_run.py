"""Trials on small made-up files, and on the public ones where they are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefold.errors import UsageError
from prefold.responses.semantic.decision.decision import DecisionOptions
from prefold.responses.semantic.decision.shares import Share
from prefold.responses.semantic.trial.run import run_pairs, run_stream

THINGS = ("card", "loan", "phone", "invoice", "parcel", "ticket", "garden", "engine")
WAYS = ("where is my {} now", "i cannot find the {}", "please locate a {} for me", "lost {} help", "any {} news")


class Words:
    """An embedder: the mean of a random vector for each word."""

    fingerprint = "words"
    size = 64

    def embed(self, texts: list[str]) -> Any:
        rows = np.stack([sum(map(self._vector, text.lower().split())) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def _vector(self, word: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        return np.random.default_rng(seed).normal(size=self.size) * (3 if word in THINGS else 1)


class Sayer:
    """A verifier that knows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.known = {(row["a"], row["b"]): row["y"] for row in rows}

    async def same(self, a: str, b: str) -> float:
        return 0.99 if self.known[a, b] else 0.01


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def stream_of(count: int) -> list[dict[str, Any]]:
    return [{"text": f"{WAYS[at % 5].format(THINGS[at % 8])} no {at}", "intent": THINGS[at % 8]} for at in range(count)]


def pairs_of(count: int) -> list[dict[str, Any]]:
    rows = []
    for at in range(count):
        one, other = THINGS[at % 8], THINGS[(at + at % 2 * (1 + at % 7)) % 8]
        rows.append(
            {
                "a": f"{WAYS[at % 5].format(one)} {at}",
                "b": f"{WAYS[(at + 1) % 5].format(other)} {at}",
                "y": one == other,
            }
        )
    return rows


def test_a_stream_is_learned_and_served(tmp_path: Path) -> None:
    path = written(tmp_path / "stream.jsonl", stream_of(600))
    trial = run_stream(path, Words(), options=DecisionOptions(max_wrong=0.05), seeds=(0, 1))
    found = trial.as_json()
    assert (600, 1200) == (found["requests"], found["whole"]["requests"])
    assert found["hit_rate"] > 0.5
    assert found["wrong_rate"] < 0.02
    assert found["hits"] == sum(run["held_out"]["hits"] for run in found["runs"])
    assert [0, 1] == [run["seed"] for run in found["runs"]]
    low, high = found["hit_interval"]
    assert low < found["hit_rate"] < high
    json.dumps(found)


def test_a_stream_without_repetition_is_never_served(tmp_path: Path) -> None:
    rows = [{"text": f"question {at} about thing {at * 7}", "intent": str(at)} for at in range(300)]
    trial = run_stream(written(tmp_path / "stream.jsonl", rows), Words(), seeds=(0,))
    assert (0, 0) == (trial.whole.served.count, trial.whole.wrong.count)


def test_the_same_seed_gives_the_same_figures(tmp_path: Path) -> None:
    path = written(tmp_path / "stream.jsonl", stream_of(300))
    one, other = (run_stream(path, Words(), options=DecisionOptions(max_wrong=0.1), seeds=(4,)) for _ in range(2))
    assert one == other


def test_pairs_are_scored_by_what_was_fitted_on_others(tmp_path: Path) -> None:
    rows = pairs_of(240)
    path = written(tmp_path / "pairs.jsonl", rows)
    trial = run_pairs(path, Words(), Sayer(rows), limits=(0.02, 0.1))
    points = {(point.scorer, point.trap_limit): point for point in trial.operating_points}
    assert {"cosine", "guards", "learned", "verifier", "verified"} == {name for name, _ in points}
    assert points["verifier", 0.02].should_hit.value > 0.9
    assert points["verifier", 0.02].traps.value == 0
    assert points["learned", 0.1].should_hit.value >= points["learned", 0.02].should_hit.value
    found = trial.as_json()["operating_points"][0]
    assert {"scorer", "trap_limit", "should_hit_served", "traps_served", "interval"} <= set(found)
    json.dumps(trial.as_json())


@pytest.mark.parametrize(
    "line",
    ["nonsense", "[]", '{"text": 5, "intent": "a"}', '{"text": "a"}', '{"a": "x", "b": "y", "y": 7}', '{"a": 1}'],
)
def test_what_is_no_such_file_is_refused_with_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line + "\n", "utf-8")
    for run in (run_stream, run_pairs):
        with pytest.raises(UsageError, match=r"Line 1 of bad\.jsonl"):
            run(path, Words())


def test_files_with_too_little_are_refused(tmp_path: Path) -> None:
    empty = written(tmp_path / "empty.jsonl", [])
    one_kind = written(tmp_path / "same.jsonl", [{"a": "x", "b": "y", "y": 1}])
    with pytest.raises(UsageError, match="too few"):
        run_stream(empty, Words())
    for path, complaint in ((empty, "no pairs"), (one_kind, "of one kind")):
        with pytest.raises(UsageError, match=complaint):
            run_pairs(path, Words())


def test_wilson_intervals() -> None:
    low, high = Share(5, 100).interval
    assert pytest.approx((0.02154, 0.11175), abs=1e-4) == (low, high)
    assert (0.0, 1.0) == Share(0, 0).interval
    assert 0.0 == Share(0, 50).interval[0] < Share(0, 50).interval[1] == pytest.approx(0.0713, abs=1e-3)
    assert 1.0 == Share(50, 50).interval[1]
    assert Share(3, 10) == Share(1, 4) + Share(2, 6)
