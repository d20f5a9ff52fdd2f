"""The evidence of single pairs, on pairs that are labelled with whether both have the same answer.

Pairs are parted into folds; what is fitted, thresholds too, comes from the other folds. Pairs that share a text, have
nearly equal ones, or stem from one template (`scope-a014` and `scope-b014`) lie in one fold.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prefold.errors import UsageError
from prefold.responses.semantic.calibration import Calibration
from prefold.responses.semantic.decision import logit
from prefold.responses.semantic.facts import facts
from prefold.responses.semantic.features import FEATURES, pair_features
from prefold.responses.semantic.guards import GUARDS
from prefold.responses.semantic.shares import Share
from prefold.responses.semantic.types import Embedder, Verifier
from prefold.responses.semantic.word_vectors import TokenVectors

LIMITS = (0.003, 0.01, 0.02, 0.05)
"""Shares of traps that may be served."""

_NEAR_TEXTS = 0.93
_FOLDS = 5
_LABELS = ("y", "same_answer", "label")


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """How one scorer does at one limit.

    Attributes:
        scorer: "cosine"; "guards": cosine, nothing served against a guard; "learned": a logistic model over all
            features, without the shipped prior; "verified": the same with a verifier.
        trap_limit: share of traps that the threshold may serve in the folds that it is chosen on.
        should_hit: served of the pairs with the same answer.
        traps: served of those with different ones.
    """

    scorer: str
    trap_limit: float
    should_hit: Share
    traps: Share

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "scorer": self.scorer,
            "trap_limit": self.trap_limit,
            "should_hit_served": self.should_hit.value,
            "interval": self.should_hit.interval,
            "traps_served": self.traps.value,
            "traps_interval": self.traps.interval,
            "should_hits": self.should_hit.of,
            "traps": self.traps.of,
        }


@dataclass(frozen=True, slots=True)
class PairTrial:
    """All scorers at all limits.

    Attributes:
        pairs: in the file.
        folds: that it was parted into.
        operating_points: by scorer, then by limit.
    """

    pairs: int
    folds: int
    operating_points: tuple[OperatingPoint, ...]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "pairs": self.pairs,
            "folds": self.folds,
            "operating_points": [point.as_json() for point in self.operating_points],
        }


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two questions, and whether they have the same answer.

    Attributes:
        a: one.
        b: the other.
        same: whether they have.
        name: from the file; "" where it has none.
    """

    a: str
    b: str
    same: bool
    name: str = ""


def read_pairs(path: Path) -> list[LabelledPair]:
    """A JSONL file with `a`, `b` and `y` in each line (or `same_answer`, or `label`: true, false, 1 or 0).

    Raises:
        UsageError: if it is not one, or has not both kinds of pairs.
    """
    pairs = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.strip():
            pairs.append(_labelled(line, f"Line {number} of {path.name}"))
    if len({pair.same for pair in pairs}) < 2:
        raise UsageError(
            f"{path.name} has not both kinds of pairs.", hint="Give pairs with the same answer and with different ones."
        )
    return pairs


def _labelled(line: str, where: str) -> LabelledPair:
    try:
        row = json.loads(line)
        label = next(row[name] for name in _LABELS if name in row)
        a, b, name = row["a"], row["b"], str(row.get("id", ""))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        a = b = label = name = None
    if not isinstance(a, str) or not isinstance(b, str) or label not in (0, 1):
        # Ambiguous pairs, whose label is null or a word, are traps: to serve them is not what anybody asked for.
        if isinstance(a, str) and isinstance(b, str) and (label is None or isinstance(label, str)):
            return LabelledPair(a, b, False, str(name))
        raise UsageError(f"{where} is no labelled pair.", hint='Write lines such as {"a": "...", "b": "...", "y": 1}.')
    return LabelledPair(a, b, bool(label), str(name))


