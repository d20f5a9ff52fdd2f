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
class Reading:
    """The fleet at one moment.

    Attributes:
        replicas: all that are known.
        index_blocks: different blocks in the index.
        index_capacity: most of them.
        distinct_prefixes: different beginnings of prompts that were seen lately; None where nobody counts.
        skipped: how often a part was left out, by its name, since what it needs was down or slow.
    """

    replicas: Sequence[ReplicaReading] = ()
    index_blocks: int = 0
    index_capacity: int = 0
    distinct_prefixes: int | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)


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
        prefixes = GaugeMetricFamily("prefold_distinct_prefixes", "Different beginnings of prompts lately.", labels=())
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
