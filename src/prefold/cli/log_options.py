"""Options that all commands have that read a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from prefold.analysis.caches.spec import CacheSpec

_Command = Callable[..., Any]


def log_options(command: _Command) -> _Command:
    """How a log is read: --log-format, --tokenizer and --lenient."""
    return _with(
        command,
        click.option("--log-format", metavar="NAME", help="Format of the log.  [default: recognised by content]"),
        click.option(
            "--tokenizer", metavar="NAME|PATH", help="What counts tokens.  [default: the model's own, or an estimate]"
        ),
        click.option("--lenient", is_flag=True, help="Count lines that cannot be read, and leave them out."),
    )


def price_options(command: _Command) -> _Command:
    """What tokens cost, as `prefold.cli.pricing.load_prices` takes it: --price, --prices, --currency and --rate."""
    return _with(
        command,
        click.option(
            "--price", metavar="PRICE", help="Per million tokens, such as miss=2,hit=0.04.  [default: the model's]"
        ),
        click.option("--prices", type=click.Path(), metavar="FILE", help="TOML file of own prices."),
        click.option("--currency", metavar="CODE", default="USD", show_default=True, help="Of all costs."),
        click.option("--rate", type=float, metavar="NUMBER", help="What 1 USD is worth in the currency."),
    )


def replica_options(command: _Command) -> _Command:
    """Who shares what: --replicas, --routing and --isolate."""
    return _with(
        command,
        click.option(
            "--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Servers of an own cache."
        ),
        click.option(
            "--routing",
            type=click.Choice(["round_robin", "least_pending", "sticky", "prefix_hash", "exact"]),
            default="round_robin",
            show_default=True,
            help="How requests are spread over them.",
        ),
        click.option("--isolate", type=click.Choice(["tenant"]), help="Who shares nothing with others."),
    )


def cache_of(
    name: str | None, capacity: str | None, *, bytes_per_token: int, isolate: str | None = None, **more: Any
) -> CacheSpec:
    """The one cache that --cache, --capacity and --isolate ask for.

    Args:
        name: as `named_rules` reads it; None for the cache that each request was sent to.
        capacity: as `parse_capacity` reads it; None for no limit.
        bytes_per_token: that keys and values of a token take.
        isolate: who shares nothing with others.
        more: other attributes of `CacheSpec`.

    Raises:
        UsageError: as `named_rules`, `parse_capacity` and `check_effect`.
    """
    from prefold.analysis.caches.named import OWN, check_effect, is_provider, named_rules, parse_capacity
    from prefold.analysis.caches.spec import CacheSpec

    rules = named_rules(name or OWN)
    grain = rules.granularity_tokens if rules else 1
    tokens = parse_capacity(capacity, bytes_per_token=bytes_per_token, block_tokens=grain) if capacity else None
    name = name or OWN
    isolated = isolate == "tenant"
    spec = CacheSpec(name, rules, capacity=tokens, isolate_tenants=isolated, by_model=is_provider(name), **more)
    check_effect([spec], capacities=[capacity] if capacity else [], policies=[spec.policy], tiers=[])
    return spec


def check_requests(requests: int, *, is_complete: bool) -> None:
    """Refuse a log that has been read and holds nothing.

    Raises:
        UsageError: it holds no requests.
    """
    from prefold.errors import UsageError

    if is_complete and not requests:
        raise UsageError("The log holds no requests.", hint="Check the file, and its format with --log-format.")


def _with(command: _Command, *options: Callable[[_Command], _Command]) -> _Command:
    """A command with options in the order in which they are given."""
    for option in reversed(options):
        command = option(command)
    return command
