"""Where the user stands, and what to do first there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from prefold.analysis.caches.resolve import PLAIN
from prefold.providers.rules import providers as known_providers


class Situation(StrEnum):
    """Who runs the cache that a log was written in front of."""

    HOSTED_API = "hosted_api"
    OWN_ENGINE = "own_engine"
    MANY_REPLICAS = "many_replicas"
    MANY_TENANTS = "many_tenants"
    LAPTOP = "laptop"


LAPTOP_ENGINES = ("llama.cpp", "prefold")
"""Engines that people run for themselves alone."""


def guess_situation(providers: Mapping[str, int], *, replicas: int, salts: int) -> Situation:
    """The situation that a log speaks of.

    Args:
        providers: requests by whose cache they were judged as.
        replicas: different servers that the log names, or that are simulated.
        salts: different salts.
    """
    most = max(providers, key=lambda name: providers[name], default="")
    if replicas > 1:
        return Situation.MANY_REPLICAS
    if most in LAPTOP_ENGINES:
        return Situation.LAPTOP
    if salts > 1:
        return Situation.MANY_TENANTS
    # A trace of blocks is what an engine writes.
    engines = {PLAIN.provider} | {
        rules.provider for known in known_providers() for rules in known.families if rules.self_hosted
    }
    return Situation.OWN_ENGINE if most in {PLAIN.provider, *engines} else Situation.HOSTED_API


FIRST_STEPS: Mapping[Situation, tuple[str, ...]] = MappingProxyType(
    {
        Situation.HOSTED_API: ("prefix", "breakpoints", "order", "lifetime"),
        Situation.OWN_ENGINE: ("prefix", "capacity", "order", "policy"),
        Situation.MANY_REPLICAS: ("routing", "prefix", "capacity", "order"),
        Situation.MANY_TENANTS: ("tenants", "prefix", "capacity", "order"),
        Situation.LAPTOP: ("prefix", "slots", "order", "capacity"),
    }
)
"""What can be done in each situation: names of steps in `prefold.analysis.advice`; of equal gains the first counts."""
