"""Running the server until a signal ends it."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from prefold.errors import UsageError
from prefold.server.asgi import BODY_SECONDS, App
from prefold.server.bounded_protocol import SWEEP_TICKS, BoundedProtocol, end_overdue

if TYPE_CHECKING:  # a gateway without an engine binds its port with this module, and needs no torch
    from prefold.engine.worker import EngineWorker
    from prefold.server.app import PrefoldApp

_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 75  # longer than common clients keep idle connections, so that they end them, not we
_LAST_WORDS_SECONDS = 5  # for clients to read what was written to them


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address, not yet listening, so that a model can be loaded before anybody is let in.

    Args:
        host: name or address.
        port: 0 for any that is free.

    Raises:
        UsageError: if the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"The host {host!r} is unknown: {error}", hint="use --host 127.0.0.1") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """The URL under which a socket answers."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(listener: socket.socket) -> None:
    """Let clients connect to a socket from `bind`; whoever accepts may still have to start.

    Raises:
        UsageError: if another process listens at the address by now.
    """
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise _cannot_listen(host, port, error) from None


def uvicorn_config(app: App, protocol: type[BoundedProtocol], log_level: str) -> uvicorn.Config:
    """How every server of prefold runs an application.

    Args:
        app: the application.
        protocol: HTTP, with bounds on what clients send.
        log_level: of uvicorn.
    """
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level=log_level,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )


def serve(
    app: PrefoldApp,
    worker: EngineWorker,
    listener: socket.socket,
    *,
    drain_timeout: float,
    log_level: str,
    on_ready: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM; then no request is let in, and those that run may finish.

    Args:
        app: the application.
        worker: the app's, started; stopped when this returns.
        listener: from `bind`.
        drain_timeout: seconds that running requests may take to finish; afterwards, or at a second signal, they are
            cancelled.
        log_level: of uvicorn.
        on_ready: called when clients can connect.

    Raises:
        UsageError: if another process listens at the address by now.
        KeyboardInterrupt: if it was SIGINT that ended it.
    """
    listen(listener)
    server = Server(app, worker, drain_timeout=drain_timeout, log_level=log_level, on_ready=on_ready)
    server.run(sockets=[listener])
    if signal.SIGINT in server.signals:
        raise KeyboardInterrupt


class Server(uvicorn.Server):
    """uvicorn, but the first signal drains the engine, the second one cancels, and none is raised again at the end.

    Args:
        app: the application.
        worker: the app's; stopped at the end.
        drain_timeout: seconds that running requests may take to finish.
        log_level: of uvicorn.
        on_ready: called when clients can connect.

    Attributes:
        signals: received so far.
    """

    def __init__(
        self,
        app: PrefoldApp,
        worker: EngineWorker,
        *,
        drain_timeout: float,
        log_level: str,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(uvicorn_config(app, BoundedProtocol, log_level))
        self.signals: list[int] = []
        self._app = app
        self._worker = worker
        self._drain_timeout = drain_timeout
        self._on_ready = on_ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's name
        """Take note of a signal."""
        self.signals.append(sig)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections; by now signals are heard."""
        await super().startup(sockets)
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """See `uvicorn.Server`; now and then, end connections that keep us waiting for a request."""
        if counter % SWEEP_TICKS == 0:
            end_overdue(self.server_state.connections, BODY_SECONDS)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the engine finish what it has while uvicorn waits for its connections."""
        self._app.stopping = True
        stopped = asyncio.create_task(asyncio.to_thread(self._worker.stop, drain=True, timeout=self._drain_timeout))
        others = [
            asyncio.create_task(self._cancel_at_second_signal()),
            asyncio.create_task(self._hang_up_after(stopped)),
        ]
        try:
            await super().shutdown(sockets)
            await stopped
        finally:
            for task in others:
                task.cancel()

    async def _cancel_at_second_signal(self) -> None:
        while len(self.signals) <= 1:  # noqa: ASYNC110 - a signal handler is no place to set an event
            await asyncio.sleep(0.05)
        await asyncio.to_thread(self._worker.stop, drain=False)

    async def _hang_up_after(self, stopped: asyncio.Task[None]) -> None:
        """Close the connections of clients that neither send nor read what is left. For the app they are then gone.

        uvicorn's own time limit would cancel the app instead, and report that with a traceback for each of them.
        """
        await asyncio.wait([stopped])
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _cannot_listen(host: str, port: int, error: OSError) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        return UsageError(f"Port {port} of {host} is in use already", hint="choose another one with --port")
    if error.errno == errno.EACCES:
        return UsageError(f"Port {port} of {host} is not allowed", hint="choose one above 1023 with --port")
    reason = (error.strerror or str(error)).lower()
    return UsageError(f"Cannot listen at {host} port {port}: {reason}", hint="choose another --host or --port")
