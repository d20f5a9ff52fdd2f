"""`prefold providers`: what is known of the caches of providers and engines, with sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.providers.prices import Price
    from prefold.providers.rules import CacheRules, Provider

_MODELS_SHOWN = 3
_WIDE = 130
"""Columns of a terminal from which the list has room for models."""
_LIKENESS = 0.7
"""Of a name and what was asked for, from which it is suggested."""
_OWN = "The cache that each request of a log was sent to, by its model and, where the log says it, its provider."
_NOT_VALUES = ("provider", "family", "seen", "models", "sections", "notes", "facts")
"""Attributes of rules that are no claims about a cache, or are told apart from them."""


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def providers(name: str | None, as_json: bool) -> None:
    """List the cache rules of providers and engines, or explain one.

    NAME is a provider or engine such as anthropic or vllm, or a model such as claude-sonnet-4-5 or azure/gpt-4o, or
    another cache that --cache takes: own or blocks. Each value comes with its source and with how sure it is; a model
    also with its price, where genai-prices is installed.
    """
    from prefold.analysis.caches.named import OWN
    from prefold.providers.rules import providers as known

    if name == OWN:
        if as_json:
            echo_json({"schema_version": 1, "families": [], "price": None, "text": _OWN})
        else:
            click.echo(_OWN)
        return
    chosen = [(provider, rules) for provider in known() for rules in provider.families]
    price = None
    if name is not None:
        chosen, price = _named(name)
    if as_json:
        families = [_as_json(provider, rules) for provider, rules in chosen]
        echo_json({"schema_version": 1, "families": families, "price": _price_as_json(price)})
    elif name is None:
        _print_list([rules for _, rules in chosen])
    else:
        for number, (provider, rules) in enumerate(chosen):
            if number:
                click.echo()
            _print_family(provider, rules)
        if price is not None:
            _print_price(price)


def _named(name: str) -> tuple[list[tuple[Provider, CacheRules]], Price | None]:
    """All families of a provider, or those that a model falls under, one for each way of caching, and its price."""
    from prefold.analysis.caches.resolve import PLAIN
    from prefold.errors import UsageError
    from prefold.providers.rules import Control, Provider, rules_for
    from prefold.providers.rules import providers as known

    wanted = name.strip().lower()
    if wanted == PLAIN.provider:
        return [(Provider(wanted, (), (), only_when_named=True, families=(PLAIN,)), PLAIN)], None
    for provider in known():
        if wanted == provider.name or wanted in provider.aliases:
            return [(provider, rules) for rules in provider.families], None
    by_name = {provider.name: provider for provider in known()}
    found: dict[str, CacheRules] = {}
    for control in (None, *Control):
        rules = rules_for(wanted, control=control) if wanted else None
        if rules is not None:
            found.setdefault(rules.family, rules)
    if not found:
        near = _near(wanted, known())
        hint = (
            f"Did you mean {near}?" if near else "`prefold providers` lists all; a model needs its provider before it."
        )
        raise UsageError(f"Nothing is known of {name!r}.", hint=hint)
    return [(by_name[rules.provider], rules) for rules in found.values()], _price_of(wanted)


def _near(wanted: str, known: Sequence[Provider]) -> str | None:
    import difflib

    names = {name: name for provider in known for name in (provider.name, *provider.aliases)}
    patterns = (pattern for provider in known for rules in provider.families for pattern in rules.models)
    names |= {name: name for pattern in patterns if (name := pattern.rstrip("*-")) and "*" not in name}
    return next(iter(difflib.get_close_matches(wanted, names, n=1, cutoff=_LIKENESS)), None)


def _price_of(model: str) -> Price | None:
    """The list price of a model; None if nobody knows it, or no list is installed."""
    from datetime import UTC, datetime

    from prefold.errors import MissingExtra
    from prefold.providers.prices import Prices

    try:
        return Prices.load(now=datetime.now(UTC)).price_of(model)
    except MissingExtra:
        return None


def _print_list(families: Sequence[CacheRules]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    out = console()
    has_room = out.width >= _WIDE
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0) if has_room else 0, pad_edge=False)
    for header in ("provider", "family", *(["models"] if has_room else []), "control"):
        table.add_column(header, overflow="fold", no_wrap=header in ("provider", "control"))
    for header in ("least", "step", "ttl", "read", "write", *(["seen"] if has_room else [])):
        table.add_column(header, justify="right", no_wrap=True)
    for rules in families:
        models = ", ".join(rules.models[:_MODELS_SHOWN]) + (", ..." if len(rules.models) > _MODELS_SHOWN else "")
        writes = [f"{rules.write_multiplier(ttl):g}" for ttl in rules.ttls] if rules.write_multipliers else []
        cells = (
            rules.provider,
            rules.family,
            *([models] if has_room else []),
            rules.control,
            f"{rules.minimum_tokens:,}",
            f"{rules.granularity_tokens:,}",
            ", ".join(_duration(ttl).replace(" min", "m").replace(" ", "") for ttl in rules.ttls) or "-",
            f"{rules.read_multiplier:g}",
            ", ".join(writes) or "1",
            *([str(rules.seen)] if has_room else []),
        )
        table.add_row(*map(Text, cells))
    # What is folded within a word cannot be read: rather let a narrow terminal wrap the lines.
    if not has_room:
        longest = max(len(rules.family) for rules in families)
        word = max(len(word) for rules in families for word in rules.family.split())
        widest = out.measure(table, options=out.options.update(max_width=1_000)).maximum
        out.width = max(out.width, widest - longest + word)
    out.print(table)
    out.print(
        "The least that is cached and the steps of hits, in tokens; prices of reading and writing, relative to input."
        " `prefold providers NAME` explains.",
        markup=False,
        soft_wrap=True,
    )


def _print_family(provider: Provider, rules: CacheRules) -> None:
    out = console()
    out.print(f"{rules.family} ({rules.provider}; sources read on {rules.seen})", style="bold", markup=False)
    out.print(f"  models: {', '.join(rules.models) or '-'}", markup=False, soft_wrap=True)
    for label, names in (("also called", provider.aliases), ("prefixes", provider.prefixes)):
        if names:
            out.print(f"  {label}: {', '.join(names)}", markup=False, soft_wrap=True)
    out.print(f"  read in this order: {', '.join(rules.sections)}", markup=False, soft_wrap=True)
    meanings = _meanings(type(rules).__doc__ or "")
    for name, value in _values(rules):
        out.print()
        out.print(f"  {name} = {_spelled(name, value)}", markup=False, soft_wrap=True)
        if name in meanings:
            out.print(f"    {meanings[name]}", markup=False, soft_wrap=True, style="dim")
        fact = rules.facts.get(name)
        if fact is not None:
            note = f" {fact.note}" if fact.note else ""
            certainty = fact.certainty.replace("_", " ")
            out.print(f"    {certainty}: {fact.source}{note and f' -{note}'}", markup=False, soft_wrap=True)
    if rules.notes:
        out.print()
    for note in rules.notes:
        out.print(f"  * {note}", markup=False, soft_wrap=True)


def _values(rules: CacheRules) -> Iterator[tuple[str, Any]]:
    """What is said of a cache: what has a source, and what differs from what is taken where nothing is said."""
    import dataclasses

    for field in dataclasses.fields(rules):
        value = getattr(rules, field.name)
        if field.name in _NOT_VALUES:
            continue
        if field.name in rules.facts or (field.default is not dataclasses.MISSING and value != field.default):
            yield field.name, value


def _meanings(docstring: str) -> dict[str, str]:
    """What the attributes of a class mean, from its docstring."""
    import re

    _, _, attributes = docstring.partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if started := re.match(r" {8}(\w+): (.*)", line):
            name = started[1]
            found[name] = started[2]
        elif name and line.startswith(" " * 12):
            found[name] += f" {line.strip()}"
        elif line.strip():
            break
    return found


def _spelled(name: str, value: Any) -> str:
    """A value as people read it."""
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    of_time = _duration if name in ("ttls", "write_multipliers") else str
    if isinstance(value, Mapping):
        return ", ".join(f"{of_time(key)}: {part}" for key, part in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(of_time, value))
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _duration(seconds: int) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length:,} {unit}"
    return f"{seconds:,} s"


def _as_json(provider: Provider, rules: CacheRules) -> dict[str, Any]:
    import dataclasses

    values = {field.name: _plain(getattr(rules, field.name)) for field in dataclasses.fields(rules)}
    return {**values, "aliases": list(provider.aliases), "prefixes": list(provider.prefixes)}


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    import dataclasses
    from datetime import date

    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value.isoformat() if isinstance(value, date) else value


def _price_as_json(price: Price | None) -> dict[str, Any] | None:
    if price is None:
        return None
    plain: dict[str, Any] = _plain(price)
    plain["longer"] = [{"above_tokens": limit, **_plain(dearer)} for limit, dearer in price.longer]
    return plain


def _print_price(price: Price) -> None:
    out = console()
    as_of = f", last checked {price.as_of}" if price.as_of else ""
    out.print()
    out.print(f"{price.currency} per million tokens ({price.source}{as_of})", style="bold", markup=False)
    for label, each in (("", price), *((f" above {limit:,} input tokens", dearer) for limit, dearer in price.longer)):
        out.print(
            f"  input {each.input:g}, read {each.read:g}, write {each.write:g}, write for an hour {each.write_1h:g},"
            f" output {each.output:g}{label}",
            markup=False,
            soft_wrap=True,
        )
