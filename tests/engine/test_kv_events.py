from __future__ import annotations

import random

import pytest

zmq = pytest.importorskip("zmq")
pytest.importorskip("torch")

import msgspec  # noqa: E402 - after the checks that the packages are there

from prefold.core.block_index import BlockIndex  # noqa: E402
from prefold.core.cache import Cache  # noqa: E402
from prefold.core.keys import SHARED, Scope, block_keys, root_key  # noqa: E402
from prefold.core.radix import RadixTree  # noqa: E402
from prefold.core.tokens import count, pack  # noqa: E402
from prefold.engine.kv_events import BLOCK_SIZE, AllBlocksCleared, BlockBook, BlockStored, Publisher  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.pins import PinWish  # noqa: E402
from prefold.engine.request import Request, SamplingOptions  # noqa: E402
from prefold.engine.scheduler import Scheduler, Sequence  # noqa: E402
from prefold.engine.slots import SlotPool, Span  # noqa: E402
from prefold.errors import UsageError  # noqa: E402
from prefold.gateway.events.decode import Cleared, Removed, Stored, decode_batch  # noqa: E402
from prefold.gateway.events.holdings import Holdings  # noqa: E402
from prefold.gateway.events.places import Places  # noqa: E402


class Router:
    """A sink that follows events into an index, through their encoding."""

    def __init__(self) -> None:
        self.index = BlockIndex(100_000)
        self.places = Places(self.index, BLOCK_SIZE, 100_000)
        self.holdings = Holdings(0, self.index)
        self.batches: list[list] = []

    def publish(self, events) -> None:
        self.batches.append(events)
        batch = decode_batch(msgspec.msgpack.encode([0.0, events, 0]))
        assert 0 == batch.malformed
        for event in batch.events:
            match event:
                case Stored():
                    placed = self.places.stored(event)
                    assert 0 == placed.skipped
                    self.holdings.add(placed.keys)
                case Removed():
                    gone = self.places.removed(event)
                    assert len(event.hashes) == len(gone)
                    self.holdings.remove(gone)
                case Cleared():
                    self.holdings.remove(self.places.clear())

    def close(self) -> None:
        pass

    def check(self, tree: RadixTree[Span]) -> None:
        """The index holds exactly the blocks whose tokens all have K and V in the engine's cache."""
        held: set[int] = set()
        for node in tree.nodes():
            scope, run, is_ready = SHARED, b"", True
            for step in node.path():
                if isinstance(step.edge, tuple):
                    namespace = step.edge[0] or scope.namespace
                    scope = Scope(step.edge[1], step.start, namespace) if step.edge[1] else Scope(namespace=namespace)
                if is_ready:
                    run += step.run[: 4 * step.value.ready]
                is_ready = is_ready and step.value.ready == step.length
            keys = self.index.keys(run, BLOCK_SIZE, scope)
            held.update(keys)
            assert not keys or [len(keys)] == self.index.match(keys)
        assert len(held) == self.index.size


@pytest.fixture
def router() -> Router:
    return Router()


@pytest.fixture
def talking(driver, router):
    return lambda slots=4000, **options: driver(slots, events=BlockBook("model", router), **options)


def prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(1000, 40_000), k=length)


def test_whole_blocks_of_prompt_and_answer_are_told(talking, router):
    driver = talking()
    tokens = prompt(1, 40)
    answer = driver.ask(tokens, max_tokens=20, ignore_eos=True)
    stored = [event for batch in router.batches for event in batch]
    assert all(isinstance(event, BlockStored) for event in stored)
    run = pack(tokens + answer.tokens[:-1])  # the last token's K and V were never needed
    assert block_keys(root_key("model"), run, BLOCK_SIZE) == [name for event in stored for name in event.block_hashes]
    assert [None, stored[0].block_hashes[-1]] == [event.parent_block_hash for event in stored]
    router.check(driver.engine.cache.tree)


