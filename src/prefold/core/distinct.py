"""How many different things were seen, counted in a few kilobytes.

HyperLogLog (Flajolet, Fusy, Gandouet and Meunier, 2007) with 4,096 registers: the standard error is 1.6 %. Small counts
are read from the registers that are still empty, which is more exact, as in the paper.
"""

from __future__ import annotations

import math

_BITS = 12
_REGISTERS = 1 << _BITS
_REST_BITS = 64 - _BITS
_MASK = (1 << 64) - 1
_ALPHA = 0.7213 / (1 + 1.079 / _REGISTERS)
_SMALL = 2.5 * _REGISTERS


class DistinctCount:
    """Counts different hashes."""

    __slots__ = ("_registers",)

    def __init__(self) -> None:
        self._registers = bytearray(_REGISTERS)

    def add(self, digest: int) -> None:
        """Note a hash of 64 bits, that of `hash()` for example, whose sign counts as the highest bit."""
        digest &= _MASK
        rank = _REST_BITS + 1 - (digest >> _BITS).bit_length()
        place = digest & (_REGISTERS - 1)
        self._registers[place] = max(self._registers[place], rank)

    def together_with(self, other: DistinctCount) -> int:
        """How many different hashes the two have seen."""
        registers = [*map(max, self._registers, other._registers)]
        estimate = _ALPHA * _REGISTERS**2 / math.fsum(2.0**-rank for rank in registers)
        empty = registers.count(0)
        if empty and estimate <= _SMALL:
            estimate = _REGISTERS * math.log(_REGISTERS / empty)
        return round(estimate)


class DistinctLately:
    """Counts different hashes of the last one to two windows.

    Args:
        window: seconds.
        now: the time, in seconds that only grow.
    """

    def __init__(self, window: float, now: float) -> None:
        self._window = window
        self._began = now
        self._present = DistinctCount()
        self._past = DistinctCount()

    def add(self, digest: int) -> None:
        """See `DistinctCount`."""
        self._present.add(digest)

    def read(self, now: float) -> int:
        """How many there were. What is read now and then forgets; nothing else does."""
        if now - self._began >= self._window:
            is_next = now - self._began < 2 * self._window
            self._past = self._present if is_next else DistinctCount()
            self._present = DistinctCount()
            self._began = now
        return self._present.together_with(self._past)
