"""What was learned so far, in memory: a decision for each pool of samples, clusters for each context."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from prefold.responses.semantic.decision.clusters import Clusters
from prefold.responses.semantic.decision.decision import Decision, DecisionOptions
from prefold.responses.semantic.types import Entries, KnownWording, Question
from prefold.responses.store import StoreFailed

_log = logging.getLogger(__name__)

_SAMPLES_SECONDS = 5.0
_ROOM_SECONDS = 300.0
_LEARNED_AT_ONCE = 256


@dataclass(slots=True)
class _Pool:
    """A decision, and up to which sample it has learned."""

    decision: Decision
    latest: int = 0
    stale_at: float = -math.inf
    loading: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Room:
    """The clusters of a context."""

    clusters: Clusters
    stale_at: float = -math.inf
    loading: asyncio.Task[None] | None = None


def _shrink(held: OrderedDict[Any, Any], most: int) -> None:
    while len(held) > most:
        held.popitem(last=False)


def _clusters_of(wordings: list[KnownWording], size: int) -> Clusters:
    clusters = Clusters(size)
    for wording in wordings:
        clusters.add(wording.cluster, np.frombuffer(wording.vector, "<f4"), wording.text)
    return clusters


class Learned:
    """Loads what a store knows when it is first asked for, and again now and then, since others add to it.

    Args:
        entries: the one truth.
        embedder: fingerprint of whose vectors count.
        options: of each decision.
        pools: partitions whose decisions are held.
        rooms: contexts whose clusters are.
        clock: seconds that only grow.
        spawn: runs work in the background.
    """

    def __init__(
        self,
        entries: Entries,
        embedder: Callable[[], str],
        options: DecisionOptions,
        *,
        pools: int,
        rooms: int,
        clock: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._entries = entries
        self._embedder = embedder
        self._options = options
        self._most_pools = pools
        self._most_rooms = rooms
        self._clock = clock
        self._spawn = spawn
        self._pools: OrderedDict[str, _Pool] = OrderedDict()
        self._rooms: OrderedDict[bytes, _Room] = OrderedDict()

    async def about(self, question: Question, size: int, seconds: float) -> tuple[Decision, Clusters]:
        """Decision and clusters that are responsible for a question, as far as they are loaded within some seconds.

        Args:
            question: asked.
            size: numbers in its vector.
            seconds: longest to wait.
        """
        pool, room = self._pool(question), self._room(question, size)
        loading = {task for task in (pool.loading, room.loading) if task is not None}
        if loading:
            await asyncio.wait(loading, timeout=seconds)
        return pool.decision, room.clusters

    def add(self, question: Question, cluster: str, vector: Any) -> None:
        """A question became a wording of a cluster."""
        if (room := self._rooms.get(question.context)) is not None:
            room.clusters.add(cluster, vector, question.text)

    def forget_wordings(self) -> None:
        """Some were removed: load what is left when it is asked for."""
        self._rooms.clear()

    def pool_of(self, question: Question) -> str:
        """Name of the samples that a question's decision learns from: those of its partition."""
        return sha256(b"prefold pool" + question.partition.encode("utf-8", "surrogatepass")).hexdigest()

    def _pool(self, question: Question) -> _Pool:
        name = self.pool_of(question)
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = _Pool(Decision(self._options))
            _shrink(self._pools, self._most_pools)
        self._pools.move_to_end(name)
        now = self._clock()
        if pool.loading is None and now >= pool.stale_at:
            pool.stale_at = now + _SAMPLES_SECONDS
            pool.loading = self._spawn(self._load_samples(name, pool))
        return pool

    async def _load_samples(self, name: str, pool: _Pool) -> None:
        try:
            samples = await self._entries.samples(name, pool.latest)
            if len(samples) > _LEARNED_AT_ONCE:  # after a start: many, of which nothing was learned yet
                decision = Decision(self._options)
                await asyncio.to_thread(
                    decision.load, samples if pool.latest == 0 else await self._entries.samples(name)
                )
                pool.decision = decision
            else:
                pool.decision.load(samples)
            if samples:
                pool.latest = samples[-1].number
        except StoreFailed as error:
            _log.warning("What was judged could not be read: %s", error.message)
        finally:
            pool.loading = None

    def _room(self, question: Question, size: int) -> _Room:
        room = self._rooms.get(question.context)
        if room is None:
            room = self._rooms[question.context] = _Room(Clusters(size))
            _shrink(self._rooms, self._most_rooms)
        self._rooms.move_to_end(question.context)
        now = self._clock()
        if room.loading is None and (now >= room.stale_at or room.clusters.due):
            room.loading = self._spawn(self._load_room(question, size, room))
        return room

    async def _load_room(self, question: Question, size: int, room: _Room) -> None:
        try:
            if (now := self._clock()) >= room.stale_at:
                wordings = await self._entries.wordings(question, self._embedder())
                room.clusters = await asyncio.to_thread(_clusters_of, wordings, size)
                room.stale_at = now + _ROOM_SECONDS
            if room.clusters.due:
                await asyncio.to_thread(room.clusters.refresh)
        except StoreFailed as error:
            _log.warning("The wordings of a context could not be read: %s", error.message)
        finally:
            room.loading = None
