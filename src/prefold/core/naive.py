"""The prefix cache told in the plainest way: the oracle that tests hold `prefold.core.cache.Cache` against.

Every token in the cache is a cell of its own, named by the whole prefix that ends in it. A prefix is known as far as
all its cells exist, a holder keeps all cells of its prefix, and who must go first is found by sorting. There are no
nodes, so there is nothing to split, and no order to maintain. Every call takes time in proportion to everything the
cache holds: fit for tests and for reading, for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefold.core.cache import Counters
from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import WIDTH, unpack
from prefold.errors import CapacityError

Prefix = tuple[tuple[str, str | None, int], ...]
"""For each position: the namespace if it is position 0, the salt if it begins here, and the token."""


def marked(run: bytes, scope: Scope = SHARED) -> Prefix:
    """The tokens of a run, each with the marks that keep it apart from the same token of others."""
    return tuple(
        (scope.namespace if position == 0 else "", scope.salt if position == scope.salt_from else None, token)
        for position, token in enumerate(unpack(run))
    )


@dataclass(slots=True, eq=False)
class Holder:
    """A lease or a pin, which keeps every cell of its prefix. `hit` and `reserved` as in `Lease`, 0 for a pin."""

    run: bytes
    scope: Scope
    is_pin: bool = False
    hit: int = 0
    reserved: int = 0

    @property
    def prefix(self) -> Prefix:
        """The whole run, marked."""
        return marked(self.run, self.scope)


class NaiveCache:
    """What `Cache` does under least recently used, call by call; arguments and errors are documented there.

    Attributes:
        cells: logical time of the last use of each token in the cache, by the prefix that ends in it.
        holders: the leases and pins.
    """

    def __init__(self, capacity: int, *, grain: int = 1, pin_limit: float = 0.5) -> None:
        self.capacity = capacity
        self.cells: dict[Prefix, int] = {}
        self.holders: list[Holder] = []
        self.counters = Counters()
        self._grain = grain
        self._pin_limit = int(capacity * pin_limit)
        self._clock = 0

    @property
    def free(self) -> int:
        """See `Cache.free`."""
        return self.capacity - len(self.cells) - sum(holder.reserved for holder in self.holders)

    def evictable(self) -> list[Prefix]:
        """The cells that nobody holds, in the order in which they go: longest unused first, tails before heads."""
        held = {cell for holder in self.holders for cell in _cells(holder.prefix)}
        return sorted(self.cells.keys() - held, key=lambda cell: (self.cells[cell], -len(cell)))

    def peek(self, run: bytes, scope: Scope = SHARED) -> int:
        """See `Cache.peek`."""
        hit = min(self._known(run, scope), len(marked(run)) - 1)
        return hit // self._grain * self._grain

    def admit(self, run: bytes, scope: Scope = SHARED, *, reserve: int = 0, resumed: bool = False) -> Holder:
        """See `Cache.admit`."""
        lease = Holder(run, scope, hit=self.peek(run, scope))
        self.holders.append(lease)
        try:
            self._make_room(len(lease.prefix) - self._known(run, scope) + reserve)
        except CapacityError:
            self.holders.remove(lease)
            raise
        lease.reserved = reserve
        self._use(lease.prefix)
        if not resumed:
            self.counters.requests += 1
            self.counters.input += len(lease.prefix)
            self.counters.hit += lease.hit
        return lease

    def grow(self, lease: Holder, tokens: int) -> None:
        """See `Cache.grow`."""
        self._make_room(tokens)
        lease.reserved += tokens

    def release(self, lease: Holder, *, tail: bytes = b"", keep: int | None = None) -> None:
        """See `Cache.release`."""
        self.holders.remove(lease)
        self._use(marked(lease.run + tail, lease.scope))
        behind = () if keep is None else _cells(lease.prefix)[keep:]
        for cell in reversed(behind):
            if cell not in self.evictable() or any(other[:-1] == cell for other in self.cells):
                break
            del self.cells[cell]

    def pin(self, run: bytes, scope: Scope = SHARED) -> Holder:
        """See `Cache.pin`."""
        known = self._known(run, scope)
        pins = [Holder(run[: known * WIDTH], scope, is_pin=True), *(holder for holder in self.holders if holder.is_pin)]
        if len({cell for pin in pins for cell in _cells(pin.prefix)}) > self._pin_limit:
            raise CapacityError(f"Pinning {known} tokens would exceed the {self._pin_limit} that may be pinned")
        self.holders.append(pins[0])
        return pins[0]

    def unpin(self, pin: Holder) -> None:
        """See `Cache.unpin`."""
        self.holders.remove(pin)

    def reset(self) -> int:
        """See `Cache.reset`."""
        gone = self.evictable()
        for cell in gone:
            del self.cells[cell]
        return len(gone)

    def _known(self, run: bytes, scope: Scope) -> int:
        """How many leading tokens are in the cache."""
        return sum(cell in self.cells for cell in _cells(marked(run, scope)))

    def _use(self, prefix: Prefix) -> None:
        self._clock += 1
        for cell in _cells(prefix):
            self.counters.inserted += cell not in self.cells
            self.cells[cell] = self._clock

    def _make_room(self, tokens: int) -> None:
        evictable = self.evictable()
        if tokens > self.free + len(evictable):
            raise CapacityError(f"{tokens} tokens do not fit: {self.free} are free, {len(evictable)} can be evicted")
        for cell in evictable[: max(0, tokens - self.free)]:
            del self.cells[cell]
            self.counters.evicted += 1


def _cells(prefix: Prefix) -> tuple[Prefix, ...]:
    """The cells of a prefix, first token first."""
    return tuple(prefix[: length + 1] for length in range(len(prefix)))
