"""What judged pairs prove: of all that guards leave alone, and of each guard that it may be overruled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefold.responses.semantic.decision.bound import THRESHOLDS, WrongBound, upper_bound
from prefold.responses.semantic.types import Reason, Sample
from prefold.responses.semantic.wording.features import FEATURES
from prefold.responses.semantic.wording.guards import GUARDS

_FIRST_GUARD = len(FEATURES) - len(GUARDS)


@dataclass(slots=True)
class _Fired:
    """Pairs on which a guard fired, of those that are probable enough to be served at all.

    Attributes:
        seen: judged ones.
        wrong: of them.
        bound: upper bound on the share of wrong ones.
    """

    seen: int = 0
    wrong: int = 0
    bound: float = 1.0


class Proof:
    """The bounds of one partition, rebuilt from its samples.

    A guard decides alone until pairs with that very guard have shown otherwise: what other pairs prove says nothing of
    those on which it fires. So pairs that a guard holds back count for that guard only, and neither spoil the proof of
    the others nor lend them any. Pairs with several guards count for each.

    Args:
        limit: share of wrong answers that is to be stayed below.
        alpha: probability that the bound over all does not hold, at any time; and, shared equally by all guards, that
            any of theirs does not.

    Attributes:
        overall: what is proven of the pairs that no guard holds back.
    """

    def __init__(self, limit: float, alpha: float = 0.05) -> None:
        self.overall = WrongBound(limit, alpha)
        self._alpha = alpha / len(GUARDS)
        self._fired = {guard: _Fired() for guard in GUARDS}

    def add(self, sample: Sample) -> None:
        """Count a pair whose answers were compared. All guards hold again once answers went bad."""
        fired = fired_guards(sample.features)
        if self.held_by(fired) is None:
            drifts = self.overall.drifts
            self.overall.add(
                sample.probability, same=sample.same, entry=sample.entry, cluster=sample.cluster, route=sample.route
            )
            if self.overall.drifts > drifts:
                self._fired = {guard: _Fired() for guard in GUARDS}
        if sample.probability < THRESHOLDS[0]:
            return
        for guard in fired:
            counts = self._fired[guard]
            counts.seen += 1
            counts.wrong += not sample.same
            counts.bound = upper_bound(counts.wrong, counts.seen, self._alpha)

    def held_by(self, fired: Sequence[Reason]) -> Reason | None:
        """The first of some guards that fired which nothing has shown to be needless; None where there is none."""
        return next((guard for guard in fired if self._fired[guard].bound >= self.overall.limit), None)

    def guard_bound(self, fired: Sequence[Reason]) -> float:
        """The highest bound on the share of wrong ones among pairs with any of these guards; 0.0 without guards."""
        return max((self._fired[guard].bound for guard in fired), default=0.0)


def fired_guards(features: Sequence[float]) -> tuple[Reason, ...]:
    """The guards that fired on a pair, by its features, or by its evidence, which begins with them."""
    return tuple(guard for guard, found in zip(GUARDS, features[_FIRST_GUARD:], strict=False) if found)
