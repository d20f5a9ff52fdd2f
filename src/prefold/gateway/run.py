"""Running a gateway until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from prefold.gateway.assembly import Gateway
from prefold.gateway.gathered_writes import GatheringProtocol
from prefold.gateway.operator import OperatorPages
from prefold.server.bounded_protocol import SWEEP_TICKS, end_overdue
from prefold.server.run import listen, uvicorn_config

_LAST_WORDS_SECONDS = 1.0


def serve(
    gateway: Gateway,
    listener: socket.socket,
    operator_listener: socket.socket | None,
    *,
    drain_seconds: float,
    log_level: str,
    on_ready: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM; then no request is let in, and those that run may finish.

    SIGHUP reads the configuration again.

    Args:
        gateway: what answers.
        listener: from `prefold.server.run.bind`.
        operator_listener: the same for the operator's pages; None where they have no port of their own.
        drain_seconds: that running requests may take to finish; afterwards, or at a second signal, they are cut off.
        log_level: of uvicorn.
        on_ready: called when clients can connect.

    Raises:
        UsageError: if another process listens at the address by now.
        KeyboardInterrupt: if it was SIGINT that ended it.
    """
    listen(listener)
    server = _Server(gateway, operator_listener, drain_seconds=drain_seconds, log_level=log_level, on_ready=on_ready)
    server.run(sockets=[listener])
    if signal.SIGINT in server.signals:
        raise KeyboardInterrupt


def _collect_less() -> None:
    """Spare the time for garbage that is not there: it was a tenth of all that a short request took.

    What has been made until now stays until the end, and requests leave hardly any cycles behind.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


class _Server(uvicorn.Server):
    """uvicorn, with what runs beside requests, and a drain that ends."""

    def __init__(
        self,
        gateway: Gateway,
        operator_listener: socket.socket | None,
        *,
        drain_seconds: float,
        log_level: str,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(uvicorn_config(gateway.app, GatheringProtocol, log_level))
        self.signals: list[int] = []
        self._gateway = gateway
        self._operator_listener = operator_listener
        pages = OperatorPages(lambda: gateway.app.parts)
        self._operator = uvicorn.Server(uvicorn_config(pages, GatheringProtocol, log_level))
        self._drain_seconds = drain_seconds
        self._on_ready = on_ready
        self._reloads: set[asyncio.Task[None]] = set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's name
        """Take note of a signal."""
        self.signals.append(sig)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, once it is known how the replicas are."""
        await self._gateway.start()
        await super().startup(sockets)
        if self._operator_listener is not None:
            listen(self._operator_listener)
            self._operator.config.load()
            self._operator.lifespan = self._operator.config.lifespan_class(self._operator.config)
            await self._operator.startup([self._operator_listener])
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():  # as uvicorn's own
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        _collect_less()
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """See `uvicorn.Server`; now and then, end connections that keep us waiting for a request."""
        if counter % SWEEP_TICKS == 0:
            seconds = self._gateway.app.parts.config.server.body_seconds
            end_overdue(self.server_state.connections, seconds)
            end_overdue(self._operator.server_state.connections, seconds)
        if self._operator_listener is not None:
            await self._operator.on_tick(counter)  # which tells its answers what time it is
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish, for a time. Until then new ones are told that the gateway is stopping."""
        self._gateway.app.stopping = True
        drain = asyncio.create_task(self._cut_off())
        try:
            await self._drained()
            await super().shutdown(sockets)
            if self._operator_listener is not None:
                await self._operator.shutdown([self._operator_listener])
        finally:
            drain.cancel()
            await self._gateway.close()

    def _reload(self) -> None:
        task = asyncio.create_task(self._gateway.reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _drained(self, *, wait_for_requests: bool = True) -> None:
        """Return at the end of the drain: of its time, at a second signal, or when no request runs any more."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._drain_seconds
        while loop.time() < end and len(self.signals) <= 1:  # signals set no event
            if wait_for_requests and not self.server_state.tasks:
                return
            await asyncio.sleep(0.05)

    async def _cut_off(self) -> None:
        """Close the connections of clients whose requests take longer than the drain. For the app they are then gone.

        uvicorn's own time limit would cancel the app instead, and report that with a traceback for each of them.
        """
        await self._drained(wait_for_requests=False)
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
