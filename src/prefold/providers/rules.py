"""What a provider's prompt cache does, as dated data: one TOML file per provider in `data/`, one table per family.

Every value that matters names its source and how sure it is. Providers change their rules; a change here is a change
of data, never of code.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from prefold.errors import UsageError

SCHEMA = 1
"""Version of the file format that this module reads."""

SECTIONS = ("tools", "system", "messages")

_Values = Mapping[str, Any]

_TRANSPARENT_PREFIXES = ("openrouter/", "litellm_proxy/", "vertex_ai/")
"""Routes that say nothing about whose cache serves the model."""

_VERSION_SUFFIX = re.compile(r"(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-latest|@default|-v\d+|:\d+)$")
"""Dates and versions at the end of a model's name, which rules do not depend on."""


class Control(StrEnum):
    """How a request says what is to be cached."""

    IMPLICIT = "implicit"
    """Not at all: the provider finds the longest known prefix."""
    EXPLICIT = "explicit"
    """By a marker on a block; without one nothing is cached."""
    BREAKPOINT = "breakpoint"
    """By markers, with one more that the provider sets on the newest message."""
    RESOURCE = "resource"
    """By the name of a cache that was created beforehand."""


class Storage(StrEnum):
    """What a cache keeps, and so what a request can find in it."""

    PREFIXES = "prefixes"
    """Every prefix of what was sent, in steps of the granularity."""
    ENTRIES = "entries"
    """The prefixes that end at a marker; a read looks back from markers of its own."""
    UNITS = "units"
    """Prefixes that the provider chooses; only the whole of one is a hit."""
    SLOTS = "slots"
    """The latest prompt of each of a few slots."""
    RESOURCE = "resource"
    """One beginning, created beforehand and read by name."""


class Moment(StrEnum):
    """A moment in the life of a request."""

    REQUEST = "request"
    """It arrives."""
    FIRST_TOKEN = "first_token"  # noqa: S105 - of an answer
    """Its answer begins."""
    ANSWER = "answer"
    """Its answer is complete."""


