"""How fast things go, measured as they go."""

from __future__ import annotations

from dataclasses import dataclass

_KEEP = 0.7
"""What a new measurement leaves of the older ones' weight."""

_FORGOTTEN_AFTER = 30.0
"""Seconds in which a rate goes half-way back to what it was taken to be: who is never asked cannot show that he got
better."""


@dataclass(slots=True)
class Rate:
    """Units a second: an exponentially weighted mean, in which a large measurement counts for more than a small one.

    Args:
        prior: what it is taken to be until it is measured, and again some time after; None for nothing.
    """

    prior: float | None
    _units: float = 0.0
    _seconds: float = 0.0
    _at: float = 0.0

    def add(self, units: float, seconds: float, now: float) -> None:
        """Take in that so many units took so long, as of `now`, in seconds on the caller's clock."""
        if seconds > 0:
            self._units = _KEEP * self._units + units
            self._seconds = _KEEP * self._seconds + seconds
            self._at = now

    def value(self, now: float) -> float | None:
        """Units a second; None if nothing is known."""
        if not self._seconds:
            return self.prior
        measured = self._units / self._seconds
        if self.prior is None:
            return measured
        left = float(0.5 ** ((now - self._at) / _FORGOTTEN_AFTER))
        return self.prior + (measured - self.prior) * left
