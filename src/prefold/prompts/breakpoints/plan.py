"""Where to mark a prompt, so that its provider caches what repeats and nothing else.

All rules come from `CacheRules`. The planner looks for the places where one stability ends (tools, static system, what
changes daily, the conversation so far), drops those that the provider would ignore, and chooses the lifetime that is
cheapest for the reads to be expected.

Cost of a prefix that is written once and read n times, in units of its uncached price: w + n r, against 1 + n without
a cache. It pays from the smallest whole n with n (1 - r) > w - 1 on.

Requests come at random (as a Poisson process), a gap g apart on average, and each use renews an entry. So of those that
could read it, the share 1 - exp(-ttl / g) comes within its lifetime; the others write it again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from prefold.prompts.breakpoints.markers import Form, label_of, lifetime_of, with_markers
from prefold.prompts.breakpoints.placement import Reading, choose, text_before, why_nothing, why_removed
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect, Prompt, Stability
from prefold.prompts.tokens import TokenCounter, counter_for
from prefold.providers.rules import CacheRules, Certainty, Control, rules_for

_REQUESTS_PER_HOUR_AND_KEY = 15 * 60  # OpenAI's guide: about 15 requests a minute for each prefix and key
_FORGOTTEN = "No promised lifetime reaches the next turn, {:,.0f} seconds later: the conversation is not kept."
_ENOUGH = 0.95  # of the reads that a lifetime has to reach, for no longer one to be needed
_DAY = 86400
_HOUR = 3600
_CONTESTED = ("minimum_tokens", "read_multiplier", "write_multipliers", "storage_usd_per_million_hour")


@dataclass(frozen=True, slots=True)
class Traffic:
    """How often a prefix is to be read again, by requests that come at random.

    Attributes:
        reads: requests with the same prefix after the first one.
        seconds: the time in which they come.
    """

    reads: float
    seconds: float

    @property
    def gap(self) -> float:
        """Seconds between two requests, on average."""
        return self.seconds / self.reads if self.reads else math.inf


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What a lifetime costs, and from how many reads on it pays.

    Attributes:
        ttl: seconds.
        write_multiplier: price of a written token, relative to an uncached one.
        read_multiplier: price of a read token, likewise.
        reads: fewest reads of one written entry with which it is cheaper than no cache; None if never.
        expected_reads: of one written entry, with the traffic that was given; None without one.
        relative_cost: of the cached prefix, with the expected reads, relative to no cache; None likewise.
    """

    ttl: int
    write_multiplier: float
    read_multiplier: float
    reads: int | None
    expected_reads: float | None
    relative_cost: float | None

    @property
    def pays(self) -> bool:
        """Whether the expected reads are enough; unknown reads are taken to be."""
        return self.reads is not None and (self.relative_cost is None or self.relative_cost < 1)


