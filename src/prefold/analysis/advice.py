"""What to do first, from what a log has shown: only steps that it says would bring something."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from prefold.analysis.caches.base import Reason
from prefold.analysis.caches.named import OWN, named_rules
from prefold.analysis.encode import BLOCK_IDS
from prefold.analysis.situation import FIRST_STEPS, LAPTOP_ENGINES, Situation
from prefold.prompts.breakpoints.plan import rules_to_plan
from prefold.prompts.prompt import Dialect
from prefold.providers.rules import Control, providers, rules_for

_WORTH_IT = 0.01
"""Share of all input below which a step is not worth advising."""
_MOST_BREAKS = 3
_HOUR = 3600
_NOT_OF_THE_PREFIX = frozenset(
    {"expired", "evicted", "no_breakpoint", "lookback", "too_short", "routed_away", "salt", "model"}
)
"""Causes of breaks that no other text mends: what can be done about them are steps of their own."""
_LINES = (".jsonl", ".ndjson")
_NAMES_CONTENT = "ragpulse"
"""The format of traces whose ids name content: what moves parts of prompts can move these."""
_BODIES = frozenset({"bodies", *Dialect})
"""Formats of logs whose lines other commands read as requests."""


def advise(situation: Situation, analysis: Mapping[str, Any], reading: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The steps of a situation, the one that gains most first, each with a title, a sentence, and a command or None.

    Args:
        situation: the user's.
        analysis: what `prefold report --json` prints, as far as it is known.
        reading: the options that the log was read with, which commands on it need too.
    """
    log = _Log(analysis, reading)
    steps = [step for name in FIRST_STEPS[situation] for step in _STEPS[name](analysis, log)]
    worth = sorted((step for step in steps if step.gain >= _WORTH_IT), key=lambda step: -step.gain)
    if not worth:
        worth = [_Step(0.0, "Leave it as it is", "No step would bring one input token in a hundred.")]
    return [{"title": step.title, "text": step.text, "command": step.command} for step in worth]


@dataclass(frozen=True, slots=True)
class _Step:
    """Something to do.

    Attributes:
        gain: share of all input that would be read from the cache for it.
        title: a few words.
        text: a sentence or two.
        command: what shows more; None where no command can read the log.
    """

    gain: float
    title: str
    text: str
    command: str | None = None


