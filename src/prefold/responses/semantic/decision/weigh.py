"""Gathers what speaks for and against answering a question from one of the entries near it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from prefold.responses.semantic.decision.clusters import Clusters
from prefold.responses.semantic.decision.decision import Pair, evidence, logit
from prefold.responses.semantic.decision.proof import fired_guards
from prefold.responses.semantic.types import Candidate, Question, Reason
from prefold.responses.semantic.wording.facts import facts
from prefold.responses.semantic.wording.features import FEATURES, pair_features

if TYPE_CHECKING:
    from prefold.responses.semantic.embedders.token_vectors import TokenVectors


@dataclass(frozen=True, slots=True)
class Weighed:
    """The candidate that may answer, and all that is known of it beside the question.

    Attributes:
        candidate: whose cluster is the most likely one.
        guards: that speak against it.
        pair: for the decision.
        overlap: share of the two questions' words that both have, 0 to 1, weighted by how much they say.
        has_tokens: whether the vectors of both texts' tokens were at hand.
    """

    candidate: Candidate
    guards: tuple[Reason, ...]
    pair: Pair
    overlap: float
    has_tokens: bool


def weigh(
    question: Question,
    vector: Any,
    candidates: Sequence[Candidate],
    clusters: Clusters,
    tokens: Callable[[str], TokenVectors | None] = lambda _: None,
) -> Weighed:
    """Weigh a question against the entries near it.

    Args:
        question: asked.
        vector: of its text, float32, (size,).
        candidates: nearest first; at least one.
        clusters: of their context.
        tokens: the vectors of a text's tokens, where they are at hand; they are evidence if both texts' are.
    """
    closeness = clusters.closest(
        vector, list(dict.fromkeys(candidate.cluster for candidate in candidates)), question.text
    )
    picked = closeness.cluster if closeness is not None else candidates[0].cluster
    candidate = next(candidate for candidate in candidates if candidate.cluster == picked)
    own, other = tokens(question.text), tokens(candidate.wording)
    both = (own, other) if own is not None and other is not None else None
    features = pair_features(facts(question.text), facts(candidate.wording), candidate.similarity, both)
    return Weighed(
        candidate,
        fired_guards(features),
        Pair(evidence(features, closeness), candidate.entry, candidate.cluster, question.route),
        features[FEATURES.index("covered")],
        has_tokens=both is not None,
    )


def with_verifier(pair: Pair, probability: float) -> Pair:
    """A pair of which a verifier says with this probability that it is the same."""
    return replace(pair, evidence=(*pair.evidence[:-2], 1.0, logit(probability)))