class Certainty(StrEnum):
    """How sure a value is."""

    OFFICIAL = "official"
    """Read in the provider's own documentation, price list or source."""
    THIRD_PARTY = "third_party"
    """Read or measured by somebody else."""
    UNSURE = "unsure"
    """Not documented, contested, or carried over from a similar model."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Where a value comes from.

    Attributes:
        source: address of the page, package or project.
        certainty: how sure the value is.
        note: what to know about it, one sentence, or empty.
    """

    source: str
    certainty: Certainty
    note: str = ""


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The cache of one family of models at one provider.

    Multipliers are relative to the price of an uncached input token of the same model.

    Attributes:
        provider: such as `anthropic`.
        family: a name for people, such as `Claude, 1,024 tokens`.
        seen: when the sources were read.
        models: `fnmatch` patterns of model names, without vendor prefix and date.
        control: how a request says what is to be cached.
        minimum_tokens: a shorter prefix is not cached.
        granularity_tokens: hits are multiples of it above the minimum; 1 means exact.
        ttls: lifetimes in seconds that can be had, the default first; none where nothing is promised.
        read_multiplier: price of a token that is read from the cache.
        write_multipliers: price of a token that is written, by lifetime in seconds; a lifetime that is not
            there is written at the price of uncached input.
        max_breakpoints: markers in one request, the implicit one included.
        lookback: positions that a read checks from a marker back, its own included; None where there is no limit.
        runs_count_once: whether a run of tool calls counts as one such position, and one of their results likewise.
        sections: in the order in which the model reads them.
        marker_sections: those that can carry a marker.
        invalidation: request field (dotted, in the spelling of the dialect) or toggle (`web_search`, `citations`,
            `images`), and the first section that a change of it invalidates.
        storage_usd_per_million_hour: price of keeping a million tokens for an hour.
        routing_key: request field that leads requests with one prefix to one machine; empty if there is none.
        stores: what is kept; follows from `control` where nothing else is said.
        self_hosted: whether it runs on the user's own machines, so that its capacity is the user's to choose.
        best_effort: whether a prefix may be gone at any time, without a reason that could be foreseen.
        keeps_output: whether what was generated is found by the next turn.
        computes_last: whether the last token of a prompt is computed even where all of it is known.
        ttl_from: the moment of a request from which a lifetime counts.
        ttl_renewed: whether a read starts a lifetime anew.
        readable_from: the moment of a request from which others can read what it wrote.
        searched_entries: entries of a conversation, newest first, that a read considers; None for all.
        maximum_tokens: a longer prefix is not cached; None where there is no such limit.
        unit_interval_tokens: distance of the units that are stored within long prompts; 0 for none.
        slots: prompts that are held side by side.
        slot_similarity: share of a prompt that a slot must hold to be chosen for it; the least recently used one
            is taken otherwise.
        answer_step_tokens: room for an answer is taken in steps of so many tokens; 0 where it is not taken ahead.
        eviction_step_tokens: of what is evicted in part, so that memory does not fall to pieces, a whole multiple of so
            many tokens stays; less in a small memory, see `core.cache.eviction_step`.
        tiers: slower stores that can stand below its memory, the fastest first.
        notes: what else governs hits, one sentence each.
        facts: source and certainty by the name of the attribute.
    """

    provider: str
    family: str
    seen: date
    models: tuple[str, ...]
    control: Control
    minimum_tokens: int
    granularity_tokens: int
    ttls: tuple[int, ...]
    read_multiplier: float
    sections: tuple[str, ...]
    write_multipliers: Mapping[int, float] = field(hash=False, default_factory=lambda: MappingProxyType({}))
    max_breakpoints: int = 0
    lookback: int | None = None
    runs_count_once: bool = False
    marker_sections: tuple[str, ...] = SECTIONS
    invalidation: Mapping[str, str] = field(hash=False, default_factory=lambda: MappingProxyType({}))
    storage_usd_per_million_hour: float = 0.0
    routing_key: str = ""
    stores: Storage = Storage.PREFIXES
    self_hosted: bool = False
    best_effort: bool = False
    keeps_output: bool = False
    computes_last: bool = False
    ttl_from: Moment = Moment.REQUEST
    ttl_renewed: bool = True
    readable_from: Moment = Moment.REQUEST
    searched_entries: int | None = None
    maximum_tokens: int | None = None
    unit_interval_tokens: int = 0
    slots: int = 0
    slot_similarity: float = 0.0
    answer_step_tokens: int = 0
    eviction_step_tokens: int = 1
    tiers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Fact] = field(hash=False, default_factory=lambda: MappingProxyType({}))

    def __reduce__(self) -> tuple[Callable[[], CacheRules], tuple[()]]:
        """Read-only views of mappings cannot be sent to another process, mappings can."""
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        plain: dict[str, Any] = {name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}
        return functools.partial(CacheRules, **plain), ()

    def write_multiplier(self, ttl: int) -> float:
        """Price of writing a token that lives `ttl` seconds, relative to an uncached one."""
        return self.write_multipliers.get(ttl, 1.0)


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider and its families.

    Attributes:
        name: such as `anthropic`.
        aliases: other names that people give it.
        prefixes: beginnings of model names that mean this provider, such as `azure/`.
        only_when_named: whether it serves models of others, so that a bare model name never means it.
        families: rules; of two that match equally well, the first is what happens without markers.
    """

    name: str
    aliases: tuple[str, ...]
    prefixes: tuple[str, ...]
    only_when_named: bool
    families: tuple[CacheRules, ...]


