"""What tokens cost: prices of a model, completed by the rules of a cache, in any currency.

Prices change weekly, so that none is written down here: they come from a list (see `prefold.providers.price_lists`).
Where a list has no price for reading from a cache or writing to it, it follows from the price of input and the
multipliers of the cache's rules (see `prefold.providers.rules`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from prefold.errors import UsageError
from prefold.providers.price_lists import CURRENCY, USD, Listed, PublicList, parse_price, read_overrides, shortened
from prefold.providers.rules import CacheRules, rules_for
from prefold.providers.usage import Usage

HOUR = 3600
"""The lifetime in seconds whose price lists state apart."""
PER_MILLION = 1_000_000
"""Tokens that a price is given for."""
_REMEMBERED = 1_024  # models whose price is kept


@dataclass(frozen=True, slots=True)
class Cost:
    """What a usage costs, part by part, in the currency of its price.

    Attributes:
        uncached: input that was neither read from a cache nor written to one.
        read: input read from a cache.
        write: input written to a cache.
        output: the answer.
    """

    uncached: float
    read: float
    write: float
    output: float

    @property
    def input(self) -> float:
        """All input."""
        return self.uncached + self.read + self.write

    @property
    def total(self) -> float:
        """Everything."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Price:
    """Prices per million tokens.

    Attributes:
        input: neither read from a cache nor written to one.
        read: read from a cache.
        write: written to a cache, for its usual lifetime or one that nobody states.
        write_1h: written to a cache for an hour.
        writes: written to a cache for other lifetimes, by seconds; see `write_for`.
        output: of the answer.
        storage: of keeping a million tokens for an hour in a cache that was created by name; 0 where nothing is asked,
            None where it is not known in this currency.
        currency: such as `USD`.
        source: where they come from, such as `genai-prices 0.2.3`.
        as_of: when they were looked up; None if nobody knows.
        longer: prices of requests with more input tokens than a limit, ascending by limit; see `at`.
    """

    input: float
    read: float
    write: float
    write_1h: float
    output: float
    storage: float | None = 0.0
    currency: str = USD
    source: str = ""
    as_of: date | None = None
    longer: tuple[tuple[int, Price], ...] = ()
    writes: tuple[tuple[int, float], ...] = ()

    def write_for(self, ttl: int) -> float:
        """Written to a cache for so many seconds."""
        if ttl == HOUR:
            return self.write_1h
        return next((price for known, price in self.writes if known == ttl), self.write)

    def at(self, input_tokens: int) -> Price:
        """The price of one request of this length: beyond a limit some providers ask more for all of its tokens."""
        price = self
        for limit, dearer in self.longer:
            if input_tokens > limit:
                price = dearer
        return price

    def cost_of(self, usage: Usage) -> Cost:
        """What the tokens of one response or of many cost, without storage and without what `at` adds."""
        of_1h = min(usage.write_1h, usage.write)
        return Cost(
            uncached=usage.uncached * self.input / PER_MILLION,
            read=usage.read * self.read / PER_MILLION,
            write=((usage.write - of_1h) * self.write + of_1h * self.write_1h) / PER_MILLION,
            output=usage.output * self.output / PER_MILLION,
        )


