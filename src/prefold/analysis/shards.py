"""A log in parts that have nothing to do with each other, simulated on the machines of a Ray cluster.

What is cached for one model says nothing about another, and where nothing is evicted the same holds for what a salt
keeps apart. So a log is cut by model, or by model and salt, and the sums over the parts are those of the whole: the
result is the same to the last token and, since costs are made from whole numbers, to the last digit.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

from prefold.analysis.caches.build import build
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Request
from prefold.analysis.shipping import pack_requests, unpack_requests
from prefold.analysis.simulate import SimulatedRow, Simulation, rows_of
from prefold.analysis.tally import Tally
from prefold.errors import MissingExtra, UsageError
from prefold.providers.prices import Prices
from prefold.providers.rules import Storage

_BATCH = 256
"""Requests that are sent at once."""
_PATIENCE = 5.0
"""Seconds within which a cluster's machine accepts a connection."""
_IN_FLIGHT = 4
"""Batches that a shard may be behind, so that a slow one holds up the reading instead of filling memory."""


class Sharding:
    """Says which part of a log a request belongs to.

    Args:
        specs: the caches to simulate.
        shards: how many parts there are.
    """

    def __init__(self, specs: Sequence[CacheSpec], shards: int) -> None:
        self.by_salt = all(_is_cut_by_salt(spec) for spec in specs)
        """Whether requests of one model with different salts may be in different parts."""
        # Where only some of the caches keep tenants apart, the others want all of them together.
        self._by_tenant = all(spec.isolate_tenants for spec in specs)
        self._shards = shards

    def of(self, request: Request) -> int:
        """The number of the part."""
        record = request.record
        key: tuple[str | None, ...] = (record.model,)
        if self.by_salt:
            key = (record.model, request.salt, record.tenant if self._by_tenant else "")
        return crc32(repr(key).encode(errors="replace")) % self._shards


def _is_cut_by_salt(spec: CacheSpec) -> bool:
    """Whether what a cache does for requests with one salt depends on those alone."""
    return (
        spec.rules is not None
        and spec.rules.stores is not Storage.SLOTS
        and spec.capacity is None
        and not spec.tiers
        and spec.replicas == 1
        and not spec.loss_rate
    )


class Shard:
    """A part of the log on its way through all caches; lives on a machine of the cluster.

    Args:
        specs: the caches.
        load_prices: says what tokens cost; None to leave costs out.
    """

    def __init__(self, specs: Sequence[CacheSpec], load_prices: Callable[[], Prices | None]) -> None:
        self._simulation = Simulation(specs, load_prices())

    def add(self, batch: bytes) -> None:
        """Send a batch of requests to every cache."""
        for request in unpack_requests(batch):
            self._simulation.add(request)

    def tallies(self) -> list[Tally]:
        """The sums of each cache."""
        return self._simulation.tallies()


def simulate_on_ray(
    requests: Iterable[Request],
    specs: Sequence[CacheSpec],
    load_prices: Callable[[], Prices | None],
    *,
    address: str,
    shards: int | None = None,
) -> list[SimulatedRow]:
    """What `simulate` gives, from a Ray cluster on whose machines prefold is installed.

    Args:
        requests: in order of time.
        specs: the caches, each with a row in the answer.
        load_prices: says what tokens cost; called on each machine.
        address: of the cluster, as `ray.init` takes it.
        shards: parts of the log; as many as the cluster has processors if not given.

    Raises:
        UsageError: as `simulate`, or if there is no cluster at the address.
        MissingExtra: if Ray is not installed.
    """
    ray = _ray()
    for spec in specs:
        build(spec)  # what is wrong with one is better said here
    _check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, error) from None
    try:
        number = shards or max(1, int(ray.cluster_resources().get("CPU", 1)))
        actor = ray.remote(num_cpus=0)(Shard)
        workers = [actor.remote(list(specs), load_prices) for _ in range(number)]
        _feed(ray, workers, requests, Sharding(specs, number))
        merged = [Tally() for _ in specs]
        for tallies in ray.get([worker.tallies.remote() for worker in workers]):
            for whole, part in zip(merged, tallies, strict=True):
                whole.merge(part)
    finally:
        ray.shutdown()
    prices = load_prices()
    return rows_of(specs, merged, prices.currency if prices else "")


def _feed(ray: Any, workers: Sequence[Any], requests: Iterable[Request], sharding: Sharding) -> None:
    """Send each request to its shard, in order, in batches."""
    batches: list[list[Request]] = [[] for _ in workers]
    in_flight: list[deque[Any]] = [deque() for _ in workers]

    def send(shard: int) -> None:
        while len(in_flight[shard]) >= _IN_FLIGHT:
            ray.get(in_flight[shard].popleft())
        in_flight[shard].append(workers[shard].add.remote(pack_requests(batches[shard])))
        batches[shard].clear()

    for request in requests:
        shard = sharding.of(request)
        batches[shard].append(request)
        if len(batches[shard]) >= _BATCH:
            send(shard)
    for shard in range(len(workers)):
        send(shard)
        ray.get(list(in_flight[shard]))  # what went wrong there is raised here


def _check_reachable(address: str) -> None:
    """Ask first whether anybody listens at an address of the form host:port, since Ray asks for minutes.

    Raises:
        UsageError: if nobody does.
    """
    host, colon, port = address.rpartition(":")
    if "/" in address or not (colon and host and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: Exception) -> UsageError:
    return UsageError(f"There is no Ray cluster at {address}: {error}", hint="Start one with ray start --head.")


def _ray() -> Any:
    try:
        import ray  # noqa: PLC0415 - an extra that takes a second to load
    except ImportError:
        raise MissingExtra("Ray is not installed.", hint="pip install 'prefold[ray]'") from None
    return ray