class _Log:
    """Commands on a log, as they can be pasted into a shell.

    Args:
        analysis: as `advise` takes it.
        reading: as `advise` takes it.
    """

    def __init__(self, analysis: Mapping[str, Any], reading: Sequence[str]) -> None:
        log = analysis["log"]
        self._sources: Sequence[str] = log["sources"]
        self._reading = reading
        self._is_trace = BLOCK_IDS in log["tokens"]["counters"]
        self._is_whole = not log["skipped"]
        self._names_content = set(log["formats"]) == {_NAMES_CONTENT}
        self._holds_bodies = set(log["formats"]) <= _BODIES
        self._models: Mapping[str, int] = log["models"]
        self._cache: str = analysis["cache"]
        rules = named_rules(self._cache)
        self.is_own = rules is None or rules.self_hosted
        """Whether its cache may be one whose capacity and policy can be chosen."""
        is_provider = rules is not None and rules.provider in (known.name for known in providers())
        self._provider = rules.provider if rules and is_provider else None
        model = max(self._models, key=lambda name: self._models[name], default="")
        self._rules = rules_for(model) if rules is None else named_rules(self._cache, model)

    @property
    def has_longer_lifetime(self) -> bool:
        """Whether the cache of most requests has another lifetime than the default to ask for."""
        return self._rules is not None and len(self._rules.ttls) > 1

    def longer_lifetime(self) -> str | None:
        """`prefold simulate` with markers that ask for an hour; None where the cache of most requests has none."""
        rules = self._rules
        if rules is None or rules.control not in (Control.EXPLICIT, Control.BREAKPOINT) or _HOUR not in rules.ttls[1:]:
            return None
        return self.simulate("--what-if", "markers_1h", changes_texts=True)

    def simulate(self, *options: str, changes_texts: bool = False) -> str | None:
        """`prefold simulate` of all sources; None where they cannot be read again, or have no text to change."""
        if self._is_trace and changes_texts:
            return None
        cache = () if self._cache == OWN else ("--cache", self._cache)
        return _command("simulate", self._sources, *cache, *self._reading, *options)

    def order(self) -> str | None:
        """`prefold order`, which reads one file, and stops at a line that is no request; for traces what it brings."""
        if self._names_content:
            return self.simulate("--what-if", "reordered")
        if len(self._sources) != 1 or not self._is_whole or not self._has_requests(self._sources[0]):
            return None
        return _command("order", self._sources)

    def diff(self, places: Sequence[str]) -> str | None:
        """`prefold diff` of two places."""
        if len(places) != 2 or not all(map(self._is_request, places)):
            return None
        return _command("diff", places, *self._of_provider())

    def breakpoints(self, breaks: Sequence[Mapping[str, Any]]) -> str | None:
        """`prefold breakpoints` for a request of the log, where all are for one model whose rules are known."""
        model = next(iter(self._models), "")
        if len(self._models) != 1 or rules_to_plan(model, self._provider) is None:
            return None
        examples = [found["example"][-1] for found in breaks if found["example"]]
        first = [f"{source}:1" for source in self._sources[:1] if self._is_whole]
        place = next((place for place in (*examples, *first) if self._is_request(place)), None)
        return place and _command("breakpoints", (place,), *self._of_provider(), "--patched")

    def _of_provider(self) -> tuple[str, ...]:
        """Whose cache was asked for, as other commands take it; nothing where that is each request's own."""
        return ("--provider", self._provider) if self._provider else ()

    def _is_request(self, place: str) -> bool:
        return self._has_requests(place.rpartition(":")[0])

    def _has_requests(self, file: str) -> bool:
        """Whether each line of a file is a request as it is: nothing packed, and no trace or transcript."""
        return self._holds_bodies and file.endswith(_LINES)


def _command(name: str, inputs: Sequence[str], *options: str) -> str | None:
    """A command to paste; None where an input is no file, or has a name that no terminal shows as it is."""
    if not inputs or not all(each.isprintable() for each in inputs) or _STANDARD_INPUT in inputs:
        return None
    named = (f"./{each}" if each.startswith("-") else each for each in inputs)
    return shlex.join(["prefold", name, *named, *options])


_STANDARD_INPUT = "Standard input"
"""How reports call it."""


def _share(analysis: Mapping[str, Any], reason: Reason) -> float:
    lost = sum(row["tokens"] for row in analysis["attribution"] if row["reason"] == reason)
    return lost / analysis["input_tokens"] if analysis["input_tokens"] else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _prefix(analysis: Mapping[str, Any], log: _Log) -> Iterator[_Step]:
    total = analysis["input_tokens"] or 1
    breaks = [found for found in analysis["breaks"] if found["cause"] not in _NOT_OF_THE_PREFIX]
    for found in sorted(breaks, key=lambda found: -found["gain_tokens"])[:_MOST_BREAKS]:
        lost, gain = found["tokens"] / total, found["gain_tokens"] / total
        cause = (found["cause"] or "another history").replace("_", " ")
        place = f" at {found['path']}" if found["path"] else ""
        yield _Step(
            gain,
            f"Mend the prefix: {cause}{place}",
            f"{_percent(lost)} of input is read again for it, in {found['requests']:,} requests; replayed with the "
            f"fix, {_percent(gain)} more is read from the cache. {found['fix']}",
            log.diff(found["example"]),
        )


