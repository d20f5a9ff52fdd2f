"""The feed against real sockets: publishers of ours, and bare ones that do what publishers sometimes do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest

zmq = pytest.importorskip("zmq")

import msgspec  # noqa: E402 - after the check that zmq is there

from prefold.core.tokens import pack  # noqa: E402
from prefold.errors import UsageError  # noqa: E402
from prefold.gateway.config import GatewayConfig, ReplicaTable, RoutingOptions  # noqa: E402
from prefold.gateway.events import Endpoint, EventFeed, RankedIndex, Trust  # noqa: E402
from prefold.gateway.events.ranks import MOST_RANKS  # noqa: E402
from prefold.gateway.knowledge import Knowledge  # noqa: E402

PROMPT = list(range(100, 228))
CLEARED = {"type": "AllBlocksCleared"}


def stored(first: int, stop: int) -> dict:
    """Blocks of the prompt, each of 16 tokens, named by their numbers."""
    return {
        "type": "BlockStored",
        "block_hashes": list(range(first, stop)),
        "parent_block_hash": first - 1 if first else None,
        "token_ids": PROMPT[first * 16 : stop * 16],
        "block_size": 16,
        "medium": "GPU",
    }


def removed(*blocks: int) -> dict:
    return {"type": "BlockRemoved", "block_hashes": list(blocks), "medium": "GPU"}


class Engine:
    """A publisher at fixed ports whose every message is decided by the test."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.remembered: list[tuple[int, bytes]] = []
        self.number = 0
        self.asked: list[int] = []
        self.dropped: set[int] = set()
        """Numbers that the next replay leaves out, as sockets do that have no room."""
        self.start()

    def start(self) -> None:
        self.context = zmq.Context()
        self.publishing, self.replaying = (self._bound(kind) for kind in (zmq.XPUB, zmq.ROUTER))

    def _bound(self, kind: int) -> zmq.Socket:
        socket = self.context.socket(kind)
        socket.bind(f"tcp://127.0.0.1:{self.ports.get(kind, 0)}")
        self.ports[kind] = int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        return socket

    def stop(self) -> None:
        self.context.destroy(linger=0)

    def restart(self) -> None:
        self.stop()
        self.remembered, self.number = [], 0
        self.start()

    def endpoint(self, *, replay: bool = True) -> Endpoint:
        return Endpoint(
            f"tcp://127.0.0.1:{self.ports[zmq.XPUB]}", f"tcp://127.0.0.1:{self.ports[zmq.ROUTER]}" if replay else ""
        )

    def make(self, *events: object, rank: object = 0) -> tuple[bytes, bytes]:
        """A batch that is remembered and not sent."""
        payload = msgspec.msgpack.encode([0.0, list(events), rank])
        self.remembered.append((self.number, payload))
        self.number += 1
        return (self.number - 1).to_bytes(8, "big"), payload

    def publish(self, *events: object, rank: object = 0) -> None:
        self.publishing.send_multipart([b"", *self.make(*events, rank=rank)])

    def answer(self) -> None:
        """Answer whoever asks for a replay."""
        while self.replaying.poll(0):
            client, empty, first = self.replaying.recv_multipart()
            self.asked.append(int.from_bytes(first, "big"))
            for number, payload in self.remembered:
                if number >= self.asked[-1] and number not in self.dropped:
                    self.replaying.send_multipart([client, empty, b"", number.to_bytes(8, "big"), payload])
            self.replaying.send_multipart([client, empty, b"", b"\xff" * 8, b""])
            self.dropped = set()

    @property
    def is_subscribed(self) -> bool:
        return bool(self.publishing.poll(0) and self.publishing.recv() == b"\x01")


