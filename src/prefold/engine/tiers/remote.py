"""K/V blocks on other machines, for everybody who runs the same model.

A remote store may be down, slow or frozen at any moment, and its library may wait for longer than it was told. So each
operation runs in a thread that is not waited for beyond a budget, and what keeps failing is left alone for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from prefold.core.breaker import Breaker
from prefold.engine.tiers.base import Layout, TierUsage
from prefold.engine.tiers.lane import Attempts, Lane
from prefold.engine.tiers.local import Counts
from prefold.engine.tiers.objects import Objects
from prefold.engine.tiers.record import HEADER_BYTES, Codec
from prefold.engine.tiers.seal import Seal

_FIND_SECONDS = 0.25
_MOVE_SECONDS = 1.0
_SLOWEST = 8 << 20  # bytes a second; what is slower than that is late
_TOGETHER = 8 << 20  # bytes that are asked for at once
_CLEAR_SECONDS = 60.0
_FAILURES = 2
_PAUSE_SECONDS = 5.0


class RemoteTier:
    """Keeps records as objects under `fingerprint/key`.

    Args:
        name: see `Tier`.
        layout: of the records.
        objects: where they lie.
        seal: encrypts; None does not.
        find_seconds: longest that `find` takes.
        move_seconds: longest that reading or writing takes, beside a second for each 8 MiB.
        clock: seconds that only grow.
    """

    slow = True

    def __init__(
        self,
        name: str,
        layout: Layout,
        objects: Objects,
        *,
        seal: Seal | None = None,
        find_seconds: float = _FIND_SECONDS,
        move_seconds: float = _MOVE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._codec = Codec(layout, seal)
        self._objects = objects
        self._find_seconds = find_seconds
        self._move_seconds = move_seconds
        self._together = max(1, _TOGETHER // self._codec.stored_bytes)
        self._finding, self._moving = Lane(), Lane()
        # A store that is full still answers, so writing has a breaker of its own.
        self._reads = Breaker(_FAILURES, _PAUSE_SECONDS, clock)
        self._writes = Breaker(_FAILURES, _PAUSE_SECONDS, clock)
        self._counts = Counts()
        self._attempts = Attempts(name, self._counts)

    def find(self, keys: Sequence[bytes], *, sure: bool = False) -> int:  # noqa: ARG002 - it always is
        """See `Tier`."""
        if not keys:
            return 0
        names = self._names(keys)
        return (
            self._attempts.ask(self._reads, self._finding, self._find_seconds, lambda: self._objects.leading(names))
            or 0
        )

    def read(self, keys: Sequence[bytes], into: memoryview) -> int:
        """See `Tier`."""
        size = self._codec.layout.record_bytes
        done = 0
        while done < len(keys):
            group = keys[done : done + self._together]
            get = partial(self._objects.get, self._names(group))
            stored = self._attempts.ask(self._reads, self._moving, self._seconds(len(group)), get)
            got = self._open(group, stored or [], into[done * size :])
            done += got
            if got < len(group):
                break
        self._counts.hits += done
        self._counts.misses += len(keys) - done
        return done

    def write(
        self, keys: Sequence[bytes], depths: Sequence[int], records: memoryview, parent: bytes | None = None
    ) -> int:
        """See `Tier`."""
        done = self._write(keys, depths, records, parent) if keys else 0
        self._counts.refused += len(keys) - done
        return done

    def remove(self, keys: Sequence[bytes]) -> None:
        """See `Tier`; what depends on them is not known here."""
        names = self._names(keys)
        if names:
            self._attempts.ask(self._writes, self._moving, self._move_seconds, lambda: self._objects.remove(names))

    def clear(self) -> int:
        """See `Tier`; for everybody who uses the store."""

        def clear() -> int:
            names = self._names([stored.key for stored in self._objects.items(self._codec.where)])
            self._objects.remove(names)
            return len(names)

        return self._attempts.ask(self._writes, self._moving, _CLEAR_SECONDS, clear) or 0

    def usage(self) -> TierUsage:
        """See `TierUsage`."""
        counts = self._counts
        return TierUsage(
            hits=counts.hits,
            misses=counts.misses,
            corrupt=counts.corrupt,
            refused=counts.refused,
            errors=counts.errors,
        )

    def close(self) -> None:
        """See `Tier`."""
        self._attempts.ask(self._writes, self._finding, self._find_seconds, self._objects.close)

    def _write(self, keys: Sequence[bytes], depths: Sequence[int], records: memoryview, parent: bytes | None) -> int:
        follows = depths[0] > 0
        if follows and parent is None:
            return 0
        chain = [parent, *keys] if follows and parent is not None else list(keys)
        names = self._names(chain)
        there = self._attempts.ask(self._writes, self._moving, self._move_seconds, lambda: self._objects.leading(names))
        if there is None or (follows and there == 0):
            return 0
        if there:
            self._attempts.ask(
                self._writes, self._moving, self._move_seconds, lambda: self._objects.renew(names[:there])
            )
        done = there - follows
        size = self._codec.layout.record_bytes
        while done < len(keys):
            objects: dict[str, bytes] = {}
            last = min(done + self._together, len(keys))
            for number in range(done, last):
                before = keys[number - 1] if number else chain[0] if follows else None
                record = records[number * size : (number + 1) * size]
                # Joined, hence copied: an operation that is late may still run when the caller reuses `records`.
                objects[names[number + follows]] = b"".join(
                    self._codec.encode(keys[number], before, depths[number], record)
                )

            def put(objects: dict[str, bytes] = objects) -> int:
                self._objects.put(objects)
                return len(objects)

            written = self._attempts.ask(self._writes, self._moving, self._seconds(last - done), put)
            if written is None:
                break
            done = last
        return done

    def _open(self, keys: Sequence[bytes], stored: Sequence[bytes | None], into: memoryview) -> int:
        """Check objects and put them in place; how many of the leading ones are good."""
        size = self._codec.layout.record_bytes
        for number, (key, data) in enumerate(zip(keys, stored, strict=False)):
            if data is None:
                return number
            view = memoryview(data)
            head, payload = view[:HEADER_BYTES], view[HEADER_BYTES:]
            if not self._codec.open(head, key, payload, into[number * size : (number + 1) * size]):
                self._counts.corrupt += 1
                self.remove([key])
                return number
        return min(len(keys), len(stored))

    def _names(self, keys: Sequence[bytes]) -> list[str]:
        where = self._codec.where
        return [f"{where}/{key.hex()}" for key in keys]

    def _seconds(self, blocks: int) -> float:
        return self._move_seconds + blocks * self._codec.stored_bytes / _SLOWEST
