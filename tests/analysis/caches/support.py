"""Requests for tests of caches."""

from __future__ import annotations

from collections.abc import Sequence

from prefold.analysis.caches.build import build
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Marker, Request
from prefold.core.tokens import pack
from prefold.providers.rules import CacheRules, Control, providers, rules_for

ALL_RULES: tuple[CacheRules, ...] = tuple(rules for provider in providers() for rules in provider.families)


def text(size: int, start: int = 0) -> list[int]:
    """Tokens that are equal for equal starts, and different for others."""
    return [start * 1_000_000 + number for number in range(size)]


def request(
    tokens: Sequence[int],
    time: float = 0.0,
    *,
    unit: int = 1,
    ends: Sequence[int] = (),
    positions: Sequence[int] = (),
    markers: Sequence[int | Marker] = (),
    system_end: int = 0,
    output: Sequence[int] = (),
    salt: str | None = None,
    **record: object,
) -> Request:
    run = pack(tokens)
    size = len(tokens) * unit
    return Request(
        run=run,
        unit=unit,
        tokens=size,
        time=time,
        record=Record(Blocks(run, unit, size), Place("log", 1), time=time, **record),
        ends=tuple(ends),
        positions=tuple(positions),
        markers=tuple(Marker(marker) if isinstance(marker, int) else marker for marker in markers),
        system_end=system_end,
        salt=salt,
        output=pack(output),
        output_tokens=len(output) * unit,
    )


def rules(model: str, provider: str | None = None, control: Control | None = None) -> CacheRules:
    found = rules_for(model, provider, control=control)
    assert found is not None
    return found


def cache(of: CacheRules | None, **options: object):
    """A cache under some rules."""
    return build(CacheSpec("test", of, **options))
