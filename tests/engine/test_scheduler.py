"""The scheduler without a model: what a model would compute is replaced by a hash of the tokens before it."""

from __future__ import annotations

from zlib import crc32

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from prefold.core.cache import Cache, NoValues
from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import count, pack, unpack
from prefold.engine.options import EngineOptions
from prefold.engine.plan import build
from prefold.engine.request import Request, SamplingOptions
from prefold.engine.scheduler import Scheduler, Sequence
from prefold.engine.slots import SlotPool, Span, SpanStore


class PretendPool:
    """A pool that leaves the plan as it is."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    @staticmethod
    def prepare(items):
        return items


class PretendEngine:
    """Runs a scheduler's steps; slot contents are the prefix that a real K and V would depend on."""

    def __init__(self, capacity: int = 200, **options) -> None:
        self.options = EngineOptions(**{"step_tokens": 16, "max_running": 4, **options})
        self.pool = SlotPool(capacity)
        self.cache = Cache(capacity, SpanStore(self.pool), Span((), 0, 0), grain=self.options.grid)
        self.scheduler = Scheduler(self.cache, self.pool, self.options)
        self.contents: dict[int, tuple] = {}
        self.computed = 0
        self.arrivals = 0
        self.finished: list[Sequence] = []

    def add(self, prompt, *, max_tokens=4, scope=SHARED) -> Sequence:
        self.arrivals += 1
        request = Request(pack(prompt), SamplingOptions(max_tokens=max_tokens), lambda _: None, scope)
        sequence = Sequence(request, 0, self.arrivals, request.prompt)
        self.scheduler.add(sequence)
        return sequence

    @staticmethod
    def known(sequence):
        """What K and V at each position depend on: the tokens, and the salt from where it applies."""
        scope = sequence.request.scope
        tokens = unpack(sequence.run) + sequence.fresh
        return [(t, scope.salt if at >= scope.salt_from else None) for at, t in enumerate(tokens)]

    def step(self) -> list:
        chunks = self.scheduler.schedule()
        for chunk in chunks:
            known = self.known(chunk.sequence)
            first = max(chunk.start, chunk.write_from)
            slots = [s for a, b in chunk.sequence.slots(first, chunk.stop) for s in range(a, b)]
            for position, slot in zip(range(first, chunk.stop), slots, strict=True):
                self.contents[slot] = tuple(known[: position + 1])
                self.computed += position < count(chunk.sequence.run)
        self.check_plan(chunks)
        for chunk in chunks:  # all writes of a layer come before its reads
            known = self.known(chunk.sequence)
            slots = [s for a, b in chunk.sequence.slots(0, chunk.stop) for s in range(a, b)]
            assert chunk.stop == len(slots)
            for position, slot in enumerate(slots):
                assert tuple(known[: position + 1]) == self.contents[slot]
        self.scheduler.commit(chunks)
        for chunk in chunks:
            if chunk.sample:
                sequence = chunk.sequence
                sequence.fresh.append(crc32(repr(self.known(sequence)).encode()) % 3)
                sequence.generated += 1
                if sequence.generated == sequence.request.sampling.max_tokens:
                    self.scheduler.release(sequence)
                    self.finished.append(sequence)
        return chunks

    def check_plan(self, chunks) -> None:
        """Every row attends once to each of its own positions up to its own, and to nothing else."""
        if not chunks:
            return
        batch = build(chunks, PretendPool(self.pool.capacity), torch.device("cpu"))
        seen = [[] for _ in batch.tokens]
        for item in batch.attention:
            keys = [key for start, stop in item.keys for key in range(start, stop)]
            rows = [row for start, stop in item.rows for row in range(start, stop)]
            for place, row in enumerate(rows):
                assert item.first == (not seen[row])
                seen[row] += keys[: place + 1 if item.causal else None]
        expected = [
            [slot for a, b in chunk.sequence.slots(0, position + 1) for slot in range(a, b)]
            for chunk in chunks
            for position in range(chunk.start, chunk.stop)
        ]
        assert [sorted(slots) for slots in expected] == [sorted(slots) for slots in seen]
        assert [row for row, slots in enumerate(expected) if self.ends(chunks, row)] == batch.samples.tolist()

    @staticmethod
    def ends(chunks, row) -> bool:
        for chunk in chunks:
            row -= chunk.stop - chunk.start
            if row < 0:
                return row == -1 and chunk.sample
        return False

    def run(self) -> None:
        while self.scheduler.waiting or self.scheduler.running:
            assert self.step()

    def check(self) -> None:
        self.cache.check()
        assert self.cache.free == self.pool.free_slots
        assert sum(1 for _ in self.cache.tree.nodes()) == len({id(n.value) for n in self.cache.tree.nodes()})


