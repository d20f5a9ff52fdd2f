"""Counts of something among a number of tries, with how sure one may be of the share."""

from __future__ import annotations

import math
from dataclasses import dataclass

_DEVIATIONS = 1.959964


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many.

    Attributes:
        count: of those that are meant.
        of: all of them.
    """

    count: int
    of: int

    @property
    def value(self) -> float:
        """Between 0 and 1; 0 of nothing is 0."""
        return self.count / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """In which the true share lies with 95 % (Wilson, 1927); (0, 1) of nothing."""
        return self.within(_DEVIATIONS)

    def within(self, deviations: float) -> tuple[float, float]:
        """In which the true share lies unless it is this many standard deviations off."""
        if not self.of:
            return 0.0, 1.0
        square = deviations**2
        middle = (self.value + square / (2 * self.of)) / (1 + square / self.of)
        spread = self.value * (1 - self.value) / self.of + square / (4 * self.of**2)
        half = deviations * math.sqrt(spread) / (1 + square / self.of)
        low = 0.0 if self.count == 0 else middle - half
        high = 1.0 if self.count == self.of else middle + half
        return low, high

    def __add__(self, other: Share) -> Share:
        return Share(self.count + other.count, self.of + other.of)
