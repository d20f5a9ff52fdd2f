"""Gathers what speaks for and against answering a question from one of the entries near it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefold.responses.semantic.clusters import Clusters
from prefold.responses.semantic.decision import Pair, evidence, logit
from prefold.responses.semantic.facts import Facts, facts
from prefold.responses.semantic.features import FEATURES, pair_features
from prefold.responses.semantic.guards import GUARDS
from prefold.responses.semantic.types import Candidate, Reason

_FIRST_GUARD = len(FEATURES) - len(GUARDS)


@dataclass(frozen=True, slots=True)
class Weighed:
    """The candidate that may answer, and all that is known of it beside the question.

    Attributes:
        candidate: whose cluster is the most likely one.
        guards: that speak against it.
        pair: for the decision.
        overlap: share of the two questions' words that both have, 0 to 1, weighted by how much they say.
    """

    candidate: Candidate
    guards: tuple[Reason, ...]
    pair: Pair
    overlap: float


def weigh(text: Facts, vector: Any, candidates: Sequence[Candidate], clusters: Clusters, route: str) -> Weighed:
    """Weigh a question against the entries near it.

    Args:
        text: of the question.
        vector: of the question, float32, (size,).
        candidates: nearest first; at least one.
        clusters: of their context.
        route: of the question.
    """
    closeness = clusters.closest(vector, list(dict.fromkeys(candidate.cluster for candidate in candidates)))
    picked = closeness.cluster if closeness is not None else candidates[0].cluster
    candidate = next(candidate for candidate in candidates if candidate.cluster == picked)
    features = pair_features(text, facts(candidate.wording), candidate.similarity)
    return Weighed(
        candidate,
        tuple(guard for guard, found in zip(GUARDS, features[_FIRST_GUARD:], strict=True) if found),
        Pair(evidence(features, closeness), candidate.entry, candidate.cluster, route),
        features[FEATURES.index("covered")],
    )


def with_verifier(pair: Pair, probability: float) -> Pair:
    """A pair of which a verifier says with this probability that it is the same."""
    return replace(pair, evidence=(*pair.evidence[:-2], 1.0, logit(probability)))