def test_requests_that_arrive_together_compute_their_prefix_once_and_in_the_same_step():
    engine = PretendEngine(step_tokens=100)
    prefix = [1] * 30
    for number in range(3):
        engine.add([*prefix, 2, number])
    chunks = engine.step()
    assert [(0, 32), (31, 32), (31, 32)] == [(c.start, c.stop) for c in chunks]
    assert all(chunk.sample for chunk in chunks)
    engine.run()
    engine.check()
    assert [0, 31, 31] == [s.cached for s in sorted(engine.finished, key=lambda s: s.arrival)]


def test_the_same_prompt_twice_computes_one_token_more():
    engine = PretendEngine(step_tokens=100)
    engine.add([5] * 20)
    engine.add([5] * 20)
    first, second = engine.step()
    assert (0, 20, 0) == (first.start, first.stop, first.write_from)
    assert (19, 20, 20) == (second.start, second.stop, second.write_from)  # for its logits only


def test_a_long_prompt_is_cut_into_chunks_within_the_budget():
    engine = PretendEngine(step_tokens=16)
    engine.add(range(40), max_tokens=1)
    assert [(0, 16), (16, 32), (32, 40)] == [(c.start, c.stop) for _ in range(3) for c in engine.step()]


def test_with_a_grid_chunks_and_hits_are_cut_at_its_multiples():
    engine = PretendEngine(step_tokens=64, grid=8)
    engine.add(range(20), max_tokens=1)
    assert [(0, 8), (8, 16), (16, 20)] == [(c.start, c.stop) for _ in range(3) for c in engine.step()]
    again = engine.add([*range(15), 99, 98], max_tokens=1)
    assert [(8, 16)] == [(c.start, c.stop) for c in engine.step()]
    assert 8 == again.cached


def test_a_generated_answer_is_found_by_the_next_turn():
    engine = PretendEngine()
    first = engine.add([7] * 10, max_tokens=5)
    engine.run()
    answer = first.fresh
    second = engine.add([7] * 10 + answer + [8, 8])
    engine.run()
    assert 10 + 4 == second.cached  # K and V of the very last token were never needed
    engine.check()


def test_whoever_shares_a_cancelled_requests_work_takes_it_over():
    engine = PretendEngine(step_tokens=16, grid=8)
    first = engine.add([1] * 40)
    second = engine.add([1] * 40 + [2])
    engine.step()
    assert 40 == second.cached
    assert second.ready() < 40
    engine.scheduler.release(first)
    engine.check()
    engine.run()
    engine.check()
    assert 41 == engine.computed
    assert [second] == engine.finished


def test_a_cancelled_request_leaves_what_it_computed_and_nothing_else():
    engine = PretendEngine(step_tokens=16)
    first = engine.add([1] * 40)
    engine.step()
    engine.scheduler.release(first)
    engine.check()
    assert 16 == engine.cache.tree.size
    assert 16 == engine.cache.peek(pack([1] * 40))


def test_a_request_that_fits_is_not_held_up_by_one_that_does_not():
    engine = PretendEngine(capacity=100, step_tokens=100, max_overtakes=5)
    engine.add([1] * 30, max_tokens=1)
    engine.run()
    running = engine.add([2] * 30, max_tokens=20)
    engine.step()
    small = engine.add([3] * 5, max_tokens=1)
    large = engine.add([1] * 30 + [4] * 30, max_tokens=1)
    engine.step()
    assert small in engine.finished
    assert large in engine.scheduler.waiting
    engine.run()
    assert [running, large] == engine.finished[2:]


def test_many_running_answers_do_not_starve_a_prompt():
    engine = PretendEngine(capacity=1000, step_tokens=16, max_running=50)
    for number in range(20):
        engine.add([1, number], max_tokens=30)
    while engine.scheduler.waiting:
        engine.step()
    prompt = engine.add([2] * 40)
    steps = 0
    while prompt.generated == 0:
        engine.step()
        steps += 1
    assert steps == 10  # a quarter of 16 tokens in each