class Change(StrEnum):
    """What becomes of a marker."""

    ADD = "add"
    KEEP = "keep"
    RETIME = "retime"
    """Kept, with another lifetime."""


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker of the plan.

    Attributes:
        path: the segment at whose end it stands.
        ttl: lifetime in seconds.
        tokens: of the prompt up to and including that segment.
        reason: why there, in words.
        change: what has to be done.
    """

    path: Path
    ttl: int
    tokens: int
    reason: str
    change: Change


@dataclass(frozen=True, slots=True)
class Removed:
    """A marker of the request that the plan does without, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request needs, so that its provider caches it.

    Attributes:
        rules: the provider's, for the model.
        form: how markers are written; None where the request carries none.
        markers: in reading order.
        removed: markers of the request that go.
        parameters: fields to be set at the top of the body.
        resource: body of the request that creates a named cache (Gemini); None where there is none to create.
        stable_tokens: of the prompt up to the end of its stable part.
        total_tokens: of the prompt.
        counter: what counted them, and `is_exact` whether it is the model's own tokenizer.
        break_even: by lifetime.
        pays: whether caching is cheaper than not caching, as far as can be said.
        notes: what else there is to know, one sentence each.
    """

    rules: CacheRules
    form: Form | None
    markers: tuple[Marker, ...]
    removed: tuple[Removed, ...]
    parameters: Mapping[str, Any] = field(hash=False)
    resource: Mapping[str, Any] | None = field(hash=False)
    stable_tokens: int
    total_tokens: int
    counter: str
    is_exact: bool
    break_even: tuple[BreakEven, ...]
    pays: bool
    notes: tuple[str, ...]

    def apply(self, prompt: Prompt) -> Prompt:
        """The request with the markers and fields of the plan; the texts of its segments stay as they are.

        Raises:
            LookupError: if the plan was made for another prompt.
        """
        if self.form is not None:
            wanted = {marker.path: marker.ttl for marker in self.markers}
            prompt = with_markers(prompt, self.form, wanted, self.rules.ttls[0])
        if all(prompt.parameters.get(key) == value for key, value in self.parameters.items()):
            return prompt
        return prompt.with_value({**prompt.value, **self.parameters})

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "provider": self.rules.provider,
            "family": self.rules.family,
            "seen": self.rules.seen.isoformat(),
            "control": self.rules.control.value,
            "minimum_tokens": self.rules.minimum_tokens,
            "pays": self.pays,
            "stable_tokens": self.stable_tokens,
            "total_tokens": self.total_tokens,
            "counter": self.counter,
            "is_exact": self.is_exact,
            "markers": [
                {
                    "path": str(marker.path),
                    "ttl": marker.ttl,
                    "tokens": marker.tokens,
                    "reason": marker.reason,
                    "change": marker.change.value,
                }
                for marker in self.markers
            ],
            "removed": [{"path": str(removed.path), "reason": removed.reason} for removed in self.removed],
            "parameters": dict(self.parameters),
            "resource": self.resource,
            "break_even": [asdict(row) for row in self.break_even],
            "notes": list(self.notes),
        }


def rules_to_plan(model: str, provider: str | None = None) -> CacheRules | None:
    """The rules to plan a request by: those with the most control, where a provider offers several ways to cache.

    Args:
        model: as requests name it.
        provider: whose cache it is; told from the model if not given.

    Raises:
        UsageError: nobody of the name `provider` is known.
    """
    kinds = (Control.EXPLICIT, Control.BREAKPOINT, Control.RESOURCE, Control.IMPLICIT)
    return next((rules for kind in kinds if (rules := rules_for(model, provider, control=kind)) is not None), None)


def plan_breakpoints(
    prompt: Prompt,
    rules: CacheRules,
    *,
    counter: TokenCounter | None = None,
    traffic: Traffic | None = None,
    turn_seconds: float | None = None,
    is_conversation: bool | None = None,
    input_usd_per_million: float | None = None,
) -> Plan:
    """Plan what a request needs, so that its provider caches it.

    Planning a request to which a plan was applied gives the same plan again.

    Args:
        prompt: the request.
        rules: of the provider and model; see `rules_to_plan`.
        counter: of tokens; None for the best there is for the model.
        traffic: how often the stable part is to be read again; None if that is not known, in which case the default
            lifetime is planned, and the lifetimes of markers that are there already stay.
        turn_seconds: time between two turns of the conversation, on average; None to plan the default lifetime for it.
        is_conversation: whether the next request repeats all of this one; None to tell by an answer in the history,
            tools, or a marker on the newest message.
        input_usd_per_million: price of a million uncached tokens, needed only to weigh the storage of a named cache.

    Raises:
        InvalidRequest: as `Prompt.segments`.
    """
    reading = Reading(prompt, rules, counter or counter_for(prompt.model), is_conversation, turn_seconds)
    match rules.control:
        case Control.RESOURCE:
            return _plan_resource(reading, traffic, input_usd_per_million)
        case Control.IMPLICIT:
            return _plan_implicit(reading, traffic)
        case _:
            return _plan_markers(reading, traffic)


def _plan_markers(reading: Reading, traffic: Traffic | None) -> Plan:
    rules, form = reading.rules, reading.form
    rows = tuple(_row(ttl, rules.write_multiplier(ttl), rules, _expected(traffic, ttl)) for ttl in reading.ttls)
    best = min((row for row in rows if row.pays), key=lambda row: row.relative_cost or 0.0, default=None)
    notes = [_FORGOTTEN.format(reading.turn_seconds)] if reading.is_forgotten else []
    if reading.is_forgotten and reading.is_automatic:
        notes.append("The automatic cache_control at the top of the request only costs: leave it out.")
    chosen: dict[int, str] = {}
    if form is None:
        notes.append(f"A request of the dialect {reading.prompt.dialect} cannot carry markers for {rules.provider}.")
    elif best is None:
        notes.append("Caching does not pay with the expected reads: see the break-even.")
    else:
        chosen = choose(reading, notes)
    lifetimes = _lifetimes(reading, list(chosen), best)
    markers = tuple(
        Marker(reading.segments[at].path, ttl, reading.tokens[at], chosen[at], _change(reading, at, ttl))
        for at, ttl in lifetimes.items()
    )
    removed = tuple(
        Removed(segment.path, why_removed(reading, at) if best else "caching does not pay with the expected reads")
        for at, segment in enumerate(reading.segments)
        if form is not None and segment.marker is not None and at not in chosen
    )
    is_repeated = reading.usable == len(reading.segments) and reading.total_tokens >= rules.minimum_tokens
    is_whole = reading.is_newest_marked and is_repeated
    if best is not None and form is not None and not markers and not is_whole:
        notes.append(why_nothing(reading, reading.tokens_of(min(reading.usable, reading.head))))
    pays = best is not None and (bool(markers) or is_whole)
    return _plan(
        reading,
        rows,
        notes,
        pays=pays,
        form=form,
        markers=markers,
        removed=removed,
        parameters={**(_routing(reading) if pays else {}), **_explicit_mode(reading, pays=best is not None)},
    )


def _lifetimes(reading: Reading, chosen: Sequence[int], best: BreakEven | None) -> dict[int, int]:
    """Lifetimes in seconds by segment, in reading order; a longer one never stands behind a shorter one."""
    ttls, gap = reading.ttls, reading.turn_seconds
    turn = ttls[0] if gap is None else next((ttl for ttl in sorted(ttls) if _share(ttl, gap) >= _ENOUGH), max(ttls))
    lifetimes: dict[int, int] = {}
    longest = 0
    for at in reversed(chosen):
        in_messages = at >= reading.head
        ttl = turn if in_messages else best.ttl if best else ttls[0]
        is_known = gap is not None if in_messages else best is not None and best.expected_reads is not None
        marker = reading.segments[at].marker
        if marker is not None and not is_known and (own := lifetime_of(marker, ttls[0])) in ttls:
            ttl = own
        longest = max(longest, ttl)
        lifetimes[at] = longest
    return dict(reversed(lifetimes.items()))


def _change(reading: Reading, at: int, ttl: int) -> Change:
    marker = reading.segments[at].marker
    if marker is None:
        return Change.ADD
    return Change.KEEP if lifetime_of(marker, reading.rules.ttls[0]) == ttl else Change.RETIME


def _explicit_mode(reading: Reading, *, pays: bool) -> dict[str, Any]:
    """Switches the implicit breakpoint off where it would write what is never read again (OpenAI from 5.6 on)."""
    is_read_again = pays and reading.is_conversation and reading.usable == len(reading.segments)
    if reading.form is not Form.BREAKPOINT or is_read_again or reading.total_tokens < reading.rules.minimum_tokens:
        return {}
    options = reading.prompt.parameters.get("prompt_cache_options")
    return {"prompt_cache_options": {**(options if isinstance(options, Mapping) else {}), "mode": "explicit"}}


def _plan_implicit(reading: Reading, traffic: Traffic | None) -> Plan:
    rules = reading.rules
    ttl = rules.ttls[0] if rules.ttls else 0
    tokens = reading.front_tokens(Stability.SESSION if reading.is_conversation else Stability.DAILY)
    is_long = tokens >= max(rules.minimum_tokens, 1)
    parameters = _routing(reading) if is_long else {}
    notes = [_FORGOTTEN.format(reading.turn_seconds)] if reading.is_forgotten else []
    gaps = [gap for gap in (traffic.gap if traffic else None, reading.turn_seconds) if gap is not None]
    is_missed = ttl and any(_share(ttl, gap) < _ENOUGH and gap <= _DAY for gap in gaps)
    if is_missed and _DAY in rules.ttls[1:] and "prompt_cache_key" in parameters:
        ttl = _DAY
        parameters["prompt_cache_retention"] = label_of(_DAY)
    if parameters and traffic is not None and traffic.gap * _REQUESTS_PER_HOUR_AND_KEY < _HOUR:
        notes.append(
            f"One key serves about {_REQUESTS_PER_HOUR_AND_KEY} requests an hour: add a suffix to it, such as a "
            "group of users, so that each stays below."
        )
    row = _row(ttl, 1.0, rules, _expected(traffic, ttl))
    if not is_long:
        notes.append(why_nothing(reading, tokens))
    elif not row.pays:
        notes.append("Caching brings nothing with the expected reads, and costs nothing.")
    elif reading.usable < reading.head:
        path = reading.segments[reading.usable].path
        notes.append(f"Only the first {tokens:,} tokens are read again: {path} seems to change with each request.")
    if any(segment.marker is not None for segment in reading.segments):
        notes.append("The markers in the request mean nothing here and are left as they are.")
    return _plan(reading, (row,), notes, pays=is_long and row.pays, parameters=parameters)


def _plan_resource(reading: Reading, traffic: Traffic | None, input_usd_per_million: float | None) -> Plan:
    """A named cache. Creating it costs the prefix once, keeping it costs storage, and every request reads it."""
    rules = reading.rules
    ttl = rules.ttls[0]
    tokens = reading.tokens_of(reading.stable)
    is_long = tokens >= rules.minimum_tokens
    notes = [] if is_long else [why_nothing(reading, tokens)]
    rows: tuple[BreakEven, ...] = ()
    storage = tokens * rules.storage_usd_per_million_hour / 1e6
    if storage:
        notes.append(f"Storage costs ${storage:.4f} an hour, for {tokens:,} tokens.")
    if input_usd_per_million is not None:
        stored = rules.storage_usd_per_million_hour / input_usd_per_million * ttl / _HOUR
        reads = None if traffic is None else traffic.reads * min(1.0, ttl / traffic.seconds)
        rows = (_row(ttl, 1.0 + rules.read_multiplier + stored, rules, reads),)
    elif storage:
        notes.append("Whether that pays depends on the price of input, which was not given.")
    resource = _resource(reading, ttl) if is_long and reading.prompt.dialect is Dialect.GEMINI else None
    if resource is not None:
        notes.append(
            "Create the cache with the body shown; requests then leave its fields out and name it in cachedContent."
        )
    return _plan(reading, rows, notes, pays=is_long and all(row.pays for row in rows), resource=resource)


def _resource(reading: Reading, ttl: int) -> dict[str, Any]:
    """Body of the request that creates a cache of the stable part: fields that are stable as a whole."""
    stable = reading.segments[: reading.stable]
    changing = {segment.path.steps[0] for segment in reading.segments[reading.stable :]}
    fields = dict.fromkeys(segment.path.steps[0] for segment in stable if segment.path.steps[0] not in changing)
    body: dict[str, Any] = {name: reading.prompt.value[name] for name in fields if isinstance(name, str)}
    for name in ("toolConfig", "tool_config"):
        if name in reading.prompt.parameters and "tools" in body:
            body[name] = reading.prompt.parameters[name]
    model = reading.prompt.model
    named = {"model": model if "/" in model else f"models/{model}"} if model else {}
    return {**named, **body, "ttl": f"{ttl}s"}


def _routing(reading: Reading) -> dict[str, Any]:
    """The key that leads requests with this prefix to one machine: the request's own, or a hash of its static part."""
    key = reading.rules.routing_key
    if not key or reading.prompt.document is None:
        return {}
    if (given := reading.prompt.parameters.get(key)) is not None:
        return {key: given}
    static = [
        [segment.section.value, segment.role, text]
        for segment in reading.segments[: reading.head]
        if segment.stability is Stability.STATIC and (text := text_before(segment, Stability.STATIC))
    ]
    if not static:
        return {}
    digest = hashlib.sha256(json.dumps(static).encode()).hexdigest()
    return {key: f"prefold-{digest[:16]}"}