def test_salts_are_told_where_they_begin(talking, router):
    driver = talking()
    tokens = prompt(1, 70)
    for scope in (SHARED, Scope("mine"), Scope("mine", 20), Scope("yours", 20), Scope("mine", 25), Scope("mine", 200)):
        driver.ask(tokens, scope=scope, max_tokens=1)
        router.check(driver.engine.cache.tree)
        keys = router.index.keys(pack(tokens), BLOCK_SIZE, scope)
        assert [4] == router.index.match(keys)
    # "mine" from token 20 and from token 25 are the same blocks, as keys are: they are told of once, but held twice.
    assert [None, ("mine",), ("mine",), ("yours",)] == [
        event.extra_keys and event.extra_keys[0] for batch in router.batches for event in batch
    ]


def test_a_prefix_pins_and_a_reset(talking, router):
    driver = talking()
    driver.ask(prompt(1, 100), max_tokens=2)
    driver.ask(prompt(2, 100), max_tokens=2)
    pin = driver.engine.pin(PinWish(pack(prompt(1, 50))))
    driver.engine.reset()
    router.check(driver.engine.cache.tree)
    assert 3 == router.index.size
    driver.engine.pins.remove(pin.id)
    driver.engine.reset()
    assert 0 == router.index.size
    assert [AllBlocksCleared()] == router.batches[-1]


def test_cancelling_tells_of_what_is_left(talking, router):
    driver = talking(step_tokens=32)
    ticket, _ = driver.submit(prompt(1, 100), max_tokens=5)
    driver.engine.step()
    driver.engine.step()
    driver.engine.cancel(ticket)
    router.check(driver.engine.cache.tree)
    assert 4 == router.index.size


def test_after_traffic_with_evictions_the_index_is_what_the_cache_holds(talking, router):
    draw = random.Random(7)
    driver = talking(slots=130, step_tokens=64)
    stems = [prompt(number, 40) for number in range(3)]
    for turn in range(9):
        tokens = draw.choice(stems)[: draw.randrange(1, 40)] + prompt(100 + draw.randrange(6), draw.randrange(1, 40))
        scope = draw.choice([SHARED, Scope("one"), Scope("two", 37)])
        ticket, _ = driver.submit(tokens, scope=scope, max_tokens=draw.randrange(1, 6), ignore_eos=True)
        for _ in range(draw.randrange(4)):
            driver.engine.step()
            router.check(driver.engine.cache.tree)
        if turn % 5 == 0:
            driver.engine.cancel(ticket)
            router.check(driver.engine.cache.tree)
    driver.run()
    router.check(driver.engine.cache.tree)
    assert driver.engine.cache.counters.evicted > 130  # else nothing was tried
    driver.engine.reset()
    assert 0 == router.index.size


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("grid", [1, 8])
def test_after_any_traffic_the_index_is_what_the_cache_holds(router, grid, seed):
    """Without a model: the scheduler alone, which gives answers of zeros and ones."""
    draw = random.Random(seed)
    options = EngineOptions(step_tokens=64, max_running=6, grid=grid)
    pool, book = SlotPool(300), BlockBook("model", router)
    cache = Cache(300, book.store(pool), Span((), 0, 0), grain=grid)
    scheduler = Scheduler(cache, pool, options, book.ready)

    def step() -> None:
        chunks = scheduler.schedule()
        scheduler.commit(chunks)
        for sequence in [chunk.sequence for chunk in chunks if chunk.sample]:
            sequence.fresh.append(draw.randrange(2))
            sequence.generated += 1
            if sequence.generated == sequence.request.sampling.max_tokens:
                scheduler.release(sequence)
        book.flush()
        router.check(cache.tree)

    stems = [prompt(number, 90) for number in range(4)]
    scopes = [SHARED, SHARED, Scope("one"), Scope("two", 37), Scope("one", 40), Scope("one", 47), Scope(namespace="x")]
    for arrival in range(150):
        tokens = draw.choice(stems)[: draw.randrange(1, 90)] + prompt(100 + draw.randrange(8), draw.randrange(1, 40))
        sampling = SamplingOptions(max_tokens=draw.randrange(1, 70))
        request = Request(pack(tokens), sampling, lambda _: None, draw.choice(scopes))
        scheduler.add(Sequence(request, 0, arrival, request.prompt))
        for _ in range(draw.randrange(25)):
            step()
        if arrival % 7 == 0 and scheduler.running:
            scheduler.release(draw.choice(scheduler.running))
    while scheduler.waiting or scheduler.running:
        step()
    cache.check()
    assert cache.counters.evicted > 300
    assert scheduler.preemptions > 0
    cache.reset()
    book.flush()
    assert 0 == router.index.size


