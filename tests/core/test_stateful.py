"""Whatever happens, in whatever order: cache and oracle do and hold the same; under every policy the cache is sound."""

from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from prefold.core.cache import Cache, Lease, Pin
from prefold.core.keys import Scope
from prefold.core.naive import Holder, NaiveCache
from prefold.core.policies import POLICIES, Cost
from prefold.core.tokens import WIDTH, count, pack
from prefold.errors import CapacityError

from .support import Slots, contents

# Two tokens and few scopes, so that sequences meet, part and get in each other's way all the time.
RUNS = st.lists(st.integers(0, 1), min_size=1, max_size=7).map(pack)
SCOPES = st.one_of(
    st.just(Scope()),
    st.builds(
        Scope,
        salt=st.sampled_from([None, "a", "b"]),
        salt_from=st.integers(0, 4),
        namespace=st.sampled_from(["", "other"]),
    ),
)


class CacheAndOracle(RuleBasedStateMachine):
    leases = Bundle("leases")
    pins = Bundle("pins")

    @initialize(capacity=st.integers(1, 18), grain=st.integers(1, 3), pin_limit=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
    def start(self, capacity: int, grain: int, pin_limit: float) -> None:
        self.slots = Slots(capacity)
        self.cache = Cache(capacity, self.slots, [], grain=grain, pin_limit=pin_limit)
        self.oracle = NaiveCache(capacity, grain=grain, pin_limit=pin_limit)

    @rule(target=leases, run=RUNS, scope=SCOPES, reserve=st.integers(0, 3), resumed=st.booleans())
    def admit(self, run: bytes, scope: Scope, reserve: int, resumed: bool) -> object:
        fits = self.cache.can_admit(run, scope, reserve)
        known_hit = self.cache.peek(run, scope)
        make_value = self.slots.maker(run, scope)
        try:
            expected = self.oracle.admit(run, scope, reserve=reserve, resumed=resumed)
        except CapacityError:
            assert not fits
            with pytest.raises(CapacityError):
                self.cache.admit(run, scope, reserve=reserve, make_value=make_value, resumed=resumed)
            return multiple()
        assert fits
        lease = self.cache.admit(run, scope, reserve=reserve, make_value=make_value, resumed=resumed)
        assert expected.hit == lease.hit == known_hit
        return lease, expected

    @rule(pair=leases, tokens=st.integers(0, 4))
    def grow(self, pair: tuple[Lease[list[int]], Holder], tokens: int) -> None:
        lease, expected = pair
        fits = self.cache.can_grow(tokens)
        try:
            self.oracle.grow(expected, tokens)
        except CapacityError:
            assert not fits
            with pytest.raises(CapacityError):
                self.cache.grow(lease, tokens)
        else:
            assert fits
            self.cache.grow(lease, tokens)
        assert expected.reserved == lease.reserved

    @rule(pair=consumes(leases), generated=RUNS)
    def finish(self, pair: tuple[Lease[list[int]], Holder], generated: bytes) -> None:
        lease, expected = pair
        tail = generated[: lease.reserved * WIDTH]
        self.oracle.release(expected, tail=tail)
        self.cache.release(lease, tail=tail, make_value=self.slots.maker(lease.run + tail, lease.scope))

    @rule(pair=consumes(leases), keep=st.integers(0, 7))
    def abandon(self, pair: tuple[Lease[list[int]], Holder], keep: int) -> None:
        lease, expected = pair
        self.oracle.release(expected, keep=keep)
        self.cache.release(lease, keep=keep)

    @rule(target=pins, run=RUNS, scope=SCOPES)
    def pin(self, run: bytes, scope: Scope) -> object:
        try:
            expected = self.oracle.pin(run, scope)
        except CapacityError:
            with pytest.raises(CapacityError):
                self.cache.pin(run, scope)
            return multiple()
        pin = self.cache.pin(run, scope)
        assert count(expected.run) == pin.length == pin.node.stop
        return pin, expected

    @rule(pair=consumes(pins))
    def unpin(self, pair: tuple[Pin[list[int]], Holder]) -> None:
        pin, expected = pair
        self.oracle.unpin(expected)
        self.cache.unpin(pin)

    @rule()
    def reset(self) -> None:
        assert self.oracle.reset() == self.cache.reset()

    @rule(run=RUNS, scope=SCOPES)
    def peek(self, run: bytes, scope: Scope) -> None:
        assert self.oracle.peek(run, scope) == self.cache.peek(run, scope)

    @invariant()
    def same(self) -> None:
        self.cache.check()
        self.slots.check(self.cache.tree)
        assert self.oracle.cells == {prefix: used for prefix, (_, used) in contents(self.cache.tree).items()}
        assert self.oracle.counters == self.cache.counters
        assert self.oracle.free == self.cache.free
        assert len(self.oracle.evictable()) == self.cache.evictable


TestCacheAndOracle = CacheAndOracle.TestCase
TestCacheAndOracle.settings = settings(max_examples=4 * settings().max_examples)


class CacheUnderAnyPolicy(RuleBasedStateMachine):
    """What holds whoever is evicted: room, books, and that nobody loses what is held."""

    leases = Bundle("leases")
    pins = Bundle("pins")

    @initialize(
        capacity=st.integers(1, 18),
        policy=st.sampled_from(sorted(POLICIES)),
        eviction_step=st.integers(1, 4),
        span=st.none() | st.sampled_from([0.5, 100.0]),
    )
    def start(self, capacity: int, policy: str, eviction_step: int, span: float | None) -> None:
        self.now = 0.0
        self.slots = Slots(capacity)
        self.cache = Cache(
            capacity,
            self.slots,
            [],
            policy=POLICIES[policy](),
            cost=None if span is None else Cost(span),
            pin_limit=1.0,
            eviction_step=eviction_step,
        )

    @rule(seconds=st.sampled_from([0.1, 7.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=leases, run=RUNS, scope=SCOPES, reserve=st.integers(0, 3))
    def admit(self, run: bytes, scope: Scope, reserve: int) -> object:
        fits, known_hit = self.cache.can_admit(run, scope, reserve), self.cache.peek(run, scope)
        make_value = self.slots.maker(run, scope)
        if not fits:
            before = self.cache.counters.requests
            # What expired is gone by then, so that it may fit after all.
            with suppress(CapacityError):
                lease = self.cache.admit(run, scope, reserve=reserve, make_value=make_value, now=self.now)
                self.cache.release(lease, now=self.now)
                return multiple()
            assert before == self.cache.counters.requests
            return multiple()
        lease = self.cache.admit(run, scope, reserve=reserve, make_value=make_value, now=self.now)
        assert lease.hit <= known_hit
        return lease

    @rule(lease=consumes(leases), generated=RUNS, stop=st.sampled_from(["", "tool_use", "end_turn"]))
    def finish(self, lease: Lease[list[int]], generated: bytes, stop: str) -> None:
        tail = generated[: lease.reserved * WIDTH]
        make_value = self.slots.maker(lease.run + tail, lease.scope)
        self.cache.release(lease, tail=tail, make_value=make_value, now=self.now, stop=stop)

    @rule(lease=consumes(leases), keep=st.integers(0, 7))
    def abandon(self, lease: Lease[list[int]], keep: int) -> None:
        self.cache.release(lease, keep=keep, now=self.now)

    @rule(target=pins, run=RUNS, scope=SCOPES)
    def pin(self, run: bytes, scope: Scope) -> object:
        return self.cache.pin(run, scope)

    @rule(pin=consumes(pins))
    def unpin(self, pin: Pin[list[int]]) -> None:
        self.cache.unpin(pin)

    @rule()
    def reset(self) -> None:
        evictable = self.cache.evictable
        assert evictable == self.cache.reset()
        assert 0 == self.cache.evictable

    @invariant()
    def sound(self) -> None:
        self.cache.check()
        self.slots.check(self.cache.tree)


TestCacheUnderAnyPolicy = CacheUnderAnyPolicy.TestCase
TestCacheUnderAnyPolicy.settings = settings(max_examples=4 * settings().max_examples)
