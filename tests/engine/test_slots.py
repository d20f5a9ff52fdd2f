from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefold.engine.slots import SlotPool, Span, SpanStore, cut, join, length


def listed(runs):
    return [slot for start, stop in runs for slot in range(start, stop)]


def runs_of(slots):
    return join(*(((slot, slot + 1),) for slot in slots))


@given(st.lists(st.integers(0, 30), unique=True), st.integers(0, 40), st.integers(0, 40))
def test_cut_and_join_are_slicing_and_concatenation(slots, begin, end):
    runs = runs_of(slots)

    assert slots == listed(runs)
    assert len(slots) == length(runs)
    assert slots[begin:end] == listed(cut(runs, begin, end))
    assert slots == listed(join(cut(runs, 0, begin), cut(runs, begin, len(slots))))


def test_neighbours_are_merged():
    assert ((3, 9), (1, 2)) == join(((3, 5),), ((5, 9), (1, 2)))


def test_allocation_prefers_one_run_and_the_place_asked_for():
    pool = SlotPool(20)
    assert ((0, 5),) == pool.allocate(5)
    assert ((5, 8),) == pool.allocate(3, after=5)
    pool.free(((0, 5),))
    assert ((0, 4),) == pool.allocate(4)  # the tightest that fits
    assert ((8, 12),) == pool.allocate(4, spare=3)  # the tightest with room to grow


def test_allocation_gathers_runs_when_no_single_one_is_long_enough():
    pool = SlotPool(10)
    pool.allocate(10)
    pool.free(((0, 2),))
    pool.free(((4, 7),))
    assert [4, 5, 6, 0] == listed(pool.allocate(4))
    assert 1 == pool.free_slots


def test_freeing_twice_and_taking_too_much_are_refused():
    pool = SlotPool(4)
    runs = pool.allocate(3)
    pool.free(runs)
    with pytest.raises(ValueError, match="free already"):
        pool.free(((1, 2),))
    with pytest.raises(ValueError, match="4 free"):
        pool.allocate(5)


def test_splitting_a_span_splits_what_is_ready():
    store = SpanStore(SlotPool(20))
    head, tail = store.split(Span(((0, 4), (8, 12)), ready=5, planned=7), 6)
    assert Span(((0, 4), (8, 10)), 5, 6) == head
    assert Span(((10, 12),), 0, 1) == tail


class PoolMachine(RuleBasedStateMachine):
    """The pool against a plain set."""

    def __init__(self):
        super().__init__()
        self.pool = SlotPool(24)
        self.unused = set(range(24))
        self.held = []

    @precondition(lambda self: self.unused)
    @rule(data=st.data())
    def allocate(self, data):
        count = data.draw(st.integers(1, len(self.unused)))
        after = data.draw(st.none() | st.integers(0, 24))
        runs = self.pool.allocate(count, after=after, spare=data.draw(st.integers(0, 8)))
        slots = listed(runs)
        assert count == len(slots)
        assert set(slots) <= self.unused
        self.unused -= set(slots)
        self.held.append(slots)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free_part(self, data):
        slots = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        middle = data.draw(st.integers(0, len(slots)))
        self.pool.free(runs_of(slots[:middle]))
        self.unused |= set(slots[:middle])
        if slots[middle:]:
            self.held.append(slots[middle:])

    @invariant()
    def the_books_agree(self):
        assert len(self.unused) == self.pool.free_slots


TestPool = PoolMachine.TestCase
