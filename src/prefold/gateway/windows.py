"""Sliding window counters: how much was counted in the last minute, approximately and in little memory.

Each counter knows the current minute and the one before it, of which the part counts that is not yet 60 seconds ago, as
if its count had come evenly. Redis, which several gateways share, is asked by the library `limits`. That library counts
in memory too, but looks through all its counters at every request (6 ms with 20,000 tenants, measured), so there is one
here for a single process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from limits import RateLimitItemPerMinute
from limits.aio.storage import RedisStorage
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

SECONDS = 60
"""Length of a window."""

_NO_LIMIT = 2**53 - 1  # the largest whole number that Redis's Lua counts exactly


@dataclass(frozen=True, slots=True)
class Window:
    """A counter at one moment; times in seconds.

    Attributes:
        previous: counted in the window before the current one.
        previous_left: until nothing of that counts any more.
        current: counted in the current window.
        current_left: until nothing of that counts any more, which is one window after it ends.
    """

    previous: int
    previous_left: float
    current: int
    current_left: float

    @property
    def counted(self) -> int:
        """What counts now."""
        return math.floor(self.previous * self.previous_left / SECONDS) + self.current

    def seconds_until(self, count: int) -> float:
        """Time until no more than `count`, at least 0, counts if nothing is added."""
        if self.current <= count:
            if not self.previous:
                return 0.0
            return max(0.0, self.previous_left - (count - self.current) * SECONDS / self.previous)
        # Not before the current window has become the previous one.
        return max(0.0, self.current_left - count * SECONDS / self.current)


class Windows(Protocol):
    """Counters by name, each with a limit that is part of what names it."""

    async def take(self, name: str, limit: int, count: int) -> Window | None:
        """Count something; where it would pass the limit, say what counts instead."""

    async def add(self, name: str, limit: int, count: int) -> None:
        """Count something whatever the limit; less than 0 takes back what the current window has."""

    async def close(self) -> None:
        """Let go of all connections."""


class LocalWindows:
    """Counters in this process.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._minute = 0
        self._current: dict[str, int] = {}
        self._previous: dict[str, int] = {}

    async def take(self, name: str, limit: int, count: int) -> Window | None:
        """See `Windows`."""
        window = self._window(name)
        if window.counted + count > limit:
            return window
        self._current[name] = window.current + count
        return None

    async def add(self, name: str, limit: int, count: int) -> None:  # noqa: ARG002 - of the protocol
        """See `Windows`."""
        self._current[name] = max(0, self._window(name).current + count)

    async def close(self) -> None:
        """Nothing to do."""

    def _window(self, name: str) -> Window:
        minute, into = divmod(self._clock(), SECONDS)
        if minute != self._minute:
            self._previous = self._current if minute == self._minute + 1 else {}
            self._current = {}
            self._minute = int(minute)
        left = SECONDS - into
        return Window(self._previous.get(name, 0), left, self._current.get(name, 0), left + SECONDS)


class RedisWindows:
    """Counters that all gateways with the same Redis share.

    Every method raises `OSError` or `redis.RedisError` where there is no answer.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0))
        self._storage = RedisStorage(
            "async+redis://",  # where the pool connects to is what counts
            implementation="redispy",
            key_prefix="prefold:budget",
            connection_pool=self._redis.connection_pool,  # type: ignore[arg-type] # the library's own option
        )

    async def take(self, name: str, limit: int, count: int) -> Window | None:
        """See `Windows`."""
        key = _key(name, limit)
        if await self._storage.acquire_sliding_window_entry(key, limit, SECONDS, count):
            return None
        return Window(*await self._storage.get_sliding_window(key, SECONDS))

    async def add(self, name: str, limit: int, count: int) -> None:
        """See `Windows`."""
        key = _key(name, limit)
        if count < 0:
            _, _, current, _ = await self._storage.get_sliding_window(key, SECONDS)
            count = -min(-count, current)
        await self._storage.acquire_sliding_window_entry(key, _NO_LIMIT, SECONDS, count)

    async def close(self) -> None:
        """See `Windows`."""
        await self._redis.aclose()


def _key(name: str, limit: int) -> str:
    return RateLimitItemPerMinute(limit, namespace=name).key_for()
