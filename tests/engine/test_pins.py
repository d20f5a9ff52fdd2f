"""Pins: what they keep, for how long, for whom, and what they never take."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from random import Random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tokenizers  # noqa: E402 - after the checks that the engine's packages are there
from hypothesis import settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule  # noqa: E402

from prefold.core.cache import Cache  # noqa: E402
from prefold.core.keys import SHARED, Scope  # noqa: E402
from prefold.core.policies import POLICIES  # noqa: E402
from prefold.core.tokens import count, pack  # noqa: E402
from prefold.engine.decoder import LeanDecoder  # noqa: E402
from prefold.engine.engine import Engine  # noqa: E402
from prefold.engine.loading import make_pool  # noqa: E402
from prefold.engine.model_config import ModelConfig  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.pins import Pinned, Pins, PinWish, pin_id  # noqa: E402
from prefold.engine.request import Output, Request, SamplingOptions  # noqa: E402
from prefold.engine.slots import SlotPool, Span, SpanStore  # noqa: E402
from prefold.engine.tokenizer import Tokenizer  # noqa: E402
from prefold.engine.weights import load_weights  # noqa: E402
from prefold.engine.worker import EngineWorker  # noqa: E402
from prefold.errors import CapacityError, NoRoom, UsageError  # noqa: E402

VOCABULARY = 96
SYSTEM = pack(range(3, 23))


class Clock:
    """Tells the time that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Asked:
    """A request's outputs."""

    outputs: list[Output] = field(default_factory=list)

    @property
    def pin(self) -> object:
        return self.outputs[-1].pin

    @property
    def cached(self) -> int:
        return self.outputs[-1].usage.cached

    @property
    def finish(self) -> str | None:
        return self.outputs[-1].finish