class Watch:
    """A feed of one engine into an index."""

    def __init__(self, *engines: Engine, replay: bool = True, max_blocks: int = 1000) -> None:
        self.now = 0.0
        self.engines = engines
        self.index = RankedIndex(1000)
        self.keys = self.index.keys(pack(PROMPT), 16)
        self.changes: list[Trust] = []
        self.feed = EventFeed(
            0,
            [engine.endpoint(replay=replay) for engine in engines],
            self.index,
            block_size=16,
            max_blocks=max_blocks,
            clock=lambda: self.now,
            on_change=self.changes.append,
        )

    @property
    def held(self) -> int:
        return sum(self.index.match(self.keys))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                for engine in self.engines:
                    if not engine.context.closed:
                        engine.answer()
                await asyncio.sleep(0.005)

    async def reach(self, trust: Trust, held: int) -> None:
        await self.until(lambda: (self.feed.trust, self.held) == (trust, held))

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.feed.run())
        try:
            for engine in self.engines:
                await self.until(lambda engine=engine: engine.is_subscribed)
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert 0 == self.index.size  # a replica that is gone holds nothing


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.stop()


def follow(test: Callable[[Watch], object], *engines: Engine, **options) -> None:
    async def run() -> None:
        async with Watch(*engines, **options).running() as watch:
            await test(watch)

    asyncio.run(run())


def test_events_are_followed_from_the_beginning(engine):
    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 0)
        engine.publish(stored(0, 4))
        await watch.reach(Trust.EXACT, 4)
        engine.publish(stored(4, 8), removed(6, 7))
        await watch.reach(Trust.EXACT, 6)
        engine.publish(CLEARED)
        await watch.reach(Trust.EXACT, 0)
        assert [Trust.EXACT] == watch.changes
        counts = watch.feed.state.counts
        assert (3, 8, 8, 0) == (counts.batches, counts.stored, counts.removed, counts.gaps)

    follow(test, engine)


def test_a_gateway_that_comes_late_asks_for_what_was(engine):
    engine.make(stored(0, 4))
    engine.make(stored(4, 8))

    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 8)
        assert [0] == engine.asked

    follow(test, engine)


def test_what_is_no_longer_remembered_degrades(engine):
    engine.make(stored(0, 4))
    engine.make(stored(0, 2))
    engine.make(stored(4, 8))
    del engine.remembered[0]

    async def test(watch: Watch) -> None:
        await watch.reach(Trust.DEGRADED, 2)
        assert 4 == watch.feed.state.counts.skipped  # what follows an unknown block is not guessed
        engine.publish(CLEARED, stored(0, 1))
        await watch.reach(Trust.EXACT, 1)

    follow(test, engine)


def test_what_a_replay_drops_is_asked_for_again(engine):
    for block in range(6):
        engine.make(stored(block, block + 1))
    engine.dropped = {2, 3}

    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 6)
        assert [0, 1] == engine.asked
        assert 0 == watch.feed.state.counts.gaps

    follow(test, engine)


def test_what_no_replay_has_is_a_gap(engine):
    for block in range(6):
        engine.make(stored(block, block + 1))
    del engine.remembered[2:4]

    async def test(watch: Watch) -> None:
        await watch.reach(Trust.DEGRADED, 2)
        assert [0, 1] == engine.asked
        counts = watch.feed.state.counts
        assert (1, 4, 2) == (counts.gaps, counts.batches, counts.skipped)

    follow(test, engine)


def test_a_gap_is_filled_from_the_replay(engine):
    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 0)
        engine.publish(stored(0, 2))
        await watch.reach(Trust.EXACT, 2)
        engine.make(stored(2, 4))
        engine.publish(stored(4, 6))
        await watch.reach(Trust.EXACT, 6)
        assert [0, 0] == engine.asked
        engine.publish(stored(6, 8))  # the batch that was replayed and came by itself too is no restart
        await watch.reach(Trust.EXACT, 8)
        assert (0, 0) == (watch.feed.state.counts.restarts, watch.feed.state.counts.gaps)

    follow(test, engine)


def test_a_gap_that_cannot_be_filled_degrades_until_all_is_cleared(engine):
    async def test(watch: Watch) -> None:
        engine.publish(stored(0, 2))
        await watch.reach(Trust.EXACT, 2)
        engine.make(removed(1))
        watch.now = 7.0
        engine.publish(stored(2, 4))
        await watch.reach(Trust.DEGRADED, 4)
        assert (7.0, 1) == (watch.feed.state.since, watch.feed.state.counts.gaps)
        engine.publish(CLEARED)
        await watch.reach(Trust.EXACT, 0)

    follow(test, engine, replay=False)


