"""One connection to an upstream, and the answers on it: HTTP/1.1 over a bare `asyncio.Protocol`.

The parser is httptools (llhttp). Whoever reads an answer is woken once for each piece of data from the socket, however
many chunks lie in it, and bytes of a body are passed on as they came.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import cast

import httptools

from prefold.gateway.buffered_answer import READ_AHEAD, BufferedAnswer
from prefold.gateway.config import UpstreamOptions
from prefold.gateway.upstream import HOP_HEADERS, Headers, UpstreamFailed
from prefold.server.bounded_protocol import MAX_HEAD_BYTES, MAX_HEADERS

KEEP_SECONDS = 4.0
"""Longest time that a connection waits for its next request: uvicorn and llama.cpp end theirs after 5 s."""

_OF_THE_ORIGIN = frozenset(
    (b"alt-svc", b"content-location", b"location", b"refresh", b"set-cookie", b"strict-transport-security")
)
"""What binds a client to the address that sends it, or sends it to another one: here that is the gateway's."""

_NOT_PASSED_ON = HOP_HEADERS | _OF_THE_ORIGIN | {b"date"}  # our server says what time it is
_WITHOUT_BODY = (204, 304)  # whatever length they claim (RFC 9110, 6.4.1)
_OWN_PREFIX = b"x-prefold-"  # of a gateway behind this one

_SMALL_BODY = 64 << 10  # copied, to go out in one piece

_NOT_HTTP = "answered with something that is not HTTP/1.1"
_TOO_LONG = "answered with too many headers"


class Unanswered(UpstreamFailed):
    """The connection ended before a byte of the answer came: it was stale, if it had been used before."""


