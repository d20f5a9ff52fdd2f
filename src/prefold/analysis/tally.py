"""What a cache did for a log, in whole numbers: sums that can be added up in any order, and a cost made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prefold.analysis.caches.base import Served
from prefold.analysis.caches.resolve import rules_of_request
from prefold.analysis.request import Request
from prefold.providers.prices import HOUR, PER_MILLION, Price, Prices
from prefold.providers.rules import CacheRules
from prefold.providers.usage import Usage

_FIVE_MINUTES = 300


@dataclass(slots=True)
class Billed:
    """Input tokens that have one price.

    Attributes:
        uncached: neither read nor written.
        read: from the cache.
        written: to the cache, by their lifetime in seconds; 0 for one that nobody stated.
    """

    uncached: int = 0
    read: int = 0
    written: dict[int, int] = field(default_factory=dict)

    def add(self, tokens: int, served: Served) -> None:
        """Count a request of `tokens` input tokens."""
        self.uncached += tokens - served.hit
        self.read += served.hit
        if served.written:
            self.uncached -= sum(served.written.values())
            self._add_written(served.written.items())

    def add_usage(self, usage: Usage) -> None:
        """Count a request as it was reported."""
        self.uncached += usage.uncached
        self.read += usage.read
        if usage.write:
            unstated = usage.write - usage.write_5m - usage.write_1h
            self._add_written(((0, unstated), (_FIVE_MINUTES, usage.write_5m), (HOUR, usage.write_1h)))

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.uncached + self.read + sum(self.written.values())

    def merge(self, other: Billed) -> None:
        """Add another sum."""
        self.uncached += other.uncached
        self.read += other.read
        self._add_written(other.written.items())

    def _add_written(self, tokens: Iterable[tuple[int, int]]) -> None:
        for ttl, count in tokens:
            if count:
                self.written[ttl] = self.written.get(ttl, 0) + count

    def cost(self, price: Price) -> float:
        """What the tokens cost, storage included where its price is known."""
        cost = self.uncached * price.input + self.read * price.read
        if self.written:
            kept = (price.storage or 0.0) / HOUR  # for each second
            # Ascending, so that the sum does not depend on what came first.
            cost += sum(count * (price.write_for(ttl) + ttl * kept) for ttl, count in sorted(self.written.items()))
        return cost / PER_MILLION


@dataclass(slots=True)
class Tally:
    """Sums over the requests that a cache served.

    Attributes:
        requests: how many.
        unit: tokens that an id of theirs stands for.
        input_tokens: sent.
        hit_tokens: those served from the cache.
        written_tokens: those that were billed as written.
        unpriced_requests: requests without a price.
        computed: input tokens that each replica computed.
        billed: tokens by their price.
        others: requests judged by the rules of another family than that of the cache's specification, by its name.
    """

    requests: int = 0
    unit: int = 1
    input_tokens: int = 0
    hit_tokens: int = 0
    written_tokens: int = 0
    unpriced_requests: int = 0
    computed: dict[int, int] = field(default_factory=dict)
    billed: dict[Price, Billed] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)

    def add(self, request: Request, served: Served) -> None:
        """Count a request, but for its cost."""
        self.requests += 1
        self.unit = request.unit
        self.input_tokens += request.tokens
        self.hit_tokens += served.hit
        if served.written:
            self.written_tokens += sum(served.written.values())
        replica = served.replica
        self.computed[replica] = self.computed.get(replica, 0) + request.tokens - served.hit

    def merge(self, other: Tally) -> None:
        """Add the sums over other requests."""
        self.requests += other.requests
        self.unit = max(self.unit, other.unit)
        self.input_tokens += other.input_tokens
        self.hit_tokens += other.hit_tokens
        self.written_tokens += other.written_tokens
        self.unpriced_requests += other.unpriced_requests
        for replica, tokens in other.computed.items():
            self.computed[replica] = self.computed.get(replica, 0) + tokens
        for price, billed in other.billed.items():
            self.billed.setdefault(price, Billed()).merge(billed)
        for family, requests in other.others.items():
            self.others[family] = self.others.get(family, 0) + requests

    @property
    def cost(self) -> float | None:
        """What the input cost; None where nothing has a price. The same for the same sums, in whatever order."""
        if not self.billed:
            return None
        return sum(sorted(billed.cost(price) for price, billed in self.billed.items()))


class PriceOf:
    """Finds the price of a request under a cache; asks for each model once.

    Args:
        prices: what tokens cost; None if that is not known.
        rules_of: the rules by which the cache judges a request; those of the one that it was sent to, if not given.
    """

    def __init__(self, prices: Prices | None, rules_of: Callable[[Request], CacheRules] = rules_of_request) -> None:
        self._prices = prices
        self._rules_of = rules_of
        self._found: dict[tuple[str, str, bool], Price | None] = {}

    def __call__(self, request: Request, tokens: int | None = None) -> Price | None:
        """Its price, for its length; None where it is not known.

        Args:
            request: what was sent.
            tokens: its length as it was billed; as it was counted here if not given.

        Raises:
            UsageError: as `Prices.price_of`.
        """
        if self._prices is None:
            return None
        record = request.record
        key = record.model, record.provider, bool(request.markers)
        try:
            price = self._found[key]
        except KeyError:
            rules = self._rules_of(request)
            price = self._found[key] = self._prices.price_of(record.model, record.provider, rules=rules)
        if price is None or not price.longer:
            return price
        return price.at(request.tokens if tokens is None else tokens)


class Meter:
    """Counts and bills requests.

    Args:
        price_of: the price of a request.

    Attributes:
        tally: the sums so far.
    """

    def __init__(self, price_of: Callable[[Request], Price | None]) -> None:
        self.tally = Tally()
        self._price_of = price_of
        self._latest: tuple[Price, Billed] | None = None

    def add(self, request: Request, served: Served) -> None:
        """Count a request."""
        self.tally.add(request, served)
        price = self._price_of(request)
        if price is None:
            self.tally.unpriced_requests += 1
            return
        # Most requests have the price of the one before: looking it up by its numbers takes longer than the rest.
        if self._latest is None or self._latest[0] is not price:
            self._latest = price, self.tally.billed.setdefault(price, Billed())
        self._latest[1].add(request.tokens, served)
