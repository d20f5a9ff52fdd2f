"""What tiers on this machine have in common: an index in memory, a size, and who has to go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock, RLock

from prefold.engine.tiers.base import TierUsage
from prefold.engine.tiers.order import LeafFirst


class Got(Enum):
    """What became of an attempt to get a record."""

    WHOLE = "whole"
    GONE = "gone"
    CORRUPT = "corrupt"
    FAILED = "failed"  # for now: it may still be good


@dataclass(slots=True)
class Counts:
    """See `TierUsage`."""

    hits: int = 0
    misses: int = 0
    corrupt: int = 0
    refused: int = 0
    evicted: int = 0
    errors: int = 0


class LocalTier(ABC):
    """A tier whose blocks are all known here. What derives from it knows where records lie.

    Reading, writing and forgetting take turns; `find` and `usage` wait for nobody.

    Args:
        name: see `Tier`.
        slow: see `Tier`.
        record_bytes: `Layout.record_bytes`.
        block_bytes: what a block takes of the capacity.
        capacity: most bytes for blocks.
    """

    def __init__(self, name: str, *, slow: bool, record_bytes: int, block_bytes: int, capacity: int) -> None:
        self.name = name
        self.slow = slow
        self._record_bytes = record_bytes
        self._block_bytes = block_bytes
        self._capacity = capacity
        self._order = LeafFirst()
        self._counts = Counts()
        self._moving = RLock()  # held for I/O
        self._index = Lock()  # held for changes of `_order`, never for I/O

    def find(self, keys: Sequence[bytes], *, sure: bool = False) -> int:  # noqa: ARG002 - for those that others share
        """See `Tier`."""
        for number, key in enumerate(keys):
            if not self._is_here(key):
                return number
        return len(keys)

    def read(self, keys: Sequence[bytes], into: memoryview) -> int:
        """See `Tier`."""
        with self._moving:
            done = self._read(keys, into)
            self._counts.hits += done
            self._counts.misses += len(keys) - done
        return done

    def write(
        self, keys: Sequence[bytes], depths: Sequence[int], records: memoryview, parent: bytes | None = None
    ) -> int:
        """See `Tier`."""
        with self._moving:
            done = self._write(keys, depths, records, parent) if keys else 0
            self._counts.refused += len(keys) - done
        return done

    def remove(self, keys: Sequence[bytes]) -> None:
        """See `Tier`."""
        with self._moving:
            self._forget(keys)

    def clear(self) -> int:
        """See `Tier`."""
        with self._moving:
            keys = [key for key in self._order if self._is_own(key)]
            self._forget(keys)
        return len(keys)

    def usage(self) -> TierUsage:
        """See `TierUsage`; blocks and bytes are of all that counts against the capacity."""
        order, counts = self._order, self._counts
        return TierUsage(
            len(order),
            order.total,
            self._capacity,
            counts.hits,
            counts.misses,
            counts.corrupt,
            counts.refused,
            counts.evicted,
            counts.errors,
        )

    @abstractmethod
    def close(self) -> None:
        """See `Tier`."""

    @abstractmethod
    def _now(self) -> int:
        """The time for uses; grows."""

    @abstractmethod
    def _get(self, key: bytes, into: memoryview) -> Got:
        """Copy a record that is in the index, and check it."""

    @abstractmethod
    def _put(self, keys: Sequence[bytes], parent: bytes | None, depth: int, records: memoryview) -> int:
        """Keep consecutive blocks and `_add` each; how many of the leading ones it could."""

    @abstractmethod
    def _drop(self, key: bytes) -> None:
        """Let a record go that has left the index."""

    def _read(self, keys: Sequence[bytes], into: memoryview) -> int:
        """Read leading blocks; how many."""
        size = self._record_bytes
        done = 0
        for key in keys:
            if not self._is_here(key):
                break
            got = self._get(key, into[done * size : (done + 1) * size])
            if got is not Got.WHOLE:
                self._counts.corrupt += got is Got.CORRUPT
                if got is not Got.FAILED:
                    self._forget([key])
                break
            done += 1
        if done:
            self._use(keys[done - 1])
        return done

    def _write(self, keys: Sequence[bytes], depths: Sequence[int], records: memoryview, parent: bytes | None) -> int:
        """Write blocks, of which there are some; how many of the leading ones are here now."""
        size = self._record_bytes
        before = parent if depths[0] else None
        if depths[0] and (before is None or not self._is_here(before)):
            return 0
        done = 0
        while done < len(keys) and self._is_here(keys[done]):
            done += 1
        before = keys[done - 1] if done else before
        if before is not None:
            self._use(before)
        if done < len(keys):
            last = done + min(self._make_room(len(keys) - done, before), len(keys) - done)
            done += self._put(keys[done:last], before, depths[done], records[done * size : last * size])
        return done

    def _is_own(self, key: bytes) -> bool:  # noqa: ARG002 - for those who share their place with other layouts
        """Whether a block in the index is of this layout."""
        return True

    def _is_here(self, key: bytes) -> bool:
        return key in self._order

    @abstractmethod
    def _used(self, keys: Sequence[bytes]) -> None:
        """Told of blocks whose time of use has changed."""

    def _use(self, key: bytes) -> None:
        with self._index:
            renewed = self._order.use(key, self._now())
        self._used(renewed)

    def _add(self, key: bytes, parent: bytes | None) -> None:
        with self._index:
            self._order.add(key, parent, self._block_bytes, self._now())

    def _forget(self, keys: Iterable[bytes]) -> None:
        """Let blocks go with all that depends on them."""
        with self._index:
            all_keys = dict.fromkeys(keys)
            for key in list(all_keys):
                all_keys.update(dict.fromkeys(self._order.descendants(key)))
            gone = [key for key in all_keys if key in self._order]
            for key in gone:
                self._order.discard(key)
        for key in reversed(gone):
            self._drop(key)

    def _make_room(self, blocks: int, keep: bytes | None) -> int:
        """Evict until `blocks` more fit, but never `keep`; how many do fit now."""
        needed = blocks * self._block_bytes
        evicted: list[bytes] = []
        with self._index:
            while self._order.total + needed > self._capacity and (leaf := self._order.oldest_leaf(keep)) is not None:
                self._order.discard(leaf)
                evicted.append(leaf)
            room = max(0, self._capacity - self._order.total) // self._block_bytes
        for key in evicted:
            self._drop(key)
        self._counts.evicted += len(evicted)
        return room
