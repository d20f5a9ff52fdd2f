"""Slots that each hold the latest prompt, with a store of earlier ones in host memory: llama.cpp's server."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(slots=True)
class _HostStore:
    """Prompts that gave way in their slots, the oldest first out.

    Attributes:
        capacity: units.
        prompts: the oldest first.
    """

    capacity: int
    prompts: list[_Slot] = field(default_factory=list)

    def best(self, run: bytes, scope: Scope) -> tuple[_Slot | None, int]:
        """The prompt that shares most with another, and how many units; None where none shares any."""
        best, most = None, 0
        for kept in self.prompts:
            if kept.scope == scope and kept.run.startswith(run[: (most + 1) * WIDTH]):
                shared = common_prefix(kept.run, run)
                if shared > most:
                    best, most = kept, shared
        return best, most

    def put(self, slot: _Slot) -> None:
        """Keep a prompt; those that are beginnings of it are dropped."""
        self.prompts = [kept for kept in self.prompts if kept.scope != slot.scope or not slot.run.startswith(kept.run)]
        self.prompts.append(_Slot(slot.run, slot.scope, slot.used))
        units = sum(count(kept.run) for kept in self.prompts)
        while units > self.capacity or len(self.prompts) > _MOST_KEPT:
            units -= count(self.prompts.pop(0).run)


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
        known = self._known(request.run, scope)
        live = known[self._choose(request, known)]
        if self._host is not None:
            live = max(live, self._host.best(request.run, scope)[1])
        return self._served(request, known, live)

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        scope = scope_of(request, self._spec.isolate_tenants)
        known = self._known(request.run, scope)
        chosen = self._choose(request, known)
        slot, live = self._slots[chosen], known[chosen]
        if self._host is not None:
            live = self._exchange(self._host, slot, live, request, scope)
        self._clock += 1
        slot.run, slot.scope, slot.used = self._kept(request), scope, self._clock
        slot.busy_until = at(request, Moment.ANSWER)
        self._fit(slot)
        return self._served(request, known, live)

    def _known(self, run: bytes, scope: Scope) -> list[int]:
        """Units that a prompt shares with each slot."""
        known = []
        shared = 0  # with the slot before; prompts often part at one place, and looking there first finds it at once
        for slot in self._slots:
            if slot.scope != scope:
                known.append(0)
                continue
            end = shared * WIDTH
            if not slot.run.startswith(run[:end]):
                shared = common_prefix(run[:end], slot.run)
            elif slot.run.startswith(run[end : end + WIDTH], end):
                shared += common_prefix(run[end:], slot.run, shared)
            known.append(shared)
        return known

    def _served(self, request: Request, known: Sequence[int], live: int) -> Served:
        """What is answered where so many units can be had; other slots may have more, but were busy."""
        return self._steps.served(request, max(live, *known), live, Reason.NOT_KEPT, Reason.EVICTED)

    def _choose(self, request: Request, known: Sequence[int]) -> int:
        """The slot that serves a prompt that shares so much with each."""
        slots = self._slots
        # Where all are busy, a request waits for the first one to be idle.
        start = max(request.time, min([slot.busy_until for slot in slots]))
        idle = [index for index, slot in enumerate(slots) if slot.busy_until <= start]
        best = max(idle, key=lambda index: (known[index], -slots[index].used))
        if known[best] > self._rules.slot_similarity * request.units:
            return best
        return min(idle, key=lambda index: slots[index].used)

    def _exchange(self, host: _HostStore, slot: _Slot, known: int, request: Request, scope: Scope) -> int:
        """Save what the slot would lose, and take out what serves the request better; returns the units it has then."""
        best, stored = host.best(request.run, scope)
        if slot.run and known < count(slot.run) / 2:
            host.put(slot)
        if best is None or stored <= known:
            return known
        host.prompts = [kept for kept in host.prompts if kept is not best]
        return stored

    def _kept(self, request: Request) -> bytes:
        """Prompt and answer as far as they have keys and values: the last token was never fed back."""
        output = request.output[:-WIDTH] if self._unit == 1 else request.output
        run = request.run + (output if self._rules.keeps_output else b"")
        return run[: self._capacity * WIDTH]

    def _fit(self, latest: _Slot) -> None:
        """Empty the least recently used slots until all fit."""
        units = sum([count(slot.run) for slot in self._slots])
        if units <= self._capacity:
            return
        for slot in sorted(self._slots, key=lambda slot: slot.used):
            if slot is not latest:
                units -= count(slot.run)
                slot.run = b""
            if units <= self._capacity:
                break
