"""Which rules hold for a request of a log."""

from __future__ import annotations

from datetime import date
from functools import lru_cache

from prefold.analysis.request import Request
from prefold.errors import UsageError
from prefold.providers.rules import SECTIONS, CacheRules, Control, rules_for, rules_of

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


@lru_cache(maxsize=1024)
def _rules(model: str, provider: str | None, is_marked: bool) -> CacheRules:
    try:
        control = Control.EXPLICIT if is_marked else None
        found = rules_for(model, provider, control=control) if model else None
        found = found or (rules_for(model, provider) if model else None)
        return found or (rules_of(provider) if provider else PLAIN)
    except UsageError:  # a provider that nobody knows
        return rules_for(model) or PLAIN
