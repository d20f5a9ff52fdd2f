"""What the gateway knows at the moment of a scrape, rather than counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

REPLICA_STATES = ("up", "down", "ejected", "open")
"""What a replica can be: `open` is that of its circuit breaker."""

TRUST_STATES = ("exact", "degraded", "fallback")
"""How far a replica's events can be trusted."""


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """A replica at one moment.

    Attributes:
        name: of the replica.
        state: one of `REPLICA_STATES`.
        trust: one of `TRUST_STATES`; empty where it sends no events.
        pending: requests under way.
        blocks: of it in the index.
        evicted_tokens: that its events told of since the gateway began.
    """

    name: str
    state: str
    trust: str = ""
    pending: int = 0
    blocks: int = 0
    evicted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class MeaningReading:
    """Answers by meaning at one moment.

    Attributes:
        questions: that were looked at since the gateway began, by "hit" or the reason of the miss.
        limit: share of served answers that may be wrong.
        entries: in the store; None before anybody has looked.
        samples: judged pairs in the store; likewise.
        bound: the highest upper bound on the share of wrong answers among tenants that are served, or were: at the
            probability from which on they are. The lowest one before anybody is. None before anybody has looked.
        threshold: that probability.
    """

    questions: Mapping[str, int]
    limit: float
    entries: int | None = None
    samples: int | None = None
    bound: float | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The fleet at one moment.

    Attributes:
        replicas: all that are known.
        index_blocks: different blocks in the index.
        index_capacity: most of them.
        distinct_prefixes: different beginnings of prompts that were seen lately; None where nobody counts.
        skipped: how often a part was left out, by its name, since what it needs was down or slow.
        meaning: of answers by meaning; None where there are none.
    """

    replicas: Sequence[ReplicaReading] = ()
    index_blocks: int = 0
    index_capacity: int = 0
    distinct_prefixes: int | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    meaning: MeaningReading | None = None


Gauges = Callable[[], Reading]
"""Reads the fleet; called at each scrape, in the event loop."""


class Lossy(Protocol):
    """Something that may lose what it was to write or send.

    Attributes:
        name: a label.
        lost: how many calls it lost.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above

    @property
    def lost(self) -> int: ...  # noqa: D102 - described above


class Collected(Collector):
    """Makes series of a reading and of what was lost.

    Args:
        gauges: reads the fleet.
        lossy: what counts its own losses.
    """

    def __init__(self, gauges: Gauges, lossy: Sequence[Lossy]) -> None:
        self._gauges = gauges
        self._lossy = lossy

    def describe(self) -> Iterable[Metric]:
        """The names alone: nothing is read while something is registered."""
        return self._families(Reading())

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        return self._families(self._gauges())

    def _families(self, reading: Reading) -> Iterable[Metric]:
        states = GaugeMetricFamily("prefold_replica_state", "1 for what a replica is now.", labels=("replica", "state"))
        trust = GaugeMetricFamily(
            "prefold_replica_trust", "1 for how far its events are trusted now.", labels=("replica", "trust")
        )
        pending = GaugeMetricFamily("prefold_replica_pending", "Requests under way.", labels=("replica",))
        blocks = GaugeMetricFamily("prefold_replica_index_blocks", "Its blocks in the index.", labels=("replica",))
        evicted = CounterMetricFamily(
            "prefold_evicted_tokens", "Tokens evicted, as its events tell.", labels=("replica",)
        )
        for replica in reading.replicas:
            for state in REPLICA_STATES:
                states.add_metric((replica.name, state), float(replica.state == state))
            pending.add_metric((replica.name,), replica.pending)
            if replica.trust:
                for state in TRUST_STATES:
                    trust.add_metric((replica.name, state), float(replica.trust == state))
                blocks.add_metric((replica.name,), replica.blocks)
                evicted.add_metric((replica.name,), replica.evicted_tokens)
        yield from (states, trust, pending, blocks, evicted)
        yield GaugeMetricFamily("prefold_index_blocks", "Different blocks in the index.", reading.index_blocks)
        yield GaugeMetricFamily("prefold_index_capacity_blocks", "Most blocks in the index.", reading.index_capacity)
        prefixes = GaugeMetricFamily(
            "prefold_distinct_prefixes",
            "Different beginnings (hash_tokens) of prompts with a choice of replicas in the last one to two hours;"
            " standard error 1.6 %.",
            labels=(),
        )
        if reading.distinct_prefixes is not None:
            prefixes.add_metric((), reading.distinct_prefixes)
        yield prefixes
        skipped = CounterMetricFamily(
            "prefold_skipped",
            "Times that a part was left out, since what it needs was down or slow.",
            labels=("part",),
        )
        for part, times in reading.skipped.items():
            skipped.add_metric((part,), times)
        yield skipped
        lost = CounterMetricFamily("prefold_lost_records", "Calls that a log or exporter lost.", labels=("sink",))
        for sink in self._lossy:
            lost.add_metric((sink.name,), sink.lost)
        yield lost
        yield from _meaning_families(reading.meaning or MeaningReading({}, 0.0), is_there=reading.meaning is not None)


def _meaning_families(meaning: MeaningReading, *, is_there: bool) -> Iterable[Metric]:
    questions = CounterMetricFamily(
        "prefold_meaning_questions",
        "Requests looked at for an answer by meaning, by hit or the reason of the miss.",
        labels=("outcome",),
    )
    for outcome, times in meaning.questions.items():
        questions.add_metric((outcome,), times)
    yield questions
    for name, text, value in (
        ("wrong_limit", "Share of served answers that may be wrong.", meaning.limit if is_there else None),
        ("entries", "Answers kept for other words.", meaning.entries),
        ("samples", "Judged pairs.", meaning.samples),
        ("wrong_bound", "Upper bound on the share of wrong answers, valid at any time.", meaning.bound),
        ("threshold", "Probability from which on answers are served, or would be first.", meaning.threshold),
    ):
        gauge = GaugeMetricFamily(f"prefold_meaning_{name}", text, labels=())
        if value is not None:
            gauge.add_metric((), value)
        yield gauge
