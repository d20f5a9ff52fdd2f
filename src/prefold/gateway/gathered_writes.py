"""Writes to clients, as few as can be.

uvicorn writes the head of a response, each part of its body and its end by themselves, and uvloop makes a system call
of each. One such call costs a tenth of all that the gateway does for a short answer.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from prefold.server.bounded_protocol import BoundedProtocol

_MOST_BYTES = 64 << 10
"""So much is written at once even if more is to come, so that a slow client is noticed."""


class GatheringTransport(asyncio.Transport):
    """Another transport, to which what is written in one turn of the event loop goes as one piece.

    Args:
        transport: the other one.
        loop: that it belongs to.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep data until the end of the turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(bytes(data))
        self._size += len(data)
        if self._size >= _MOST_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self._transport.write(data)

    def close(self) -> None:
        """Close it once everything is written."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._parts.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport`."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.BaseTransport`."""
        return self._transport.get_extra_info(name, default)


class GatheringProtocol(BoundedProtocol):
    """Our servers' protocol, over such a transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(GatheringTransport(cast("asyncio.Transport", transport), self.loop))
