"""Leaves alone for a while what keeps failing."""

from __future__ import annotations

from collections.abc import Callable


class Breaker:
    """Stops asking what keeps failing, and tries it again now and then.

    Args:
        failures: this many in a row open it.
        seconds: how long it stays open; then one attempt is let through at a time, each as long after the last.
        clock: seconds that only grow.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._closed_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether attempts are held back."""
        return self._failures >= self._limit

    def allows(self) -> bool:
        """Whether to try now; whoever is told so reports back."""
        if not self.is_open:
            return True
        now = self._clock()
        if now < self._closed_until:
            return False
        self._closed_until = now + self._seconds
        return True

    def worked(self) -> None:
        """Report an attempt that succeeded."""
        self._failures = 0

    def failed(self) -> None:
        """Report one that did not."""
        self._failures += 1
        if self._failures == self._limit:
            self._closed_until = self._clock() + self._seconds
