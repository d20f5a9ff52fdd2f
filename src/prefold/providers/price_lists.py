"""Lists of prices: that of the package genai-prices, a file of the user's own, a price on the spot.

A list need not have everything: what reading from a cache and writing to it cost may be missing in it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from prefold.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelPrice, TieredPrices

USD = "USD"
"""The currency of genai-prices, and of a file that names none."""
CURRENCY = re.compile(r"[A-Z]{3}")

_FIELDS = ("input", "read", "write", "write_1h", "output")
_GIVEN_NAMES = {"miss": "input", "hit": "read", **{name: name for name in _FIELDS}}
_VERSION_SUFFIX = re.compile(r"(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-latest|@default|-v\d+|:\d+)$")
_CHECKED = re.compile(r"\b(?:as of|(?:checked|verified)(?: on)?) (\d{4}-\d{2}-\d{2})")
"""How the comments of genai-prices say when a price was looked up. The package has no date of its own."""
_CALLED = {
    "gemini": ("google",),
    "bedrock": ("aws",),
    "xai": ("x-ai",),
    "moonshot": ("moonshotai",),
    "zhipu": ("zai", "zhipuai"),
}
"""Providers that genai-prices calls otherwise than the rules do."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Prices of a model per million tokens, as a list has them.

    Attributes:
        input: neither read from a cache nor written to one.
        read: read from a cache; None where the list does not say, as in all that follow.
        write: written to a cache.
        write_1h: written to a cache for an hour.
        output: of the answer.
        currency: of all of them.
        source: the list.
        as_of: when they were looked up.
        longer: prices of requests with more input tokens than a limit, ascending by limit.
    """

    input: float
    read: float | None
    write: float | None
    write_1h: float | None
    output: float | None
    currency: str
    source: str
    as_of: date | None = None
    longer: tuple[tuple[int, Listed], ...] = ()


class PublicList:
    """The list of genai-prices, as it was when the installed package was made.

    Args:
        snapshot: its data.
        now: picks, of prices that are valid for a time, those that are valid.
    """

    def __init__(self, snapshot: DataSnapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._ids = frozenset(provider.id for provider in snapshot.providers)
        self.source = f"genai-prices {importlib.metadata.version('genai-prices')}"
        self.as_of = _last_checked(snapshot, now.date())

    @classmethod
    def installed(cls, now: datetime) -> PublicList | None:
        """The list; None where the package is not installed."""
        try:
            from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - an optional package, slow to import
        except ModuleNotFoundError:
            return None
        return cls(get_snapshot(), now)

    @classmethod
    def required(cls, now: datetime) -> PublicList:
        """The list.

        Raises:
            MissingExtra: if the package is not installed.
        """
        found = cls.installed(now)
        if found is None:
            raise MissingExtra(
                "No price was given, and the package genai-prices is not installed.",
                hint="Give --price miss=2,hit=0.04, or: pip install 'prefold[analysis]'",
            )
        return found

    def find(self, model: str, provider: str | None) -> Listed | None:
        """The price of a model.

        Args:
            model: as requests name it.
            provider: who serves it, as the rules or the list call him; None to tell by the model's name.
        """
        asked: Sequence[str | None] = (None,) if provider is None else self._called(provider)
        for name_of_provider in asked:
            for name in shortened(model):
                try:
                    _, found = self._snapshot.find_provider_model(name, None, name_of_provider, None)
                except LookupError:
                    continue
                return _as_listed(found.get_prices(self._now), self.source, self.as_of)
        return None

    def knows(self, provider: str) -> bool:
        """Whether it lists models of a provider."""
        return bool(self._called(provider))

    def _called(self, provider: str) -> list[str]:
        return [name for name in _CALLED.get(provider, (provider,)) if name in self._ids]


def shortened(model: str) -> Iterator[str]:
    """A model's name, then without the prefixes of vendors and routes, each also without date and version."""
    name = model.strip()
    while True:
        yield name
        bare = name
        while (shorter := _VERSION_SUFFIX.sub("", bare)) != bare:
            bare = shorter
            yield bare
        _, slash, name = name.partition("/")
        if not slash:
            return


