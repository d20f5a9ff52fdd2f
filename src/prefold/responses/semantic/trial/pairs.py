"""The evidence of single pairs, on pairs that are labelled with whether both have the same answer.

Pairs are parted into folds; what is fitted, thresholds too, comes from the other folds. Pairs that share a text, have
nearly equal ones, or stem from one template (`scope-a014` and `scope-b014`) lie in one fold. Or all that is fitted
comes from another set of pairs.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefold.errors import UsageError
from prefold.responses.semantic.decision.calibration import Calibration
from prefold.responses.semantic.decision.decision import logit
from prefold.responses.semantic.decision.shares import Share
from prefold.responses.semantic.embedders.token_vectors import TokenEmbedder, TokenVectors
from prefold.responses.semantic.trial.labelled import LabelledPair
from prefold.responses.semantic.types import Embedder, Verifier
from prefold.responses.semantic.wording.facts import facts
from prefold.responses.semantic.wording.features import AGAINST, FEATURES, FOR, pair_features
from prefold.responses.semantic.wording.guards import GUARDS
from prefold.responses.semantic.wording.prior import prior

LIMITS = (0.003, 0.01, 0.02, 0.05)
"""Shares of traps that may be served."""

_NEAR_TEXTS = 0.93
_FOLDS = 5
_SURE = 1.2816
"""Standard deviations below which 90 % lie."""
_GUARD_WEIGHT = -2.0
_DEVIATION = 0.5


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """How one scorer does at one limit.

    Attributes:
        scorer: "cosine": of the last turns, whatever was said before; "guards": the same, nothing served against a
            guard; "learned": a logistic model over all features that knows which way each points, but not the shipped
            prior; "shipped": the shipped
            prior alone, where all that is fitted comes from another set; "verifier" and "verified": a verifier alone,
            and the learned model with it. All but "cosine" and "verifier" serve nothing where earlier turns differ.
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
        pairs: judged.
        folds: that they were parted into; 0 where all that is fitted comes from another set.
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


def try_pairs(
    pairs: Sequence[LabelledPair],
    embedder: Embedder,
    verifier: Verifier | None = None,
    *,
    fit: Sequence[LabelledPair] | None = None,
    limits: Sequence[float] = LIMITS,
    seed: int = 0,
) -> PairTrial:
    """Judge each pair by what was fitted on others.

    Args:
        pairs: to be judged; of both kinds if they are what is fitted on, too.
        embedder: of the vectors.
        verifier: asked about each pair, if given.
        fit: pairs to fit on, of both kinds; None for folds of those that are judged.
        limits: shares of traps.
        seed: of the folds.

    Raises:
        UsageError: if the pairs that are fitted on are not of both kinds.
        PrefoldError: if embedder or verifier fail.
    """
    fitted = pairs if fit is None else fit
    if len({pair.same for pair in fitted}) < 2:
        raise UsageError(
            "Nothing can be fitted on pairs of one kind.",
            hint="Give pairs with the same answer and with different ones, or fit on another file.",
        )
    every = [*fitted, *pairs] if fit is not None else list(pairs)
    texts = sorted({text for pair in every for text in (pair.a, pair.b)})
    vectors, tokens = _embedded(texts, embedder)
    rows = np.array([_features(pair, vectors, tokens) for pair in every])
    same = np.array([pair.same for pair in every])
    folds = _folds(fitted, vectors, seed)
    count = int(folds.max()) + 1
    judged: Sequence[int] = range(count)
    if fit is not None:
        folds, judged = np.concatenate((folds, np.full(len(pairs), count))), (count,)
    chosen = slice(len(every) - len(pairs), None)
    points = []
    for name, scorer in _scorers(every, rows, same, verifier, with_shipped=fit is not None).items():
        served = _served(scorer, same, folds, judged, limits)
        for limit, is_served in zip(limits, served, strict=True):
            hits, wrong = is_served[chosen] & same[chosen], is_served[chosen] & ~same[chosen]
            points.append(
                OperatingPoint(
                    name,
                    limit,
                    Share(int(hits.sum()), int(same[chosen].sum())),
                    Share(int(wrong.sum()), int((~same[chosen]).sum())),
                )
            )
    return PairTrial(len(pairs), 0 if fit is not None else count, tuple(points))


