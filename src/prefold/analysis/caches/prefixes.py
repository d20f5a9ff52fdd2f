"""Caches that keep every prefix: engines, and hosted caches without markers.

They drive the very cache that prefold's engine drives, with the same calls in the same order, so that what is
predicted here is what the engine does.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.caches.common import Luck, Steps, at, scope_of, units_of
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.caches.tiers import Tiers
from prefold.analysis.request import Request
from prefold.core.cache import Cache, Lease, eviction_step
from prefold.core.keys import Scope
from prefold.core.policies import POLICIES, Cost
from prefold.core.radix import Node
from prefold.core.tokens import WIDTH, count
from prefold.errors import CapacityError
from prefold.providers.rules import CacheRules, Moment

_CUT_SHORT = frozenset({"", "length", "max_tokens", "max_output_tokens", "MAX_TOKENS"})
"""Stop reasons after which an answer is as long as it was allowed to be; so it is assumed where there is none."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What is known of a node's units.

    Attributes:
        start: position of the first one.
        readable: seconds from which others can read them.
        expires: seconds up to which they can.
        keys: of the blocks whose last unit is among them, with the position behind it; only where there are tiers.
    """

    start: int
    readable: float
    expires: float
    keys: tuple[tuple[int, bytes], ...] = ()


class _Store:
    """Cuts nodes, and sends what leaves the pool to the tiers below."""

    def __init__(self, tiers: Tiers | None) -> None:
        self._tiers = tiers

    def split(self, value: _Held, length: int) -> tuple[_Held, _Held]:
        """See `prefold.core.cache.Store`."""
        cut = value.start + length
        head = tuple(pair for pair in value.keys if pair[0] <= cut)
        rest = value.keys[len(head) :]
        return (
            _Held(value.start, value.readable, value.expires, head),
            _Held(cut, value.readable, value.expires, rest),
        )

    def free(self, value: _Held) -> None:
        """See `prefold.core.cache.Store`."""
        if self._tiers is not None:
            self._tiers.put([key for _, key in value.keys])


@dataclass(frozen=True, slots=True)
class _Known:
    """How far a prompt is known, in units.

    Attributes:
        matched: it was sent before and is still there.
        live: and can be read.
        reason: why not further.
    """

    matched: int
    live: int
    reason: Reason = Reason.UNEXPLAINED


class PrefixCache:
    """One replica of a cache that keeps every prefix.

    A request holds its prompt, and room for its answer, until the answer is complete. Where the log does not say when
    that was, it is complete at once. A prompt that does not fit waits for others to end; what exceeds the capacity
    even then is not kept. How long an answer was allowed to be, which decides how much room is taken ahead, is not in a
    log: one that was cut short had no more, and one that ended by itself is taken to have been far from its end.

    Args:
        spec: capacity, policy, tiers, isolation and luck.
        rules: granularity, lifetime, and what is kept.
        unit: tokens that an id stands for in all requests to come.
    """

    def __init__(self, spec: CacheSpec, rules: CacheRules, unit: int) -> None:
        self._spec = spec
        self._rules = rules
        self._unit = unit
        self._steps = Steps(rules, unit)
        self._tiers = Tiers(spec.tiers, unit) if spec.tiers else None
        capacity = units_of(spec.capacity, unit)
        self._cache: Cache[_Held] = Cache(
            capacity,
            _Store(self._tiers),
            _Held(0, 0.0, inf),
            policy=POLICIES[spec.policy](),
            cost=None if spec.attention_span is None else Cost(spec.attention_span / unit),
            always_computed=0,
            eviction_step=eviction_step(capacity, rules.eviction_step_tokens // unit),
        )
        self._luck = Luck(spec.loss_rate if rules.best_effort else 0.0, spec.seed)
        self._ttl = rules.ttls[0] if rules.ttls else inf
        self._is_timed = bool(rules.ttls) or rules.readable_from is not Moment.REQUEST
        self._running: list[tuple[float, int, Lease[_Held], Request]] = []
        self._started = 0

    def peek(self, request: Request) -> Served:
        """See `Replica`."""
        self._advance(request.time)
        scope = scope_of(request, self._spec.isolate_tenants)
        known = self._look(request, scope)
        return self._served(request, known, self._reach(self._keys(request.run, scope), known))

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        self._advance(request.time)
        if not request.run:
            return Served(0)
        scope = scope_of(request, self._spec.isolate_tenants)
        keys = self._keys(request.run, scope)
        reach = 0
        if self._tiers is not None:  # what comes up leaves before what is evicted for it goes down
            reach = self._reach(keys, self._look(request, scope))
            self._tiers.take(keys[: self._cache.capacity // self._tiers.grain])
        lease = self._admit(request, scope, keys)
        known = self._examine(request, lease.node.path(), lease.hit)
        served = self._served(request, known, reach)
        if served.hit and self._luck.fails():
            served = served._replace(hit=0, lost=(Loss(Reason.NOT_KEPT, served.hit), *served.lost))
        self._renew(request, lease)
        if request.record.duration is None:
            self._release(lease, request)
        else:
            self._started += 1  # breaks ties before leases are compared
            heapq.heappush(self._running, (at(request, Moment.ANSWER), self._started, lease, request))
        return served

    # Looking

    def _look(self, request: Request, scope: Scope) -> _Known:
        match = self._cache.tree.peek(request.run, scope)
        return self._examine(request, match.node.path(), match.length)

    def _examine(self, request: Request, path: Sequence[Node[_Held]], matched: int) -> _Known:
        """How far what is there can be read at this time."""
        if self._is_timed:
            for node in path:
                if node.start >= matched:
                    break
                if request.time > node.value.expires:
                    return _Known(matched, node.start, Reason.EXPIRED)
                if request.time < node.value.readable:
                    return _Known(matched, node.start, Reason.NOT_KEPT)
        return _Known(matched, matched)

    def _reach(self, keys: Sequence[bytes], known: _Known) -> int:
        """Units that pool and tiers hold together."""
        return known.live if self._tiers is None else self._tiers.reach(keys, known.live)

    def _served(self, request: Request, known: _Known, reach: int) -> Served:
        had_room = not self._cache.counters.evicted and request.units <= self._cache.capacity
        otherwise = Reason.UNEXPLAINED if had_room else Reason.EVICTED
        return self._steps.served(request, max(reach, known.matched), max(reach, known.live), known.reason, otherwise)

    # Keeping

    def _renew(self, request: Request, lease: Lease[_Held]) -> None:
        """Note on the nodes of a prompt that it was used, and what of it was written anew."""
        if not self._is_timed:
            return
        readable, expires = at(request, self._rules.readable_from), self._expiry(request)
        for node in lease.node.path():
            old = node.value
            if request.time > old.expires:
                node.value = _Held(old.start, readable, expires, old.keys)
            elif self._rules.ttl_renewed:
                node.value = _Held(old.start, min(old.readable, readable), expires, old.keys)

    def _expiry(self, request: Request) -> float:
        return at(request, self._rules.ttl_from) + self._ttl

    def _admit(self, request: Request, scope: Scope, keys: Sequence[bytes]) -> Lease[_Held]:
        readable, expires = at(request, self._rules.readable_from), self._expiry(request)

        def held(start: int, stop: int) -> _Held:
            return _Held(start, readable, expires, self._ending(keys, start, stop))

        step = self._rules.answer_step_tokens // self._unit
        reserve = min(step, self._longest_answer(request)) if step else 0
        while True:
            try:
                return self._cache.admit(request.run, scope, reserve=reserve, make_value=held, now=request.time)
            except CapacityError:
                if not self._running:
                    break
                self._finish()  # it would have waited for this one
        run = request.run[: self._cache.capacity * WIDTH]
        lease = self._cache.admit(run, scope, make_value=held, now=request.time)
        if self._tiers is not None:  # what has no room above is stored below while it is computed
            self._tiers.put(keys[self._cache.capacity // self._tiers.grain :])
        return lease

    def _advance(self, time: float) -> None:
        """Complete the requests that have ended by now."""
        while self._running and self._running[0][0] <= time:
            self._finish()

    def _finish(self) -> None:
        """Complete the running request that ends first."""
        _, _, lease, request = heapq.heappop(self._running)
        self._release(lease, request)

    def _release(self, lease: Lease[_Held], request: Request) -> None:
        end = at(request, Moment.ANSWER)
        expires = self._expiry(request)
        tail = self._kept_output(request) if count(lease.run) == request.units else b""
        try:
            self._grow(lease, request, count(tail))
        except CapacityError:
            tail = b""
        keys = self._keys(lease.run + tail, lease.scope) if tail else []
        self._cache.release(
            lease,
            tail=tail,
            make_value=lambda start, stop: _Held(start, end, expires, self._ending(keys, start, stop)),
            now=end,
            output_tokens=request.output_tokens,
            stop=request.record.stop,
        )

    def _grow(self, lease: Lease[_Held], request: Request, kept: int) -> None:
        """Take room for an answer as an engine does: step by step while it is generated."""
        step = self._rules.answer_step_tokens // self._unit
        if step:
            longest = self._longest_answer(request)
            # Room is due before a token is chosen for each one before it that has keys and values.
            while lease.reserved < self._answer_units(request) - 1:
                self._cache.grow(lease, min(step, max(1, longest - lease.reserved)))
        if lease.reserved < kept:
            self._cache.grow(lease, kept - lease.reserved)

    def _kept_output(self, request: Request) -> bytes:
        """What of an answer has keys and values: all but its last token, which was never fed back."""
        if not self._rules.keeps_output:
            return b""
        return request.output[:-WIDTH] if self._unit == 1 else request.output

    def _answer_units(self, request: Request) -> int:
        return max(-(-request.output_tokens // self._unit), count(request.output))

    def _longest_answer(self, request: Request) -> int:
        """Units that the answer was allowed to have, as far as can be told."""
        return self._answer_units(request) if request.record.stop in _CUT_SHORT else self._cache.capacity

    def _keys(self, run: bytes, scope: Scope) -> list[bytes]:
        """Keys of a run's blocks; none where there are no tiers to look for them."""
        return [] if self._tiers is None else self._tiers.keys(run, scope)

    def _ending(self, keys: Sequence[bytes], start: int, stop: int) -> tuple[tuple[int, bytes], ...]:
        """Those of the blocks that end in `start..stop`, with the position behind each."""
        if self._tiers is None:
            return ()
        grain = self._tiers.grain
        last = min(stop // grain, len(keys))
        return tuple(((block + 1) * grain, keys[block]) for block in range(start // grain, last))
