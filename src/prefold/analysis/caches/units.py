"""Caches that keep prefix units, of which only whole ones hit: DeepSeek's."""

from __future__ import annotations

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.caches.common import Luck, Steps, at, scope_of, units_of
from prefold.analysis.caches.ends import Ends, values
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Request
from prefold.core.keys import Scope
from prefold.core.radix import Match
from prefold.core.tokens import count
from prefold.providers.rules import CacheRules


class UnitCache:
    """One replica of a cache of prefix units.

    Units are stored where input and output of a request end, where two requests are seen to part, and at intervals of
    long ones. So what two requests share is stored when the second one comes, and the third is the first to hit.

    Args:
        spec: capacity, isolation and luck.
        rules: where units end, and from when on they can be read.
        unit: tokens that an id stands for in all requests to come.
    """

    def __init__(self, spec: CacheSpec, rules: CacheRules, unit: int) -> None:
        self._spec = spec
        self._rules = rules
        self._unit = unit
        self._steps = Steps(rules, unit)
        self._interval = -(-rules.unit_interval_tokens // unit)
        self._ends: Ends[float] = Ends(units_of(spec.capacity, unit))
        self._luck = Luck(spec.loss_rate if rules.best_effort else 0.0, spec.seed)

    def peek(self, request: Request) -> Served:
        """See `Replica`."""
        match = self._ends.find(request.run, scope_of(request, self._spec.isolate_tenants))
        return self._served(*self._look(request, match))

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        scope = scope_of(request, self._spec.isolate_tenants)
        match = self._ends.find(request.run, scope)
        hit, lost = self._look(request, match)
        if hit and self._luck.fails():
            hit, lost = 0, (Loss(Reason.NOT_KEPT, hit * self._unit), *lost)
        self._keep(request, scope, match)
        return self._served(hit, lost)

    def _served(self, hit: int, lost: tuple[Loss, ...]) -> Served:
        otherwise = Reason.EVICTED if self._ends.has_forgotten else Reason.BREAKPOINT
        return Served(hit * self._unit, lost=lost, otherwise=otherwise)

    def _look(self, request: Request, match: Match[float | None]) -> tuple[int, tuple[Loss, ...]]:
        """What a prompt hits and loses, of which so much was seen."""
        seen, whole, last = match.length, 0, 0
        for end, readable in values(match):
            last = last or end
            if readable <= request.time:
                whole = end
                break
        hit = self._steps.down(whole)
        lost = []
        if whole > hit:
            lost.append(Loss(Reason.BLOCK_TAIL, whole * self._unit))
        if last > whole:
            lost.append(Loss(Reason.NOT_KEPT, last * self._unit))
        if seen > last:
            reason = Reason.BELOW_MINIMUM if seen < self._steps.minimum else Reason.BREAKPOINT
            lost.append(Loss(reason, seen * self._unit))
        return hit, tuple(lost)

    def _keep(self, request: Request, scope: Scope, match: Match[float | None]) -> None:
        seen = match.length
        run = request.run
        if self._rules.keeps_output and request.output:
            run += request.output
            if seen == request.units:
                match = self._ends.find(run, scope)
        readable = at(request, self._rules.readable_from)
        # The whole is always put, so that it is seen where the next one parts from it.
        whole = count(run)
        ends = {seen, request.units, whole}
        if self._interval:
            ends.update(range(self._interval, whole, self._interval))
        shortest = max(1, self._steps.minimum)
        stored = sorted(end for end in ends if end >= shortest)
        for node in self._ends.put(run, scope, match, stored or [whole]):
            if node.stop >= shortest:
                node.value = readable if node.value is None else min(readable, node.value)
