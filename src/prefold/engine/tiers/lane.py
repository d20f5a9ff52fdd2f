"""Asking stores that may fail, be slow or hang: nobody waits for longer than a budget, or for what keeps failing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from prefold.core.breaker import Breaker
from prefold.engine.tiers.local import Counts

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class Lane:
    """Runs one operation at a time, in a thread, and waits for it no longer than asked."""

    def __init__(self) -> None:
        self._free = threading.Lock()

    def call(self, operation: Callable[[], _Result], seconds: float) -> _Result:
        """What `operation` gives or raises.

        Raises:
            TimeoutError: if it is not done in time, or the one before it still is not. It goes on by itself.
        """
        if not self._free.acquire(timeout=seconds):
            raise TimeoutError
        results: list[_Result] = []
        errors: list[Exception] = []
        done = threading.Event()

        def run() -> None:
            try:
                results.append(operation())
            except Exception as error:  # noqa: BLE001 - handed to who asked
                errors.append(error)
            finally:
                self._free.release()
                done.set()

        start_daemon(run)
        if not done.wait(seconds):
            raise TimeoutError
        if errors:
            raise errors[0]
        return results[0]


class Attempts:
    """Asks a store; what goes wrong is counted, and each kind of it said once.

    Args:
        name: of the store, without its password.
        counts: where errors are counted.
    """

    def __init__(self, name: str, counts: Counts) -> None:
        self._name = name
        self._counts = counts
        self._said: set[str] = set()

    def ask(self, breaker: Breaker, lane: Lane, seconds: float, operation: Callable[[], _Result]) -> _Result | None:
        """What the store says within the time; None if it does not, or is left alone for now."""
        if not breaker.allows():
            return None
        try:
            result = lane.call(operation, seconds)
        except Exception as error:  # noqa: BLE001 - whatever the store's library raises, it is a miss
            breaker.failed()
            self.failed(f"failed ({type(error).__name__})")  # not its text, which may hold an address with a password
            return None
        breaker.worked()
        return result

    def failed(self, why: str) -> None:
        """Something went wrong."""
        self._counts.errors += 1
        if why not in self._said:
            self._said.add(why)
            _log.warning("The tier %s %s; requests go on without it.", self._name, why)


def side_by_side(operations: Iterable[Callable[[], None]], threads: int) -> None:
    """Run operations, which raise nothing, in a few threads that keep no process from ending; all have ended then."""
    left: Iterator[Callable[[], None]] = iter(list(operations))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                operation = next(left, None)
            if operation is None:
                return
            operation()

    others = [start_daemon(work) for _ in range(threads - 1)]
    work()
    for other in others:
        other.join()


def start_daemon(function: Callable[[], None]) -> threading.Thread:
    """A thread that keeps no process from ending, and runs already."""
    thread = threading.Thread(target=function, name="prefold-tier", daemon=True)
    thread.start()
    return thread
