"""From a specification to a cache that requests can be sent to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from prefold.analysis.caches.base import CacheModel, Served
from prefold.analysis.caches.common import Replica, check_unit
from prefold.analysis.caches.entries import EntryCache
from prefold.analysis.caches.prefixes import PrefixCache
from prefold.analysis.caches.replicas import ROUTERS, USUAL_ROUTING, Fleet
from prefold.analysis.caches.resolve import judge_of
from prefold.analysis.caches.shared import SharedPrefixes, can_share
from prefold.analysis.caches.slots import SlotCache
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.caches.units import UnitCache
from prefold.analysis.request import Request
from prefold.core.policies import POLICIES
from prefold.errors import UsageError
from prefold.providers.rules import CacheRules, Storage

_MODELS: Mapping[Storage, Callable[[CacheSpec, CacheRules, int], Replica]] = MappingProxyType(
    {
        Storage.PREFIXES: PrefixCache,
        Storage.ENTRIES: EntryCache,
        Storage.UNITS: UnitCache,
        Storage.SLOTS: SlotCache,
        Storage.RESOURCE: EntryCache,
    }
)


MOST_REPLICAS = 1_000
"""Replicas that a cache can have: each is a cache of its own, and a request asks all of them."""

_MOST_MODELS = 1_000
"""Models with a part of their own; the rest share one, so that memory does not grow with nonsense."""


def build(spec: CacheSpec) -> CacheModel:
    """The cache that a specification describes, empty.

    Raises:
        UsageError: an unknown policy or routing, or a number outside its range.
    """
    if spec.policy not in POLICIES:
        raise UsageError(f"There is no policy {spec.policy!r}.", hint=f"Known: {', '.join(POLICIES)}.")
    if spec.routing not in ROUTERS:
        raise UsageError(f"There is no routing {spec.routing!r}.", hint=f"Known: {', '.join(ROUTERS)}.")
    if not 1 <= spec.replicas <= MOST_REPLICAS:
        raise UsageError(f"{spec.name} has {spec.replicas:,} replicas.", hint=f"Give 1 to {MOST_REPLICAS:,}.")
    if spec.replicas == 1 and spec.routing != USUAL_ROUTING:
        raise UsageError(f"{spec.name} has one replica, so {spec.routing} has no choice.", hint="Give more replicas.")
    if not 0 <= spec.loss_rate <= 1:
        raise UsageError(f"{spec.name} has a loss rate of {spec.loss_rate}.", hint="It is a share, from 0 to 1.")
    return _Cache(spec)


class _Cache:
    """A cache that learns with the first request what an id stands for, and has a part for each language model.

    An engine serves one model, and whoever serves several has a pool for each; so logs can be cut by model, and the
    parts simulated one by one.
    """

    def __init__(self, spec: CacheSpec) -> None:
        self._spec = spec
        self._judge = judge_of(spec)
        self._unit = 0
        self._names: set[str] = set()
        self._models: dict[tuple[str, str, str], CacheModel] = {}

    def serve(self, request: Request) -> Served:
        """See `CacheModel`.

        Raises:
            UsageError: its ids stand for another number of tokens than those of earlier requests.
        """
        self._unit = self._unit or request.unit
        check_unit(request, self._unit)
        rules = self._judge(request)
        name = request.record.model
        if name not in self._names:
            if len(self._names) < _MOST_MODELS:
                self._names.add(name)
            else:
                name = ""
        key = rules.provider, rules.family, name
        if (model := self._models.get(key)) is None:
            model = self._models[key] = self._model(rules)
        return model.serve(request)

    def _model(self, rules: CacheRules) -> CacheModel:
        spec = replace(self._spec, rules=rules)
        if self._spec.rules is None and not rules.self_hosted:  # what is set here is not a provider's to obey
            spec = replace(spec, capacity=None, policy="lru", tiers=())
        if can_share(spec):
            return _One(SharedPrefixes([spec], self._unit))
        replicas = [_MODELS[rules.stores](spec, rules, self._unit) for _ in range(spec.replicas)]
        return replicas[0] if len(replicas) == 1 else Fleet(replicas, self._spec.routing)


class _One:
    """A cache that shares its tree with no other."""

    def __init__(self, shared: SharedPrefixes) -> None:
        self._shared = shared

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        return self._shared.serve(request)[0]
