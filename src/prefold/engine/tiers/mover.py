"""Moves K/V blocks between memory and tiers, in a thread of its own, so that the engine never waits for a disk.

The engine's thread decides and hands over jobs; this one moves bytes and says when it is done. Reads go before writes,
also between the batches of a write, since requests wait for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prefold.engine.slots import Runs
from prefold.engine.tiers.base import Tier

_log = logging.getLogger(__name__)

BATCH = 32
"""Most blocks of one call to a tier."""

_LOOK_AGAIN = 0.05  # seconds between looks at whether to stop waiting
_END_SECONDS = 5.0  # for a call to a tier that is under way at the end


@dataclass(frozen=True, slots=True)
class Source:
    """Where some of the blocks of a load are.

    Attributes:
        tier: its number.
        blocks: how many of those that follow; None if that is still to be found out.
    """

    tier: int
    blocks: int | None


@dataclass(frozen=True, slots=True)
class Spent:
    """What a call to a tier took: for `blocks` blocks, or for finding some where that is None."""

    tier: int
    blocks: int | None
    seconds: float


@dataclass(eq=False)
class Load:
    """Consecutive blocks of a chain on their way into memory.

    Attributes:
        keys: of the blocks.
        sources: where they are, in order.
        places: blocks of the staging area that they come to.
        users: sequences that wait for it; the engine's thread counts them.
        wanted: False when nobody waits any more.
        found: whether all sources are known.
        origin: the number of the tier that each block came from, as they come; so its length is how many there are.
        spent: what it took.
        finished: nothing more will come.
    """

    keys: tuple[bytes, ...]
    sources: tuple[Source, ...]
    places: Runs
    users: int = 0
    wanted: bool = True
    found: bool = False
    origin: list[int] = field(default_factory=list)
    spent: list[Spent] = field(default_factory=list)
    finished: bool = False


@dataclass(eq=False)
class Write:
    """Blocks of a chain that slow tiers are to keep.

    Attributes:
        keys: the chain from its first block.
        first: number of the block with which `records` begins; those before it are in the tiers.
        records: K and V, or empty if a faster tier has them.
        complete: whether every tier has the whole chain now.
    """

    keys: tuple[bytes, ...]
    first: int
    records: memoryview
    complete: bool = False


class Mover:
    """The thread that reads and writes tiers.

    Args:
        tiers: fast to slow.
        record_bytes: size of a block.
        staging: memory that loads are read into.
        told: called in this thread when something is done.
        clock: monotonic seconds.

    Attributes:
        done: what has been done, in order; for one thread to take from.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        record_bytes: int,
        staging: memoryview,
        told: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.done: deque[Load | Write] = deque()
        self._tiers = tiers
        self._slow = [number for number, tier in enumerate(tiers) if tier.slow]
        self._record_bytes = record_bytes
        self._staging = staging
        self._told = told
        self._clock = clock
        self._changed = threading.Condition()
        self._loads: deque[Load] = deque()
        self._others: deque[Write | tuple[Future[Any], Callable[[], int]]] = deque()
        self._queued_bytes = 0
        self._busy = False
        self._ended = False
        self._scratch: bytearray | None = None
        self._thread = threading.Thread(target=self._run, name="prefold-tiers", daemon=True)
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        """Bytes of records that wait to be written."""
        return self._queued_bytes

    def load(self, load: Load) -> None:
        """Read blocks; `load` is among what is done when nothing more comes."""
        with self._changed:
            self._loads.append(load)
            self._changed.notify_all()

    def write(self, write: Write) -> None:
        """Write blocks to the slow tiers."""
        with self._changed:
            self._others.append(write)
            self._queued_bytes += len(write.records)
            self._changed.notify_all()

    def call(self, function: Callable[[], int]) -> Future[int]:
        """Do something in this thread, instead of what waits to be written."""
        future: Future[int] = Future()
        with self._changed:
            self._others = deque(job for job in self._others if not isinstance(job, Write))
            self._queued_bytes = 0
            self._others.append((future, function))
            self._changed.notify_all()
        return future

    def after(self, write: Write) -> Future[bool]:
        """Write blocks to the slow tiers; whether they are all there, when all that waits before them is written."""
        future: Future[bool] = Future()
        with self._changed:
            self.write(write)
            self._others.append((future, lambda: write.complete))
            self._changed.notify_all()
        return future

    def wait(self, enough: Callable[[], bool], below: int = 0) -> bool:
        """Wait until no more than `below` bytes wait to be written, and nothing at all for 0; False if cut short."""
        with self._changed:
            while self._queued_bytes > below or (not below and (self._others or self._loads or self._busy)):
                if enough() or not self._thread.is_alive():
                    return False
                self._changed.wait(_LOOK_AGAIN)
        return True

    def close(self) -> None:
        """Do nothing more. Waits for the call to a tier that is under way, but not for ever."""
        with self._changed:
            self._ended = True
            for load in self._loads:
                load.wanted = False
            self._loads.clear()
            for job in self._others:
                if isinstance(job, tuple):
                    job[0].cancel()
            self._others.clear()
            self._queued_bytes = 0
            self._changed.notify_all()
        self._thread.join(_END_SECONDS)

    # In the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                while not (self._loads or self._others or self._ended):
                    self._changed.wait()
                if self._ended:
                    return
                self._busy = True
                job = None if self._loads else self._others.popleft()
                if isinstance(job, Write):
                    self._queued_bytes -= len(job.records)
            if job is None:
                self._read_all()
            elif isinstance(job, Write):
                complete = [self._write(job, number) for number in self._slow]
                job.complete = all(complete)
                job.records = memoryview(b"")  # they are large, and may wait long to be collected
                self._finish(job)
            else:
                future, function = job
                if future.set_running_or_notify_cancel():
                    future.set_result(attempt(function))

    def _finish(self, job: Load | Write) -> None:
        self.done.append(job)
        self._told()

    def _read_all(self) -> None:
        while True:
            with self._changed:
                if not self._loads:
                    return
                load = self._loads.popleft()
            self._read(load)
            load.finished = load.found = True
            self._finish(load)

    def _read(self, load: Load) -> None:
        sources = []
        at = 0
        for source in load.sources:
            blocks = source.blocks
            if blocks is None:
                begin = self._clock()
                keys, tier = load.keys[at:], self._tiers[source.tier]
                blocks = attempt(partial(tier.find, keys))
                load.spent.append(Spent(source.tier, None, self._clock() - begin))
            sources.append((source.tier, blocks))
            at += blocks
        load.found = True
        for number, blocks in sources:
            if not self._read_from(load, number, blocks):
                return

    def _read_from(self, load: Load, number: int, blocks: int) -> bool:
        """Read the next `blocks` blocks of a load; False if they did not all come."""
        end = min(len(load.origin) + blocks, len(load.keys))
        while (at := len(load.origin)) < end:
            start, stop = _run_from(load.places, at)
            keys = load.keys[at : min(end, at + stop - start, at + BATCH)]
            into = self._staging[start * self._record_bytes : (start + len(keys)) * self._record_bytes]
            if not load.wanted or self._ended:
                return False
            begin = self._clock()
            tier = self._tiers[number]
            got = attempt(partial(tier.read, keys, into))
            load.spent.append(Spent(number, got, self._clock() - begin))
            load.origin += [number] * got
            if got < len(keys):
                return False
        return True

    def _write(self, job: Write, number: int) -> bool:
        """Bring a chain to one tier, from where it knows no more; whether it has all of it now."""
        tier = self._tiers[number]
        have = attempt(partial(tier.find, job.keys, sure=True))
        while have < len(job.keys) and not self._ended:
            records = self._records(job, have, number)
            count = len(records) // self._record_bytes
            if not count:
                break
            keys, depths = job.keys[have : have + count], range(have, have + count)
            stored = attempt(partial(tier.write, keys, depths, records, job.keys[have - 1] if have else None))
            have += stored
            self._read_all()
            if stored < count:
                break
        return have == len(job.keys)

    def _records(self, job: Write, at: int, below: int) -> memoryview:
        """Some records of a job from its block `at` on: its own, or those of a tier above the one given."""
        size = self._record_bytes
        count = min(BATCH, len(job.keys) - at)
        if at >= job.first and len(job.records):
            return job.records[(at - job.first) * size : (at - job.first + count) * size]
        if at < job.first:
            count = min(count, job.first - at)
        if self._scratch is None:
            self._scratch = bytearray(BATCH * size)
        into = memoryview(self._scratch)[: count * size]
        for tier in self._tiers[:below]:
            got = attempt(partial(tier.read, job.keys[at : at + count], into))
            if got:
                return into[: got * size]
        return into[:0]


def attempt(function: Callable[[], int]) -> int:
    """What a tier says; 0 for one that breaks its promise never to raise, so that it takes no thread along."""
    try:
        return function()
    except Exception:  # noqa: BLE001 - see above
        _log.exception("A tier failed")
        return 0


def _run_from(places: Runs, at: int) -> tuple[int, int]:
    """The rest of the run in which the `at`-th place lies."""
    for start, stop in places:
        if at < stop - start:
            return start + at, stop
        at -= stop - start
    raise IndexError(at)
