"""A thread for work that blocks, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Busy(Exception):
    """As much work is waiting as may wait."""


class Worker:
    """One thread, and a bounded queue before it. Used from one event loop.

    Nobody needs to wait for what was started: it goes on without them.

    Args:
        name: of the thread.
        most: works that may be waiting or running.
    """

    def __init__(self, name: str, most: int) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._most = most
        self._running: set[asyncio.Future[Any]] = set()

    def start(self, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
        """Run something in the thread, after what was started before.

        Raises:
            Busy: if the queue is full, or the worker closed.
        """
        if len(self._running) >= self._most:
            raise Busy
        try:
            future: asyncio.Future[_Result] = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError:
            raise Busy from None  # closed
        self._running.add(future)
        future.add_done_callback(self._done)
        return future

    async def close(self) -> None:
        """Drop what has not begun, and wait for what has; then the thread ends."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._running:
            await asyncio.wait(tuple(self._running))
        self._thread.shutdown()  # the thread has nothing left to do: this takes no time

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            future.exception()  # whoever waits gets it; that nobody does is no fault