def test_longest_cached_prefix_goes_first_and_nobody_is_overtaken_for_ever():
    engine = PretendEngine(step_tokens=8, max_running=1, max_overtakes=3)
    engine.add([1] * 20, max_tokens=1)
    engine.run()
    cold = engine.add([2] * 4, max_tokens=1)
    warm = [engine.add([1] * 20 + [number], max_tokens=1) for number in range(6)]
    engine.run()
    assert [*warm[:3], cold, *warm[3:]] == engine.finished[1:]


def test_first_come_first_served_ignores_the_cache():
    engine = PretendEngine(step_tokens=8, max_running=1, order="fcfs")
    engine.add([1] * 20, max_tokens=1)
    engine.run()
    cold = engine.add([2] * 4, max_tokens=1)
    warm = engine.add([1] * 20 + [3], max_tokens=1)
    engine.run()
    assert [cold, warm] == engine.finished[1:]


def test_without_room_the_last_one_in_gives_way_and_all_finish():
    engine = PretendEngine(capacity=130, step_tokens=64)
    sequences = [engine.add([number] * 20, max_tokens=60) for number in range(3)]
    engine.run()
    engine.check()
    assert engine.scheduler.preemptions > 0
    assert sequences[0] is engine.finished[0]
    assert {60} == {sequence.generated for sequence in sequences}


def test_recomputed_tokens_are_what_core_alone_predicts():
    prompts = [[1] * 30 + [n] * 5 for n in (2, 3, 2, 4)] + [[5] * 9, [1] * 12]
    engine = PretendEngine(step_tokens=1000, max_running=100, capacity=1000)
    for prompt in prompts:
        engine.add(prompt, max_tokens=1)
    engine.run()
    oracle = Cache(1000, NoValues(), None)
    for prompt in prompts:
        oracle.admit(pack(prompt), make_value=lambda *_: None)
    assert oracle.counters.recomputed == engine.cache.counters.recomputed == engine.scheduler.computed_tokens


class SchedulerMachine(RuleBasedStateMachine):
    """Any traffic: K and V read are always those of the very tokens, nothing leaks, everybody finishes."""

    sequences = Bundle("sequences")

    def __init__(self):
        super().__init__()
        self.engine = None
        self.open = []

    @rule(
        target=sequences,
        capacity=st.integers(60, 160),
        step_tokens=st.integers(4, 40),
        max_running=st.integers(1, 5),
        grid=st.sampled_from([1, 1, 4]),
        order=st.sampled_from(["lpm", "fcfs"]),
    )
    def start(self, **options):
        if self.engine is None:
            self.engine = PretendEngine(max_overtakes=2, **options)
        return multiple()

    @rule(
        target=sequences,
        head=st.integers(0, 2),
        length=st.integers(0, 25),
        tail=st.lists(st.integers(0, 2), min_size=1, max_size=6),
        max_tokens=st.integers(1, 25),
        salt=st.sampled_from([None, None, "a", "b"]),
        salt_from=st.integers(0, 12),
    )
    def add(self, head, length, tail, max_tokens, salt, salt_from):
        if self.engine is None:
            return multiple()
        scope = Scope(salt, salt_from) if salt else SHARED
        sequence = self.engine.add([head] * length + tail, max_tokens=max_tokens, scope=scope)
        self.open.append(sequence)
        return sequence

    @rule(times=st.integers(1, 4))
    def step(self, times):
        for _ in range(times if self.engine else 0):
            self.engine.step()
            self.engine.check()

    @rule(sequence=sequences)
    def cancel(self, sequence):
        if sequence in self.engine.scheduler.running or sequence in self.engine.scheduler.waiting:
            self.engine.scheduler.release(sequence)

    @rule()
    def reset(self):
        if self.engine:
            self.engine.cache.reset()

    @invariant()
    def sound(self):
        if self.engine:
            self.engine.check()

    def teardown(self):
        if self.engine:
            self.engine.run()
            self.engine.check()
            assert 0 == self.engine.cache.reserved
            assert all(sequence.overtaken <= 2 for sequence in self.open)


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
