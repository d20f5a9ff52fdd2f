"""Caches that keep prefix units, of which only whole ones hit: DeepSeek's."""

from __future__ import annotations

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.caches.common import Luck, Steps, at, scope_of, units_of
from prefold.analysis.caches.ends import Ends
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Request
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
        _, hit, lost = self._look(request)
        return self._served(hit, lost)

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        seen, hit, lost = self._look(request)
        if hit and self._luck.fails():
            hit, lost = 0, (Loss(Reason.NOT_KEPT, hit * self._unit), *lost)
        self._keep(request, seen)
        return self._served(hit, lost)

    def _served(self, hit: int, lost: tuple[Loss, ...]) -> Served:
        otherwise = Reason.EVICTED if self._ends.has_forgotten else Reason.BREAKPOINT
        return Served(hit * self._unit, lost=lost, otherwise=otherwise)

    def _look(self, request: Request) -> tuple[int, int, tuple[Loss, ...]]:
        """How far a prompt was seen, what it hits, and what it loses."""
        seen, units = self._ends.known(request.run, scope_of(request, self._spec.isolate_tenants))
        whole = max((end for end, readable in units if readable <= request.time), default=0)
        hit = self._steps.down(whole)
        last = units[-1][0] if units else 0
        lost = []
        if whole > hit:
            lost.append(Loss(Reason.BLOCK_TAIL, whole * self._unit))
        if last > whole:
            lost.append(Loss(Reason.NOT_KEPT, last * self._unit))
        if seen > last:
            reason = Reason.BELOW_MINIMUM if seen < self._steps.minimum else Reason.BREAKPOINT
            lost.append(Loss(reason, seen * self._unit))
        return seen, hit, tuple(lost)

    def _keep(self, request: Request, seen: int) -> None:
        run = request.run + (request.output if self._rules.keeps_output else b"")
        scope = scope_of(request, self._spec.isolate_tenants)
        readable = at(request, self._rules.readable_from)
        _, units = self._ends.known(run, scope)
        stored = dict(units)
        ends = {seen, request.units, count(run)}
        if self._interval:
            ends.update(range(self._interval, count(run), self._interval))
        self._ends.put(run, count(run), scope, None)  # so that it is seen where the next one parts from it
        for end in sorted(end for end in ends if end >= max(1, self._steps.minimum)):
            self._ends.put(run, end, scope, min(readable, stored.get(end, readable)))
