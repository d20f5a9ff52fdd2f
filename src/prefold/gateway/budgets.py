"""What a tenant may send in a minute: requests and tokens, counted in this process or, over Redis, in several.

Tokens are taken by an estimate before a request goes out, and settled when its usage is known.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis import RedisError

from prefold.core.breaker import Breaker
from prefold.gateway.call import Tenant
from prefold.gateway.windows import LocalWindows, RedisWindows, Windows
from prefold.server.asgi import HttpError

_logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_BYTES_PER_TOKEN = 4
_REST_SECONDS = 2.0  # for so long a store that failed is not asked again, and then by one question alone


def estimated_tokens(body: bytes) -> int:
    """Tokens of a request before anybody has counted them."""
    return len(body) // _BYTES_PER_TOKEN


class Budgets:
    """Counts what tenants send.

    A store that is down, or slow, stops nobody: requests go on uncounted, and one of them asks it again every two
    seconds.

    Args:
        redis_url: of the store that several gateways share; empty to count in this process.
        patience: seconds that the store may take to answer.
        clock: monotonic seconds.

    Attributes:
        uncounted: questions that the store did not answer.
    """

    def __init__(self, redis_url: str = "", patience: float = 0.1, clock: Callable[[], float] = time.monotonic) -> None:
        self.uncounted = 0
        self._windows: Windows = RedisWindows(redis_url) if redis_url else LocalWindows(clock)
        self._patience = patience
        self._breaker = Breaker(1, _REST_SECONDS, clock)

    async def take(self, tenant: Tenant, tokens: int) -> None:
        """Count a request and its tokens, before it goes out.

        One that alone is larger than the budget of a minute takes all of it.

        Args:
            tenant: who sends it.
            tokens: as estimated.

        Raises:
            HttpError: 429 with `Retry-After` if the tenant has sent too much already.
        """
        group = tenant.group
        if group.requests_per_minute is not None:
            await self._take("requests", group.requests_per_minute, tenant, 1)
        if group.tokens_per_minute is not None:
            await self._take("tokens", group.tokens_per_minute, tenant, min(tokens, group.tokens_per_minute))

    async def settle(self, tenant: Tenant, taken: int, used: int) -> None:
        """Put right what a request took, once its usage is known; what it used beyond the budget counts too.

        What it took in a minute that has passed is not given back to this one.

        Args:
            tenant: who sent it.
            taken: tokens that `take` was told.
            used: tokens that were read and written.
        """
        limit = tenant.group.tokens_per_minute
        if limit is None:
            return
        more = used - min(taken, limit)
        if more:
            await self._asked(lambda: self._windows.add(_name("tokens", tenant), limit, more))

    async def close(self) -> None:
        """Let go of the store's connections."""
        await self._windows.close()

    async def _take(self, what: str, limit: int, tenant: Tenant, count: int) -> None:
        window = await self._asked(lambda: self._windows.take(_name(what, tenant), limit, count))
        if window is not None:
            wait = max(1, math.ceil(window.seconds_until(limit - count)))
            raise HttpError(
                429,
                f"The budget of {limit} {what} a minute is used up",
                hint=f"send this again in {wait} s",
                code="rate_limit_exceeded",
                headers={"retry-after": str(wait)},
            )

    async def _asked(self, question: Callable[[], Awaitable[_Result]]) -> _Result | None:
        """What the store says; None if it says nothing in time."""
        if not self._breaker.allows():
            self.uncounted += 1
            return None
        try:
            async with asyncio.timeout(self._patience):
                answer = await question()
        except (OSError, TimeoutError, RedisError) as error:
            if not self._breaker.is_open:  # the first of those that asked at once
                _logger.warning("Budgets are not counted: the store does not answer (%s).", type(error).__name__)
            self._breaker.failed()
            self.uncounted += 1
            return None
        self._breaker.worked()
        return answer


def _name(what: str, tenant: Tenant) -> str:
    return f"{what}/{tenant.name}"
