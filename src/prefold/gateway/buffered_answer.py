"""An answer between what brings it and what reads it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from prefold.gateway.upstream import Headers, UpstreamFailed

READ_AHEAD = 256 << 10
"""Bytes of a body that may wait for the reader; beyond them the source pauses until it has caught up."""


class Source(Protocol):
    """What brings an answer."""

    def resume(self) -> None:
        """The reader has caught up."""

    def abort(self, reason: str) -> None:
        """The reader has left: stop at once, and end the answer as failed."""


class BufferedAnswer:
    """An `Answer`: what its source has brought and its reader has not taken yet.

    The source sets status and headers, gives parts by `add`, tells the reader of them by `wake`, and ends it all by
    `end`.

    Args:
        source: brings it.
        loop: in which it is brought and read.

    Attributes:
        status: HTTP status; 0 before the head has come.
        headers: names in lower case, without those of the hop.
        size: bytes of the body that wait for the reader.
    """

    __slots__ = ("_failure", "_loop", "_parts", "_source", "_waiter", "headers", "size", "status")

    def __init__(self, source: Source, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: Headers = []
        self.size = 0
        self._parts: list[bytes] = []
        self._source: Source | None = source  # none after the end
        self._loop = loop
        self._failure: UpstreamFailed | None = None
        self._waiter: asyncio.Future[None] | None = None

    # The reader's side

    async def head(self) -> None:
        """Wait for status and headers.

        Raises:
            UpstreamFailed: if they do not come.
        """
        while not self.status:
            if self._failure is not None:
                raise self._failure
            await self._news()

    def chunks(self) -> BufferedAnswer:
        """See `Answer`."""
        return self

    def __aiter__(self) -> BufferedAnswer:
        return self

    async def __anext__(self) -> bytes:
        while not self._parts:
            if self._failure is not None:
                raise self._failure
            if self._source is None:
                raise StopAsyncIteration
            await self._news()
        chunk = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        if self._source is not None:
            self._source.resume()
        return chunk

    async def close(self) -> None:
        """See `Answer`."""
        if self._source is not None:
            self._source.abort("was left in the middle of its answer")

    async def _news(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # The source's side

    def add(self, part: bytes) -> None:
        """Take a part of the body."""
        self._parts.append(part)
        self.size += len(part)

    def wake(self) -> None:
        """Tell the reader that something has changed."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self, failure: UpstreamFailed | None = None) -> None:
        """Nothing more comes; what has come is still read, and then the failure raised."""
        self._source = None
        self._failure = failure
        self.wake()
