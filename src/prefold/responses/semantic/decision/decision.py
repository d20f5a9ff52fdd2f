"""Whether an answer may be served: a calibrated probability that it is right, and a proof of how rarely it is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prefold.responses.semantic.decision.calibration import Calibration
from prefold.responses.semantic.decision.clusters import CLOSENESS, Closeness
from prefold.responses.semantic.decision.proof import Proof, fired_guards
from prefold.responses.semantic.types import Reason, Sample
from prefold.responses.semantic.wording.features import FEATURES
from prefold.responses.semantic.wording.prior import prior

EVIDENCE: tuple[str, ...] = (*FEATURES, *CLOSENESS, "verified", "verifier")
"""Names of what `evidence` returns, and of `Sample.features`."""

_CLOSENESS_WEIGHTS = (0.0,) * len(CLOSENESS)
_HIGHEST = 8.0


@dataclass(frozen=True, slots=True)
class DecisionOptions:
    """What is asked of the decision.

    Attributes:
        max_wrong: share of served answers that may be wrong, above 0 and below 1.
        alpha: probability that the bound does not hold, at any time.
        audit_share: share of would-be hits that goes to the model for ever, so that drift is seen.
        keep: latest samples that the probability is fitted to.
    """

    max_wrong: float = 0.005
    alpha: float = 0.05
    audit_share: float = 0.03
    keep: int = 4096


@dataclass(frozen=True, slots=True)
class Pair:
    """A question beside the entry that may answer it.

    Attributes:
        evidence: as `evidence` returns it.
        entry: id of the entry.
        cluster: of the entry.
        route: of the question.
    """

    evidence: tuple[float, ...]
    entry: str
    cluster: str
    route: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is thought of a pair.

    Attributes:
        probability: that the answer is the same.
        bound: upper bound on the share of wrong answers among those as probable as this, or more; that among pairs with
            the guard that holds it back, where one does and it is higher.
        reason: None where it may be served; else the guard that holds it back, UNSURE or UNPROVEN.
    """

    probability: float
    bound: float
    reason: Reason | None


def evidence(pair: Sequence[float], closeness: Closeness | None, verified: float | None = None) -> tuple[float, ...]:
    """All that the decision looks at, in the order of `EVIDENCE`.

    Args:
        pair: of `pair_features`.
        closeness: of `Clusters.closest`; None where no cluster is known.
        verified: what a verifier said, 0 to 1; None where none was asked.
    """
    close = closeness.features if closeness is not None else (0.0,) * len(CLOSENESS)
    if verified is None:
        return (*pair, *close, 0.0, 0.0)
    return (*pair, *close, 1.0, logit(verified))


class Decision:
    """Learns from judged pairs of one partition when an answer may be served.

    Pure: the same samples, in the same order, give the same judgements. Nothing of one partition tells anything of
    another, so each has its own.

    Args:
        options: what is asked of it.
        prior: probability by the features of a pair alone, before anything is known of this traffic.

    Attributes:
        proof: what the samples prove.
    """

    def __init__(
        self, options: DecisionOptions | None = None, prior: Callable[[Sequence[float]], float] = prior
    ) -> None:
        self.options = options or DecisionOptions()
        self._prior = prior
        self.proof = Proof(self.options.max_wrong, self.options.alpha)
        self._calibration = Calibration(
            (0.0, 1.0, *(0.0,) * len(FEATURES), *_CLOSENESS_WEIGHTS, 0.0, 0.5),
            (2.0, 0.5, *(0.3,) * len(FEATURES), *(1.0,) * len(CLOSENESS), 1.0, 0.5),
            self.options.keep,
        )

    def judge(self, pair: Pair) -> Judgement:
        """Whether a pair may be served; takes up to half a millisecond."""
        probability = self._calibration.probability(self._inputs(pair.evidence))
        overall, guards = self.proof.overall, fired_guards(pair.evidence)
        bound = overall.bound(probability, entry=pair.entry, cluster=pair.cluster, route=pair.route)
        if (guard := self.proof.held_by(guards, probability, pair.cluster)) is not None:
            return Judgement(probability, max(bound, self.proof.guard_bound(guard, probability)), guard)
        if overall.may_serve(probability, entry=pair.entry, cluster=pair.cluster, route=pair.route):
            return Judgement(probability, bound, None)
        unsure = probability < overall.likely_threshold
        return Judgement(probability, bound, Reason.UNSURE if unsure else Reason.UNPROVEN)

    def should_audit(self, draw: float) -> bool:
        """Whether a pair that may be served goes to the model all the same; `draw` is uniform in 0 to 1."""
        return draw < self.options.audit_share

    def learn(self, sample: Sample) -> None:
        """Take what became known of a pair, in that order; one with features of another version is passed over."""
        if len(sample.features) != len(EVIDENCE) or not all(map(math.isfinite, sample.features)):
            return
        self.proof.add(sample)
        self._calibration.learn(self._inputs(sample.features), sample.same)

    def load(self, samples: Iterable[Sample]) -> None:
        """Learn what a store remembers, oldest first."""
        for sample in samples:
            self.learn(sample)

    @property
    def threshold(self) -> float:
        """Probability from which on answers are served; infinite before anything is proven."""
        return self.proof.overall.threshold

    @property
    def missing(self) -> int:
        """Right answers in a row that would prove enough to begin."""
        return self.proof.overall.missing

    def _inputs(self, evidence: Sequence[float]) -> tuple[float, ...]:
        return (logit(self._prior(evidence[: len(FEATURES)])), *evidence)


def logit(probability: float) -> float:
    """Log-odds of a probability, within -8 to 8."""
    if not 0 < probability < 1:
        return math.copysign(_HIGHEST, probability - 0.5)
    return max(-_HIGHEST, min(_HIGHEST, math.log(probability) - math.log1p(-probability)))