def _scorers(
    pairs: Sequence[LabelledPair], rows: Any, same: Any, verifier: Verifier | None, *, with_shipped: bool
) -> dict[str, Callable[[Any], Any]]:
    """By name: scores of all pairs by a model that was fitted on some of them."""
    cosine = rows[:, FEATURES.index("similarity")]
    apart = np.array([pair.apart for pair in pairs])

    def unless_apart(scores: Any) -> Any:
        return np.where(apart, -np.inf, scores)

    guarded = unless_apart(np.where(rows[:, len(FEATURES) - len(GUARDS) :].any(1), -np.inf, cosine))
    scorers: dict[str, Callable[[Any], Any]] = {
        "cosine": lambda _: cosine,
        "guards": lambda _: guarded,
        "learned": lambda used: unless_apart(_learned(rows, same, used)),
    }
    if with_shipped:
        shipped = unless_apart([logit(prior(row)) for row in rows.tolist()])
        scorers["shipped"] = lambda _: shipped
    if verifier is not None:
        verdicts = asyncio.run(_verdicts(pairs, verifier))
        verified = np.column_stack((rows, verdicts))
        scorers["verifier"] = lambda _: verdicts
        scorers["verified"] = lambda used: unless_apart(_learned(verified, same, used))
    return scorers


def _embedded(texts: Sequence[str], embedder: Embedder) -> tuple[Mapping[str, Any], Mapping[str, TokenVectors]]:
    if not isinstance(embedder, TokenEmbedder):
        return {text: embedder.embed([text])[0] for text in texts}, {}
    both = {text: embedder.embed_tokens(text) for text in texts}
    return {text: vector for text, (vector, _) in both.items()}, {text: tokens for text, (_, tokens) in both.items()}


def _features(pair: LabelledPair, vectors: Mapping[str, Any], tokens: Mapping[str, TokenVectors]) -> tuple[float, ...]:
    similarity = float(vectors[pair.a] @ vectors[pair.b])
    both = (tokens[pair.a], tokens[pair.b]) if tokens else None
    return pair_features(facts(pair.a), facts(pair.b), similarity, both)


async def _verdicts(pairs: Sequence[LabelledPair], verifier: Verifier) -> Any:
    return np.array([logit(await verifier.same(pair.a, pair.b)) for pair in pairs])


def _learned(rows: Any, same: Any, used: Any) -> Any:
    """Scores of all rows by a model that saw those used, and began with which way each feature points."""
    weights = [_expected(name) for name in (*FEATURES, "verifier")[: rows.shape[1]]]
    model = Calibration((0.0, *weights), (3.0, *(_DEVIATION,) * len(weights)), keep=len(rows))
    model.fit(rows[used], same[used])
    return np.array([model.probability(row) for row in rows])


def _expected(feature: str) -> float:
    """Log-odds that a feature is thought to be worth before any pair was seen: by meaning, not by any set."""
    if feature.startswith("guard_"):
        return _GUARD_WEIGHT
    return float(feature in FOR or feature == "verifier") - float(feature in AGAINST)


def _served(
    scorer: Callable[[Any], Any], same: Any, folds: Any, judged: Sequence[int], limits: Sequence[float]
) -> list[Any]:
    """For each limit, whether each pair of some folds is served by a threshold chosen on the other folds.

    Scores that the threshold is chosen by come from models that did not see the pair either.
    """
    served = [np.zeros(len(same), bool) for _ in limits]
    numbers = range(int(folds.max()) + 1)
    for fold in judged:
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
    """The lowest above which so few traps lie that their share is within the limit with 90 %.

    Not the share that is seen: of a threshold that was chosen by it, the true one is above it as often as below.
    Where the traps are too few to say so of any threshold, it is the highest trap; infinite where there are none.
    """
    traps = np.sort(scores[~same])[::-1]
    above = 0
    while above + 1 < len(traps) and Share(above + 1, len(traps)).within(_SURE)[1] <= limit:
        above += 1
    return float(traps[above]) if len(traps) else float("inf")


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
