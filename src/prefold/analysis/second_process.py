"""The process that compares caches beside this one, which can be started before it is known what it will compare.

Starting it takes a quarter of a second, most of it imports. Begun early, that is hidden behind what the first process
does meanwhile; so this module imports little itself.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from prefold.errors import PrefoldError

if TYPE_CHECKING:
    from prefold.providers.prices import Prices


class SecondProcess:
    """A process that does what `prefold.analysis.comparison.compare` says; to be used in a `with` statement.

    It imports the main module as `multiprocessing` does, so a script that uses this needs the usual guard.

    Args:
        load_prices: says what tokens cost, None to leave costs out; each process loads them for itself, which takes
            less than to send them.
    """

    def __init__(self, load_prices: Callable[[], Prices | None]) -> None:
        self.load_prices = load_prices
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.terminate()
            self._process.join()

    @property
    def process(self) -> multiprocessing.process.BaseProcess | None:
        """The process; None before it is started."""
        return self._process

    @property
    def is_started(self) -> bool:
        """Whether there is one."""
        return self._connection is not None

    def start(self) -> Connection:
        """Start it, unless that has been done; returns this end of the connection."""
        if self._connection is None:
            context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks
            with uninterrupted():
                self._connection, theirs = context.Pipe()
                self._process = context.Process(target=_run, args=(theirs, self.load_prices), daemon=True)
                with _deaf_children():
                    self._process.start()
                theirs.close()
        return self._connection

    def send(self, message: bytes) -> None:
        """Send a message; starts the process if that has not been done.

        Raises:
            PrefoldError: what ended the process.
        """
        try:
            self.start().send_bytes(message)
        except OSError:  # it stopped, and says why
            self.answer()

    def answer(self) -> Any:
        """Its answer.

        Raises:
            PrefoldError: what ended the process.
        """
        try:
            answer = self.start().recv()
        except (EOFError, OSError):
            raise PrefoldError(
                "The process that compares caches has ended.", hint="It may have run out of memory."
            ) from None
        if isinstance(answer, PrefoldError):
            raise answer
        return answer


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Have Ctrl-C wait until the block ends: half a message in a pipe could not be taken back."""
    if threading.current_thread() is not threading.main_thread():  # Ctrl-C reaches the main thread only
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Have processes that start in the block not hear Ctrl-C, from their first moment on."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows they ignore it as soon as they run
        yield
        return
    resource_tracker.ensure_running()  # which else would be started in the block, and unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(connection: Connection, load_prices: Callable[[], Prices | None]) -> None:
    """What the second process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides
    from prefold.analysis.comparison import compare  # noqa: PLC0415 - the first process may not need it yet

    try:
        compare(connection, load_prices)
    except (EOFError, OSError):  # the first process is gone
        return
    except PrefoldError as error:
        connection.send(error)
