"""What a store has shown so far: how much would be served, how rarely that is wrong, and what is missing to begin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prefold.errors import UsageError
from prefold.responses.semantic.decision.bound import THRESHOLDS, WrongBound
from prefold.responses.semantic.decision.decision import EVIDENCE, Decision, DecisionOptions, Pair
from prefold.responses.semantic.decision.proof import fired_guards
from prefold.responses.semantic.decision.shares import Share
from prefold.responses.semantic.types import Reason, Sample

_WOULD_BE = (Reason.SHADOW, Reason.AUDITED, Reason.UNPROVEN)
"""Misses that were sure enough to be hits: for the mode, the audit, or the proof that is missing yet."""
_REASONS = frozenset(reason.value for reason in Reason)
_HITS = "hits"
_LATEST = 200
"""Right ones that are looked at for whether they would be served now."""


class Judgements(Protocol):
    """The part of `Entries` that a report is made of."""

    async def pools(self) -> Sequence[str]:
        """Pools that have samples."""

    async def samples(self, pool: str, after: int = 0) -> list[Sample]:
        """See `Entries.samples`."""

    async def tallies(self) -> Mapping[str, int]:
        """See `Entries.tallies`."""


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What is proven for those who share samples.

    Attributes:
        pool: see `Sample.pool`.
        samples: judged pairs.
        threshold: probability from which on answers are served, or, before anything is proven, from which on they
            probably will be.
        wrong: of the samples at or above it.
        bound: upper bound, valid at any time, on the share of wrong ones among them.
        missing: surest right answers in a row that would prove enough to begin, at least; 0 where it is proven.
        reached: of the latest right ones that no guard held back, those that are as probable as that by what is known
            now: probabilities are fitted anew as samples come, and a proof is of those that were given before.
        passes: whether something may be served: it is proven, and something reaches the threshold.
        drifts: how often answers went bad, and the record was dropped; `wrong` and `bound` are of what came since.
        routes: wrong ones of those at or above the threshold, by model.
    """

    pool: str
    samples: int
    threshold: float
    wrong: Share
    bound: float
    missing: int
    reached: Share
    passes: bool
    drifts: int
    routes: Mapping[str, Share]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "pool": self.pool,
            "samples": self.samples,
            "passes": self.passes,
            "threshold": self.threshold,
            **_wrong_as_json(self.wrong),
            "wrong_bound": self.bound,
            "missing_samples": self.missing,
            "reached": {"count": self.reached.count, "of": self.reached.of},
            "drifts": self.drifts,
            "routes": [{"route": route, **_wrong_as_json(wrong)} for route, wrong in self.routes.items()],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All of a store.

    Attributes:
        max_wrong: share of served answers that may be wrong.
        alpha: probability that a bound does not hold, at any time.
        would_be: hits, and what was as sure as one, of all questions that were seen.
        hits: that were served.
        misses: the others, by reason, most frequent first.
        learned: answers kept, wordings added, pairs rejected, and what was not judged, as it was counted.
        pools: by pool, the one with most samples first.
        missing: as `PoolReport.missing`, of the pool that needs least.
    """

    max_wrong: float
    alpha: float
    would_be: Share
    hits: int
    misses: Mapping[str, int]
    learned: Mapping[str, int]
    pools: tuple[PoolReport, ...]
    missing: int

    @property
    def passes(self) -> bool:
        """Whether anything may be served to anybody. Pools that do not pass are not served, whatever the mode."""
        return any(pool.passes for pool in self.pools)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "schema_version": 1,
            "passes": self.passes,
            "max_wrong": self.max_wrong,
            "alpha": self.alpha,
            "questions": self.would_be.of,
            "would_be_hits": self.would_be.count,
            "would_be_hit_rate": self.would_be.value,
            "interval": list(self.would_be.interval),
            "hits": self.hits,
            "misses": dict(self.misses),
            "learned": dict(self.learned),
            "missing_samples": self.missing,
            "pools": [pool.as_json() for pool in self.pools],
        }


def _wrong_as_json(wrong: Share) -> dict[str, Any]:
    return {"judged": wrong.of, "wrong": wrong.count, "wrong_rate": wrong.value, "wrong_interval": list(wrong.interval)}


def make_report(
    samples: Mapping[str, Sequence[Sample]], tallies: Mapping[str, int], options: DecisionOptions
) -> Report:
    """What samples and counts come to.

    Args:
        samples: by pool, oldest first.
        tallies: as `Entries.tallies` gives them.
        options: of the decision that would serve.
    """
    pools = [_pool_report(pool, some, options) for pool, some in samples.items()]
    pools.sort(key=lambda pool: (-pool.samples, pool.pool))
    counted = sorted(tallies.items(), key=lambda item: (-item[1], item[0]))
    misses = {name: count for name, count in counted if name in _REASONS}
    hits = tallies.get(_HITS, 0)
    return Report(
        max_wrong=options.max_wrong,
        alpha=options.alpha,
        would_be=Share(hits + sum(misses.get(reason, 0) for reason in _WOULD_BE), hits + sum(misses.values())),
        hits=hits,
        misses=misses,
        learned={name: count for name, count in counted if name not in _REASONS and name != _HITS},
        pools=tuple(pools),
        missing=min((pool.missing for pool in pools), default=WrongBound(options.max_wrong, options.alpha).missing),
    )


def _pool_report(pool: str, samples: Sequence[Sample], options: DecisionOptions) -> PoolReport:
    # Samples with the features of another version prove nothing for this one's probabilities.
    counted = [sample for sample in samples if len(sample.features) == len(EVIDENCE)]
    decision = Decision(options)
    proof = decision.proof
    record: list[Sample] = []
    for sample in counted:
        drifts = proof.overall.drifts
        is_held = proof.held_by(fired_guards(sample.features), sample.probability, sample.cluster) is not None
        decision.learn(sample)
        if proof.overall.drifts > drifts:
            record.clear()
        if not is_held:
            record.append(sample)
    overall = proof.overall
    threshold, reached = overall.likely_threshold, _reached(decision, record)
    passes = overall.threshold <= 1.0 and reached.count > 0
    routes: defaultdict[str, Share] = defaultdict(lambda: Share(0, 0))
    for sample in record:
        if sample.probability >= threshold:
            routes[sample.route] += Share(int(not sample.same), 1)
    return PoolReport(
        pool=pool,
        samples=len(counted),
        threshold=threshold,
        wrong=sum(routes.values(), Share(0, 0)),
        bound=overall.bounds[THRESHOLDS.index(threshold)],
        missing=max(overall.missing, 0 if passes else 1),
        reached=reached,
        passes=passes,
        drifts=overall.drifts,
        routes=dict(sorted(routes.items())),
    )


def _reached(decision: Decision, record: Sequence[Sample]) -> Share:
    """How many of the latest right ones would be at or above the threshold if they were asked now."""
    latest = [sample for sample in record if sample.same][-_LATEST:]
    threshold = decision.proof.overall.likely_threshold
    pairs = (Pair(sample.features, sample.entry, sample.cluster, sample.route) for sample in latest)
    return Share(sum(decision.judge(pair).probability >= threshold for pair in pairs), len(latest))


async def read_report(judgements: Judgements, options: DecisionOptions) -> Report:
    """The report of a store.

    Args:
        judgements: the store.
        options: of the decision that would serve.

    Raises:
        StoreFailed: if it cannot be read.
    """
    samples = {pool: await judgements.samples(pool) for pool in await judgements.pools()}
    return make_report(samples, await judgements.tallies(), options)


async def require_proof(judgements: Judgements, options: DecisionOptions) -> None:
    """Refuse to switch on what has not been shown to be right often enough.

    Args:
        judgements: the store.
        options: of the decision that is to serve.

    Raises:
        UsageError: if its report does not pass.
        StoreFailed: if it cannot be read.
    """
    report = await read_report(judgements, options)
    if not report.passes:
        answers = "answer" if report.missing == 1 else "answers"
        raise UsageError(
            f"Answers by meaning are not proven: at least {report.missing:,} more right {answers} must be judged "
            f"before at most {options.max_wrong:.2%} of what is served are known to be wrong.",
            hint="leave the mode at shadow and see `prefold answers report`, or force it: nothing is served unproven",
        )
