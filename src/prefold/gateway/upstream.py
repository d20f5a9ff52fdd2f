"""What every upstream is to the straight line: something that takes a request and gives an answer in chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from prefold.errors import PrefoldError

Headers = list[tuple[bytes, bytes]]

HOP_HEADERS = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Headers that belong to one connection and are never passed on (RFC 9110, 7.6.1)."""


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A request as it goes upstream.

    Attributes:
        method: in capitals.
        path: with the leading slash, such as /v1/chat/completions.
        headers: in lower case; those of the hop are the transport's.
        body: whole.
    """

    method: str
    path: str
    headers: Headers
    body: bytes


class UpstreamFailed(PrefoldError):
    """An upstream gave no answer, or not all of it.

    Attributes:
        is_safe: whether nothing can have been computed for it, so that asking another one repeats nothing (refused
            connections, for example); a timeout is not safe, but may be repeated while the client has seen nothing.
        told: what clients are told; it names no address, which the message may.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        is_safe: bool = False,
        told: str = "The server of this model gave no whole answer",
    ) -> None:
        super().__init__(message, hint=hint)
        self.is_safe = is_safe
        self.told = told


class Answer(Protocol):
    """An answer on its way.

    Attributes:
        status: HTTP status.
        headers: of the answer, in lower case, without those of the hop.
    """

    status: int
    headers: Headers

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes; one chunk for a short one.

        Raises:
            UpstreamFailed: if it breaks off, or nothing comes for too long.
        """

    async def close(self) -> None:
        """Stop it at once, wherever it is; after the end it does nothing."""


class Upstream(Protocol):
    """Something that answers."""

    async def send(self, outgoing: Outgoing) -> Answer:
        """Send a request and wait for the head of its answer.

        Raises:
            UpstreamFailed: if there is none.
        """

    async def close(self) -> None:
        """Let go of all connections."""
