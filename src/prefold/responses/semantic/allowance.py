"""How much of something is allowed in a time: insertions by one principal, questions to the judge."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

_SECONDS_A_MINUTE = 60.0


class Allowance:
    """A token bucket for each of a bounded number of names.

    A name that was forgotten for want of room begins with a full bucket; forgotten first is who asked longest ago.

    Args:
        per_minute: how much comes back in a minute.
        burst: most that gathers.
        clock: seconds that only grow.
        names: most that are remembered.

    Attributes:
        burst: see there.
    """

    def __init__(self, per_minute: float, burst: float, clock: Callable[[], float], names: int = 10_000) -> None:
        self._rate = per_minute / _SECONDS_A_MINUTE
        self.burst = burst
        self._clock = clock
        self._names = names
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str = "", *, leaving: float = 0.0) -> bool:
        """Take one, if that leaves at least so many; whether there was one."""
        now = self._clock()
        level, since = self._buckets.pop(name, (self.burst, now))
        level = min(self.burst, level + max(0.0, now - since) * self._rate)
        is_allowed = level - 1.0 >= leaving
        self._buckets[name] = (level - 1.0 if is_allowed else level, now)
        if len(self._buckets) > self._names:
            self._buckets.popitem(last=False)
        return is_allowed
