"""Several replicas behind a router."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import cycle
from types import MappingProxyType
from typing import Protocol

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.caches.common import Replica
from prefold.analysis.request import Request
from prefold.core.tokens import WIDTH
from prefold.errors import UsageError

HASHED_TOKENS = 256
"""Leading tokens of a prompt that consistent hashing looks at."""

BOUND = 1.25
"""Load of a replica, relative to the mean, above which consistent hashing goes on to the next one."""

_POINTS = 64  # of each replica on the ring
_WINDOW = 100  # requests per replica over which load is summed


class Loads:
    """Input tokens that replicas computed for the latest requests, 100 for each replica.

    Args:
        replicas: how many there are.
    """

    def __init__(self, replicas: int) -> None:
        self.tokens = [0] * replicas
        self._latest: deque[tuple[int, int]] = deque()

    def add(self, replica: int, tokens: int) -> None:
        """Note a request."""
        self._latest.append((replica, tokens))
        self.tokens[replica] += tokens
        if len(self._latest) > _WINDOW * len(self.tokens):
            oldest, computed = self._latest.popleft()
            self.tokens[oldest] -= computed


class Router(Protocol):
    """Decides which replica serves a request."""

    def choose(self, request: Request, replicas: Sequence[Replica], loads: Loads) -> int:
        """Its index."""


class RoundRobin:
    """Each in turn."""

    def __init__(self, replicas: int) -> None:
        self._turns = cycle(range(replicas))

    def choose(self, request: Request, replicas: Sequence[Replica], loads: Loads) -> int:  # noqa: ARG002 - the protocol's
        """See `Router`."""
        return next(self._turns)


class ConsistentHash:
    """By a hash of the prompt's beginning, with bounded load (Mirrokni, Thorup and Zadimoghaddam, 2018)."""

    def __init__(self, replicas: int) -> None:
        points = (
            (_hash(f"{replica}/{point}".encode()), replica) for replica in range(replicas) for point in range(_POINTS)
        )
        self._ring = sorted(points)

    def choose(self, request: Request, replicas: Sequence[Replica], loads: Loads) -> int:  # noqa: ARG002 - the protocol's
        """See `Router`."""
        beginning = request.run[: -(-HASHED_TOKENS // request.unit) * WIDTH]
        start = bisect_left(self._ring, (_hash(repr(request.scope).encode() + beginning), 0))
        limit = BOUND * sum(loads.tokens) / len(loads.tokens)
        around = (self._ring[(start + step) % len(self._ring)][1] for step in range(len(self._ring)))
        return next(replica for replica in around if loads.tokens[replica] <= limit)


class ExactIndex:
    """The replica with the least to do: what it would have to compute of the prompt, and what it computed lately.

    So a replica that holds a prefix gets the requests that begin with it, until it has computed as much more than
    another one as going there would cost. The router of NVIDIA Dynamo adds up the same two.
    """

    def __init__(self, replicas: int) -> None:
        """Take the number of replicas like the others."""

    def choose(self, request: Request, replicas: Sequence[Replica], loads: Loads) -> int:
        """See `Router`."""
        hits = [replica.peek(request).hit for replica in replicas]
        return min(range(len(replicas)), key=lambda index: (loads.tokens[index] - hits[index], index))


ROUTERS: Mapping[str, type[RoundRobin | ConsistentHash | ExactIndex]] = MappingProxyType(
    {"round_robin": RoundRobin, "consistent_hash": ConsistentHash, "exact": ExactIndex}
)
"""Every router by the name that options use."""

USUAL_ROUTING = "round_robin"
"""The one that spreads requests where nothing else is asked for."""


class Fleet:
    """Replicas that share traffic.

    Args:
        replicas: at least one.
        routing: a name in `ROUTERS`.

    Raises:
        UsageError: there is no such router.
    """

    def __init__(self, replicas: Sequence[Replica], routing: str) -> None:
        if routing not in ROUTERS:
            raise UsageError(f"There is no routing {routing!r}.", hint=f"Known: {', '.join(ROUTERS)}.")
        self._replicas = replicas
        self._router: Router = ROUTERS[routing](len(replicas))
        self._loads = Loads(len(replicas))

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        chosen = self._router.choose(request, self._replicas, self._loads)
        served = self._replicas[chosen].serve(request)
        self._loads.add(chosen, request.tokens - served.hit)
        others = [replica.peek(request) for index, replica in enumerate(self._replicas) if index != chosen]
        elsewhere = max(other.hit for other in others)
        lost = [Loss(Reason.OTHER_REPLICA, elsewhere)] if elsewhere > served.hit else []
        known = max(served.hit, elsewhere)
        for each in (served, *others):  # what one of them cannot explain, another one may
            for loss in each.lost:
                if loss.stop > known:
                    lost.append(loss)
                    known = loss.stop
        return replace(served, lost=tuple(lost), replica=chosen)


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