def try_pairs(
    pairs: Sequence[LabelledPair],
    embedder: Embedder,
    verifier: Verifier | None = None,
    *,
    limits: Sequence[float] = LIMITS,
    seed: int = 0,
) -> PairTrial:
    """Judge each pair by what was fitted on the others.

    Args:
        pairs: of both kinds.
        embedder: of the vectors.
        verifier: asked about each pair, if given.
        limits: shares of traps.
        seed: of the folds.

    Raises:
        PrefoldError: if embedder or verifier fail.
    """
    vectors, tokens = _embedded(sorted({text for pair in pairs for text in (pair.a, pair.b)}), embedder)
    rows = np.array([_features(pair, vectors, tokens) for pair in pairs])
    same = np.array([pair.same for pair in pairs])
    folds = _folds(pairs, vectors, seed)
    cosine = rows[:, FEATURES.index("similarity")]
    guarded = np.where(rows[:, len(FEATURES) - len(GUARDS) :].any(1), -np.inf, cosine)
    scorers: dict[str, Callable[[Any], Any]] = {
        "cosine": lambda _: cosine,
        "guards": lambda _: guarded,
        "learned": lambda used: _learned(rows, same, used),
    }
    if verifier is not None:
        verdicts = asyncio.run(_verdicts(pairs, verifier))
        verified = np.column_stack((rows, verdicts))
        scorers["verifier"] = lambda _: verdicts
        scorers["verified"] = lambda used: _learned(verified, same, used)
    points = []
    for name, scorer in scorers.items():
        served = _served(scorer, same, folds, limits)
        for limit, chosen in zip(limits, served, strict=True):
            points.append(
                OperatingPoint(
                    name,
                    limit,
                    Share(int((chosen & same).sum()), int(same.sum())),
                    Share(int((chosen & ~same).sum()), int((~same).sum())),
                )
            )
    return PairTrial(len(pairs), int(folds.max()) + 1, tuple(points))


def _embedded(texts: Sequence[str], embedder: Embedder) -> tuple[Mapping[str, Any], Mapping[str, TokenVectors]]:
    embed_tokens = getattr(embedder, "embed_tokens", None)
    if embed_tokens is None:
        return {text: embedder.embed([text])[0] for text in texts}, {}
    both = {text: embed_tokens(text) for text in texts}
    return {text: vector for text, (vector, _) in both.items()}, {text: tokens for text, (_, tokens) in both.items()}


def _features(pair: LabelledPair, vectors: Mapping[str, Any], tokens: Mapping[str, TokenVectors]) -> tuple[float, ...]:
    similarity = float(vectors[pair.a] @ vectors[pair.b])
    both = (tokens[pair.a], tokens[pair.b]) if tokens else None
    return pair_features(facts(pair.a), facts(pair.b), similarity, both)


async def _verdicts(pairs: Sequence[LabelledPair], verifier: Verifier) -> Any:
    return np.array([logit(await verifier.same(pair.a, pair.b)) for pair in pairs])


def _learned(rows: Any, same: Any, used: Any) -> Any:
    """Scores of all rows by a model that saw those used."""
    model = Calibration((0.0,) * (rows.shape[1] + 1), (3.0,) + (2.0,) * rows.shape[1], keep=len(rows))
    model.fit(rows[used], same[used])
    return np.array([model.probability(row) for row in rows])


def _served(scorer: Callable[[Any], Any], same: Any, folds: Any, limits: Sequence[float]) -> list[Any]:
    """For each limit, whether each pair is served by a threshold chosen on the other folds.

    Scores that the threshold is chosen by come from models that did not see the pair either.
    """
    served = [np.zeros(len(same), bool) for _ in limits]
    numbers = range(int(folds.max()) + 1)
    for fold in numbers:
        used = folds != fold
        inner = np.zeros(len(same))
        for other in numbers:
            if other != fold:
                inner[folds == other] = scorer(used & (folds != other))[folds == other]
        outer = scorer(used)
        for limit, chosen in zip(limits, served, strict=True):
            least = _threshold(inner[used], same[used], limit)
            chosen[~used] = outer[~used] > least
    return served


def _threshold(scores: Any, same: Any, limit: float) -> float:
    """The lowest above which no more than a share `limit` of the traps lies."""
    traps = np.sort(scores[~same])[::-1]
    return float(traps[min(int(limit * len(traps)), len(traps) - 1)])


def _folds(pairs: Sequence[LabelledPair], vectors: Mapping[str, Any], seed: int) -> Any:
    """The number of each pair's fold."""
    place = {text: at for at, text in enumerate(vectors)}
    parents = list(range(len(place)))

    def root(at: int) -> int:
        while parents[at] != at:
            parents[at] = parents[parents[at]]
            at = parents[at]
        return at

    matrix = np.stack(list(vectors.values()))
    for at, vector in enumerate(matrix):
        for other in np.nonzero(matrix[:at] @ vector > _NEAR_TEXTS)[0].tolist():
            parents[root(at)] = root(other)
    templates: dict[str, int] = {}
    for pair in pairs:
        parents[root(place[pair.a])] = root(place[pair.b])
        if pair.name:
            template = re.sub(r"-[a-z](?=\d+$)", "-", pair.name)
            parents[root(place[pair.a])] = root(templates.setdefault(template, place[pair.a]))
    groups = sorted({root(place[pair.a]) for pair in pairs})
    random.Random(seed).shuffle(groups)  # noqa: S311 - an experiment, not a secret
    count = max(2, min(_FOLDS, len(groups)))
    fold_of = {group: at % count for at, group in enumerate(groups)}
    return np.array([fold_of[root(place[pair.a])] for pair in pairs])
