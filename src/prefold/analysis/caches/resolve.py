"""Which rules hold for a request of a log, and under a cache that stands in for its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import lru_cache

from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Request
from prefold.errors import UsageError
from prefold.providers.rules import SECTIONS, CacheRules, Control, Provider, providers, rules_for, rules_of

PLAIN = CacheRules(
    provider="blocks",
    family="a plain cache: any known prefix, to the unit of the log",
    seen=date(2026, 11, 30),
    models=(),
    control=Control.IMPLICIT,
    minimum_tokens=0,
    granularity_tokens=1,
    ttls=(),
    read_multiplier=0.0,
    sections=SECTIONS,
    self_hosted=True,
)
"""What traces of blocks are measured against: it knows no rule but that a prefix must be known."""


def rules_of_request(request: Request) -> CacheRules:
    """The rules of the cache that a request was sent to; `PLAIN` where they are not known."""
    record = request.record
    return _rules(record.model, record.provider or None, bool(request.markers))


def judge_of(spec: CacheSpec) -> Callable[[Request], CacheRules]:
    """What says by which rules a cache judges a request."""
    rules = spec.rules
    if rules is None:
        return rules_of_request
    if not spec.by_model:
        return lambda _request: rules
    return lambda request: family_of(spec.name, request.record.model) or rules


@lru_cache(maxsize=1024)
def family_of(name: str, model: str) -> CacheRules | None:
    """The rules of a provider for a model; None where `name` is no provider's, or it does not serve the model.

    Looking through all patterns takes longer than a simulated cache does, and a log has few models, so answers are kept
    for the whole process: a pure function of two short names.

    Args:
        name: as `prefold.analysis.caches.named.named_rules` reads it.
        model: as requests name it.
    """
    provider, _, control = provider_and_way(name)
    return rules_for(model, provider.name, control=control) if provider and model else None


def provider_and_way(name: str) -> tuple[Provider | None, str, Control | None]:
    """The provider that a name means, if any; the name without a way of caching behind it; and that, if any."""
    base, colon, way = name.rpartition(":")
    control = Control(way) if colon and way in list(Control) else None
    wanted = (base if control else name).strip()
    lower = wanted.lower()
    provider = next((known for known in providers() if lower == known.name or lower in known.aliases), None)
    return provider, wanted, control


@lru_cache(maxsize=1024)
def _rules(model: str, provider: str | None, is_marked: bool) -> CacheRules:
    """See `rules_of_request`; kept for the whole process like those of `family_of`, and as pure."""
    try:
        control = Control.EXPLICIT if is_marked else None
        found = rules_for(model, provider, control=control) if model else None
        found = found or (rules_for(model, provider) if model else None)
        return found or (rules_of(provider) if provider else PLAIN)
    except UsageError:  # a provider that nobody knows
        return rules_for(model) or PLAIN
