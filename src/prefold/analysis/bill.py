"""What the input of a log costs as it was served, and what it would have cost had nothing been lost without need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefold.analysis.attribution import Row
from prefold.analysis.caches.base import Reason, Served
from prefold.analysis.caches.resolve import judge_of
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.reported import reported_usage
from prefold.analysis.request import Request
from prefold.analysis.tally import Billed, PriceOf
from prefold.providers.prices import PER_MILLION, Prices

_Key = tuple[Reason, str, str]


@dataclass(slots=True)
class _Sums:
    """What tokens cost, and what that is beyond having read them from the cache."""

    cost: float = 0.0
    beyond_reading: float = 0.0


class Bill:
    """Counts what was paid for, request by request.

    Args:
        spec: the cache that was asked.
        prices: what tokens cost; None if that is not known.
    """

    def __init__(self, spec: CacheSpec, prices: Prices | None) -> None:
        self._prices = prices
        self._price_of = PriceOf(prices, judge_of(spec))
        self._unpriced = 0
        self._tokens = 0  # as they were counted here; of requests with a price
        self._now = 0.0
        self._possible = 0.0
        self._computed = 0.0  # if nothing came from a cache
        self._read = 0.0  # if everything did
        self._rows: defaultdict[_Key, _Sums] = defaultdict(_Sums)

    def add(self, request: Request, served: Served, rows: Sequence[Row]) -> None:
        """Count a request. Where its usage was reported, that is what was paid for.

        Args:
            request: the next one.
            served: what the cache did for it.
            rows: what became of its tokens.
        """
        usage = reported_usage(request)
        sent = request.tokens if usage is None else usage.input
        price = self._price_of(request, sent)  # what was billed decides which price holds
        if price is None:
            self._unpriced += 1
            return
        billed = Billed()
        if usage is None:
            billed.add(sent, served)
        else:
            billed.add_usage(usage)
        avoidable = sum([row.avoidable for row in rows])
        if request.tokens:
            avoidable = avoidable * sent // request.tokens
        now = billed.cost(price)
        all_read = sent * price.read / PER_MILLION
        self._now += now
        self._possible += min(now, _had_read(billed, avoidable).cost(price)) if avoidable else now
        self._computed += sent * price.input / PER_MILLION
        self._read += all_read
        self._tokens += request.tokens
        self._share(now, billed.read * price.read / PER_MILLION, all_read, request.tokens, rows)

    def _share(self, now: float, read: float, all_read: float, tokens: int, rows: Sequence[Row]) -> None:
        """Share what a request costs among its rows: what was read has its price, and all else bears the rest."""
        hit = sum([row.tokens for row in rows if row.reason is Reason.HIT])
        if not hit or hit == tokens:
            read = now * hit / (tokens or 1)
        for row in rows:
            part = read * row.tokens / hit if row.reason is Reason.HIT else (now - read) * row.tokens / (tokens - hit)
            sums = self._rows[row.key]
            sums.cost += part
            sums.beyond_reading += max(0.0, part - all_read * row.tokens / tokens)

    @property
    def saved(self) -> float | None:
        """What would not have been paid had nothing been lost without need; None where nothing has a price."""
        return self._now - self._possible if self._tokens else None

    def of_row(self, key: _Key) -> float | None:
        """What the tokens of a row cost, which sums to what all cost; None where nothing has a price."""
        return self._rows.get(key, _Sums()).cost if self._tokens else None

    def of_break(self, key: _Key) -> float | None:
        """What those tokens cost more than reading them from the cache would; None where nothing has a price."""
        return self._rows.get(key, _Sums()).beyond_reading if self._tokens else None

    def of_computed(self, tokens: int) -> float | None:
        """What computing tokens costs on average; None where nothing has a price."""
        return tokens * self._computed / self._tokens if self._tokens else None

    def of_read(self, tokens: int) -> float | None:
        """What reading tokens from the cache costs on average; None where nothing has a price."""
        return tokens * self._read / self._tokens if self._tokens else None

    def as_json(self) -> dict[str, Any] | None:
        """Cost now, cost if nothing avoidable were computed, and cost without any cache."""
        if self._prices is None or not self._tokens:
            return None
        return {
            "currency": self._prices.currency,
            "now": self._now,
            "possible": self._possible,
            "without_cache": self._computed,
            "prices": self._prices.source,
            "prices_age_days": self._prices.age_days,
            "unpriced_requests": self._unpriced,
        }


def _had_read(billed: Billed, tokens: int) -> Billed:
    """What would have been billed had more tokens been read.

    They are taken from those neither read nor written, which cost least, and only then from those written: rather too
    little is promised than too much.
    """
    left = min(tokens, billed.tokens - billed.read)
    uncached = min(left, billed.uncached)
    had = Billed(billed.uncached - uncached, billed.read + left)
    left -= uncached
    for ttl, count in sorted(billed.written.items()):
        spared = min(left, count)
        had.written[ttl] = count - spared
        left -= spared
    return had
