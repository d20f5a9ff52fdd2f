"""Answers in Redis or Valkey, shared by many gateways. The server bounds its memory (`maxmemory`, `allkeys-lru`)."""

from __future__ import annotations

import asyncio

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from prefold.errors import UsageError
from prefold.responses.store import StoredAnswer, StoreFailed, decode_answer, encode_answer

_PREFIX = "prefold:answer:"
_CONNECTIONS = 32


class RedisStore:
    """Keeps each answer under a key of its own, which the server lets expire.

    Args:
        url: redis://, rediss:// or unix://, with the password.
        budget_seconds: longest that a connection, or an answer of the server, is waited for. Once, without a retry.

    Raises:
        UsageError: for another URL.
    """

    def __init__(self, url: str, budget_seconds: float) -> None:
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=budget_seconds,
                socket_timeout=budget_seconds,
                socket_connect_timeout=budget_seconds,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError:
            raise UsageError(
                "The URL of Redis cannot be used.", hint="write redis://HOST:PORT/0, rediss://... or unix://..."
            ) from None
        self._client = Redis.from_pool(pool)

    async def get(self, key: bytes) -> StoredAnswer | None:
        """See `Store.get`."""
        try:
            data = await self._client.get(_PREFIX + key.hex())
        except (RedisError, OSError, ValueError) as error:
            raise _failed(error) from None
        return decode_answer(key, data) if isinstance(data, bytes) else None

    async def put(self, key: bytes, answer: StoredAnswer, ttl: float) -> None:
        """See `Store.put`."""
        # Megabytes take milliseconds to compress.
        data = await asyncio.to_thread(encode_answer, key, answer)
        try:
            await self._client.set(_PREFIX + key.hex(), data, px=max(1, int(ttl * 1000)))
        except (RedisError, OSError, ValueError) as error:
            raise _failed(error) from None

    async def close(self) -> None:
        """See `Store.close`."""
        try:
            await self._client.aclose()
        except (RedisError, OSError, ValueError) as error:
            raise _failed(error) from None


def _failed(error: Exception) -> StoreFailed:
    # The text of the error may hold the server's address, with its password.
    return StoreFailed(f"Redis failed: {type(error).__name__}.", hint="check that it runs and accepts connections")
