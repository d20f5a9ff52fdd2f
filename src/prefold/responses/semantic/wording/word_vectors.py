"""How near the words that are left over come to the other question, by the vectors of its tokens in context.

An encoder such as MiniLM gives a vector for each token before it averages them. A word that has no partner by any list
may still sit close to a token of the other question ("jabs", "vaccines"); one that says something new does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prefold.responses.semantic.embedders.token_vectors import TokenVectors, unit_or_zero
from prefold.responses.semantic.wording.alignment import Alignment
from prefold.responses.semantic.wording.facts import Facts
from prefold.responses.semantic.wording.word import Word


@dataclass(frozen=True, slots=True)
class Nearness:
    """How the words of two questions lie to one another; cosines, -1 to 1.

    Attributes:
        left: mean, by weight, over words without a partner of the nearest token of the other question; 1 where there
            are none.
        least_left: the least of these.
        partners: mean over partners of how alike they are in their contexts; 1 where there are none.
        least_partners: the least of these.
        between: of the means of what is left over on either side; 0 where there is nothing on one of them.
    """

    left: float
    least_left: float
    partners: float
    least_partners: float
    between: float


def nearness(a: Facts, b: Facts, alignment: Alignment, tokens_a: TokenVectors, tokens_b: TokenVectors) -> Nearness:
    """How near the words of two questions are; some 0.1 ms."""
    left = [(word, _vector(word, tokens_a)) for word in alignment.left]
    right = [(word, _vector(word, tokens_b)) for word in alignment.right]
    found = [
        (_nearest(vector, other), word.weight)
        for side, other in ((left, tokens_b), (right, tokens_a))
        for word, vector in side
    ]
    partners = [
        float(one @ two)
        for first, second in alignment.pairs
        for one, two in ((_vector(a.words[first], tokens_a), _vector(b.words[second], tokens_b)),)
        if one is not None and two is not None
    ]
    return Nearness(
        sum(near * weight for near, weight in found) / sum(weight for _, weight in found) if found else 1.0,
        min((near for near, _ in found), default=1.0),
        sum(partners) / len(partners) if partners else 1.0,
        min(partners, default=1.0),
        _between([vector for _, vector in left], [vector for _, vector in right]),
    )


def _vector(word: Word, tokens: TokenVectors) -> Any | None:
    """The mean of a word's tokens where it is first found; None where it is not."""
    start = tokens.text.lower().find(word.surface)
    if start < 0:
        return None
    end = start + len(word.surface)
    rows = [row for row, (first, behind) in enumerate(tokens.spans) if first < end and behind > start]
    if not rows:
        return None
    return unit_or_zero(tokens.vectors[rows].mean(axis=0))


def _nearest(vector: Any | None, others: TokenVectors) -> float:
    """The cosine of the nearest token; 0 where it cannot be told."""
    return 0.0 if vector is None or not len(others.vectors) else float((others.vectors @ vector).max())


def _between(left: list[Any | None], right: list[Any | None]) -> float:
    one, two = ([vector for vector in side if vector is not None] for side in (left, right))
    if not one or not two:
        return 0.0
    return float(unit_or_zero(np.mean(one, axis=0)) @ unit_or_zero(np.mean(two, axis=0)))