def _breakpoints(analysis: Mapping[str, Any], log: _Log) -> Iterator[_Step]:
    share = _share(analysis, Reason.BREAKPOINT)
    yield _Step(
        share,
        "Set cache markers where prefixes end",
        f"{_percent(share)} of input repeats, but no marker ends there.",
        log.breakpoints(analysis["breaks"]),
    )
    share = _share(analysis, Reason.LOOKBACK)
    yield _Step(
        share,
        "Set a further cache marker in long turns",
        f"{_percent(share)} of input is cached, but ends further back than is looked.",
        log.breakpoints(analysis["breaks"]),
    )
    share = _share(analysis, Reason.BELOW_MINIMUM)
    yield _Step(
        share,
        "Bring what repeats above the minimum",
        f"{_percent(share)} of input repeats in prefixes that are too short to be cached: put rules, tools and "
        "examples into one prefix, or ask a model with a lower minimum.",
        "prefold providers",
    )


def _order(analysis: Mapping[str, Any], log: _Log) -> Iterator[_Step]:
    if order := analysis["order"]:
        before, after = order["share_before"], order["share_after"]
        yield _Step(
            after - before,
            "Put what never changes first",
            f"The cacheable share rises from {_percent(before)} to {_percent(after)}.",
            log.order(),
        )


def _lifetime(analysis: Mapping[str, Any], log: _Log) -> Iterator[_Step]:
    share = _share(analysis, Reason.EXPIRED)
    longer = "ask for the longer lifetime, or " if log.has_longer_lifetime else ""
    yield _Step(
        share,
        "Keep entries longer",
        f"{_percent(share)} of input had been cached and was gone when it was asked for again: {longer}send a "
        "small request in between.",
        log.longer_lifetime(),
    )


def _capacity(analysis: Mapping[str, Any], log: _Log) -> Iterator[_Step]:
    share = _share(analysis, Reason.EVICTED)
    yield _Step(
        share,
        "Give the cache more room, or a tier below it",
        f"{_percent(share)} of input had been evicted when it was asked for again.",
        log.simulate("--curve"),
    )


def _policy(analysis: Mapping[str, Any], log: _Log) -> Iterator[_Step]:
    points = (analysis["capacity"] or {}).get("points", ())
    best = max(points, key=lambda point: point["optimum"] - point["lru"], default=None)
    if best and log.is_own:
        yield _Step(
            best["optimum"] - best["lru"],
            "Evict by what is likely to come back",
            f"At {best['tokens']:,} tokens least recently used reads {_percent(best['lru'])} from the cache, and no "
            f"policy could read more than {_percent(best['optimum'])}: see how far prefold's own gets.",
            log.simulate("--policy", "lru,default", "--capacity", f"{best['tokens']}tokens"),
        )


def _routing(analysis: Mapping[str, Any], log: _Log) -> Iterator[_Step]:
    share = _share(analysis, Reason.OTHER_REPLICA)
    yield _Step(
        share,
        "Send requests where their prefix is",
        f"{_percent(share)} of input was cached on another replica than the one that was asked.",
        log.simulate("--replicas", "4", "--routing", "exact"),
    )


def _tenants(analysis: Mapping[str, Any], _log: _Log) -> Iterator[_Step]:
    share = _share(analysis, Reason.OTHER_TENANT)
    yield _Step(
        share,
        "Share what all tenants have in common",
        f"{_percent(share)} of input was cached under another tenant's salt: let the salt begin behind the common "
        "part.",
    )


def _slots(analysis: Mapping[str, Any], _log: _Log) -> Iterator[_Step]:
    rates = {row["cache"]: row["hit_rate"] for row in analysis["caches"]}
    separate, shared = (rates.get(name) for name in LAPTOP_ENGINES)
    if separate is not None and shared is not None:
        gain = shared - separate
        yield _Step(
            gain,
            "Share prefixes between slots",
            f"One tree for all requests reads {_percent(gain)} more of the input from the cache than separate slots.",
            "prefold serve",
        )


_STEPS: Mapping[str, Callable[[Mapping[str, Any], _Log], Iterator[_Step]]] = MappingProxyType(
    {
        "prefix": _prefix,
        "breakpoints": _breakpoints,
        "order": _order,
        "lifetime": _lifetime,
        "capacity": _capacity,
        "policy": _policy,
        "routing": _routing,
        "tenants": _tenants,
        "slots": _slots,
    }
)