def parse_price(text: str, currency: str) -> Listed:
    """Read a price written as `miss=2,hit=0.04`, per million tokens.

    Known are `miss` or `input`, `hit` or `read`, `write`, `write_1h` and `output`.

    Raises:
        UsageError: if a part is no name with a number, is there twice, or the price of a miss is missing.
    """
    values: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        field = _GIVEN_NAMES.get(name)
        if field is None or field in values:
            problem = f"has {name} twice" if field else f"has no price called {name!r}"
            raise UsageError(f"The price {text!r} {problem}.", hint=f"Known: {', '.join(_GIVEN_NAMES)}.")
        values[field] = _amount(number, f"The price {text!r}")
    if "input" not in values:
        raise UsageError(f"The price {text!r} does not say what a miss costs.", hint="Write miss=2,hit=0.04.")
    return _listed(values, currency, "given price")


def read_overrides(path: Path) -> tuple[tuple[str, Listed], ...]:
    """Read a file of prices: a list of tables `[[prices]]` of which the first that matches counts.

    Each has `model`, a pattern such as `claude-sonnet-*`; `input` and, where they are known, `read`, `write`,
    `write_1h` and `output` per million tokens; and `currency`, USD unless it says otherwise.

    Raises:
        UsageError: if the file cannot be read, or a table holds anything else.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint="Give a TOML file of prices.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", hint="Mend the file.") from None
    tables = document.pop("prices", None)
    if document or not isinstance(tables, list) or not tables:
        problem = f"has an unknown {next(iter(document))!r}" if document else "has no [[prices]]"
        raise UsageError(f"{path} {problem}.", hint='Write [[prices]], model = "gpt-*", input = 2.5, read = 0.25.')
    return tuple(_override(table, f"{path}, price {number}") for number, table in enumerate(tables, start=1))


def _override(table: object, where: str) -> tuple[str, Listed]:
    known = {"model", "currency", *_FIELDS}
    if not isinstance(table, dict) or not known.issuperset(table):
        unknown = next((name for name in table if name not in known), "") if isinstance(table, dict) else table
        raise UsageError(f"{where}: {unknown!r} is unknown.", hint=f"Known: model, currency, {', '.join(_FIELDS)}.")
    model, currency = table.get("model"), table.get("currency", USD)
    if not isinstance(model, str) or not model:
        raise UsageError(f"{where}: model is {model!r}.", hint='It is a pattern, such as "gpt-5*".')
    if not isinstance(currency, str) or not CURRENCY.fullmatch(currency):
        raise UsageError(f"{where}: currency is {currency!r}.", hint='It is three capital letters, such as "EUR".')
    if "input" not in table:
        raise UsageError(f"{where}: input is missing.", hint="Add the price of a million input tokens.")
    values = {name: _amount(table[name], f"{where}: {name}") for name in _FIELDS if name in table}
    return model.lower(), _listed(values, currency, "override file")


def _amount(value: object, where: str) -> float:
    number = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise UsageError(f"{where} has the amount {value!r}.", hint="It is a number, 0 or more.")
    return number


def _listed(values: Mapping[str, float], currency: str, source: str) -> Listed:
    read, write, write_1h, output = (values.get(name) for name in _FIELDS[1:])
    return Listed(values["input"], read, write, write_1h, output, currency, source)


def _last_checked(snapshot: DataSnapshot, today: date) -> date | None:
    """The newest day on which the list's comments say that a price was checked."""
    comments = (
        comment
        for provider in snapshot.providers
        for comment in (provider.price_comments, *(model.price_comments for model in provider.models))
    )
    days = (date.fromisoformat(written) for comment in comments for written in _CHECKED.findall(comment or ""))
    return max((day for day in days if day <= today), default=None)


def _as_listed(found: ModelPrice, source: str, as_of: date | None) -> Listed | None:
    """A model's text prices, by tier; None if input has none."""
    usual = found.cache_write_mtok if found.cache_write_mtok is not None else found.cache_write_5m_mtok
    listed = (found.input_mtok, found.cache_read_mtok, usual, found.cache_write_1h_mtok, found.output_mtok)
    limits = sorted({tier.start for price in listed for tier in getattr(price, "tiers", ())})

    def above(limit: int, longer: tuple[tuple[int, Listed], ...] = ()) -> Listed | None:
        given, read, write, write_1h, output = (_tier(price, limit) for price in listed)
        return None if given is None else Listed(given, read, write, write_1h, output, USD, source, as_of, longer)

    tiers = ((limit, above(limit)) for limit in limits)
    return above(-1, tuple((limit, tier) for limit, tier in tiers if tier is not None))


def _tier(price: Decimal | TieredPrices | None, limit: int) -> float | None:
    """The price of requests with more input tokens than a limit."""
    if price is None or isinstance(price, Decimal):
        return None if price is None else float(price)
    passed = [tier.price for tier in price.tiers if tier.start <= limit]
    return float(passed[-1] if passed else price.base)