def test_without_a_replay_nothing_is_known_until_the_first_batch(engine):
    engine.make(CLEARED)

    async def test(watch: Watch) -> None:
        await watch.until(lambda: not watch.changes)
        assert Trust.FALLBACK is watch.feed.trust
        engine.publish(stored(0, 2))
        await watch.reach(Trust.DEGRADED, 2)

    follow(test, engine, replay=False)


def test_an_engine_that_is_gone_is_not_believed_and_one_that_is_back_begins_anew(engine):
    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 0)
        engine.publish(stored(0, 4))
        await watch.reach(Trust.EXACT, 4)
        engine.stop()
        await watch.until(lambda: watch.feed.trust is Trust.FALLBACK)
        engine.restart()
        engine.make(stored(0, 1))
        engine.make(stored(1, 2))
        engine.make(stored(2, 3))  # its numbers have overtaken ours: the batch that we know tells that it is another
        await watch.reach(Trust.EXACT, 3)
        assert 1 == watch.feed.state.counts.restarts

    follow(test, engine)


def test_a_restart_with_fewer_batches_than_before(engine):
    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 0)
        for block in range(4):
            engine.publish(stored(block, block + 1))
        await watch.reach(Trust.EXACT, 4)
        engine.restart()
        engine.make(stored(0, 1))
        await watch.reach(Trust.EXACT, 1)
        assert 1 == watch.feed.state.counts.restarts

    follow(test, engine)


def test_a_connection_that_broke_costs_nothing_where_the_engine_is_the_same(engine):
    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 0)
        engine.publish(stored(0, 4))
        await watch.reach(Trust.EXACT, 4)
        engine.stop()
        engine.start()
        engine.make(stored(4, 5))
        await watch.reach(Trust.EXACT, 5)
        assert (0, Trust.FALLBACK) == (watch.feed.state.counts.restarts, watch.changes[1])

    follow(test, engine)


def test_a_restart_shows_without_a_replay(engine):
    async def test(watch: Watch) -> None:
        for block in range(3):
            engine.publish(stored(block, block + 1))
        await watch.reach(Trust.EXACT, 3)
        engine.restart()
        await watch.until(lambda: engine.is_subscribed)
        await watch.reach(Trust.DEGRADED, 3)  # something may have been missed
        engine.publish(stored(0, 1))
        await watch.reach(Trust.EXACT, 1)
        assert 1 == watch.feed.state.counts.restarts

    follow(test, engine, replay=False)


def test_garbage_is_counted_and_skipped(engine):
    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 0)
        engine.publish(stored(0, 2), {"type": "BlockStored"})
        await watch.reach(Trust.DEGRADED, 2)
        engine.publishing.send_multipart([b"", b"short", b""])
        engine.publishing.send(b"alone")
        engine.remembered.append((engine.number, b"\xc1"))
        engine.publishing.send_multipart([b"", engine.number.to_bytes(8, "big"), b"\xc1"])
        engine.number += 1
        engine.publish(stored(2, 3))
        await watch.reach(Trust.DEGRADED, 3)
        assert (4, 3) == (watch.feed.state.counts.malformed, watch.feed.state.counts.batches)

    follow(test, engine)


def test_what_was_predicted_lapses_by_the_clock(engine):
    async def test(watch: Watch) -> None:
        await watch.reach(Trust.EXACT, 0)
        watch.feed.predict(watch.keys[:4], until=2.0)
        assert 4 == watch.held
        engine.publish(stored(0, 2))
        await watch.until(lambda: watch.feed.state.counts.stored == 2)
        assert 4 == watch.held
        watch.now = 2.0
        await watch.reach(Trust.EXACT, 2)

    follow(test, engine)


