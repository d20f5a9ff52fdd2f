"""A server behind HTTP, reached over connections that are kept.

aiohttp's client costs as much as the whole rest of the gateway: behind uvicorn, with 32 clients of one local mock, it
allowed 4.4 thousand requests a second where this transport allows 10 thousand and more.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Literal
from urllib.parse import urlsplit

from prefold.errors import InvalidRequest, UsageError
from prefold.gateway.buffered_answer import BufferedAnswer
from prefold.gateway.config import UpstreamOptions
from prefold.gateway.http_connection import Connection, Unanswered
from prefold.gateway.upstream import HOP_HEADERS, Outgoing, UpstreamFailed

_OURS = HOP_HEADERS | {b"host", b"content-length", b"expect"}
"""Headers of the client's connection to us: the upstream gets those of its own."""

_KEYS = frozenset((b"authorization", b"x-api-key"))


class HttpUpstream:
    """A server under an `http://` or `https://` URL. An `Upstream`.

    Certificates are verified against the system's authorities (or those in the file that `SSL_CERT_FILE` names).
    Messages of errors name the server's address: they are for the log, not for clients.

    Args:
        url: without /v1; a path in it is put before that of each request.
        options: how long to wait for what; may be set anew, for the requests that follow.
        api_key: sent in place of the client's own; None passes the client's on.
        key_header: the header that carries it.

    Raises:
        UsageError: if the URL or the key cannot be used.
    """

    def __init__(
        self,
        url: str,
        options: UpstreamOptions,
        api_key: str | None = None,
        *,
        key_header: Literal["authorization", "x-api-key"] = "authorization",
    ) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"The URL {url!r} cannot be read: {error}.", hint="write http://HOST:PORT") from None
        if parts.scheme not in ("http", "https") or not host or not url.isascii():
            raise UsageError(f"{url!r} is not the URL of a server.", hint="write http://HOST:PORT or https://HOST")
        if parts.username is not None or parts.query or parts.fragment:
            raise UsageError(
                "The URL of a replica holds a user, a query or a fragment.", hint="give the key as api_key instead"
            )
        self.options = options
        self._host = host
        self._tls = _tls_context() if parts.scheme == "https" else None
        self._port = port or (443 if self._tls else 80)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._prefix = parts.path.rstrip("/").encode()
        self._host_line = b"host: %b\r\n" % parts.netloc.encode()
        self._dropped = _OURS
        self._key_line = b""
        if api_key is not None:
            if not (api_key.isascii() and api_key.isprintable()):
                raise UsageError(f"The API key for {self._origin} is not one line of ASCII.", hint="check the secret")
            self._dropped |= _KEYS
            scheme = "Bearer " if key_header == "authorization" else ""
            self._key_line = f"{key_header}: {scheme}{api_key}\r\n".encode()
        self._idle: dict[Connection, None] = {}  # the one that was used last is taken first, so that spare ones age
        self._is_closed = False

    async def send(self, outgoing: Outgoing) -> BufferedAnswer:
        """See `Upstream`. A request that finds its kept connection stale is sent once more, over a fresh one.

        Raises:
            UpstreamFailed: if there is no answer.
            InvalidRequest: if a header holds a line break.
        """
        head = self._head(outgoing)
        if self._is_closed:
            raise UpstreamFailed(f"{self._origin} is no longer used.", hint="ask another replica", is_safe=True)
        is_stale = False
        if self._idle:
            connection, _ = self._idle.popitem()
            try:
                return await connection.exchange(head, outgoing.body, self.options)
            except Unanswered:
                is_stale = True
        connection = await self._connect(is_safe=not is_stale)
        return await connection.exchange(head, outgoing.body, self.options)

    async def close(self) -> None:
        """See `Upstream`. Connections with an answer under way follow when that ends."""
        self._is_closed = True
        for connection in tuple(self._idle):
            connection.abort("is no longer used")

    def _head(self, outgoing: Outgoing) -> bytes:
        dropped = self._dropped
        named = [value for name, value in outgoing.headers if name == b"connection"]
        if named:
            dropped = dropped.union([token.strip().lower() for value in named for token in value.split(b",")])
        lines = [b"%b: %b\r\n" % header for header in outgoing.headers if header[0] not in dropped]
        head = b"%b %b%b HTTP/1.1\r\n%b%b%bcontent-length: %d\r\n\r\n" % (
            outgoing.method.encode(),
            self._prefix,
            outgoing.path.encode(),
            self._host_line,
            self._key_line,
            b"".join(lines),
            len(outgoing.body),
        )
        breaks = len(lines) + (5 if self._key_line else 4)
        if head.count(b"\n") != breaks or head.count(b"\r") != breaks or " " in outgoing.path:
            raise InvalidRequest("A header or the path holds a line break or a space", hint="leave it out")
        return head

    async def _connect(self, *, is_safe: bool) -> Connection:
        loop = asyncio.get_running_loop()
        seconds = self.options.connect_seconds
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._origin, loop, self._release, self._forget),
                    self._host,
                    self._port,
                    ssl=self._tls,
                )
        except TimeoutError:
            problem, hint = f"did not take a connection within {seconds:g} s", "see whether it runs and can be reached"
        except ssl.SSLError as error:
            problem, hint = f"cannot be trusted: {error.reason or error}", "see its certificate"
        except OSError as error:
            problem, hint = f"cannot be reached: {error.strerror or error}", "see whether it runs"
        else:
            return connection
        raise UpstreamFailed(f"{self._origin} {problem}.", hint=hint, is_safe=is_safe)

    def _release(self, connection: Connection) -> bool:
        if not self._is_closed:
            self._idle[connection] = None
        return not self._is_closed

    def _forget(self, connection: Connection) -> None:
        self._idle.pop(connection, None)


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
