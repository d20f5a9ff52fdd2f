"""The same traffic under other caches and at every capacity: in this process, or beside it in a second one."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Protocol, Self

from prefold.analysis.bounds import Bounds
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.coarse import coarsened
from prefold.analysis.request import Request
from prefold.analysis.shipping import pack_requests, unpack_requests
from prefold.analysis.simulate import SimulatedRow, Simulation
from prefold.errors import PrefoldError
from prefold.providers.prices import Prices

_BATCH = 64
"""Requests that are sent at once."""
_WORTH_A_PROCESS = 512
"""Requests below which starting a process takes longer than it saves."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What other caches would have done.

    Attributes:
        rows: one for each cache.
        capacity: hit rates of least recently used and of the optimum by capacity; None for an empty log.
    """

    rows: list[SimulatedRow]
    capacity: dict[str, Any] | None


class Comparison(Protocol):
    """Takes requests in order of time, and says at the end what other caches would have done."""

    def add(self, request: Request) -> None:
        """Take in the next request."""

    def result(self) -> Compared:
        """What all caches did."""


class ComparisonHere:
    """Compares in this process.

    Args:
        specs: the caches.
        prices: what tokens cost; None to leave costs out.

    Raises:
        UsageError: a cache that cannot be built.
    """

    def __init__(self, specs: Sequence[CacheSpec], prices: Prices | None) -> None:
        self._simulation = Simulation(specs, prices)
        self._bounds = Bounds()

    def add(self, request: Request) -> None:
        """See `Comparison`."""
        self._simulation.add(request)
        self._bounds.add(coarsened(request))

    def result(self) -> Compared:
        """See `Comparison`."""
        return Compared(self._simulation.rows(), self._capacity())

    def _capacity(self) -> dict[str, Any] | None:
        bounds = self._bounds
        if not bounds.input_tokens:
            return None
        curve = bounds.lru()
        capacities = (1 << power for power in range(12, 40))
        points = bounds.as_json((size for size in capacities if size <= 2 * curve.largest), curve)
        return {**points, "block_tokens": curve.unit, "exact": bounds.is_exact}


class ComparisonAside:
    """Compares in a second process, once the log turns out long enough; to be used in a `with` statement.

    The process imports the main module as `multiprocessing` does, so a script that uses this needs the usual guard.

    Args:
        specs: the caches.
        load_prices: says what tokens cost, None to leave costs out; each process loads them for itself, which takes
            less than to send them.
    """

    def __init__(self, specs: Sequence[CacheSpec], load_prices: Callable[[], Prices | None]) -> None:
        self._specs = specs
        self._load_prices = load_prices
        self._waiting: list[Request] = []
        self._is_long = False
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

    def add(self, request: Request) -> None:
        """See `Comparison`."""
        self._waiting.append(request)
        if len(self._waiting) >= (_BATCH if self._is_long else _WORTH_A_PROCESS):
            self._send()

    def result(self) -> Compared:
        """See `Comparison`.

        Raises:
            UsageError: what the other process raised.
        """
        if self._connection is None:
            here = ComparisonHere(self._specs, self._load_prices())
            for request in self._waiting:
                here.add(request)
            return here.result()
        self._send()
        self._connection.send_bytes(b"")
        return self._answer(self._connection)

    def _send(self) -> None:
        with _uninterrupted():
            if self._connection is None:
                self._connection = self._start()
                self._is_long = True
            for start in range(0, len(self._waiting), _BATCH):
                try:
                    self._connection.send_bytes(pack_requests(self._waiting[start : start + _BATCH]))
                except OSError:  # it stopped, and says why
                    self._answer(self._connection)
            self._waiting.clear()

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks
        ours, theirs = context.Pipe()
        process = context.Process(target=_compare, args=(theirs, self._specs, self._load_prices), daemon=True)
        with _deaf_children():
            process.start()
        self._process = process
        theirs.close()
        return ours

    def _answer(self, connection: Connection) -> Compared:
        try:
            answer = connection.recv()
        except (EOFError, OSError):
            raise PrefoldError(
                "The process that compares caches has ended.", hint="It may have run out of memory."
            ) from None
        if isinstance(answer, PrefoldError):
            raise answer
        compared: Compared = answer
        return compared


@contextmanager
def _uninterrupted() -> Iterator[None]:
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


def _compare(connection: Connection, specs: Sequence[CacheSpec], load_prices: Callable[[], Prices | None]) -> None:
    """What the second process does: requests come in batches, an empty one ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides
    try:
        here = ComparisonHere(specs, load_prices())
        while batch := connection.recv_bytes():
            for request in unpack_requests(batch):
                here.add(request)
        connection.send(here.result())
    except (EOFError, OSError):  # the first process is gone
        return
    except PrefoldError as error:
        connection.send(error)
