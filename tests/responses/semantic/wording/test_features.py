"""Features and prior: what the decision sees, and what it believes before it has seen anything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.semantic.embedders.token_vectors import TokenVectors
from prefold.responses.semantic.wording.alignment import align
from prefold.responses.semantic.wording.facts import facts
from prefold.responses.semantic.wording.features import FEATURES, NEARNESS, pair_features
from prefold.responses.semantic.wording.prior import prior, weights
from prefold.responses.semantic.wording.word_vectors import nearness

TEXTS = st.sampled_from(
    (
        "How do I pay?",
        "How do I pay my bill?",
        "怎么付款",
        "Cancel order 4821",
        "Cancel order 4812",
        "when is it open on monday",
        "!",
        "",
    )
)


def tokens(text: str, seed: int = 0) -> TokenVectors:
    """A vector for each word, the same for the same word."""
    spans, vectors, at = [], [], 0
    for word in text.lower().split():
        start = text.lower().index(word, at)
        at = start + len(word)
        spans.append((start, at))
        vector = np.random.default_rng([seed, *word.encode()]).normal(size=8)
        vectors.append(vector / np.linalg.norm(vector))
    return TokenVectors(text, tuple(spans), np.array(vectors, dtype=np.float32).reshape(len(vectors), 8))


@given(TEXTS, TEXTS, st.floats(-1, 1), st.booleans())
def test_every_feature_is_within_its_bounds(a: str, b: str, similarity: float, known: bool) -> None:
    given_tokens = (tokens(a), tokens(b)) if known else None
    found = pair_features(facts(a), facts(b), similarity, given_tokens)
    assert len(FEATURES) == len(found)
    assert all(-1.000001 <= value <= 1.000001 for value in found)
    assert 0 < prior(found) < 1


@given(TEXTS, TEXTS)
def test_features_do_not_depend_on_the_order(a: str, b: str) -> None:
    assert pair_features(facts(a), facts(b), 0.5) == pytest.approx(pair_features(facts(b), facts(a), 0.5))


def test_without_vectors_of_tokens_their_features_are_zero() -> None:
    found = dict(zip(FEATURES, pair_features(facts("pay now"), facts("pay later"), 0.9), strict=True))
    assert {0.0} == {found[name] for name in NEARNESS}


def test_no_guard_speaks_for_a_pair() -> None:
    for with_tokens in (False, True):
        model = dict(zip(FEATURES, weights(with_tokens).by_feature, strict=True))
        assert all(weight <= -1 for name, weight in model.items() if name.startswith("guard_"))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("a", "same", "other"),
    [
        ("How do I cancel my order?", "how can i cancel my order please", "How do I cancel my booking with Klarna?"),
        ("Is it open on Monday?", "is it open on mondays", "Is it open on Sunday?"),
        ("How do I enable dark mode?", "How do I turn on dark mode?", "How do I turn off dark mode?"),
    ],
)
def test_the_prior_prefers_the_same_in_other_words(a: str, same: str, other: str, known: bool) -> None:
    def of(b: str) -> float:
        return prior(pair_features(facts(a), facts(b), 0.9, (tokens(a), tokens(b)) if known else None))

    assert of(other) < 0.5 < of(same)


def test_nearness_of_equal_texts_is_complete() -> None:
    text = "how do i pay my bill"
    found = nearness(facts(text), facts(text), align(facts(text), facts(text)), tokens(text), tokens(text))
    assert (1.0, 1.0, 0.0) == (found.left, found.least_left, found.between)
    assert found.partners == pytest.approx(1.0, abs=1e-5)


def test_nearness_measures_what_is_left_over() -> None:
    a, b = "vaccines for my puppy", "jabs for my puppy"
    alignment = align(facts(a), facts("toys for my puppy"))
    assert ["vaccin"] == [word.stem for word in alignment.left]
    far = nearness(facts(a), facts("toys for my puppy"), alignment, tokens(a), tokens("toys for my puppy"))
    assert 1 > far.left == pytest.approx(far.least_left)
    assert () == align(facts(a), facts(b)).left


def test_nearness_copes_with_tokens_that_are_not_there() -> None:
    empty = TokenVectors("", (), np.zeros((0, 8), dtype=np.float32))
    a, b = facts("pay my bill"), facts("cancel the order")
    found = nearness(a, b, align(a, b), empty, empty)
    assert (0.0, 0.0, 1.0, 1.0, 0.0) == (
        found.left,
        found.least_left,
        found.partners,
        found.least_partners,
        found.between,
    )
