"""What the store of answers by meaning proves, followed from look to look for the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prefold.responses.semantic.decision.bound import THRESHOLDS
from prefold.responses.semantic.decision.decision import EVIDENCE
from prefold.responses.semantic.decision.proof import Proof
from prefold.responses.semantic.types import Sample


class Judged(Protocol):
    """The part of a store that is looked at."""

    async def pools(self) -> Sequence[str]:
        """Pools that have samples."""

    async def samples(self, pool: str, after: int = 0) -> list[Sample]:
        """See `Entries.samples`."""

    async def counts(self) -> Mapping[str, int]:
        """See `Entries.counts`."""


@dataclass(slots=True)
class _Proof:
    """Of a pool.

    Attributes:
        proof: of its samples.
        latest: number of the last one.
        was_served: whether enough was proven at some look.
    """

    proof: Proof
    latest: int = 0
    was_served: bool = False

    def learn(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self.latest = sample.number
            if len(sample.features) == len(EVIDENCE):
                self.proof.add(sample)
        self.was_served = self.was_served or self.proof.overall.missing == 0

    @property
    def worst(self) -> tuple[float, float]:
        """The bound where it counts, and the probability from which on it does."""
        threshold = self.proof.overall.likely_threshold
        return self.proof.overall.bounds[THRESHOLDS.index(threshold)], threshold


class Proofs:
    """Looks at a store now and then.

    Args:
        store: looked at.
        max_wrong: share of served answers that may be wrong.

    Attributes:
        entries: in the store at the last look; None before it.
        samples: likewise.
        bound: see `MeaningReading.bound`.
        threshold: see there.
    """

    def __init__(self, store: Judged, max_wrong: float) -> None:
        self.entries: int | None = None
        self.samples: int | None = None
        self.bound: float | None = None
        self.threshold: float | None = None
        self._store = store
        self._max_wrong = max_wrong
        self._proofs: dict[str, _Proof] = {}

    async def look(self) -> None:
        """Look once.

        Raises:
            StoreFailed: if it cannot be read; what was seen before stays.
        """
        counts = await self._store.counts()
        self.entries, self.samples = counts["entries"], counts["samples"]
        for pool in await self._store.pools():
            proof = self._proofs.setdefault(pool, _Proof(Proof(self._max_wrong)))
            if news := await self._store.samples(pool, proof.latest):
                await asyncio.to_thread(proof.learn, news)  # at the first look they may be many
        self.bound, self.threshold = await asyncio.to_thread(self._summed)

    def _summed(self) -> tuple[float, float]:
        served = [proof.worst for proof in self._proofs.values() if proof.was_served]
        if served:
            return max(served)
        return min((proof.worst for proof in self._proofs.values()), default=_Proof(Proof(self._max_wrong)).worst)
