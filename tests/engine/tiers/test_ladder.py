"""K/V that outlives the pool: every answer with tiers is that of a cold engine."""

from __future__ import annotations

import contextlib
import random
import threading
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import HealthCheck, settings  # noqa: E402 - after the checks that the engine's packages are there
from hypothesis import strategies as st  # noqa: E402
from hypothesis.stateful import (  # noqa: E402
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.engine.conftest import Answer, Driver  # noqa: E402

from prefold.core.keys import SHARED, Scope, block_keys, root_key  # noqa: E402
from prefold.core.radix import RadixTree  # noqa: E402
from prefold.core.tokens import pack  # noqa: E402
from prefold.engine.slots import SlotPool, Span, SpanStore  # noqa: E402
from prefold.engine.tiers.base import Layout  # noqa: E402
from prefold.engine.tiers.host import HostTier  # noqa: E402
from prefold.engine.tiers.names import Namer  # noqa: E402
from prefold.errors import CapacityError, NoRoom  # noqa: E402

from .tiered import BLOCK, ROOMY, Memory, Model, Tiered, cold, host_only, prompt, save_model  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The model is too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, 7)
    return Model(folder)


# Names


def test_names_of_a_path_are_the_keys_of_its_tokens():
    draw = random.Random(5)
    for _ in range(200):
        store = SpanStore(SlotPool(10_000))
        tree = RadixTree(Span((), 0, 0), store.split)
        namer = Namer("model", BLOCK)
        spans = lambda start, stop: Span(((start, stop),), 0, 0)  # noqa: E731
        for _ in range(6):
            run = pack([draw.randrange(2) for _ in range(draw.randrange(1, 120))])
            scope = draw.choice(
                [SHARED, Scope("one", draw.randrange(100)), Scope("two", 16, "x"), Scope(namespace="x")]
            )
            node = tree.insert(run, scope, spans, 0).node
            assert block_keys(root_key("model", scope.namespace), run, BLOCK, scope) == namer.keys(node.path())
            other = draw.choice(list(tree.nodes()))
            namer.keys(other.path())


# What goes down and comes up


def test_what_was_evicted_comes_back_from_memory(model):
    tiered = Tiered(model, 200, host_only)
    first, second = prompt(1, 100), prompt(2, 150)
    expected = [cold(model, each, max_tokens=5).tokens for each in (first, second)]
    assert expected == [tiered.ask(each, max_tokens=5).tokens for each in (first, second)]
    assert tiered.engine.cache.tree.peek(pack(first)).length < 60
    tiered.engine.reset()
    tiered.ask(second, max_tokens=5)
    again = tiered.ask(first, max_tokens=5)
    assert expected[0] == again.tokens
    assert 96 == again.usage.cached
    assert tiered.loaded["host"] >= 96


def test_only_whole_blocks_behind_the_match_are_loaded(model):
    tiered = Tiered(model, 120, host_only)
    first = prompt(1, 100)
    tiered.ask(first, max_tokens=1)
    tiered.ask(prompt(2, 60), max_tokens=1)  # evicts the end of the first: 40 + 1 tokens of room are needed
    matched = tiered.engine.cache.tree.peek(pack(first)).length
    assert 0 < matched < 100
    before = tiered.engine.scheduler.computed_tokens
    answer = tiered.ask(first, max_tokens=1)
    assert cold(model, first, max_tokens=1).tokens == answer.tokens
    assert 96 == answer.usage.cached
    assert {"host": 96 - matched} == tiered.loaded
    assert 4 == tiered.engine.scheduler.computed_tokens - before
    assert 96 == tiered.engine.cache.counters.hit


def test_slow_tiers_take_what_two_requests_have_asked_for(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 130, lambda layout: tier_of(layout, tier))
    first, second = prompt(1, 80), prompt(2, 100)
    for each, blocks in ((first, 0), (second, 0), (first, 0), (second, 5), (first, 11)):
        tiered.ask(each, max_tokens=1)
        assert blocks == len(tier[0].blocks)
    answer = tiered.ask(second, max_tokens=4)
    assert cold(model, second, max_tokens=4).tokens == answer.tokens
    assert 96 == answer.usage.cached
    assert tiered.loaded["memory"] > 0


def test_of_a_conversation_that_goes_on_slow_tiers_take_all(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 200, lambda layout: tier_of(layout, tier))
    chat = prompt(1, 40)
    for turn, blocks in ((1, 0), (2, 5), (3, 7)):
        chat += tiered.ask(chat, max_tokens=12, ignore_eos=True).tokens
        tiered.ask(prompt(10 + turn, 190), max_tokens=1)  # evicts it
        assert blocks == len(tier[0].blocks)  # of 51, 83 and 115 tokens with K and V
        chat += prompt(20 + turn, 20)
    answer = tiered.ask(chat, max_tokens=1)
    assert (112, cold(model, chat, max_tokens=1).tokens) == (answer.usage.cached, answer.tokens)