def _share(ttl: int, gap: float) -> float:
    """Of requests that come at random, a gap apart on average, those that come within a lifetime of the one before."""
    return -math.expm1(-ttl / gap) if gap else 1.0


def _expected(traffic: Traffic | None, ttl: int) -> float | None:
    """Reads of one written entry that lives `ttl` seconds from its last use on; all, where no lifetime is promised."""
    if traffic is None:
        return None
    reads = traffic.reads * (_share(ttl, traffic.gap) if ttl else 1.0)
    return reads / (1 + traffic.reads - reads)


def _row(ttl: int, write: float, rules: CacheRules, expected: float | None) -> BreakEven:
    read = rules.read_multiplier
    reads: int | None = None
    if read < 1:
        # Rounded first, so that no rounding error lifts it above a whole number.
        reads = math.floor(round((write - 1) / (1 - read), 9)) + 1 if write > 1 else 0
    if expected is None:
        return BreakEven(ttl, write, read, reads, None, None)
    return BreakEven(ttl, write, read, reads, round(expected, 2), round((write + expected * read) / (1 + expected), 4))


def _plan(
    reading: Reading,
    rows: tuple[BreakEven, ...],
    notes: Sequence[str],
    *,
    pays: bool,
    form: Form | None = None,
    markers: tuple[Marker, ...] = (),
    removed: tuple[Removed, ...] = (),
    parameters: Mapping[str, Any] | None = None,
    resource: Mapping[str, Any] | None = None,
) -> Plan:
    rules, counter = reading.rules, reading.counter
    unsure = (
        f"Not certain: {name}. {fact.note} {fact.source}".replace("  ", " ")
        for name, fact in rules.facts.items()
        if name in _CONTESTED and fact.certainty is Certainty.UNSURE
    )
    return Plan(
        rules=rules,
        form=form,
        markers=markers,
        removed=removed,
        parameters=parameters or {},
        resource=resource,
        stable_tokens=reading.front_tokens(Stability.DAILY),
        total_tokens=reading.total_tokens,
        counter=counter.name,
        is_exact=counter.is_exact,
        break_even=rows,
        pays=pays,
        notes=tuple(dict.fromkeys([*notes, *unsure, *rules.notes])),
    )