class Prices:
    """Finds the price of a model.

    Args:
        given: one price for every model; None to look it up.
        overrides: patterns of models and their prices, the first that matches counts.
        listed: the list of genai-prices; None to do without it.
        currency: of all prices that come out.
        rate: what one US dollar is worth in it; None if that is not known.
        now: the time.
    """

    def __init__(
        self,
        *,
        given: Listed | None,
        overrides: Sequence[tuple[str, Listed]],
        listed: PublicList | None,
        currency: str,
        rate: float | None,
        now: datetime,
    ) -> None:
        self.currency = currency
        self._given = given
        self._overrides = overrides
        self._listed = listed
        self._rate = 1.0 if currency == USD else rate
        self._today = now.date()
        self._found: dict[tuple[str, str, CacheRules | None], Price | None] = {}

    @classmethod
    def load(
        cls,
        *,
        overrides: Path | None = None,
        given: str | None = None,
        currency: str = USD,
        rate: float | None = None,
        now: datetime,
    ) -> Self:
        """Read what the user gave, and genai-prices where there is more to look up.

        Args:
            overrides: a TOML file, see `read_overrides`.
            given: a price for every model, such as `miss=2,hit=0.04`, in the currency asked for; see `parse_price`.
            currency: three capital letters.
            rate: units of the currency that a US dollar is worth.
            now: the time, with its zone: some prices are valid for a while only, and all of them age.

        Raises:
            UsageError: if a price, the file, the currency or the rate cannot be used.
            MissingExtra: if no price was given and genai-prices is not installed.
        """
        if not CURRENCY.fullmatch(currency):
            raise UsageError(f"{currency!r} is no currency.", hint="Write three capital letters, such as EUR.")
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise UsageError(f"The rate {rate} is no price of a US dollar.", hint="It is a number above 0.")
        if rate is not None and currency == USD:
            raise UsageError("There is a rate, but no currency to convert to.", hint="Name it with --currency.")
        entries = () if overrides is None else read_overrides(overrides)
        spot = None if given is None else parse_price(given, currency)
        listed = None
        if spot is None:
            listed = PublicList.installed(now) if entries else PublicList.required(now)
        return cls(given=spot, overrides=entries, listed=listed, currency=currency, rate=rate, now=now)

    @property
    def source(self) -> str:
        """Where prices come from, such as `genai-prices 0.2.3`."""
        if self._given is not None:
            return self._given.source
        sources = [entry.source for _, entry in self._overrides[:1]] + ([self._listed.source] if self._listed else [])
        return ", ".join(sources)

    @property
    def age_days(self) -> int | None:
        """Days since anything in the list of genai-prices was looked up; None where it is not used or does not say."""
        as_of = self._listed.as_of if self._listed else None
        return None if as_of is None else (self._today - as_of).days

    def price_of(self, model: str, provider: str = "", *, rules: CacheRules | None = None) -> Price | None:
        """The price of a model; None if nobody knows it.

        Args:
            model: as requests name it, with or without a vendor prefix, region, date or version.
            provider: who serves it; by the model's name if not given.
            rules: of the cache that is asked; the model's own if not given. Where they are those of another provider,
                the model's input is taken with their multipliers: what this traffic would cost under that cache.

        Raises:
            UsageError: if the price is in US dollars, another currency is asked for, and no rate was given.
        """
        key = (model, provider, rules)
        if key not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[key] = self._look_up(model, provider, rules)
        return self._found[key]

    def _look_up(self, model: str, provider: str, rules: CacheRules | None) -> Price | None:
        own = _own_rules(model, provider)
        found = self._given or self._override(model) or self._public(model, provider, own)
        if found is None:
            return None
        # A price given on the spot is meant for the cache that is asked, whichever that is.
        is_own = found is self._given or rules is None or own is None or rules.provider == own.provider
        return self._completed(found, rules or own, is_own=is_own, rate=self._rate_from(found, model))

    def _override(self, model: str) -> Listed | None:
        names = [name.lower() for name in shortened(model)]
        matching = (entry for pattern, entry in self._overrides if any(fnmatchcase(name, pattern) for name in names))
        return next(matching, None)

    def _public(self, model: str, provider: str, own: CacheRules | None) -> Listed | None:
        if self._listed is None or not model:
            return None
        route = model.lower().partition("/")[0]
        if provider:
            served_by: str | None = own.provider if own and not self._listed.knows(provider) else provider
        elif "/" in model and self._listed.knows(route):  # openrouter/..., whose cache may be that of the maker
            served_by = route
        else:
            served_by = own.provider if own else None
        return self._listed.find(model, served_by)

    def _rate_from(self, found: Listed, model: str) -> float:
        if found.currency == self.currency:
            return 1.0
        if found.currency != USD:
            known = " or ".join(sorted({self.currency, USD}))
            raise UsageError(
                f"The price of {model} is in {found.currency}, but {self.currency} is asked for.",
                hint=f"Write it in {known}, or ask for {found.currency}.",
            )
        if self._rate is None:
            raise UsageError(
                f"The price of {model} is in {found.currency}, and nobody said what that is in {self.currency}.",
                hint=f"Give --rate: what 1 {found.currency} is worth in {self.currency}.",
            )
        return self._rate

    def _completed(self, found: Listed, rules: CacheRules | None, *, is_own: bool, rate: float) -> Price:
        """A listed price with what is missing in it, in the currency asked for.

        Args:
            found: the price.
            rules: of the cache; None to have all input cost the same.
            is_own: whether it is the cache that the list speaks of, so that the list goes before the multipliers.
            rate: what a unit of the list's currency is worth.
        """
        read, write, write_1h = (found.read, found.write, found.write_1h) if is_own else (None, None, None)
        usual_write = 1.0 if rules is None or not rules.ttls else rules.write_multiplier(rules.ttls[0])
        write = found.input * usual_write if write is None else write
        if write_1h is None:  # where nothing is kept that long, a writer of an hour pays what others pay
            has_hour = rules is not None and HOUR in rules.ttls
            write_1h = found.input * rules.write_multiplier(HOUR) if rules and has_hour else write
        others = [ttl for ttl in (rules.ttls[1:] if rules else ()) if ttl != HOUR]
        writes = tuple((ttl, found.input * rules.write_multiplier(ttl) * rate) for ttl in others if rules)
        storage = rules.storage_usd_per_million_hour if rules else 0.0
        return Price(
            input=found.input * rate,
            read=rate * (found.input * (rules.read_multiplier if rules else 1.0) if read is None else read),
            write=write * rate,
            write_1h=write_1h * rate,
            output=rate * (found.output or 0.0),
            storage=0.0 if not storage else None if self._rate is None else storage * self._rate,
            currency=self.currency,
            source=found.source,
            as_of=found.as_of,
            longer=tuple(
                (limit, self._completed(dearer, rules, is_own=is_own, rate=rate)) for limit, dearer in found.longer
            ),
            writes=writes,
        )


def _own_rules(model: str, provider: str) -> CacheRules | None:
    """The rules of the model's own cache; None where its provider is not known."""
    try:
        return rules_for(model, provider or None) if model else None
    except UsageError:  # no rules are known of that provider, yet its prices may be
        return None
