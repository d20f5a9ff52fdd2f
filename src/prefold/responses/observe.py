"""How often requests repeat, measured before any answer is kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Repeats:
    """What was seen.

    Attributes:
        requests: all that came.
        eligible: those that have a key.
        repeats: those of `eligible` that came within the time to live of an answer to the same.
        forgotten: keys dropped before their time, for lack of room; while 0, `repeats` is exact.
    """

    requests: int = 0
    eligible: int = 0
    repeats: int = 0
    forgotten: int = 0

    @property
    def rate(self) -> float:
        """Share of all requests that a cache would have answered."""
        return self.repeats / self.requests if self.requests else 0.0


class RepeatCounter:
    """Counts identical requests as an answer cache would have met them, in bounded memory.

    It takes every answer for one that may be kept, so that errors which are repeated count too.

    Args:
        ttl_seconds: how long an answer would be kept, from its first request on: repeats do not prolong it.
        limit: most keys that are remembered, each some 250 bytes; the oldest go first.
        clock: seconds that only grow.
    """

    def __init__(self, ttl_seconds: float, limit: int, clock: Callable[[], float]) -> None:
        self._ttl = ttl_seconds
        self._limit = limit
        self._clock = clock
        self._expiry: OrderedDict[bytes, float] = OrderedDict()
        self._requests = self._eligible = self._repeats = self._forgotten = 0

    @property
    def counts(self) -> Repeats:
        """What was seen so far."""
        return Repeats(self._requests, self._eligible, self._repeats, self._forgotten)

    def see(self, key: bytes | None) -> bool:
        """Count a request by its key, None for one without; whether it repeats another."""
        self._requests += 1
        if key is None:
            return False
        self._eligible += 1
        now = self._clock()
        # They stand in the order in which they expire.
        while self._expiry and next(iter(self._expiry.values())) <= now:
            self._expiry.popitem(last=False)
        if key in self._expiry:
            self._repeats += 1
            return True
        self._expiry[key] = now + self._ttl
        if len(self._expiry) > self._limit:
            self._expiry.popitem(last=False)
            self._forgotten += 1
        return False
