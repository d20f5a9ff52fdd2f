"""The same traffic under other caches and at every capacity: in this process, or beside it in a second one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from prefold.analysis.bounds import Bounds
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.coarse import coarsened
from prefold.analysis.request import Request
from prefold.analysis.second_process import SecondProcess, uninterrupted
from prefold.analysis.shipping import pack_requests, unpack_requests
from prefold.analysis.simulate import SimulatedRow, Simulation
from prefold.providers.prices import Prices

_BATCH = 16
"""Requests that are sent at once; larger batches take longer, since their buffers are new memory each time."""
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

    def finish(self) -> None:
        """Say that there are no more, so that the result can be made while the caller does something else."""

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

    def finish(self) -> None:
        """See `Comparison`: there is nobody else to make the result."""

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
    """Compares in a second process, once the log turns out long enough, or from the start where that runs already.

    Args:
        specs: the caches.
        second: the process, which knows what tokens cost; it is started here if that has not been done.
    """

    def __init__(self, specs: Sequence[CacheSpec], second: SecondProcess) -> None:
        self._specs = specs
        self._second = second
        self._waiting: list[Request] = []
        self._is_aside = False
        self._is_finished = False

    def add(self, request: Request) -> None:
        """See `Comparison`."""
        self._waiting.append(request)
        if len(self._waiting) >= (_BATCH if self._second.is_started else _WORTH_A_PROCESS):
            self._send()

    def finish(self) -> None:
        """See `Comparison`.

        Raises:
            PrefoldError: what the other process raised.
        """
        if self._second.is_started and not self._is_finished:
            self._send()
            self._second.send(b"")
            self._is_finished = True

    def result(self) -> Compared:
        """See `Comparison`.

        Raises:
            PrefoldError: what the other process raised.
        """
        self.finish()
        if self._is_finished:
            compared: Compared = self._second.answer()
            return compared
        here = ComparisonHere(self._specs, self._second.load_prices())
        for request in self._waiting:
            here.add(request)
        return here.result()

    def _send(self) -> None:
        with uninterrupted():
            if not self._is_aside:
                self._second.send(pickle.dumps(list(self._specs)))
                self._is_aside = True
            for start in range(0, len(self._waiting), _BATCH):
                self._second.send(pack_requests(self._waiting[start : start + _BATCH]))
            self._waiting.clear()


def compare(connection: Connection, load_prices: Callable[[], Prices | None]) -> None:
    """What the second process does: the caches come first, then requests in batches; an empty one ends them."""
    prices = load_prices()
    specs = pickle.loads(connection.recv_bytes())  # noqa: S301 - from our own process
    here = ComparisonHere(specs, prices)
    while batch := connection.recv_bytes():
        for request in unpack_requests(batch):
            here.add(request)
    connection.send(here.result())