def test_written_through_everything_goes_down_as_it_is_computed(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 400, lambda layout: tier_of(layout, tier), write="through", step_tokens=32)
    answer = tiered.ask(prompt(1, 80), max_tokens=20, ignore_eos=True)
    run = pack(prompt(1, 80) + answer.tokens[:-1])
    assert set(block_keys(root_key(tiered.layout.fingerprint), run, BLOCK)) == set(tier[0].blocks)
    assert 6 == len(tier[0].blocks)


def test_slow_tiers_get_from_the_fast_one_what_it_has(model):
    tiers: list = []
    tiered = Tiered(model, 130, lambda layout: tiers.extend([HostTier(layout, ROOMY), Memory(layout)]) or tiers)
    for each in (prompt(1, 80), prompt(2, 100), prompt(1, 80), prompt(2, 100)):
        tiered.ask(each, max_tokens=1)
    assert 5 == len(tiers[1].blocks)
    again = Tiered(model, 130, lambda _: tiers[1:])
    assert 79 == again.ask(prompt(1, 80), max_tokens=1).usage.cached
    assert {"memory": 80} == again.loaded


def test_salts_and_namespaces_share_nothing_below(model):
    tiered = Tiered(model, 130, host_only)
    first = prompt(1, 80)
    tiered.ask(first, scope=Scope("mine", 20))
    tiered.ask(prompt(2, 100))
    tiered.engine.reset()
    cached = [
        tiered.ask(first, scope=scope, max_tokens=1).usage.cached
        for scope in (Scope("yours"), Scope(namespace="other"), Scope("yours", 40), SHARED, Scope("mine", 25))
    ]
    # The first block lies before "mine" began; 40 tokens are in the pool by then; 25 lies in the same block as 20.
    assert [0, 0, 16, 40, 79] == cached


def test_two_requests_that_need_the_same_chain_load_it_once(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 300, lambda layout: tier_of(layout, tier), write="through")
    stem = prompt(1, 80)
    tiered.ask(stem, max_tokens=1)
    tiered.engine.reset()
    tier[0].calls.clear()
    prompts = [stem + prompt(seed, 30) for seed in (2, 3, 4)]
    answers = [tiered.submit(each, max_tokens=3)[1][0] for each in prompts]
    tiered.run()
    assert 1 == tier[0].calls.count("read")
    assert [80] * 3 == [answer.usage.cached for answer in answers]
    assert {"memory": 80} == tiered.loaded
    assert [cold(model, each, max_tokens=3).tokens for each in prompts] == [answer.tokens for answer in answers]
    assert 80 + 3 * 30 == tiered.engine.scheduler.computed_tokens


def test_who_waits_for_a_load_holds_nobody_up_and_goes_without_when_it_is_late(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 300, lambda layout: tier_of(layout, tier), write="through")
    tiered.ask(prompt(1, 80), max_tokens=1)
    tiered.engine.reset()
    gate = threading.Event()
    tier[0].fail = lambda call: gate.wait(60) and None if call == "read" else None
    _, (late,) = tiered.submit(prompt(1, 80), max_tokens=3)
    _, (other,) = tiered.submit(prompt(2, 40), max_tokens=3)
    while not other.outputs or other.finish is None:
        tiered.engine.step()
    assert [] == late.outputs
    assert not tiered.engine.step()
    assert tiered.engine.loading > 0
    tiered.clock.now += tiered.engine.loading
    while tiered.engine.busy:
        tiered.engine.step()
    assert (0, cold(model, prompt(1, 80), max_tokens=3).tokens) == (late.usage.cached, late.tokens)
    assert 1 == tiered.ladder.late
    gate.set()
    tiered.run()


