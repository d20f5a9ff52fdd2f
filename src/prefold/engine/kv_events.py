"""KV events: the engine tells which blocks of tokens it holds, as vLLM does, so that a router can follow.

The cache is exact to the token; events speak of blocks of 16. A block is told when its last token's K and V are in
place, and taken back when the first of its tokens leaves the tree. It is named by its key in the chain of
`prefold.core.keys`, and comes with its tokens and, where its salt begins, with the salt.

A message is `topic | number | batch`: the topic is empty, the number rises by one (8 bytes, big-endian), the batch is
msgpack, as in vLLM 0.32. Who missed some asks the replay socket with `"" | first number` and is sent all batches from
there on that are remembered; number -1 ends the answer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from prefold.core.keys import chain, root_key, salted_key
from prefold.core.radix import Node
from prefold.core.tokens import WIDTH, unpack
from prefold.engine.slots import SlotPool, Span, SpanStore
from prefold.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    import zmq

BLOCK_SIZE = 16
"""Tokens of a block in events."""

REPLAY_BATCHES = 10_000
"""Batches that are remembered for those who missed them."""

_QUEUED_BATCHES = 100_000
_LAST_WORDS_MS = 500  # for the sockets to send what they have
_INBOX = "inproc://batches"
_MEDIUM = "GPU"  # the word for where a model runs, whatever that is
_STEP = BLOCK_SIZE * WIDTH
_NUMBER_BYTES = 8
_END = (-1).to_bytes(_NUMBER_BYTES, "big", signed=True)


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    pass


class BlockStored(_Event, frozen=True, kw_only=True):
    """Blocks that follow each other are there; the fields are vLLM's."""

    block_hashes: list[bytes]
    parent_block_hash: bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None
    group_idx: int = 0


class BlockRemoved(_Event, frozen=True, kw_only=True):
    """Blocks are gone."""

    block_hashes: list[bytes]
    medium: str


class AllBlocksCleared(_Event, frozen=True):
    """No blocks are left."""


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int = 0


Event = BlockStored | BlockRemoved | AllBlocksCleared


class Sink(Protocol):
    """Where events go."""

    def publish(self, events: list[Event]) -> None:
        """Send a batch; must neither block nor raise."""

    def close(self) -> None:
        """Send nothing more."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What was told of a span.

    Attributes:
        start: position of its first token.
        keys: of the blocks that end in it and are whole.
    """

    start: int
    keys: list[bytes]


class BlockBook:
    """Which blocks the cache holds, told as it changes. For the engine's thread only.

    Args:
        model: name of what K and V depend on; block keys begin with it.
        sink: where events go.

    Attributes:
        sink: as given.
    """

    def __init__(self, model: str, sink: Sink) -> None:
        self._model = model
        self.sink = sink
        self._told: dict[int, _Told] = {}  # by the id of a span that is in the tree
        self._times: dict[bytes, int] = {}  # salts that begin at different tokens of a block make the same key
        self._events: list[Event] = []

    def store(self, pool: SlotPool) -> SpanStore:
        """The cache's store of spans, which tells this book what becomes of them."""
        return _TellingStore(pool, self)

    def ready(self, path: Sequence[Node[Span]]) -> None:
        """Tell of the blocks that are whole by now.

        Args:
            path: nodes from below the root down, more of which may have K and V in place.
        """
        front, parent, salt, adapter = b"", None, None, ""  # tokens of the block that is not whole yet, ...
        for node in path:
            if isinstance(node.edge, tuple):
                adapter, salt = node.edge[0] or adapter, node.edge[1] or salt
            text = front + node.run
            told = self._told.get(id(node.value))
            count = len(told.keys) if told else 0
            due = _blocks_between(node.start, node.start + node.value.ready)
            if due > count:
                begins = salt if count == 0 else None
                fresh = self._tell(
                    text[count * _STEP : due * _STEP], told.keys[-1] if told and told.keys else parent, begins, adapter
                )
                told = _Told(node.start, (told.keys if told else []) + fresh)
                self._told[id(node.value)] = told
            if node.value.ready < node.length:
                break
            if due:
                salt = None
                parent = told.keys[-1] if told else parent
            front = text[due * _STEP :]

    def gone(self, span: Span) -> None:
        """A span has left the tree."""
        told = self._told.pop(id(span), None)
        if told is None:
            return
        removed = []
        for key in told.keys:
            self._times[key] -= 1
            if not self._times[key]:
                del self._times[key]
                removed.append(key)
        if removed:
            self._events.append(BlockRemoved(block_hashes=removed, medium=_MEDIUM))

    def split(self, span: Span, head: Span, tail: Span, at: int) -> None:
        """A span was cut in two after `at` tokens."""
        told = self._told.pop(id(span), None)
        if told is not None:
            border = _blocks_between(told.start, told.start + at)
            self._told[id(head)] = _Told(told.start, told.keys[:border])
            self._told[id(tail)] = _Told(told.start + at, told.keys[border:])

    def cleared(self) -> None:
        """The tree is empty."""
        self._told.clear()
        self._times.clear()
        self._events = [AllBlocksCleared()]  # whatever else was to be told is past

    def flush(self) -> None:
        """Send what has happened since the last time."""
        if self._events:
            self.sink.publish(self._events)
            self._events = []

    def close(self) -> None:
        """Send nothing more."""
        self.sink.close()

    def _tell(self, run: bytes, parent: bytes | None, salt: str | None, adapter: str) -> list[bytes]:
        """Tell of blocks; their keys.

        Args:
            run: their tokens.
            parent: key of the block before them; None for the beginning.
            salt: where it begins in the first of them.
            adapter: namespace of the prompt.
        """
        before = root_key(self._model, adapter) if parent is None else parent
        keys = chain(before if salt is None else salted_key(before, salt), run, BLOCK_SIZE)
        if any(key not in self._times for key in keys):
            self._events.append(
                BlockStored(
                    block_hashes=keys,
                    parent_block_hash=parent,
                    token_ids=unpack(run),
                    block_size=BLOCK_SIZE,
                    lora_id=None,
                    medium=_MEDIUM,
                    lora_name=adapter or None,
                    extra_keys=None if salt is None and not adapter else _extra_keys(len(keys), salt, adapter),
                )
            )
        for key in keys:
            self._times[key] = self._times.get(key, 0) + 1
        return keys


