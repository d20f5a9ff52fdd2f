"""Policies that hash a request to a place on a ring of replicas."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from prefold.core.routing.base import LOAD_BOUND, Ask, Choice, Limits, Load, Why
from prefold.core.routing.spreading import LeastPending

VIRTUAL_NODES = 160
"""Places of each replica on the ring: shares differ by about 1 / sqrt(160), 8 %, before the bound evens them out."""

HASH_TOKENS = 1024
"""Leading tokens that stand for a prompt.

Where a system prompt is longer than this, all conversations that begin with it belong to one place, and the bound
scatters them: the prompts of the Mooncake conversation trace share their first 512 tokens, and hashing no more than
those finds a quarter to two thirds of what a single cache would, where 1,024 find 94 to 98 %. Prompts that are shorter
are one with another only if they are equal.
"""

_POINT = struct.Struct(">8Q")  # a digest has 64 bytes, so it gives eight points


class Ring:
    """Replicas on a circle of 64-bit hashes (consistent hashing; Karger et al., 1997).

    A replica's points follow from its name alone, so that one that comes or goes moves only its own share, and all
    processes that know the same names agree.

    Args:
        virtual_nodes: points of each replica.
    """

    def __init__(self, virtual_nodes: int) -> None:
        self._virtual_nodes = virtual_nodes
        self._names: list[str] = []
        self._points: list[int] = []
        self._owners: list[int] = []

    def around(self, key: bytes, loads: Sequence[Load]) -> Iterator[int]:
        """All replicas by their index, each once, in the order in which the ring has them from a key's place on."""
        names = [load.name for load in loads]
        if names != self._names:
            self._place(names)
        points, owners = self._points, self._owners
        start = bisect_left(points, int.from_bytes(blake2b(key, digest_size=8).digest(), "big"))
        met: set[int] = set()
        for place in range(start, start + len(points)):
            owner = owners[place % len(points)]
            if owner not in met:
                met.add(owner)
                yield owner
                if len(met) == len(names):
                    return

    def _place(self, names: list[str]) -> None:
        placed = sorted((point, index) for index, name in enumerate(names) for point in self._points_of(name))
        self._names = names
        self._points = [point for point, _ in placed]
        self._owners = [index for _, index in placed]

    def _points_of(self, name: str) -> list[int]:
        points: list[int] = []
        while len(points) < self._virtual_nodes:
            points += _POINT.unpack(blake2b(f"{len(points)}\0{name}".encode()).digest())
        return points[: self._virtual_nodes]


class _BoundedRing:
    """A ring on which replicas that have too much to do are passed over.

    The bound is that of consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018), where the
    one to be placed fits if there is any room at all, however large it is.

    What a replica computed before counts only while it is busy: one that could begin at once is not passed over for
    work that is long done, or affinity would be given up for nothing.
    """

    def __init__(self, virtual_nodes: int, load_bound: float) -> None:
        self._ring = Ring(virtual_nodes)
        self._bound = load_bound
        self._fallback = LeastPending(Why.FALLBACK)

    def choose(self, key: bytes, why: Why, ask: Ask, loads: Sequence[Load], allowed: Sequence[int]) -> Choice:
        """The first allowed replica from the key's place on that has room; without a key, the idlest one."""
        if not key or len(allowed) == 1:
            return self._fallback.choose(ask, loads, allowed)
        limits = Limits.of(loads, allowed, self._bound, ask.tokens)
        nearest = None
        for index in self._ring.around(key, loads):
            if index in allowed:
                nearest = index if nearest is None else nearest
                load = loads[index]
                has_computed_its_share = load.tokens > limits.tokens + ask.tokens
                if load.pending < limits.pending and (not has_computed_its_share or load.is_hardly_busy(ask.tokens)):
                    return Choice(index, why if index == nearest else Why.OVERLOADED)
        return Choice(allowed[0] if nearest is None else nearest, why)  # each has too much of one or the other


class Sticky:
    """By session: all requests of a conversation to one place; the idlest replica where none is named.

    Args:
        virtual_nodes: points of each replica on the ring.
        load_bound: load relative to the mean above which the next one on the ring is taken.
    """

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES, load_bound: float = LOAD_BOUND) -> None:
        self._ring = _BoundedRing(virtual_nodes, load_bound)

    def choose(self, ask: Ask, loads: Sequence[Load], allowed: Sequence[int]) -> Choice:
        """See `Policy`."""
        return self._ring.choose(ask.session.encode(), Why.STICKY, ask, loads, allowed)


class PrefixHash:
    """By the prompt's beginning, and by the session where one is named: equal ones to one place.

    Args:
        virtual_nodes: points of each replica on the ring.
        load_bound: load relative to the mean above which the next one on the ring is taken.
    """

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES, load_bound: float = LOAD_BOUND) -> None:
        self._ring = _BoundedRing(virtual_nodes, load_bound)

    def choose(self, ask: Ask, loads: Sequence[Load], allowed: Sequence[int]) -> Choice:
        """See `Policy`."""
        return self._ring.choose(ask.affinity, Why.PREFIX_HASH, ask, loads, allowed)