# The publisher


class Listener:
    def __init__(self, publisher: Publisher) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.subscribe(b"")
        self.socket.setsockopt(zmq.RCVTIMEO, 10_000)
        monitor = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.socket.connect(publisher.endpoint)
        monitor.recv_multipart()
        self.socket.disable_monitor()
        monitor.close()

    def replay(self, publisher: Publisher, *request: bytes) -> list[tuple[int, bytes]]:
        got = []
        with self.context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.RCVTIMEO, 10_000)
            dealer.connect(publisher.replay)
            dealer.send_multipart(request)
            while True:
                empty, topic, number, payload = dealer.recv_multipart()
                assert (b"", b"") == (empty, topic)
                if number == b"\xff" * 8:
                    return got
                got.append((int.from_bytes(number, "big"), payload))


@pytest.fixture
def publisher():
    publisher = Publisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", wall_clock=lambda: 12.5, remembered=3)
    yield publisher
    publisher.close()


@pytest.fixture
def listener(publisher):
    listener = Listener(publisher)
    yield listener
    listener.context.destroy(linger=0)


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_batches_are_published_in_vllms_form_and_remembered(publisher, listener):
    for _ in range(200):  # the subscription takes a moment to arrive
        publisher.publish([AllBlocksCleared()])
        if listener.socket.poll(50):
            break
    topic, first, payload = listener.socket.recv_multipart()
    assert (b"", [12.5, [{"type": "AllBlocksCleared"}], 0]) == (topic, msgspec.msgpack.decode(payload))
    publisher.publish([AllBlocksCleared()])
    assert int.from_bytes(first, "big") + 1 == int.from_bytes(listener.socket.recv_multipart()[1], "big")


def test_the_latest_batches_can_be_asked_for(publisher, listener):
    for _ in range(5):
        publisher.publish([AllBlocksCleared()])
    while [4] != [value for value, _ in listener.replay(publisher, b"", number(4))]:
        pass
    assert [2, 3, 4] == [value for value, _ in listener.replay(publisher, b"", number(0))]
    assert [] == listener.replay(publisher, b"", number(9))


def test_a_request_that_cannot_be_read_is_left_alone(publisher, listener):
    with listener.context.socket(zmq.DEALER) as dealer:
        dealer.connect(publisher.replay)
        for request in ([b""], [b"", b"1"], [b"", number(0), b""]):
            dealer.send_multipart(request)
        assert [] == listener.replay(publisher, b"", number(0))
        assert not dealer.poll(0)


def test_an_address_that_is_taken_is_said(publisher):
    with pytest.raises(UsageError, match="cannot be published"):
        Publisher(publisher.endpoint)
    with pytest.raises(UsageError, match="cannot be published"):
        Publisher("tcp://127.0.0.1:0", "nonsense")


def test_replay_alone_makes_no_sense():
    with pytest.raises(UsageError, match="kv_replay"):
        EngineOptions(kv_replay="tcp://127.0.0.1:1")


def test_tokens_of_events_fill_their_blocks(talking, router):
    driver = talking()
    driver.ask(prompt(3, 33), max_tokens=1)
    (event,) = router.batches[0]
    assert 2 * BLOCK_SIZE == len(event.token_ids) == count(pack(prompt(3, 33))) - 1
