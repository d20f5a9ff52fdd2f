"""The bound on the share of wrong answers: right whenever one looks, and tight enough to be of use."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.semantic.decision.bound import (
    THRESHOLDS,
    WrongBound,
    is_disproved,
    simultaneous_bounds,
    upper_bound,
)

ALPHA = 0.05
RUNS = 4000
FALSE_ALARMS = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / RUNS)
"""Share of so many runs that a right bound stays within, drawn anew, but for about 1 in 700 times.

The guarantee is nearly used up for large shares: of 40,000 runs of 3,000 answers, 4.1 % went wrong at a true share of
0.5 %, 4.5 % at 2 %, 4.8 % at 10 %.
"""


def fill(bound: WrongBound, right: int, wrong: int = 0, *, probability: float = 0.99, cluster: str = "c") -> None:
    for same, count in ((True, right), (False, wrong)):
        for number in range(count):
            bound.add(probability, same=same, entry=f"{cluster}{number}", cluster=cluster, route="r")


def ever_exceeded(wrong: np.ndarray, truth: np.ndarray) -> float:
    """Share of runs, (runs, times), in which the true share, (times,), was at or above the bound at any time."""
    exceeded = np.zeros(len(wrong), bool)
    few = 0
    for at, share in enumerate(truth.tolist()):
        while few and upper_bound(few - 1, at + 1, ALPHA) > share:
            few -= 1
        while few <= at and upper_bound(few, at + 1, ALPHA) <= share:
            few += 1
        exceeded |= wrong[:, at] < few
    return float(exceeded.mean())


@pytest.mark.parametrize("share", [0.005, 0.02, 0.1])
def test_a_true_share_is_hardly_ever_above_the_bound_at_any_time(share: float) -> None:
    drawn = np.random.default_rng(1).random((RUNS, 1500)) < share
    wrong = np.cumsum(drawn, axis=1)
    assert FALSE_ALARMS >= ever_exceeded(wrong, np.full(1500, share))


def test_the_average_of_a_changing_share_is_hardly_ever_above_the_bound() -> None:
    shares = np.where(np.arange(1500) % 300 < 250, 0.002, 0.09)
    drawn = np.random.default_rng(2).random((RUNS, 1500)) < shares
    average = np.cumsum(shares) / np.arange(1, 1501)
    assert FALSE_ALARMS >= ever_exceeded(np.cumsum(drawn, axis=1), average)


def test_the_bounds_of_nested_sets_hold_together_where_each_alone_would_fail_too_often() -> None:
    """The worst case: the share of wrong ones is the same at every probability, and right at the limit."""
    limit, runs, sets = 0.03, 200, len(THRESHOLDS)
    random = np.random.default_rng(6)
    together = alone = 0
    for _ in range(runs):
        levels = random.integers(0, sets + 1, 1000)
        is_wrong = random.random(1000) < limit
        within = np.arange(sets) < levels[:, None]
        seen, wrong = np.cumsum(within, axis=0)[::40], np.cumsum(within & is_wrong[:, None], axis=0)[::40]
        pairs = list(zip(wrong.tolist(), seen.tolist(), strict=True))
        together += any(min(simultaneous_bounds(k, n, ALPHA)) < limit for k, n in pairs)
        alone += any(k <= few_enough(n, limit) for ks, ns in pairs for k, n in zip(ks, ns, strict=True))
    assert ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs) >= together / runs
    assert alone > 1.3 * together


@cache
def few_enough(seen: int, limit: float) -> int:
    """The most wrong ones with which the bound is below a limit; -1 where none are few enough."""
    few = -1
    while few < seen and upper_bound(few + 1, seen, ALPHA) < limit:
        few += 1
    return few


def test_a_fixed_confidence_limit_looked_at_again_and_again_does_not_hold() -> None:
    """What the bound is for: the usual one-sided limit for a share, watched, fails far more often than it says."""
    share = 0.02
    wrong = np.cumsum(np.random.default_rng(3).random((2000, 1500)) < share, axis=1)
    seen = np.arange(1, 1501)
    middle = (wrong + 1) / (seen + 2)
    watched = (share > middle + 1.645 * np.sqrt(middle * (1 - middle) / seen)).any(axis=1).mean()
    assert watched > 2 * ALPHA


@pytest.mark.parametrize(("limit", "most"), [(0.005, 800), (0.01, 400), (0.02, 200)])
def test_a_limit_is_proven_by_about_four_times_its_inverse_of_right_answers(limit: float, most: int) -> None:
    assert upper_bound(0, most, ALPHA) < limit < upper_bound(0, round(3 / limit), ALPHA)


def test_nothing_is_known_of_nothing() -> None:
    assert (1.0, 1.0, 1.0) == (upper_bound(0, 0, ALPHA), upper_bound(1, 1, ALPHA), upper_bound(7, 7, ALPHA))


@given(st.integers(0, 50), st.integers(0, 3000))
def test_the_bound_is_above_the_share_seen_falls_with_right_answers_and_rises_with_wrong_ones(
    wrong: int, right: int
) -> None:
    seen = wrong + right
    here, righter, wronger = (
        upper_bound(*counts, ALPHA) for counts in ((wrong, seen), (wrong, seen + 1), (wrong + 1, seen + 1))
    )
    assert here >= (wrong / seen if seen else 0)
    assert righter <= here <= wronger + 1e-6


def test_too_many_wrong_ones_are_proven_and_seldom_by_chance() -> None:
    assert is_disproved(1, 1, 0.005, ALPHA)
    assert not is_disproved(1, 30, 0.005, ALPHA)
    assert not is_disproved(0, 0, 0.005, ALPHA)
    limit = 0.01
    wrong = np.cumsum(np.random.default_rng(4).random((2000, 600)) < limit, axis=1)
    changed = np.diff(wrong, axis=1, prepend=0) > 0  # only a wrong one can prove it
    fooled = [
        any(is_disproved(int(run[at]), int(at) + 1, limit, ALPHA) for at in np.nonzero(new)[0])
        for run, new in zip(wrong, changed, strict=True)
    ]
    assert ALPHA >= sum(fooled) / len(fooled)


def test_the_lowest_proven_threshold_serves_all_that_is_above_it() -> None:
    bound = WrongBound(0.01, ALPHA)
    fill(bound, 600, probability=0.97)
    fill(bound, 20, 5, probability=0.91)
    assert 0.95 == bound.threshold
    for probability, may in ((0.999, True), (0.97, True), (0.94, False), (0.91, False), (0.5, False)):
        assert may == (bound.bound(probability, entry="new", cluster="new", route="r") < 0.01)


def test_before_anything_is_proven_it_says_what_is_missing() -> None:
    bound = WrongBound(0.01, ALPHA)
    assert math.inf == bound.threshold
    missing = bound.missing
    fill(bound, missing - 1, probability=0.9999)
    assert (1, math.inf) == (bound.missing, bound.threshold)
    fill(bound, 1, probability=0.9999)
    assert (0, THRESHOLDS[-1]) == (bound.missing, bound.threshold)


def test_an_entry_or_cluster_that_is_wrong_too_often_is_not_served_while_others_are() -> None:
    bound = WrongBound(0.01, ALPHA)
    fill(bound, 3000, cluster="good")
    bound.add(0.99, same=False, entry="bad", cluster="bad", route="r")
    assert 1.0 == bound.bound(0.99, entry="bad", cluster="bad", route="r")
    assert 1.0 == bound.bound(0.99, entry="other", cluster="bad", route="r")
    assert 0.01 > bound.bound(0.99, entry="good1", cluster="good", route="r")
    assert 0.01 > bound.bound(0.99, entry="new", cluster="new", route="r")


def test_a_route_that_is_wrong_too_often_is_not_served() -> None:
    bound = WrongBound(0.01, ALPHA)
    fill(bound, 3000)
    for number in range(12):
        bound.add(0.99, same=number % 2 == 0, entry=f"e{number}", cluster=f"k{number}", route="drifting")
    assert 1.0 == bound.bound(0.99, entry="new", cluster="new", route="drifting")
    assert 0.01 > bound.bound(0.99, entry="new", cluster="new", route="r")


def test_what_is_remembered_of_entries_is_bounded() -> None:
    bound = WrongBound(0.01, ALPHA, remember=10)
    bound.add(0.99, same=False, entry="first", cluster="first", route="r")
    fill(bound, 3000)
    assert 0.01 > bound.bound(0.99, entry="first", cluster="first", route="r")


def test_a_long_good_record_does_not_hide_that_answers_went_bad() -> None:
    bound = WrongBound(0.01, ALPHA)
    fill(bound, 20_000)
    assert bound.threshold < 1
    for number in range(60):
        if not bound.drifts:
            bound.add(0.99, same=number % 3 > 0, entry=f"new{number}", cluster=f"new{number}", route="r")
    assert (1, math.inf) == (bound.drifts, bound.threshold)
    fill(bound, 1000)
    assert bound.threshold < 1


def test_a_share_below_the_limit_is_hardly_ever_taken_for_drift() -> None:
    bound = WrongBound(0.02, ALPHA)
    fill(bound, 2000)
    draw = np.random.default_rng(5).random(20_000)
    for number, value in enumerate(draw):
        bound.add(0.99, same=bool(value > 0.01), entry=f"e{number}", cluster=f"e{number}", route="r")
    assert 0 == bound.drifts