def test_of_several_ranks_the_best_one_counts(engine):
    other = Engine()
    try:

        async def test(watch: Watch) -> None:
            await watch.reach(Trust.EXACT, 0)
            engine.publish(stored(0, 4))
            other.publish(stored(0, 2))
            await watch.until(lambda: watch.feed.state.counts.stored == 6)
            assert 4 == watch.held
            engine.publish(removed(1, 2, 3))
            await watch.reach(Trust.EXACT, 2)
            # Of this prompt one has the beginning and another one the rest: neither has both.
            engine.publish(CLEARED)
            other.publish(removed(1))
            engine.publish(stored(0, 1))
            engine.publish({**stored(1, 2), "parent_block_hash": 0}, removed(0))
            await watch.reach(Trust.EXACT, 1)
            other.stop()
            await watch.until(lambda: watch.feed.trust is Trust.DEGRADED)
            engine.stop()
            await watch.until(lambda: watch.feed.trust is Trust.FALLBACK)

        follow(test, engine, other)
    finally:
        other.stop()


def test_ranks_that_share_a_publisher_are_told_apart(engine):
    async def test(watch: Watch) -> None:
        engine.publish(stored(0, 3), rank=1)
        engine.publish(stored(0, 2), rank=5)
        await watch.reach(Trust.EXACT, 3)
        engine.publish(CLEARED, rank=1)
        await watch.reach(Trust.EXACT, 2)
        watch.feed.predict(watch.keys[:4], until=1.0)
        assert 4 == watch.held
        engine.restart()
        await watch.until(lambda: engine.is_subscribed)
        engine.publish(stored(0, 1), rank=5)
        watch.now = 1.0
        await watch.reach(Trust.EXACT, 1)

    follow(test, engine)


def test_more_ranks_than_there_can_be_are_not_believed(engine):
    async def test(watch: Watch) -> None:
        for rank in range(MOST_RANKS + 3):
            engine.publish(stored(0, 2), rank=rank)
        await watch.until(lambda: watch.feed.state.counts.batches == MOST_RANKS + 3)
        assert (3, 2 * MOST_RANKS) == (watch.feed.state.counts.malformed, watch.index.size)
        assert Trust.DEGRADED is watch.feed.trust

    follow(test, engine)


def test_memory_is_bounded(engine):
    async def test(watch: Watch) -> None:
        engine.publish(stored(0, 4))
        await watch.until(lambda: watch.feed.state.counts.stored == 4)
        await watch.until(lambda: watch.feed.state.engine_blocks == 3)
        assert 3 == watch.index.size

    follow(test, engine, max_blocks=3)


def test_without_a_publisher_nothing_is_trusted():
    async def run() -> None:
        async with Watch().running() as watch:
            assert Trust.FALLBACK is watch.feed.trust

    asyncio.run(run())


@pytest.mark.parametrize("address", ["", "nonsense", "tcp://*:5557", "tcp://host", "tcp://host:0", "tcp://host:99999"])
def test_an_address_must_be_one_to_connect_to(address):
    if address:
        with pytest.raises(UsageError, match="no address"):
            Endpoint(address)
        with pytest.raises(UsageError, match="no address"):
            Endpoint("tcp://host:1", address)
    else:
        assert "" == Endpoint("tcp://host:1", address).replay


def test_a_replica_with_ranks_has_a_publisher_for_each():
    knowledge = Knowledge(RoutingOptions(), lambda: 0.0)
    table = {"name": "a", "url": "http://a", "data_parallel_size": 2}
    knowledge.check(GatewayConfig(replica=(ReplicaTable(**table, events="tcp://h:5557"),)))
    with pytest.raises(UsageError, match="no port"):
        knowledge.check(GatewayConfig(replica=(ReplicaTable(**table, events="ipc:///tmp/events"),)))


def test_ranks_are_ports_that_follow():
    assert Endpoint("tcp://[::1]:5559", "tcp://h:6002") == Endpoint("tcp://[::1]:5557", "tcp://h:6000").of_rank(2)
    assert Endpoint("tcp://h:5558") == Endpoint("tcp://h:5557").of_rank(1)
    with pytest.raises(UsageError, match="no port"):
        Endpoint("ipc:///tmp/events").of_rank(1)
