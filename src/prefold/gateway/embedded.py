"""An ASGI application in this process as an upstream: the embedded engine's server, without a socket between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from prefold.gateway.buffered_answer import READ_AHEAD, BufferedAnswer
from prefold.gateway.upstream import Outgoing, UpstreamFailed
from prefold.server.asgi import Message, Receive, Scope, Send

App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 1.0
"""What an application gets to end by itself when its client has left, before it is cancelled."""


class AppUpstream:
    """An `Upstream` that calls an application.

    Args:
        app: without a lifespan; that is its owner's business.
        name: for messages.
    """

    def __init__(self, app: App, name: str) -> None:
        self._app = app
        self._name = name
        self._running: set[asyncio.Task[None]] = set()

    async def send(self, outgoing: Outgoing) -> BufferedAnswer:
        """See `Upstream`."""
        run = _Run(self._app, self._name, outgoing)
        self._running.add(run.task)
        run.task.add_done_callback(self._running.discard)
        try:
            await run.answer.head()
        except BaseException:  # cancelled, for example
            run.abort("was left before it answered")
            raise
        return run.answer

    async def close(self) -> None:
        """See `Upstream`. Answers that are under way break off."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class _Run:
    """One call of the application; the source of its answer."""

    def __init__(self, app: App, name: str, outgoing: Outgoing) -> None:
        self.answer = BufferedAnswer(self, asyncio.get_running_loop())
        self._name = name
        self._body: bytes | None = outgoing.body
        self._is_over = False
        self._left = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.task = asyncio.create_task(self._call(app, _scope(outgoing)))

    def resume(self) -> None:
        """See `Source`."""
        self._room.set()

    def abort(self, reason: str) -> None:
        """See `Source`."""
        self._end(UpstreamFailed(f"{self._name} {reason}."))
        asyncio.get_running_loop().call_later(_GRACE_SECONDS, self.task.cancel)

    async def _call(self, app: App, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - a fault of the application is what any server's is: no answer
            _log.exception("%s failed", self._name)
        finally:
            self._end(UpstreamFailed(f"{self._name} ended before its answer did.", hint="see the log"))

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._is_over:  # as servers do: a client that has left hears nothing
            return
        if message["type"] == "http.response.start":
            self.answer.headers = [(name.lower(), value) for name, value in message.get("headers", ())]
            self.answer.status = message["status"]
            self.answer.wake()
            return
        if body := message.get("body", b""):
            self.answer.add(body)
        if not message.get("more_body", False):
            self._end(None)
            return
        self.answer.wake()
        if self.answer.size > READ_AHEAD:
            self._room.clear()
            await self._room.wait()

    def _end(self, failure: UpstreamFailed | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._left.set()
            self._room.set()
            self.answer.end(failure)


def _scope(outgoing: Outgoing) -> Scope:
    raw_path, _, query = outgoing.path.encode().partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": outgoing.method,
        "scheme": "http",
        "path": unquote_to_bytes(raw_path).decode("utf-8", "replace"),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": [
            *[header for header in outgoing.headers if header[0] != b"content-length"],
            (b"content-length", b"%d" % len(outgoing.body)),
        ],
        "client": None,
        "server": None,
    }