def test_what_a_failing_load_has_brought_is_used(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 300, lambda layout: tier_of(layout, tier), write="through")
    tiered.ask(prompt(1, 80), max_tokens=1)
    for fail, cached in ((lambda call: 2 if call == "read" else None, 32), (lambda call: 1 // 0, 0)):
        tiered.engine.reset()
        tier[0].fail = fail
        answer = tiered.ask(prompt(1, 80), max_tokens=4)
        assert (cached, cold(model, prompt(1, 80), max_tokens=4).tokens) == (answer.usage.cached, answer.tokens)


def test_what_takes_longer_to_load_than_to_compute_is_computed(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 300, lambda layout: tier_of(layout, tier), write="through")
    tiered.ask(prompt(1, 80), max_tokens=1)
    tiered.ladder.computed(1000, 1e-9)
    tiered.engine.reset()
    assert 0 == tiered.ask(prompt(1, 80), max_tokens=1).usage.cached
    tiered.ladder.computed(1000, 1e9)
    tiered.engine.reset()
    assert 79 == tiered.ask(prompt(1, 80), max_tokens=1).usage.cached


def test_a_request_that_is_cancelled_while_it_loads_leaves_nothing(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 300, lambda layout: tier_of(layout, tier), write="through")
    tiered.ask(prompt(1, 80), max_tokens=1)
    tiered.engine.reset()
    gate = threading.Event()
    tier[0].fail = lambda call: gate.wait(60) and None if call == "read" else None
    ticket, (answer,) = tiered.submit(prompt(1, 80), max_tokens=3)
    tiered.engine.step()
    tiered.engine.cancel(ticket)
    assert "cancelled" == answer.finish
    gate.set()
    tiered.run()
    assert {} == tiered.loaded


def test_closing_saves_what_was_asked_for_twice_or_is_pinned(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 600, lambda layout: [HostTier(layout, layout.record_bytes), *tier_of(layout, tier)])
    for seed, times in ((1, 2), (2, 1), (3, 1)):
        for _ in range(times):
            tiered.ask(prompt(seed, 80), max_tokens=1)
    tiered.engine.cache.pin(pack(prompt(3, 80)))
    tiered.engine.close()
    assert tier[0].closed
    expected = [
        key for seed in (1, 3) for key in block_keys(root_key(tiered.layout.fingerprint), pack(prompt(seed, 80)), BLOCK)
    ]
    assert set(expected) == set(tier[0].blocks)


def test_closing_does_not_wait_for_a_tier_that_hangs(model, monkeypatch):
    monkeypatch.setattr("prefold.engine.tiers.mover._END_SECONDS", 0.05)
    tier: list[Memory] = []
    tiered = Tiered(model, 300, lambda layout: tier_of(layout, tier), write="through")
    gate, reached = threading.Event(), threading.Event()
    tier[0].fail = lambda call: (reached.set() or gate.wait(60)) and None if call == "write" else None
    tiered.submit(prompt(1, 80), max_tokens=1)
    while tiered.engine.busy:
        tiered.step()
    assert reached.wait(60)
    tiered.engine.close(lambda: True)
    assert not gate.is_set()
    assert tier[0].closed
    gate.set()


def test_closing_in_a_hurry_saves_nothing_more(model):
    tier: list[Memory] = []
    tiered = Tiered(model, 600, lambda layout: tier_of(layout, tier))
    for _ in range(2):
        tiered.ask(prompt(1, 80), max_tokens=1)
    tiered.engine.close(lambda: True)
    assert tier[0].closed
    assert {} == tier[0].blocks


def test_a_reset_forgets_the_tiers_when_it_is_asked_to(model):
    tiered = Tiered(model, 130, host_only)
    for seed in (1, 2):
        tiered.ask(prompt(seed, 80), max_tokens=1)
    tiered.engine.reset()
    assert 79 == tiered.ask(prompt(1, 80), max_tokens=1).usage.cached
    tiered.engine.reset()
    cleared = tiered.engine.clear_tiers()
    assert 5 == cleared.result(10)
    assert 0 == tiered.ask(prompt(1, 80), max_tokens=1).usage.cached


def tier_of(layout: Layout, tiers: list[Memory]) -> list[Memory]:
    tiers.append(Memory(layout))
    return tiers


# Anything


STEMS = [prompt(seed, 150) for seed in range(3)]


ASKED = st.tuples(
    st.integers(0, 2),  # stem
    st.sampled_from([0, 30, 40, 50]),  # tokens of it
    st.integers(0, 2),  # what follows
    st.sampled_from([1, 5, 20]),  # tokens of that
    st.sampled_from([1, 3, 58]),  # of the answer
    st.sampled_from([SHARED, SHARED, SHARED, Scope("one"), Scope("two", 16), Scope("two", 25)]),
    st.sampled_from([1, 1, 1, 2]),  # choices
)


class Traffic(RuleBasedStateMachine):
    """Requests of all kinds over tiers that fail in all ways."""

    model: Model
    expected: dict[tuple[int, ...], list[int]]

    @initialize(
        slots=st.sampled_from([130, 200, 400]),
        fast=st.sampled_from([0, 3, 40]),
        slow=st.integers(0, 2),
        write=st.sampled_from(["evict", "through"]),
        grid=st.sampled_from([1, 1, 8, 32]),
        order=st.sampled_from(["lpm", "fcfs"]),
        policy=st.sampled_from(["lru", "default"]),
    )
    def begin(self, slots, fast, slow, write, grid, order, policy):
        self.memories: list[Memory] = []
        self.gate = threading.Event()
        self.gate.set()
        self.failing: set[str] = set()
        self.most: int | None = None
        options = {
            "grid": grid,
            "order": order,
            "policy": policy,
            "step_tokens": 48,
            "max_running": 4,
            "max_overtakes": 3,
        }

        def tiers(layout):
            self.memories = [Memory(layout, name=f"memory{number}") for number in range(slow)]
            for memory in self.memories:
                memory.fail = self.fail
            host = [HostTier(layout, fast * layout.record_bytes)] if fast else []
            for tier in host:
                tier.read = partial(self.read_when_open, tier.read)
            return [*host, *self.memories]

        self.tiered = Tiered(self.model, slots, tiers, write=write, **options)
        self.asked: list[tuple[object, list[int], Answer, int]] = []
        self.pins: list = []

    def read_when_open(self, read, keys, into) -> int:
        assert self.gate.wait(60)
        return read(keys, into)

    def fail(self, call: str) -> int | None:
        if call == "read":
            assert self.gate.wait(60)
        if call in self.failing:
            raise OSError(call)
        return self.most

    @rule(asked=st.lists(ASKED, min_size=1, max_size=4))
    def ask(self, asked):
        for stem, length, own, more, max_tokens, scope, choices in asked:
            tokens = STEMS[stem][:length] + prompt(40 + own, more)
            with contextlib.suppress(NoRoom):
                ticket, answers = self.tiered.submit(tokens, max_tokens=max_tokens, scope=scope, choices=choices)
                self.asked += [(ticket, tokens, answer, max_tokens) for answer in answers]

    @rule(steps=st.integers(1, 12))
    def go_on(self, steps):
        for _ in range(steps):
            if self.tiered.engine.busy:
                self.tiered.step()

    @rule()
    def finish(self):
        self.gate.set()
        self.tiered.run()
        counters, scheduler = self.tiered.engine.cache.counters, self.tiered.engine.scheduler
        cancelled = any(answer.finish != "length" and answer.finish != "stop" for _, _, answer, _ in self.asked)
        if not scheduler.preemptions and not cancelled and self.tiered.engine.options.grid == 1:
            assert counters.recomputed <= scheduler.computed_tokens
        for _, tokens, answer, max_tokens in self.asked:
            if answer.finish in ("stop", "length"):
                assert self.cold(tokens)[:max_tokens] == answer.tokens

    @rule(data=st.data())
    def cancel(self, data):
        if self.asked:
            self.tiered.engine.cancel(data.draw(st.sampled_from(self.asked))[0])

    @rule(stem=st.sampled_from(range(3)), length=st.integers(1, 60))
    def pin(self, stem, length):
        cache = self.tiered.engine.cache
        if not self.tiered.engine.busy and len(self.pins) < 2:
            with contextlib.suppress(CapacityError):
                self.pins.append(cache.pin(pack(STEMS[stem][:length])))

    @rule()
    def unpin(self):
        if self.pins:
            self.tiered.engine.cache.unpin(self.pins.pop())

    @rule(tiers=st.booleans())
    def reset(self, tiers):
        self.tiered.engine.reset()
        if tiers:
            self.tiered.engine.clear_tiers()

    @rule(
        calls=st.sampled_from([set(), set(), {"find"}, {"read"}, {"write"}]),
        most=st.sampled_from([None, None, 0, 1, 3]),
    )
    def fall(self, calls, most):
        self.failing, self.most = calls, most

    @rule(wait=st.booleans(), seconds=st.sampled_from([0.0, 0.05, 100.0]), asked=st.lists(ASKED, max_size=3))
    def stall(self, wait, seconds, asked):
        """Reads hang, or go on again."""
        (self.gate.clear if wait else self.gate.set)()
        self.ask(asked)
        self.go_on(2)
        self.tiered.clock.now += seconds
        self.go_on(2)

    @rule(seconds=st.sampled_from([1e-12, 1e-3, 100.0]), seed=st.integers(0, 99))
    def change(self, seconds, seed):
        """The model goes slower or faster than the tiers; blocks vanish there, with or without their parents."""
        self.tiered.ladder.computed(1000, seconds)
        for memory in self.memories:
            for number, key in enumerate(list(memory.blocks)):
                if (number * 7 + seed) % 3 == 0:
                    memory.blocks.pop(key, None)

    @invariant()
    def holds(self):
        if hasattr(self, "tiered"):
            Driver.check(self.tiered)

    def cold(self, tokens) -> list[int]:
        if tuple(tokens) not in self.expected:
            self.expected[tuple(tokens)] = cold(self.model, tokens, max_tokens=58).tokens
        return self.expected[tuple(tokens)]

    def teardown(self):
        if hasattr(self, "tiered"):
            self.failing = set()
            self.finish()
            self.tiered.engine.close()


def test_whatever_happens_answers_are_those_of_a_cold_engine(model):
    expected: dict[tuple[int, ...], list[int]] = {}
    machine = type("OnTheModel", (Traffic,), {"model": model, "expected": expected})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
