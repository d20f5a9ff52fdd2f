"""Upper bounds on the share of wrong answers that hold however often, and whenever, one looks at them.

A bound by betting, see Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (JRSS B,
2024), here for answers that are right or wrong, where each bet is a likelihood ratio. Against the claim "the share of
wrong ones is m", bet that it is `r` times as much, `r` below 1: after `seen` answers, `wrong` of them wrong, the stake
has grown by `r**wrong * ((1 - r * m) / (1 - m)) ** (seen - wrong)`. If the claim is true, no stake ever grows to
`1 / alpha` with a probability above `alpha` (Ville). All `m` against which it has are ruled out; the smallest of them
is the bound. The stake is spread over several fixed `r` (the method of mixtures). As no bet depends on what was seen
before, the bound also holds for the average share where that share changes from answer to answer: by the inequality
of means, the stake against the average cannot grow faster than a fair game.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

THRESHOLDS = (0.9, 0.95, 0.975, 0.99)
"""Probabilities from which on may be served, each with a bound for all at or above it; more would need more proof."""

_RATIOS = np.array((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9))
_LOG_RATIOS = np.array((-np.inf, *np.log(_RATIOS[1:])))
_PARTS = np.array((0.4, 0.12, 0.12, 0.1, 0.08, 0.07, 0.06, 0.03, 0.02))
"""Of the stake on each ratio `r`; most is on few wrong ones, as that is to be proven."""

_SHARES = np.array((0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 0.96))
"""Shares of wrong ones that are bet on, equally, to prove that there are too many."""

_HALVINGS = 22

_BAD = 4.0
_ALARM = math.log(1000.0)
"""Growth of the stake on drift at which it is believed; at the limit itself, it takes 1,000 samples on average."""


def bad_share(limit: float) -> float:
    """The share of wrong answers that is far too much where `limit` is asked for: four times that, and below 1."""
    return min(_BAD * limit, (1 + limit) / 2)


def upper_bound(wrong: int, seen: int, alpha: float) -> float:
    """The share of wrong answers is below this at all times, but for a probability of `alpha`.

    Args:
        wrong: of those seen.
        seen: answers of which it is known.
        alpha: probability that the share is above the bound at any time at all.

    Returns:
        Between 0 and 1; 1.0 while nothing is known.
    """
    return simultaneous_bounds((wrong,), (seen,), alpha)[0]


def simultaneous_bounds(wrong: Sequence[int], seen: Sequence[int], alpha: float) -> tuple[float, ...]:
    """Upper bounds that all hold at the same time, and at all times, but for a probability of `alpha`.

    Args:
        wrong: of those seen, in each of several sets. Each set contains the next, and its share is no lower.
        seen: likewise.
        alpha: probability that any share is above its bound at any time at all.

    Returns:
        As many as there are sets; each as in `upper_bound`.
    """
    places = np.arange(len(seen))
    low, high = np.zeros(len(seen)), np.ones(len(seen))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_ruled_out = _closed(_stakes_against(middle, wrong, seen))[places, places] >= -math.log(alpha)
        high = np.where(is_ruled_out, middle, high)
        low = np.where(is_ruled_out, low, middle)
    return tuple(high.tolist())


def is_disproved(wrong: int, seen: int, limit: float, alpha: float) -> bool:
    """Whether it is proven, in the same sense, that the share of wrong answers is above `limit`."""
    shares = _SHARES[limit < _SHARES]
    if wrong <= limit * seen or not len(shares):
        return False
    stakes = wrong * np.log(shares / limit) + (seen - wrong) * np.log((1 - shares) / (1 - limit))
    return float(np.logaddexp.reduce(stakes)) - math.log(len(shares)) >= -math.log(alpha)


def _stakes_against(shares: Any, wrong: Sequence[int], seen: Sequence[int]) -> Any:
    """Log of the stake against each of some shares, which are within 0 and 1, for each set; (shares, sets)."""
    wrongs = np.asarray(wrong, np.float64)
    rights = np.asarray(seen, np.float64) - wrongs
    growth = np.log1p(-np.outer(shares, _RATIOS)) - np.log1p(-shares)[:, None]
    losses = np.zeros((len(wrongs), len(_RATIOS)))
    np.multiply(wrongs[:, None], _LOG_RATIOS, out=losses, where=wrongs[:, None] > 0)  # 0 times infinity is 0 here
    stakes = np.log(_PARTS) + losses + rights[:, None] * growth[:, None]
    top = stakes.max(2)
    return top + np.log(np.exp(stakes - top[:, :, None]).sum(2))


def _closed(stakes: Any) -> Any:
    """For each set, the least mean of the stakes of all sets from the first to one that is within it, or itself.

    Args:
        stakes: logs, (shares, sets), each set containing the next.
    """
    sets = np.arange(1, stakes.shape[1] + 1)
    means = np.logaddexp.accumulate(stakes, axis=1) - np.log(sets)
    return np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]


@dataclass(slots=True)
class _Counts:
    """By threshold: samples at or above it, and wrong ones of them."""

    seen: list[int]
    wrong: list[int]

    @classmethod
    def none(cls) -> _Counts:
        return cls([0] * len(THRESHOLDS), [0] * len(THRESHOLDS))

    def add(self, probability: float, *, same: bool) -> None:
        for place, threshold in enumerate(THRESHOLDS):
            if probability >= threshold:
                self.seen[place] += 1
                self.wrong[place] += not same

    def counts_here(self) -> list[bool]:
        """For each threshold, whether a sample lies between it and the next: if not, nothing is known of it."""
        return [here > above for here, above in zip(self.seen, (*self.seen[1:], 0), strict=True)]


class WrongBound:
    """What is proven about the share of wrong answers among those at or above a probability.

    Proof is pooled over all samples of one partition, since no single entry is ever asked often enough. An entry, a
    cluster or a route on its own can only take away: where its own samples prove that it is wrong too often, nothing
    of it is served, whatever holds for all. Partitions share nothing.

    The bounds of all thresholds hold at the same time, so the lowest good one may be picked, if the share of wrong ones
    does not rise with the probability. Then the thresholds whose share is too high are all from some one downwards, and
    a threshold is accepted when, wherever that one may lie at or above it, the mean of the stakes from there downwards
    has grown to `1 / alpha` (closed testing with means of e-values; Vovk and Wang, "E-values: calibration, combination
    and applications", 2021). Picking among bounds that each hold alone would fail four times as often as it says.

    A long good record must not hide that answers went bad. So among audited samples of what is served, a stake on a
    share that has risen is kept (CUSUM; Page, 1954); when it has grown enough, the record is dropped and has to be
    earned again.

    Once something is served, only audited ones of it are seen, while all below the threshold are: so the bounds of
    lower thresholds come out too high, never too low.

    Args:
        limit: share of wrong answers that is to be stayed below.
        alpha: probability of a bound that does not hold, at any time.
        remember: entries and clusters whose own samples are counted; those heard of longest ago are forgotten.

    Attributes:
        drifts: how often the record was dropped.
    """

    def __init__(self, limit: float, alpha: float = 0.05, remember: int = 20_000) -> None:
        self.limit = limit
        self.alpha = alpha
        self._remember = remember
        self._all = _Counts.none()
        self._own: OrderedDict[tuple[str, str], _Counts] = OrderedDict()
        self._bounds: tuple[float, ...] | None = None
        self._threshold: float | None = None
        self._drift = 0.0
        self.drifts = 0

    def add(self, probability: float, *, same: bool, entry: str = "", cluster: str = "", route: str = "") -> None:
        """Count a pair whose answers were compared.

        Args:
            probability: given before the comparison.
            same: what it found.
            entry: of the candidate; of what is "", here and below, nothing is counted by itself.
            cluster: of the candidate.
            route: of the question.
        """
        if probability < THRESHOLDS[0]:
            return
        if self.may_serve(probability, entry=entry, cluster=cluster, route=route) and self._has_drifted(same=same):
            self._all = _Counts.none()
            self.drifts += 1
        self._bounds = self._threshold = None
        self._all.add(probability, same=same)
        for level in _levels(entry, cluster, route):
            self._own.setdefault(level, _Counts.none()).add(probability, same=same)
            self._own.move_to_end(level)
        while len(self._own) > self._remember:
            self._own.popitem(last=False)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The bound for each of `THRESHOLDS`; 1.0 where no sample lies between it and the next."""
        if self._bounds is None:
            bounds = simultaneous_bounds(self._all.wrong, self._all.seen, self.alpha)
            self._bounds = tuple(
                bound if counts else 1.0 for bound, counts in zip(bounds, self._all.counts_here(), strict=True)
            )
        return self._bounds

    @property
    def threshold(self) -> float:
        """The lowest probability from which on the bound is below the limit; infinite where there is none."""
        if self._threshold is None:
            stakes = _closed(_stakes_against(np.array([self.limit]), self._all.wrong, self._all.seen))[0]
            is_proven = (stakes >= -math.log(self.alpha)) & self._all.counts_here()
            self._threshold = THRESHOLDS[int(np.argmax(is_proven))] if is_proven.any() else math.inf
        return self._threshold

    @property
    def likely_threshold(self) -> float:
        """The threshold, or else the one that is nearest to being proven."""
        if self.threshold < math.inf:
            return self.threshold
        return min(zip(self.bounds, THRESHOLDS, strict=True))[1]

    @property
    def missing(self) -> int:
        """How many more right answers, without a wrong one, some threshold needs at least; 0 where one is proven."""
        if self.threshold < math.inf:
            return 0
        return max(1, min(map(self._missing, self._all.wrong, self._all.seen)))

    def bound(self, probability: float, *, entry: str = "", cluster: str = "", route: str = "") -> float:
        """Upper bound on the share of wrong answers if everything at or above this probability is served.

        Returns:
            1.0 below all thresholds, and where entry, cluster or route were wrong too often.
        """
        if self._is_barred(entry, cluster, route):
            return 1.0
        reached = (bound for bound, threshold in zip(self.bounds, THRESHOLDS, strict=True) if probability >= threshold)
        return min(reached, default=1.0)

    def may_serve(self, probability: float, *, entry: str = "", cluster: str = "", route: str = "") -> bool:
        """Whether the bound is below the limit."""
        return probability >= self.threshold and not self._is_barred(entry, cluster, route)

    def exceeds(self, limit: float) -> bool:
        """Whether more than this share is proven to be wrong of all that is served, or would be first."""
        place = bisect_left(THRESHOLDS, self.likely_threshold)
        return is_disproved(self._all.wrong[place], self._all.seen[place], limit, self.alpha)

    def _is_barred(self, entry: str, cluster: str, route: str) -> bool:
        """Whether any of them was wrong too often among what is, or would be, served."""
        place = bisect_left(THRESHOLDS, self.likely_threshold)
        return any(
            is_disproved(own.wrong[place], own.seen[place], self.limit, self.alpha)
            for own in map(self._own.get, _levels(entry, cluster, route))
            if own is not None
        )

    def _has_drifted(self, *, same: bool) -> bool:
        share = bad_share(self.limit)
        growth = (1 - share) / (1 - self.limit) if same else share / self.limit
        self._drift = max(0.0, self._drift + math.log(growth))
        if self._drift < _ALARM:
            return False
        self._drift = 0.0
        return True

    def _missing(self, wrong: int, seen: int) -> int:
        if upper_bound(wrong, seen, self.alpha) < self.limit:
            return 0
        low, high = 0, 1
        while upper_bound(wrong, seen + high, self.alpha) >= self.limit:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            if upper_bound(wrong, seen + middle, self.alpha) < self.limit:
                high = middle
            else:
                low = middle
        return high


def _levels(entry: str, cluster: str, route: str) -> tuple[tuple[str, str], ...]:
    named = (("entry", entry), ("cluster", cluster), ("route", route))
    return tuple(level for level in named if level[1])
