"""What the decision sees of a pair: how near the vectors are, how much is left over on either side, and each guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefold.responses.semantic.wording.alignment import Alignment, align
from prefold.responses.semantic.wording.asking import Asked
from prefold.responses.semantic.wording.facts import Facts
from prefold.responses.semantic.wording.guards import GUARDS, differing

if TYPE_CHECKING:
    from prefold.responses.semantic.embedders.token_vectors import TokenVectors

NEARNESS: tuple[str, ...] = (
    "near_known",
    "near_left",
    "near_least_left",
    "near_between",
    "near_partners",
    "near_least_partners",
)
"""Those that take vectors of tokens; all 0 where there are none, and for other languages than English."""

FEATURES: tuple[str, ...] = (
    "similarity",
    "left_less",
    "left_more",
    "left_words",
    "covered",
    "synonyms",
    "misspelt",
    "crossing",
    "turned",
    "same_words",
    "same_kind",
    "how_or_can",
    "chinese_changed",
    *NEARNESS,
    *(f"guard_{reason.value}" for reason in GUARDS),
)
"""Names of what `pair_features` returns, in its order."""

FOR: frozenset[str] = frozenset(
    (
        "similarity",
        "covered",
        "same_words",
        "same_kind",
        "near_left",
        "near_least_left",
        "near_partners",
        "near_least_partners",
    )
)
"""Those of which more can only speak for one answer."""

AGAINST: frozenset[str] = frozenset(
    (
        "left_less",
        "left_more",
        "left_words",
        "synonyms",
        "misspelt",
        "crossing",
        "turned",
        "how_or_can",
        "chinese_changed",
    )
)
"""Those of which more can only speak against it, beside the guards."""

_MOST_LEFT = 3.0
_MOST_WORDS_LEFT = 8


def pair_features(
    a: Facts, b: Facts, similarity: float, tokens: tuple[TokenVectors, TokenVectors] | None = None
) -> tuple[float, ...]:
    """Measures of a pair, each within -1 and 1.

    Args:
        a: of one question.
        b: of the other; the order does not matter.
        similarity: cosine of the vectors of the two questions.
        tokens: the vectors of their tokens, where the embedder gives them; that tells much more. The prior knows those
            of MiniLM.
    """
    alignment = align(a, b)
    reasons = differing(a, b, alignment)
    left = sum(word.weight for word in alignment.left)
    right = sum(word.weight for word in alignment.right)
    total = sum(word.weight for word in a.words) + sum(word.weight for word in b.words)
    pairs = len(alignment.pairs) or 1
    is_same = not alignment.left and not alignment.right
    return (
        similarity,
        min(left, right, _MOST_LEFT) / _MOST_LEFT,
        min(max(left, right), _MOST_LEFT) / _MOST_LEFT,
        min(len(alignment.left) + len(alignment.right), _MOST_WORDS_LEFT) / _MOST_WORDS_LEFT,
        1 - (left + right) / total if total else 1.0,
        alignment.synonyms / pairs,
        alignment.misspelt / pairs,
        alignment.crossing,
        float(alignment.turned),
        float(is_same),
        float(bool(a.asked & b.asked)),
        float((Asked.HOW in a.asked and Asked.CAN in b.asked) or (Asked.CAN in a.asked and Asked.HOW in b.asked)),
        float("zh" in (a.language, b.language) and not (is_same and alignment.crossing == 0)),
        *_nearness(a, b, alignment, tokens),
        *(float(reason in reasons) for reason in GUARDS),
    )


def _nearness(
    a: Facts, b: Facts, alignment: Alignment, tokens: tuple[TokenVectors, TokenVectors] | None
) -> tuple[float, ...]:
    if tokens is None or a.language != "en" or b.language != "en":  # the prior knows no other encoders' tokens
        return (0.0,) * len(NEARNESS)
    from prefold.responses.semantic.wording.word_vectors import nearness  # noqa: PLC0415 - it loads numpy

    found = nearness(a, b, alignment, *tokens)
    return (1.0, found.left, found.least_left, found.between, found.partners, found.least_partners)
