"""K/V blocks on other machines, for everybody who runs the same model.

A remote store may be down, slow or frozen at any moment, and its library may wait for longer than it was told. So each
operation runs in a thread that is not waited for beyond a budget, and what keeps failing is left alone for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from prefold.core.breaker import Breaker
from prefold.engine.tiers.base import Layout, TierUsage
from prefold.engine.tiers.local import Counts
from prefold.engine.tiers.objects import Objects
from prefold.engine.tiers.record import HEADER_BYTES, Codec
from prefold.engine.tiers.seal import Seal

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_FIND_SECONDS = 0.25
_MOVE_SECONDS = 1.0
_SLOWEST = 8 << 20  # bytes a second; what is slower than that is late
_TOGETHER = 8 << 20  # bytes that are asked for at once
_CLEAR_SECONDS = 60.0
_FAILURES = 2
_PAUSE_SECONDS = 5.0


class Lane:
    """Runs one operation at a time, in a thread, and waits for it no longer than asked."""

    def __init__(self) -> None:
        self._free = threading.Lock()

    def call(self, operation: Callable[[], _Result], seconds: float) -> _Result:
        """What `operation` gives or raises.

        Raises:
            TimeoutError: if it is not done in time, or the one before it still is not. It goes on by itself.
        """
        if not self._free.acquire(timeout=seconds):
            raise TimeoutError
        results: list[_Result] = []
        errors: list[Exception] = []
        done = threading.Event()

        def run() -> None:
            try:
                results.append(operation())
            except Exception as error:  # noqa: BLE001 - handed to who asked
                errors.append(error)
            finally:
                self._free.release()
                done.set()

        threading.Thread(target=run, name="prefold-remote-tier", daemon=True).start()
        if not done.wait(seconds):
            raise TimeoutError
        if errors:
            raise errors[0]
        return results[0]


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
        self._said: set[str] = set()

    def find(self, keys: Sequence[bytes]) -> int:
        """See `Tier`."""
        if not keys:
            return 0
        names = self._names(keys)
        return self._ask(self._reads, self._finding, self._find_seconds, lambda: self._objects.leading(names)) or 0

    def read(self, keys: Sequence[bytes], into: memoryview) -> int:
        """See `Tier`."""
        size = self._codec.layout.record_bytes
        done = 0
        while done < len(keys):
            group = keys[done : done + self._together]
            names = self._names(group)
            stored = self._ask(self._reads, self._moving, self._seconds(len(group)), lambda: self._objects.get(names))  # noqa: B023 - called at once
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
            self._ask(self._writes, self._moving, self._move_seconds, lambda: self._objects.remove(names))

    def clear(self) -> int:
        """See `Tier`; for everybody who uses the store."""

        def clear() -> int:
            names = [item.name for item in self._objects.items(self._codec.where)]
            self._objects.remove(names)
            return len(names)

        return self._ask(self._writes, self._moving, _CLEAR_SECONDS, clear) or 0

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
        self._ask(self._writes, self._finding, self._find_seconds, self._objects.close)

    def _write(self, keys: Sequence[bytes], depths: Sequence[int], records: memoryview, parent: bytes | None) -> int:
        follows = depths[0] > 0
        if follows and parent is None:
            return 0
        chain = [parent, *keys] if follows and parent is not None else list(keys)
        names = self._names(chain)
        there = self._ask(self._writes, self._moving, self._move_seconds, lambda: self._objects.leading(names))
        if there is None or (follows and there == 0):
            return 0
        if there:
            self._ask(self._writes, self._moving, self._move_seconds, lambda: self._objects.renew(names[:there]))
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

            written = self._ask(self._writes, self._moving, self._seconds(last - done), put)
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

    def _ask(self, breaker: Breaker, lane: Lane, seconds: float, operation: Callable[[], _Result]) -> _Result | None:
        """What the store says within the time; None if it does not."""
        if not breaker.allows():
            return None
        try:
            result = lane.call(operation, seconds)
        except Exception as error:  # noqa: BLE001 - whatever the store's library raises, it is a miss
            self._counts.errors += 1
            breaker.failed()
            kind = type(error).__name__
            if kind not in self._said:
                # Not its text, which may hold an address with a password.
                self._said.add(kind)
                _log.warning("The tier %s failed (%s); requests go on without it.", self.name, kind)
            return None
        breaker.worked()
        return result
