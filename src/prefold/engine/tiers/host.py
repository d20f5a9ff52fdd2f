"""K/V blocks in the machine's memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import numpy as np

from prefold.core.units import format_bytes
from prefold.engine.tiers.base import Layout
from prefold.engine.tiers.local import Got, LocalTier
from prefold.errors import UsageError


class HostTier(LocalTier):
    """Keeps records in one arena, of which the system gives pages as they are first used.

    Args:
        layout: of the records.
        capacity: bytes, at least one record.

    Raises:
        UsageError: if no record fits, or the machine has less memory.
    """

    def __init__(self, layout: Layout, capacity: int) -> None:
        size = layout.record_bytes
        super().__init__("host", slow=False, record_bytes=size, block_bytes=size, capacity=capacity)
        if capacity < size:
            raise UsageError(
                f"host={format_bytes(capacity)} holds no block of {layout.block_tokens} tokens.",
                hint=f"give at least {format_bytes(size)}",
            )
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if capacity > memory:
            raise UsageError(
                f"host={format_bytes(capacity)} is more than the machine's {format_bytes(memory)} of memory.",
                hint="give less, or a disk tier: disk=FOLDER,SIZE",
            )
        # Not bytearray, which would write zeros to all of it; and numpy copies without holding the interpreter.
        self._arena = np.empty((capacity // size, size), np.uint8)
        self._slots: dict[bytes, int] = {}
        self._free = list(range(len(self._arena)))[::-1]
        self._clock = itertools.count(1)

    def close(self) -> None:
        """See `Tier`."""
        with self._moving:
            self.clear()
            self._arena = np.empty((0, self._record_bytes), np.uint8)
            self._free = []
            self._capacity = 0

    def _now(self) -> int:
        return next(self._clock)

    def _used(self, keys: Sequence[bytes]) -> None:
        """Nothing: the index is all there is."""

    def _get(self, key: bytes, into: memoryview) -> Got:
        slot = self._slots.get(key)
        if slot is None:
            return Got.GONE
        np.copyto(np.frombuffer(into, np.uint8), self._arena[slot])
        return Got.WHOLE

    def _put(self, keys: Sequence[bytes], parent: bytes | None, depth: int, records: memoryview) -> int:  # noqa: ARG002 - the disk's
        size = self._record_bytes
        for number, key in enumerate(keys):
            slot = self._slots[key] = self._free.pop()
            np.copyto(self._arena[slot], np.frombuffer(records[number * size : (number + 1) * size], np.uint8))
            self._add(key, parent)
            parent = key
        return len(keys)

    def _drop(self, key: bytes) -> None:
        self._free.append(self._slots.pop(key))
