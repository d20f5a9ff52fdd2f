"""uvicorn's HTTP/1.1, with bounds on what a client may send before an application hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from prefold.server.asgi import WHOLE_BODY

MAX_HEADERS = 100
MAX_HEAD_BYTES = 64 << 10
"""Limits on the head of a message, whoever sends it. The second is also how much may come without a byte of a body, as
trailers do."""


SWEEP_TICKS = 10
"""So many calls of `uvicorn.Server.on_tick`, which make a second, lie between two calls of `end_overdue`."""


def end_overdue(connections: Iterable[asyncio.Protocol], seconds: float) -> None:
    """End connections that have waited longer than so many seconds for the head of a request, or rested too long."""
    for connection in tuple(connections):
        if isinstance(connection, BoundedProtocol):
            connection.end_if_overdue(seconds)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's, that ends connections whose heads are too long or too slow, and takes no trailer for a header.

    It has no timer of its own: whoever runs the server calls `end_overdue` now and then.
    """

    _waiting_since: float | None = None  # for a head; of the loop's clock
    _resting_since: float | None = None  # after an answer, since when nothing has come
    _barren = 0  # bytes that came without one of a body
    _is_in_body = False
    _is_too_long = False  # the head

    def end_if_overdue(self, seconds: float) -> None:
        """Close the connection if it has waited longer than so many seconds for a head that has begun, or for any.

        Between two requests it may rest for as long as uvicorn's option says.
        """
        if self._resting_since is not None and self.loop.time() - self._resting_since > self.timeout_keep_alive:
            self.transport.close()
        if (
            self._waiting_since is not None
            and self.loop.time() - self._waiting_since > seconds
            and not self._is_answering
            and not self.transport.is_closing()
        ):
            if self._barren:
                self._refuse(408, f"The head of the request did not arrive within {seconds:g} s.")
            else:
                self.transport.close()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._waiting_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._resting_since = None
        if self._waiting_since is None and (not self._is_in_body or self.cycle.response_complete):
            self._waiting_since = self.loop.time()
        self._barren += len(data)
        super().data_received(data)
        if self._barren > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_length()

    # What the parser calls

    def on_headers_complete(self) -> None:
        """Take the head."""
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        self._is_too_long = size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS
        if self._is_too_long:
            raise ValueError("no request has such a head")
        self._waiting_since = None
        self._barren = 0
        self._is_in_body = True
        super().on_headers_complete()
        self.headers = []  # what the parser reports from now on are trailers, which nobody reads

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._barren = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of the body."""
        self._barren = 0
        self._is_in_body = False
        self.scope["extensions"] = {WHOLE_BODY: {}}
        super().on_message_complete()

    # What uvicorn calls

    def on_response_complete(self) -> None:
        """Begin to wait anew, as uvicorn does, but with no timer for each answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        if self._waiting_since is not None:  # something came already
            self._waiting_since = self.loop.time()
        elif self.cycle.response_complete:
            self._resting_since = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser does not take."""
        if self._is_too_long:
            self._refuse_length()
        else:
            self._refuse(400, msg)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: the request is answered over HTTP/1.1, which all who offer to go on in another way expect."""

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse_length(self) -> None:
        self._refuse(431, f"The head of the request is longer than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers.")

    def _refuse(self, status: int, text: str) -> None:
        """Answer, and close the connection; without a word where it would stand in, or for, another answer."""
        if self._is_answering and (self.cycle.response_started or not self.cycle.more_body):
            self.transport.abort()
            return
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", text.encode("ascii")]))
        self.transport.close()
