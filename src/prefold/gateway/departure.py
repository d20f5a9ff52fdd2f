"""Clients that leave before they have their answer."""

from __future__ import annotations

import asyncio
from types import TracebackType

from prefold.server.asgi import ClientGone, Exchange

_GRACE_SECONDS = 0.02
"""Answers that come sooner are not watched: watching costs as much as all else that is done for them, and whoever
cancels one that is due in a moment gains nothing."""


class Departures:
    """Finds the calls that take longer than a moment, by one timer for all of them, and watches their clients."""

    def __init__(self) -> None:
        self._new: set[UntilClientLeaves] = set()
        self._older: set[UntilClientLeaves] = set()  # than the timer
        self._has_timer = False

    def add(self, call: UntilClientLeaves, loop: asyncio.AbstractEventLoop) -> None:
        """A call has begun."""
        self._new.add(call)
        if not self._has_timer:
            self._has_timer = True
            loop.call_later(_GRACE_SECONDS, self._look, loop)

    def remove(self, call: UntilClientLeaves) -> None:
        """It is over."""
        self._new.discard(call)
        self._older.discard(call)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        for call in self._older:
            call.watch()
        self._older, self._new = self._new, set()
        self._has_timer = bool(self._older)
        if self._has_timer:
            loop.call_later(_GRACE_SECONDS, self._look, loop)


class UntilClientLeaves:
    """Stops what is in the block when the client closes the connection, and raises `ClientGone` then.

    Args:
        exchange: with the client, whose body has been read.
        departures: of all clients.
    """

    __slots__ = ("_departures", "_exchange", "_has_left", "_task", "_watch")

    def __init__(self, exchange: Exchange, departures: Departures) -> None:
        self._exchange = exchange
        self._departures = departures
        self._has_left = False
        self._watch: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not in a task")
        self._task = task
        self._departures.add(self, task.get_loop())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._departures.remove(self)
        if self._watch is not None:
            self._watch.cancel()
        if self._has_left and isinstance(error, asyncio.CancelledError) and not self._task.uncancel():
            raise ClientGone from None

    def watch(self) -> None:
        """Begin to watch the client."""
        self._watch = asyncio.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        await self._exchange.gone()
        self._has_left = True
        self._task.cancel()
