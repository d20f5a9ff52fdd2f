"""Clients that leave before they have their answer."""

from __future__ import annotations

import asyncio
from types import TracebackType

from prefold.server.asgi import ClientGone, Exchange

_GRACE_SECONDS = 0.02
"""Answers that come sooner are not watched: watching costs as much as all else that is done for them, and whoever
cancels one that is due in a moment gains nothing."""


class UntilClientLeaves:
    """Stops what is in the block when the client closes the connection, and raises `ClientGone` then.

    Args:
        exchange: with the client, whose body has been read.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._has_left = False
        self._watch: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not in a task")
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._begin)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self._has_left and isinstance(error, asyncio.CancelledError) and not self._task.uncancel():
            raise ClientGone from None

    def _begin(self) -> None:
        self._watch = asyncio.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        await self._exchange.gone()
        self._has_left = True
        self._task.cancel()