class Driver:
    """An engine with a random model of one narrow layer, in the test's own thread."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock

    def submit(self, prompt: bytes, pin: PinWish | None = None, scope: Scope = SHARED, **sampling) -> tuple:
        asked = Asked()
        options = SamplingOptions(**{"temperature": 0.0, "max_tokens": 1, "ignore_eos": True, **sampling})
        return self.engine.submit(Request(prompt, options, asked.outputs.append, scope, pin)), asked

    def run(self) -> None:
        while self.engine.busy:
            self.engine.step()
            self.check()

    def check(self) -> None:
        self.engine.cache.check()
        assert self.engine.cache.free == self.engine.pool.free_slots

    def ask(self, prompt: bytes, *arguments, **options) -> Asked:
        _, asked = self.submit(prompt, *arguments, **options)
        self.run()
        return asked

    def crowd(self) -> None:
        """Fill the cache with other things."""
        for first in range(3, 8):
            self.ask(pack([first, *range(30 + first, 70 + first)]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(7)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(**shape, vocab_size=VOCABULARY, num_key_value_heads=1, eos_token_id=2)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = tokenizers.models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def make(folder):
    """Makes drivers, each with an engine of its own."""
    config = ModelConfig.from_folder(folder)
    decoder = LeanDecoder(config, load_weights(folder, torch.float32, "cpu"))

    def make(slots: int = 100, **options) -> Driver:
        clock = Clock()
        settings = EngineOptions(dtype="float32", **options)
        kv = make_pool(config, settings, slots)
        return Driver(Engine(decoder, config, Tokenizer(folder), settings, clock, kv), clock)

    return make


def test_a_request_pins_its_prompt_until_its_time_is_up(make):
    driver = make()
    asked = driver.ask(SYSTEM, PinWish(SYSTEM, 60))
    assert Pinned(pin_id(SYSTEM, SHARED), 20, 60, 0, salted=False) == asked.pin
    driver.crowd()
    assert 0 < driver.engine.cache.counters.evicted
    driver.engine.reset()
    assert 19 == driver.ask(SYSTEM).cached
    driver.clock.now += 59
    assert [Pinned(pin_id(SYSTEM, SHARED), 20, 1, 1, salted=False)] == driver.engine.pins.all()
    driver.clock.now += 1
    assert [] == driver.engine.pins.all()
    assert 0 == driver.engine.cache.pinned
    driver.crowd()
    assert 0 == driver.ask(SYSTEM).cached


def test_a_part_of_the_prompt_can_be_pinned(make):
    driver = make()
    asked = driver.ask(SYSTEM + pack([90, 91]), PinWish(SYSTEM))
    assert (20, None) == (asked.pin.tokens, asked.pin.seconds)
    driver.engine.reset()
    assert 20 == driver.ask(SYSTEM + pack([92])).cached


def test_the_same_prefix_is_pinned_once_and_for_the_longer_time(make):
    driver = make()
    first = driver.ask(SYSTEM, PinWish(SYSTEM, 60)).pin
    again = driver.ask(SYSTEM + pack([90]), PinWish(SYSTEM, 10)).pin
    assert (first.id, 60, 1) == (again.id, again.seconds, again.hits)
    assert 90 == driver.ask(SYSTEM, PinWish(SYSTEM, 90)).pin.seconds
    assert driver.ask(SYSTEM, PinWish(SYSTEM)).pin.seconds is None
    assert 1 == len(driver.engine.pins)
    assert first.id == driver.engine.pins.remove(first.id).id
    assert driver.engine.pins.remove(first.id) is None
    assert 0 == driver.engine.cache.tree.pinned


def test_names_tell_prefixes_apart_and_nothing_else():
    longer = SYSTEM + pack([90])
    scopes = (SHARED, Scope("a"), Scope("b"), Scope("a", 5), Scope(namespace="adapter"))
    assert 10 == len({pin_id(run, scope) for run in (SYSTEM, longer) for scope in scopes})
    assert "pin-" == pin_id(SYSTEM, Scope("a"))[:4]


def test_a_prefix_before_the_salt_is_everybodys(make):
    driver = make()
    asked = driver.ask(SYSTEM + pack([90, 91]), PinWish(SYSTEM), Scope("a", 20))
    assert (pin_id(SYSTEM, SHARED), False) == (asked.pin.id, asked.pin.salted)
    again = driver.ask(SYSTEM + pack([90, 91]), PinWish(SYSTEM), Scope("b", 20)).pin
    assert (asked.pin.id, 1) == (again.id, again.hits)
    private = driver.ask(SYSTEM + pack([90, 91]), PinWish(SYSTEM + pack([90])), Scope("b", 20)).pin
    assert private.salted
    for pin in driver.engine.pins.all():
        driver.engine.pins.remove(pin.id)
    driver.check()
    assert 0 == driver.engine.cache.tree.pinned


def test_pins_never_take_more_than_their_share_and_the_answer_comes_all_the_same(make):
    driver = make(pin_limit=0.3)
    assert isinstance(driver.ask(SYSTEM, PinWish(SYSTEM)).pin, Pinned)
    other = pack(range(40, 60))
    asked = driver.ask(other, PinWish(other))
    assert isinstance(asked.pin, CapacityError)
    assert "at most 30 may be pinned" in str(asked.pin)
    assert "length" == asked.finish
    assert 20 == driver.engine.cache.pinned
    assert isinstance(driver.ask(SYSTEM, PinWish(SYSTEM[:40])).pin, Pinned)  # nothing is held that was not before


def test_a_salt_has_a_share_of_its_own(make):
    driver = make(slots=160)  # 80 may be pinned, 40 of one salt
    ours, theirs = Scope("a"), Scope("b")
    assert isinstance(driver.ask(SYSTEM, PinWish(SYSTEM), ours).pin, Pinned)
    longer = SYSTEM + pack(range(40, 60))
    assert isinstance(driver.ask(longer, PinWish(longer), ours).pin, Pinned)  # what they have in common counts once
    refused = driver.ask(longer + pack([90]), PinWish(longer + pack([90])), ours).pin
    assert "cache_salt to 41 (at most 40" in str(refused)
    assert isinstance(driver.ask(SYSTEM, PinWish(SYSTEM), theirs).pin, Pinned)
    assert isinstance(driver.ask(SYSTEM, PinWish(SYSTEM)).pin, Pinned)
    assert 80 == driver.engine.cache.pinned
    driver.check()


def test_what_was_not_computed_is_not_pinned(make):
    driver = make(step_tokens=8)
    ticket, asked = driver.submit(SYSTEM, PinWish(SYSTEM))
    driver.engine.step()
    driver.engine.cancel(ticket)
    assert ("cancelled", None) == (asked.finish, asked.pin)
    with pytest.raises(CapacityError, match="Only 8 of 20 tokens"):
        driver.engine.pin(PinWish(SYSTEM))
    assert [] == driver.engine.pins.all()


def test_a_pin_survives_the_request_that_is_cancelled_behind_it(make):
    driver = make()
    ticket, asked = driver.submit(SYSTEM, PinWish(SYSTEM), max_tokens=20)
    driver.engine.step()
    driver.engine.cancel(ticket)
    assert 20 == asked.pin.tokens
    driver.engine.reset()
    assert 19 == driver.ask(SYSTEM).cached


def test_requests_that_give_way_pin_once(make):
    driver = make(slots=106)  # for two prompts of 20 with 32 tokens of an answer each, but not with 40
    asked = [driver.submit(pack(range(30, 50)), max_tokens=40)[1]]
    asked.append(driver.submit(SYSTEM, PinWish(SYSTEM), max_tokens=40)[1])
    driver.run()
    assert 0 < driver.engine.scheduler.preemptions
    assert ["length"] * 2 == [one.finish for one in asked]
    assert (20, 0) == (asked[1].pin.tokens, driver.engine.pins.all()[0].hits)
    assert 20 == driver.engine.cache.pinned


def test_several_answers_pin_once(make):
    driver = make()
    outputs: list[Output] = []
    options = SamplingOptions(max_tokens=3, choices=3, seed=1)
    driver.engine.submit(Request(SYSTEM, options, outputs.append, SHARED, PinWish(SYSTEM)))
    driver.run()
    assert [20] == [output.pin.tokens for output in outputs if output.pin is not None]
    assert [0] == [pin.hits for pin in driver.engine.pins.all()]


def test_a_request_that_would_not_fit_beside_pins_is_refused_until_they_end(make):
    driver = make()
    driver.ask(SYSTEM, PinWish(SYSTEM, 60))
    prompt = pack(range(5, 90))
    with pytest.raises(NoRoom, match="may need 86 tokens; pinned prefixes leave 80"):
        driver.submit(prompt)
    driver.clock.now += 60
    assert "length" == driver.ask(prompt).finish


def test_there_are_only_so_many_pins(make, monkeypatch):
    driver = make(slots=20, pin_limit=0.9)
    pins = Pins(driver.engine.cache, driver.clock)
    driver.ask(SYSTEM[:40])
    monkeypatch.setattr("prefold.engine.pins.MAX_PINS", 2)
    pins.add(PinWish(SYSTEM[:40]))
    pins.add(PinWish(SYSTEM[:20]))
    pins.add(PinWish(SYSTEM[:40]))
    with pytest.raises(CapacityError, match="2 pins already"):
        pins.add(PinWish(SYSTEM[:12]))
    assert 2 == len(pins)


@pytest.mark.parametrize("limit", [-0.1, 0.91, 1.0, float("nan")])
def test_the_share_of_pins_is_a_share(limit: float):
    with pytest.raises(UsageError, match="pin_limit"):
        EngineOptions(pin_limit=limit)


def test_threads_pin_and_unpin_at_the_same_time(make):
    driver = make(slots=400, max_running=8)
    worker = EngineWorker(lambda: driver.engine)
    worker.start()
    faults: list[BaseException] = []

    def client(seed: int) -> None:
        chance = Random(seed)
        try:
            for _ in range(25):
                prompt = pack([3 + chance.randrange(3), *range(10, 10 + chance.randrange(1, 30))])
                done = threading.Event()
                outputs: list[Output] = []

                def take(output: Output, done=done, outputs=outputs) -> None:
                    outputs.append(output)
                    if output.finish is not None:
                        done.set()

                wish = PinWish(prompt[: 4 * chance.randrange(1, count(prompt) + 1)], chance.choice([0.001, 1e6]))
                scope = chance.choice([SHARED, Scope("a"), Scope("b", 3)])
                worker.submit(Request(prompt, SamplingOptions(max_tokens=3), take, scope, wish))
                assert done.wait(60)
                pin = outputs[-1].pin
                assert isinstance(pin, Pinned | CapacityError)
                if isinstance(pin, Pinned) and chance.random() < 0.5:
                    worker.call(lambda pin=pin: driver.engine.pins.remove(pin.id)).result(60)
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            faults.append(error)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker.stop(drain=True)
    assert [] == faults
    driver.check()
    for pin in driver.engine.pins.all():
        driver.engine.pins.remove(pin.id)
    driver.engine.reset()
    assert 400 == driver.engine.pool.free_slots


RUNS = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(pack)
SCOPES = st.sampled_from([SHARED, Scope("a"), Scope("b"), Scope("a", 2), Scope("b", 2)])


class PinMachine(RuleBasedStateMachine):
    """Pins come, end and are used while requests come and go, and what they hold is what was promised."""

    @initialize(policy=st.sampled_from(["lru", "default", "gdsf"]), pin_limit=st.sampled_from([0.2, 0.5, 1.0]))
    def start(self, policy: str, pin_limit: float) -> None:
        self.clock = Clock()
        self.slots = SlotPool(40)
        store = SpanStore(self.slots)
        self.cache = Cache(40, store, Span((), 0, 0), policy=POLICIES[policy](), pin_limit=pin_limit)
        self.pins = Pins(self.cache, self.clock)
        self.promised: dict[str, tuple[bytes, Scope, float]] = {}

    def span(self, start: int, stop: int) -> Span:
        return Span(self.slots.allocate(stop - start), stop - start, stop - start)

    @rule(run=RUNS, scope=SCOPES)
    def serve(self, run: bytes, scope: Scope) -> None:
        if self.cache.can_admit(run, scope):
            lease = self.cache.admit(run, scope, make_value=self.span, now=self.clock.now)
            self.pins.used(lease.node.path())
            self.cache.release(lease, now=self.clock.now)

    @rule(run=RUNS, scope=SCOPES, seconds=st.sampled_from([1.0, 5.0, float("inf")]))
    def pin(self, run: bytes, scope: Scope, seconds: float) -> None:
        self.serve(run, scope)
        try:
            pin = self.pins.add(PinWish(run, seconds), scope)
        except CapacityError:
            return
        _, _, until = self.promised.get(pin.id, (run, scope, 0.0))
        self.promised[pin.id] = (run, scope, max(until, self.clock.now + seconds))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.promised:
            name = data.draw(st.sampled_from(sorted(self.promised)))
            _, _, until = self.promised.pop(name)
            assert (until > self.clock.now) == (self.pins.remove(name) is not None)

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def reset(self) -> None:
        self.cache.reset()

    @invariant()
    def what_is_promised_is_there(self) -> None:
        if not hasattr(self, "pins"):
            return
        self.promised = {name: kept for name, kept in self.promised.items() if kept[2] > self.clock.now}
        listed = {pin.id: pin for pin in self.pins.all()}
        assert self.promised.keys() == listed.keys()
        for name, (run, scope, until) in self.promised.items():
            assert count(run) == listed[name].tokens == self.cache.tree.peek(run, scope).length
            assert listed[name].seconds is None if until == float("inf") else listed[name].seconds > 0
        self.cache.check()
        assert self.cache.pinned == self.cache.tree.pinned <= self.cache.pin_limit
        assert self.slots.free_slots == self.cache.free


PinMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPinMachine = PinMachine.TestCase
