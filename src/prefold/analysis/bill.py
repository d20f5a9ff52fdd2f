"""What the input of a log costs as it was served, and what a token costs on average."""

from __future__ import annotations

from typing import Any

from prefold.analysis.attribution import Row
from prefold.analysis.caches.base import Reason, Served
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Request
from prefold.analysis.tally import Billed, PriceOf
from prefold.providers.prices import Price, Prices
from prefold.providers.usage import Usage


class Bill:
    """Counts what was paid for, request by request.

    Args:
        spec: the cache that was asked.
        prices: what tokens cost; None if that is not known.
    """

    def __init__(self, spec: CacheSpec, prices: Prices | None) -> None:
        self._prices = prices
        self._price_of = PriceOf(prices, spec.rules)
        self._billed: dict[int, tuple[Price, Billed]] = {}
        self._unpriced = 0

    def add(self, request: Request, served: Served) -> None:
        """Count a request. Where its usage was reported, that is what was paid for."""
        price = self._price_of(request)
        if price is None:
            self._unpriced += 1
            return
        _, billed = self._billed.setdefault(id(price), (price, Billed()))
        usage = request.record.usage
        if usage is not None and usage.is_reported:
            billed.add_usage(usage)
        else:
            billed.add(request.tokens, served)

    @property
    def _tokens(self) -> int:
        return sum(billed.tokens for _, billed in self._billed.values())

    @property
    def _computed(self) -> float:
        """What it would cost if nothing came from a cache."""
        return sum(price.cost_of(Usage(billed.tokens)).input for price, billed in self._billed.values())

    @property
    def _read(self) -> float:
        """What it would cost if all came from a cache."""
        return sum(price.cost_of(Usage(read=billed.tokens)).input for price, billed in self._billed.values())

    def of_avoidable(self, tokens: int) -> float | None:
        """What computing tokens costs more than reading them from the cache would; None where nothing has a price."""
        return tokens * (self._computed - self._read) / self._tokens if self._tokens else None

    def of_computed(self, tokens: int) -> float | None:
        """What computing tokens costs; None where nothing has a price."""
        return tokens * self._computed / self._tokens if self._tokens else None

    def of_row(self, row: Row) -> float | None:
        """What the tokens of a row cost, at the log's average prices; None where nothing has a price."""
        if not self._tokens:
            return None
        return row.tokens * (self._read if row.reason is Reason.HIT else self._computed) / self._tokens

    def as_json(self, avoidable: int) -> dict[str, Any] | None:
        """Cost now, cost if nothing avoidable were computed, and cost without any cache."""
        saved = self.of_avoidable(avoidable)
        if self._prices is None or saved is None:
            return None
        now = sum(billed.cost(price) for price, billed in self._billed.values())
        return {
            "currency": self._prices.currency,
            "now": now,
            "possible": max(0.0, now - saved),
            "without_cache": self._computed,
            "prices": self._prices.source,
            "prices_age_days": self._prices.age_days,
            "unpriced_requests": self._unpriced,
        }