def _blocks_between(start: int, stop: int) -> int:
    """Blocks that end behind one position and at or before another."""
    return stop // BLOCK_SIZE - start // BLOCK_SIZE


def _extra_keys(blocks: int, salt: str | None, adapter: str) -> list[tuple[str, ...] | None]:
    common = (adapter,) if adapter else ()
    first = common if salt is None else (*common, salt)
    return [first or None] + [common or None] * (blocks - 1)


class _TellingStore(SpanStore):
    def __init__(self, pool: SlotPool, book: BlockBook) -> None:
        super().__init__(pool)
        self._book = book

    def split(self, value: Span, at: int) -> tuple[Span, Span]:
        head, tail = super().split(value, at)
        self._book.split(value, head, tail, at)
        return head, tail

    def free(self, value: Span) -> None:
        super().free(value)
        self._book.gone(value)


class Publisher:
    """Sends events to whoever listens, from a thread of its own.

    Args:
        endpoint: ZMQ address to publish at, such as `tcp://127.0.0.1:5557`; port 0 for any that is free.
        replay: address of the replay socket; empty for none.
        wall_clock: Unix time, for batches.
        remembered: batches that can be replayed.

    Attributes:
        endpoint, replay: the addresses, with the ports that were taken.

    Raises:
        MissingExtra: if pyzmq is not installed.
        UsageError: if an address cannot be had.
    """

    def __init__(
        self,
        endpoint: str,
        replay: str = "",
        *,
        wall_clock: Callable[[], float] = time.time,
        remembered: int = REPLAY_BATCHES,
    ) -> None:
        try:
            import zmq  # noqa: PLC0415 - not every engine publishes
        except ImportError:
            raise MissingExtra("KV events need pyzmq", hint="pip install 'prefold[gateway]'") from None
        self._wall_clock = wall_clock
        self._encoder = msgspec.msgpack.Encoder()
        self._number = 0
        self._remembered: deque[tuple[int, bytes]] = deque(maxlen=remembered)
        self._zmq = zmq
        self._context = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        try:
            self._publishing, self.endpoint = self._bound(zmq.PUB, endpoint)
            self._replaying: zmq.Socket[bytes] | None = None
            self.replay = ""
            if replay:
                self._replaying, self.replay = self._bound(zmq.ROUTER, replay)
        except UsageError:
            self._context.destroy(linger=0)
            raise
        self._inbox, _ = self._bound(zmq.PULL, _INBOX)
        self._outbox = self._context.socket(zmq.PUSH)
        self._outbox.setsockopt(zmq.SNDHWM, _QUEUED_BATCHES)
        self._outbox.connect(_INBOX)
        self._thread = threading.Thread(target=self._run, name="prefold-kv-events", daemon=True)
        self._thread.start()

    def publish(self, events: list[Event]) -> None:
        """Send a batch. Does not block: where too many wait, this one is lost, which its missing number shows."""
        payload = self._encoder.encode(_Batch(self._wall_clock(), events))
        number, self._number = self._number, self._number + 1
        with suppress(self._zmq.Again):
            self._outbox.send_multipart([number.to_bytes(_NUMBER_BYTES, "big"), payload], self._zmq.NOBLOCK)

    def close(self) -> None:
        """Send what waits, and stop."""
        self._outbox.send(b"")
        self._thread.join()
        self._context.destroy(linger=_LAST_WORDS_MS)

    def _bound(self, kind: int, address: str) -> tuple[zmq.Socket[bytes], str]:
        socket = self._context.socket(kind)
        socket.setsockopt(self._zmq.SNDHWM, _QUEUED_BATCHES)
        socket.setsockopt(self._zmq.RCVHWM, _QUEUED_BATCHES)
        try:
            socket.bind(address)
        except self._zmq.ZMQError as error:
            raise UsageError(
                f"KV events cannot be published at {address}: {error}", hint="give a free one, tcp://127.0.0.1:PORT"
            ) from None
        return socket, socket.getsockopt_string(self._zmq.LAST_ENDPOINT)

    def _run(self) -> None:
        poller = self._zmq.Poller()
        poller.register(self._inbox, self._zmq.POLLIN)
        if self._replaying is not None:
            poller.register(self._replaying, self._zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._inbox in ready:
                frames = self._inbox.recv_multipart()
                if len(frames) == 1:
                    return
                number, payload = frames
                self._publishing.send_multipart([b"", number, payload])
                self._remembered.append((int.from_bytes(number, "big"), payload))
            if self._replaying is not None and self._replaying in ready:
                self._answer(self._replaying)

    def _answer(self, socket: zmq.Socket[bytes]) -> None:
        """Send somebody the batches that they ask for."""
        frames = socket.recv_multipart()
        if len(frames) != 3 or len(frames[2]) != _NUMBER_BYTES:
            return
        client, first = frames[0], int.from_bytes(frames[2], "big")
        for number, payload in self._remembered:
            if number >= first:
                socket.send_multipart([client, b"", b"", number.to_bytes(_NUMBER_BYTES, "big"), payload])
        socket.send_multipart([client, b"", b"", _END, b""])