class Connection(asyncio.Protocol):
    """A connection, that carries one answer after another.

    It has one timer, that looks now and then whether the deadline has passed, so that a request costs none.

    Args:
        origin: the upstream's address, for messages.
        loop: that it runs in.
        released: called when the connection is free for the next request; returns whether there may be one.
        lost: called when it is no more.
    """

    _transport: asyncio.Transport

    def __init__(
        self,
        origin: str,
        loop: asyncio.AbstractEventLoop,
        released: Callable[[Connection], bool],
        lost: Callable[[Connection], None],
    ) -> None:
        self._origin = origin
        self._loop = loop
        self._released = released
        self._lost = lost
        self._options = UpstreamOptions()
        self._parser = httptools.HttpResponseParser(self)
        self._answer: BufferedAnswer | None = None
        self._headers: Headers = []
        self._barren = 0  # bytes that came without one of a body
        self._is_too_long = False  # the head of the answer
        self._is_whole = False  # the answer's end has come
        self._is_reusable = False
        self._ends_by_closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = math.inf
        self._is_paused = False

    async def exchange(self, head: bytes, body: bytes, options: UpstreamOptions) -> BufferedAnswer:
        """Send a request and wait for the head of its answer.

        Raises:
            Unanswered: if the connection ends without a byte of it.
            UpstreamFailed: if there is none for other reasons.
        """
        if self._transport.is_closing():
            raise self._unanswered()
        self._options = options
        self._answer = answer = BufferedAnswer(self, self._loop)
        self._headers = []
        self._barren = 0
        self._is_too_long = self._is_whole = self._is_reusable = self._ends_by_closing = False
        self._expect(options.first_byte_seconds)
        # Not by writelines: asyncio's (3.13.0) never gets rid of an empty part, and then never closes.
        if len(body) <= _SMALL_BODY:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        try:
            await answer.head()
        except BaseException:  # cancelled, for example
            self.abort("was left before it answered")
            raise
        return answer

    def resume(self) -> None:
        """Read from the socket again, where that was stopped."""
        if self._is_paused:
            self._is_paused = False
            self._expect(self._options.idle_seconds)
            self._transport.resume_reading()

    def abort(self, reason: str) -> None:
        """End it at once."""
        self._end(UpstreamFailed(f"{self._origin} {reason}.", hint="see its log"))
        self._transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        answer = self._answer
        if answer is None:
            self.abort("sent what nobody asked for")
            return
        before = answer.size
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._is_reusable = False
            if not self._is_whole:  # else it is what follows the answer that is wrong
                self.abort(_TOO_LONG if self._is_too_long else _NOT_HTTP)
                return
        if self._is_whole:
            self._release()
            return
        self._barren = self._barren + len(data) if answer.size == before else 0
        if self._barren > MAX_HEAD_BYTES:
            self.abort(_TOO_LONG)
            return
        if answer.size > READ_AHEAD:
            self._is_paused = True
            self._deadline = math.inf  # it is the reader who is slow
            self._transport.pause_reading()
        elif answer.status:
            self._deadline = self._loop.time() + self._options.idle_seconds
        answer.wake()

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._timer is not None:
            self._timer.cancel()
        if error is None and self._ends_by_closing:
            self._end(None)
        elif self._answer is not None and not self._answer.status and not self._barren:
            self._end(self._unanswered())
        else:
            self._end(UpstreamFailed(f"{self._origin} closed the connection in its answer.", hint="see its log"))
        self._lost(self)

    def _release(self) -> None:
        self._end(None)
        if not self._is_reusable or self._transport.get_write_buffer_size():
            self._transport.abort()  # it is about to close, or answered before it had read the request
        elif self._released(self):
            self.resume()
            self._expect(KEEP_SECONDS)
        else:
            self._transport.abort()

    def _unanswered(self) -> Unanswered:
        return Unanswered(f"{self._origin} closed the connection without an answer.", hint="see its log")

    def _end(self, failure: UpstreamFailed | None) -> None:
        if self._answer is not None:
            self._answer.end(failure)
            self._answer = None

    # What the parser calls

    def on_message_begin(self) -> None:
        """Refuse an answer behind the answer."""
        if self._is_whole:
            raise ValueError("nobody asked for a second answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those behind the body (trailers) are dropped."""
        if self._answer is not None and not self._answer.status:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the head, unless it is that of an interim answer (1xx)."""
        status = self._parser.get_status_code()
        if self._answer is None or status < 200:
            return
        named: set[bytes] = set()
        is_delimited = False
        size = 0
        for name, value in self._headers:
            size += len(name) + len(value)
            if name == b"content-length" or (name == b"transfer-encoding" and value.lower().endswith(b"chunked")):
                is_delimited = True
            elif name == b"connection":
                named.update([token.strip().lower() for token in value.split(b",")])
        self._is_too_long = size > MAX_HEAD_BYTES or len(self._headers) > MAX_HEADERS
        if self._is_too_long or status > 599:
            raise ValueError("no answer has such a head")
        self._ends_by_closing = not is_delimited
        if status in _WITHOUT_BODY:
            named.add(b"content-length")
        dropped = _NOT_PASSED_ON | named if named else _NOT_PASSED_ON
        self._answer.headers = [
            header for header in self._headers if header[0] not in dropped and not header[0].startswith(_OWN_PREFIX)
        ]
        self._answer.status = status

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._answer is not None:
            self._answer.add(body)

    def on_message_complete(self) -> None:
        """Note the end of the answer, or make room for the one behind an interim one."""
        if self._answer is not None and self._answer.status:
            self._is_whole = True
            self._is_reusable = self._parser.should_keep_alive()
        else:
            self._headers.clear()

    # Time

    def _expect(self, seconds: float) -> None:
        """Something has to happen within so many seconds."""
        self._deadline = self._loop.time() + seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick, self._look)

    @property
    def _tick(self) -> float:
        """How often the deadline is looked at: often enough for the shortest one that may be set meanwhile."""
        return min(self._options.first_byte_seconds, self._options.idle_seconds, KEEP_SECONDS)

    def _look(self) -> None:
        left = self._deadline - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(min(left, self._tick), self._look)
        elif self._answer is not None and self._answer.status:
            self.abort(f"sent nothing for {self._options.idle_seconds:g} s in the middle of its answer")
        else:
            self.abort(f"did not answer within {self._options.first_byte_seconds:g} s")
