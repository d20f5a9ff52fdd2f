"""What judged pairs prove: of all that no guard holds back, and of each guard that it may be overruled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from prefold.responses.semantic.decision.bound import THRESHOLDS, WrongBound, bad_share
from prefold.responses.semantic.types import Reason, Sample
from prefold.responses.semantic.wording.features import FEATURES
from prefold.responses.semantic.wording.guards import GUARDS

_REMEMBERED = 20_000
"""Answers by guard that are remembered; those heard of longest ago are forgotten."""
_FIRST_GUARD = len(FEATURES) - len(GUARDS)


class Proof:
    """The bounds of one partition, rebuilt from its samples.

    A guard decides alone until two things are known. Of the answer in question, that it was right for a question on
    which that very guard fired: so a new answer is never given against a guard, whatever is known of others. And of all
    pairs with that very guard, that the share of wrong ones is not far too high (below `bad_share`), from some
    probability on: what other pairs prove says nothing of those on which it fires. From then on its pairs are among
    those over which the limit itself has to hold. To ask the limit of each guard alone would take as many samples of
    each as of all together. Instead, a guard holds again once its own pairs prove that their share is above the limit.

    Pairs that a guard holds back count for their guards only, and neither spoil the proof of the others nor lend them
    any. Pairs with several guards count for each, and each has to let them pass.

    Args:
        limit: share of wrong answers that is to be stayed below.
        alpha: probability that the bound over all that is not held back fails, at any time; and, shared equally by all
            guards, that any of theirs does.

    Attributes:
        overall: what is proven of the pairs that no guard holds back.
    """

    def __init__(self, limit: float, alpha: float = 0.05) -> None:
        self.overall = WrongBound(limit, alpha)
        self._fired = _nothing_yet(limit, alpha)
        self._known: OrderedDict[tuple[str, Reason], None] = OrderedDict()

    def add(self, sample: Sample) -> None:
        """Count a pair whose answers were compared. All guards hold again once answers went bad."""
        probability, same, fired = sample.probability, sample.same, fired_guards(sample.features)
        if self.held_by(fired, probability, sample.cluster) is None:
            drifts = self.overall.drifts
            self.overall.add(probability, same=same, entry=sample.entry, cluster=sample.cluster, route=sample.route)
            if self.overall.drifts > drifts:
                self._fired = _nothing_yet(self.overall.limit, self.overall.alpha)
                self._known.clear()
        for guard in fired:
            self._fired[guard].add(probability, same=same)
            if same:
                self._known[sample.cluster, guard] = None
                self._known.move_to_end((sample.cluster, guard))
            elif probability >= THRESHOLDS[0]:
                self._known.pop((sample.cluster, guard), None)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def held_by(self, fired: Sequence[Reason], probability: float, cluster: str) -> Reason | None:
        """The first of some guards that fired which still decides; None where there is none.

        Args:
            fired: by the pair.
            probability: given to the pair.
            cluster: of the answer.
        """
        return next((guard for guard in fired if self._holds(guard, probability, cluster)), None)

    def guard_bound(self, guard: Reason, probability: float) -> float:
        """Upper bound on the share of wrong ones among pairs with a guard, at or above a probability."""
        return self._fired[guard].bound(probability)

    def _holds(self, guard: Reason, probability: float, cluster: str) -> bool:
        bound = self._fired[guard]
        is_known = (cluster, guard) in self._known
        return not is_known or not bound.may_serve(probability) or bound.exceeds(self.overall.limit)


def fired_guards(features: Sequence[float]) -> tuple[Reason, ...]:
    """The guards that fired on a pair, by its features, or by its evidence, which begins with them."""
    return tuple(guard for guard, found in zip(GUARDS, features[_FIRST_GUARD:], strict=False) if found)


def _nothing_yet(limit: float, alpha: float) -> dict[Reason, WrongBound]:
    return {guard: WrongBound(bad_share(limit), alpha / len(GUARDS)) for guard in GUARDS}
