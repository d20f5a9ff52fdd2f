"""Slots that each hold the latest prompt, with a store of earlier ones in host memory: llama.cpp's server."""

from __future__ import annotations

from dataclasses import dataclass, field

from prefold.analysis.caches.base import Reason, Served
from prefold.analysis.caches.common import Steps, at, scope_of, units_of
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Request
from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import WIDTH, common_prefix, count
from prefold.providers.rules import CacheRules, Moment

_MOST_KEPT = 1024
"""Prompts that the host store holds at most, whatever its capacity: each one is compared with every request."""


@dataclass(slots=True)
class _Slot:
    """A prompt and its answer.

    Attributes:
        run: packed ids.
        scope: who may share it.
        used: when it was chosen last, in requests.
        busy_until: seconds.
    """

    run: bytes = b""
    scope: Scope = SHARED
    used: int = 0
    busy_until: float = 0.0

    def known(self, run: bytes, scope: Scope) -> int:
        """Units that a prompt shares with it."""
        return common_prefix(self.run, run) if scope == self.scope else 0


@dataclass(slots=True)
class _HostStore:
    """Prompts that gave way in their slots, the oldest first out.

    Attributes:
        capacity: units.
        prompts: the oldest first.
    """

    capacity: int
    prompts: list[_Slot] = field(default_factory=list)

    def put(self, slot: _Slot) -> None:
        """Keep a prompt; those that are beginnings of it are dropped."""
        self.prompts = [kept for kept in self.prompts if kept.known(slot.run, slot.scope) < count(kept.run)]
        self.prompts.append(_Slot(slot.run, slot.scope, slot.used))
        while self.prompts and (
            sum(count(kept.run) for kept in self.prompts) > self.capacity or len(self.prompts) > _MOST_KEPT
        ):
            del self.prompts[0]


class SlotCache:
    """One replica of a server with slots.

    A request takes the idle slot that shares most with it, if that is enough, and the least recently used one
    otherwise. A slot's prompt that would be lost goes to the host store, where there is one, and the prompt there that
    serves best comes back.

    Args:
        spec: capacity of all slots together, tiers, isolation.
        rules: number of slots, and how similar is enough.
        unit: tokens that an id stands for in all requests to come.
    """

    def __init__(self, spec: CacheSpec, rules: CacheRules, unit: int) -> None:
        self._spec = spec
        self._rules = rules
        self._unit = unit
        self._steps = Steps(rules, unit)
        self._capacity = units_of(spec.capacity, unit)
        self._slots = [_Slot() for _ in range(rules.slots)]
        sizes = [units_of(tier.capacity, unit) for tier in spec.tiers]
        self._host = _HostStore(sum(sizes)) if sizes else None
        self._clock = 0

    def peek(self, request: Request) -> Served:
        """See `Replica`."""
        scope = scope_of(request, self._spec.isolate_tenants)
        kept = self._host.prompts if self._host else []
        known = max(holder.known(request.run, scope) for holder in (self._choose(request, scope), *kept))
        return self._served(request, scope, known)

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        scope = scope_of(request, self._spec.isolate_tenants)
        slot = self._choose(request, scope)
        kept = self._host.prompts if self._host else []
        served = self._served(request, scope, max(holder.known(request.run, scope) for holder in (slot, *kept)))
        if self._host is not None:
            self._exchange(slot, request, scope)
        self._clock += 1
        slot.run, slot.scope, slot.used = self._kept(request), scope, self._clock
        slot.busy_until = at(request, Moment.ANSWER)
        self._fit(slot)
        return served

    def _served(self, request: Request, scope: Scope, known: int) -> Served:
        """What is answered where a slot has so many units; others may have more, but were busy."""
        matched = max(known, *(slot.known(request.run, scope) for slot in self._slots))
        return self._steps.served(request, matched, known, Reason.NOT_KEPT, Reason.EVICTED)

    def _choose(self, request: Request, scope: Scope) -> _Slot:
        # Where all are busy, a request waits for the first one to be idle.
        first = min(slot.busy_until for slot in self._slots)
        idle = [slot for slot in self._slots if slot.busy_until <= max(request.time, first)]
        best = max(idle, key=lambda slot: (slot.known(request.run, scope), -slot.used))
        if best.known(request.run, scope) > self._rules.slot_similarity * request.units:
            return best
        return min(idle, key=lambda slot: slot.used)

    def _exchange(self, slot: _Slot, request: Request, scope: Scope) -> None:
        """Save what the slot would lose, and load what serves the request better."""
        host = self._host
        if host is None:
            return
        known = slot.known(request.run, scope)
        best = max(host.prompts, key=lambda kept: kept.known(request.run, scope), default=None)
        if slot.run and known < count(slot.run) / 2:
            host.put(slot)
        if best is not None and best.known(request.run, scope) > known:
            host.prompts = [kept for kept in host.prompts if kept is not best]
            slot.run, slot.scope = best.run, best.scope

    def _kept(self, request: Request) -> bytes:
        """Prompt and answer as far as they have keys and values: the last token was never fed back."""
        output = request.output[:-WIDTH] if self._unit == 1 else request.output
        run = request.run + (output if self._rules.keeps_output else b"")
        return run[: self._capacity * WIDTH]

    def _fit(self, latest: _Slot) -> None:
        """Empty the least recently used slots until all fit."""
        for slot in sorted(self._slots, key=lambda slot: slot.used):
            if sum(count(other.run) for other in self._slots) <= self._capacity:
                break
            if slot is not latest:
                slot.run = b""