@functools.lru_cache(maxsize=1024)
def rules_for(model: str, provider: str | None = None, *, control: Control | str | None = None) -> CacheRules | None:
    """The rules that a model falls under; the most specific pattern wins.

    Args:
        model: as requests name it: with or without a vendor prefix, region, date or version.
        provider: whose cache it is; read from the prefix, or guessed from the bare name, if not given.
        control: only rules of this kind, where a provider offers several (Gemini, Qwen); otherwise those that hold
            for a request without markers.

    Raises:
        UsageError: nobody of the name `provider` is known.
    """
    named, name = _split(model.strip().lower())
    if provider is not None:
        named = _provider_named(provider)
    candidates = [named] if named else [known for known in providers() if not known.only_when_named]
    best: tuple[tuple[int, int], CacheRules] | None = None
    for rules in (family for candidate in candidates for family in candidate.families):
        if control is not None and rules.control != control:
            continue
        scores = [_specificity(pattern) for pattern in rules.models if fnmatchcase(name, pattern)]
        if scores and (best is None or max(scores) > best[0]):
            best = max(scores), rules
    return best[1] if best else None


def rules_of(provider: str) -> CacheRules:
    """The rules that a provider's other models fall under: those of its first family.

    Raises:
        UsageError: nobody of the name `provider` is known.
    """
    return _provider_named(provider).families[0]


@functools.cache
def providers() -> tuple[Provider, ...]:
    """Every provider, in order of name; read once per process from the files beside this module."""
    folder = importlib.resources.files("prefold.providers") / "data"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return tuple(parse_provider(file.read_text(encoding="utf-8"), file.name) for file in files)


