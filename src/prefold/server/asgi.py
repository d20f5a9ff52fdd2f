"""One HTTP exchange over ASGI: a bounded body in; JSON, text or server-sent events out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from prefold.errors import PrefoldError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_LIMIT = 32 << 20
"""Most bytes in a request body."""

BODY_SECONDS = 60.0
"""Longest time a client may take to send a body."""

WHOLE_BODY = "prefold.whole_body"
"""The extension (in the scope of a request) by which our servers say that its whole body has come."""


class HttpError(PrefoldError):
    """A refusal with an HTTP status of its own.

    Args:
        status: of the response.
        code: machine-readable name, where OpenAI's API has one.
        param: the request field at fault, where there is one.
        headers: more response headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str = "",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


def encode_json(value: object) -> bytes:
    r"""JSON as UTF-8.

    A lone surrogate, which a client may have sent and which UTF-8 cannot hold, becomes the escape `\udXXX` that JSON
    has for it; other text stays as it is.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


class Exchange:
    """A request and the response to it.

    Attributes:
        method: in capitals; HEAD counts as GET, the server leaves its body out.
        path: percent-decoded.
        query: behind the question mark, as it came.
        started: whether a response has begun, after which its status stands.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method = "GET" if scope["method"] == "HEAD" else str(scope["method"])
        self.path = str(scope["path"])
        self.query: bytes = scope.get("query_string", b"")
        self.started = False
        self._headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        self._scope = scope
        self._receive = receive
        self._send = send

    def header(self, name: str) -> str | None:
        """A request header's first value; `name` in lower case."""
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), None)

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """All request headers, names in lower case."""
        return self._headers

    async def body(self, limit: int = BODY_LIMIT, seconds: float = BODY_SECONDS) -> bytes:
        """The whole request body.

        Args:
            limit: most bytes of it.
            seconds: longest time that it may take to come.

        Raises:
            HttpError: 413 if it is larger, 408 if it takes longer.
            ClientGone: if the client left before its end.
        """
        if WHOLE_BODY in self._scope.get("extensions", ()):
            return await self._whole_body(limit)  # a timeout costs more than all else here
        declared = self.header("content-length")
        if declared is not None and declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(seconds):
                return await self._whole_body(limit)
        except TimeoutError:
            raise HttpError(
                408, f"The request body did not arrive within {seconds:g} s", hint="send it without pauses"
            ) from None

    async def _whole_body(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise _too_large(limit)
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def gone(self) -> None:
        """Return when the client has closed the connection; call it after `body`."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def reply(
        self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole response."""
        await self._start(status, content_type, {"content-length": str(len(body)), **(headers or {})})
        await self._send({"type": "http.response.body", "body": body})

    async def reply_json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response in JSON."""
        await self.reply(status, encode_json(value), "application/json", headers)

    async def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the head of a response whose body follows by `write` and `finish`."""
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, chunk: bytes) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the last part of the body."""
        await self._send({"type": "http.response.body", "body": chunk})

    async def start_events(self, headers: Mapping[str, str] | None = None) -> None:
        """Begin a stream of server-sent events."""
        # Proxies that buffer responses would make a stream of tokens arrive in lumps.
        fields = {"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})}
        await self._start(200, "text/event-stream", fields)

    async def send_events(self, values: Iterable[object]) -> None:
        """Send events with JSON data, in one write."""
        if body := b"".join(b"data: %b\n\n" % encode_json(value) for value in values):
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end_events(self) -> None:
        """Send the event that ends OpenAI's streams, and end the response."""
        await self._send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _start(self, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.started = True
        fields = {"content-type": content_type, **headers}
        encoded = [(name.encode(), value.encode()) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"The request body is larger than {limit} bytes", hint="send a shorter prompt")