def parse_provider(text: str, file: str) -> Provider:
    """Read one rule file, strictly.

    Args:
        text: its TOML.
        file: its name, for messages.

    Raises:
        UsageError: not TOML, an unknown or missing key, a value of the wrong type or outside its range, or a value
            without a source.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not valid TOML: {error}.", hint="Mend the file.") from error
    top = _Table(document, file)
    if (schema := top.take("schema", int)) != SCHEMA:
        raise UsageError(f"{file} has schema {schema}.", hint=f"This version of prefold reads schema {SCHEMA}.")
    name = top.take("provider", str)
    seen = top.take("seen", date)
    sources = top.take("sources", dict)
    defaults = top.take("defaults", dict, {})
    families = top.items("families", dict)
    provider = Provider(
        name=name,
        aliases=top.items("aliases", str, []),
        prefixes=top.items("prefixes", str, []),
        only_when_named=top.take("only_when_named", bool, False),
        families=tuple(_family(name, seen, sources, defaults, family, file) for family in families),
    )
    top.finish()
    return provider


def _family(
    provider: str,
    seen: date,
    sources: Mapping[str, Any],
    defaults: Mapping[str, Any],
    own: Mapping[str, Any],
    file: str,
) -> CacheRules:
    where = f"{file}, family {own.get('name', '?')!r}"
    facts: dict[str, Any] = {}
    for level in (defaults, own):
        facts |= _Table(level, where).take("facts", dict, {})
    table = _Table({**defaults, **own, "facts": facts}, where)
    # A source is due for every value that is given, and for those that every family has.
    due = [key for key in _WITH_SOURCE if key in table.values]
    control = table.choice("control", Control)
    rules = CacheRules(
        provider=provider,
        family=table.take("name", str),
        seen=seen,
        models=table.items("models", str),
        control=control,
        minimum_tokens=table.number("minimum_tokens", int, 0),
        granularity_tokens=table.number("granularity_tokens", int, 1),
        ttls=table.items("ttls", int),
        read_multiplier=table.number("read_multiplier", float, 0),
        sections=table.sections("sections", None),
        write_multipliers=MappingProxyType(table.multipliers("write_multipliers")),
        max_breakpoints=table.number("max_breakpoints", int, 0, 0),
        lookback=table.optional_number("lookback", 1),
        runs_count_once=table.take("runs_count_once", bool, False),
        marker_sections=table.sections("marker_sections", SECTIONS),
        invalidation=MappingProxyType(table.invalidation("invalidation")),
        storage_usd_per_million_hour=table.number("storage_usd_per_million_hour", float, 0, 0.0),
        routing_key=table.take("routing_key", str, ""),
        stores=table.choice("stores", Storage, _STORES[control]),
        self_hosted=table.take("self_hosted", bool, False),
        best_effort=table.take("best_effort", bool, False),
        keeps_output=table.take("keeps_output", bool, False),
        computes_last=table.take("computes_last", bool, False),
        ttl_from=table.choice("ttl_from", Moment, Moment.REQUEST),
        ttl_renewed=table.take("ttl_renewed", bool, True),
        readable_from=table.choice("readable_from", Moment, Moment.REQUEST),
        searched_entries=table.optional_number("searched_entries", 1),
        maximum_tokens=table.optional_number("maximum_tokens", 1),
        unit_interval_tokens=table.number("unit_interval_tokens", int, 0, 0),
        slots=table.number("slots", int, 0, 0),
        slot_similarity=table.number("slot_similarity", float, 0, 0.0),
        answer_step_tokens=table.number("answer_step_tokens", int, 0, 0),
        eviction_step_tokens=table.number("eviction_step_tokens", int, 1, 1),
        tiers=table.items("tiers", str, []),
        notes=table.items("notes", str, []),
        facts=MappingProxyType(_facts(table.take("facts", dict), sources, due, where)),
    )
    table.finish()
    if unwritable := [ttl for ttl in rules.write_multipliers if ttl not in rules.ttls]:
        raise UsageError(f"{where}: write_multipliers has {unwritable[0]} s, ttls has not.", hint="Add it to ttls.")
    if (rules.stores is Storage.SLOTS) != bool(rules.slots):
        raise UsageError(f"{where}: slots is {rules.slots}, stores is {rules.stores}.", hint="Slots go with slots.")
    return rules


_STORES: Mapping[Control, Storage] = MappingProxyType(
    {
        Control.IMPLICIT: Storage.PREFIXES,
        Control.EXPLICIT: Storage.ENTRIES,
        Control.BREAKPOINT: Storage.ENTRIES,
        Control.RESOURCE: Storage.RESOURCE,
    }
)
"""What a cache keeps where its file does not say."""

_WITH_SOURCE = (
    "control", "minimum_tokens", "granularity_tokens", "ttls", "read_multiplier", "write_multipliers",
    "max_breakpoints", "lookback", "runs_count_once", "marker_sections", "invalidation", "storage_usd_per_million_hour",
    "routing_key", "stores", "self_hosted", "best_effort", "keeps_output", "computes_last", "ttl_from", "ttl_renewed",
    "readable_from", "searched_entries", "maximum_tokens", "unit_interval_tokens", "slots", "slot_similarity",
    "answer_step_tokens", "eviction_step_tokens", "tiers",
)  # fmt: skip


def _facts(given: _Values, sources: _Values, due: Sequence[str], where: str) -> dict[str, Fact]:
    if missing := [key for key in due if key not in given]:
        raise UsageError(f"{where}: {missing[0]} has no source.", hint=f"Add facts.{missing[0]}.")
    if unknown := [key for key in given if key not in _WITH_SOURCE]:
        raise UsageError(f"{where}: there is a fact about {unknown[0]!r}.", hint=f"Known: {', '.join(_WITH_SOURCE)}.")
    facts = {}
    for key, value in given.items():
        if not isinstance(value, dict):
            raise UsageError(f"{where}: the fact about {key} is no table.", hint="Give source and certainty.")
        table = _Table(value, f"{where}, fact about {key}")
        source = table.take("source", str)
        if not isinstance(address := sources.get(source), str) or not address.startswith("https://"):
            raise UsageError(f"{table.where}: the source {source!r} has no address.", hint="Add it to [sources].")
        facts[key] = Fact(address, table.choice("certainty", Certainty), table.take("note", str, ""))
        table.finish()
    return facts


_MISSING = object()


class _Table:
    """A table of a rule file from which values are taken one by one, so that what is left over is unknown."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = dict(values)
        self.where = where

    def take(self, key: str, kind: type, default: Any = _MISSING) -> Any:
        value = self.values.pop(key, default)
        if value is _MISSING:
            raise UsageError(f"{self.where}: {key} is missing.", hint=f"Add {key}.")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise UsageError(f"{self.where}: {key} is {value!r}.", hint=f"It must be of type {kind.__name__}.")
        return value

    def items(self, key: str, kind: type, default: Any = _MISSING) -> tuple[Any, ...]:
        values = self.take(key, list, default)
        if wrong := [value for value in values if not isinstance(value, kind) or isinstance(value, bool)]:
            raise UsageError(f"{self.where}: {key} holds {wrong[0]!r}.", hint=f"It holds only {kind.__name__} values.")
        return tuple(values)

    def number(self, key: str, kind: type, least: float, default: Any = _MISSING) -> Any:
        value = self.take(key, kind, default)
        if value < least:
            raise UsageError(f"{self.where}: {key} is {value}.", hint=f"It is at least {least}.")
        return value

    def optional_number(self, key: str, least: int) -> int | None:
        return self.number(key, int, least) if key in self.values else None

    def choice(self, key: str, kind: type[StrEnum], default: Any = _MISSING) -> Any:
        value = self.take(key, str, default)
        if value not in list(kind):
            raise UsageError(f"{self.where}: {key} is {value!r}.", hint=f"It is one of {', '.join(kind)}.")
        return kind(value)

    def sections(self, key: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
        if default is not None and key not in self.values:
            return default
        values: tuple[str, ...] = tuple(self.take(key, list))
        if not values or any(value not in SECTIONS for value in values) or len(set(values)) < len(values):
            raise UsageError(f"{self.where}: {key} is {list(values)}.", hint=f"Some of {', '.join(SECTIONS)}.")
        return values

    def multipliers(self, key: str) -> dict[int, float]:
        values = self.take(key, dict, {})
        if wrong := [ttl for ttl, value in values.items() if not (ttl.isdecimal() and isinstance(value, float))]:
            raise UsageError(f"{self.where}: {key}.{wrong[0]} is {values[wrong[0]]!r}.", hint="Write `300 = 1.25`.")
        return {int(ttl): value for ttl, value in values.items()}

    def invalidation(self, key: str) -> dict[str, str]:
        values = self.take(key, dict, {})
        if wrong := [name for name, section in values.items() if section not in SECTIONS]:
            raise UsageError(
                f"{self.where}: {key}.{wrong[0]} is {values[wrong[0]]!r}.", hint=f"One of {', '.join(SECTIONS)}."
            )
        return dict(values)

    def finish(self) -> None:
        if self.values:
            raise UsageError(f"{self.where}: {next(iter(self.values))!r} is unknown.", hint="Check its spelling.")


def _split(model: str) -> tuple[Provider | None, str]:
    """The provider that a model's name begins with, if any, and the name without prefixes, dates and versions."""
    if model.startswith("arn:aws"):
        named, name = _provider_named("bedrock"), model.rpartition("/")[2]
    else:
        named, name = None, model
    prefixes = [(prefix, provider) for provider in providers() for prefix in provider.prefixes]
    while True:
        if transparent := next((prefix for prefix in _TRANSPARENT_PREFIXES if name.startswith(prefix)), None):
            name = name.removeprefix(transparent)
        elif found := next((pair for pair in prefixes if name.startswith(pair[0])), None):
            named = named or found[1]  # of groq/openai/..., groq serves it
            name = name.removeprefix(found[0])
        else:
            break
    if named and named.name == "openai":
        name = name.partition(":")[0]  # ft:gpt-4o-2024-08-06:team::id
    while (shorter := _VERSION_SUFFIX.sub("", name)) != name:
        name = shorter
    return named, name


def _provider_named(name: str) -> Provider:
    wanted = name.strip().lower()
    for provider in providers():
        if wanted == provider.name or wanted in provider.aliases:
            return provider
    known = ", ".join(provider.name for provider in providers())
    raise UsageError(f"The provider {name!r} is not known.", hint=f"Known: {known}.")


def _specificity(pattern: str) -> tuple[int, int]:
    """Literal characters of a pattern, then how few wildcards it has."""
    plain = re.sub(r"\[[^]]*\]", "?", pattern)
    return len(plain) - plain.count("*"), -plain.count("*")
