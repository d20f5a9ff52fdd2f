"""One publisher of KV events: its sockets, what was lost on the way, and how far it can be trusted.

A message is `topic | number | batch`, the number in 8 bytes, big-endian. A gap in the numbers is filled from the
publisher's replay socket, where it has one: `"" | first number` asks for all batches from there on that it still has,
and number -1 ends the answer. We ask from the last batch that we know, inclusive. If that one comes back as it was, the
publisher is still the same; if not, the engine has been restarted, even where its numbers have overtaken ours.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from prefold.errors import UsageError
from prefold.gateway.events.decode import Batch, Cleared, Removed, Stored, decode_batch
from prefold.gateway.events.numbering import Arrival, Numbering
from prefold.gateway.events.ranks import Rank

_log = logging.getLogger(__name__)

_NUMBER_BYTES = 8
_REPLAY_SECONDS = 5.0  # for each batch: vLLM looks for requests ten times a second, between two batches
_RETRY_SECONDS = 1.0
_QUEUED_BATCHES = 100_000  # as many as the engines queue
_RECONNECT_MS = 100
_RECONNECT_MAX_MS = 2_000
_HEARTBEAT_MS = 2_000
_SILENCE_MS = 6_000  # heartbeats that fail to come for so long mean that the connection is gone

_ADDRESS = re.compile(r"tcp://(?P<host>[^/*]+):(?P<port>\d{1,5})|ipc://.+")


class _Replayed(Enum):
    """What a replay came to."""

    WHOLE = auto()
    """All that the publisher has."""
    IN_PART = auto()
    """Some more: publishers drop what their socket has no room for, the end mark too. The rest must be asked for."""
    OTHER = auto()
    """It does not begin with the batch that we know: another publisher has taken the place."""


class Trust(StrEnum):
    """How far the index can be believed about a replica."""

    EXACT = "exact"
    """It says what the replica holds, but for what is on its way."""
    DEGRADED = "degraded"
    """Events were lost: the replica may hold more than it says, or less."""
    FALLBACK = "fallback"
    """The publisher is not heard: what the index says is not to be used."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine publishes.

    Attributes:
        events: ZMQ address of its events, such as `tcp://10.0.0.7:5557`.
        replay: of its replay socket; empty for none.

    Raises:
        UsageError: for what is no address to connect to.
    """

    events: str
    replay: str = ""

    def __post_init__(self) -> None:
        for address in filter(None, (self.events, self.replay)):
            match = _ADDRESS.fullmatch(address)
            if match is None or not 0 < int(match["port"] or 1) <= 65_535:
                raise UsageError(
                    f"{address!r} is no address of KV events.", hint="write tcp://HOST:PORT, with the engine's host"
                )

    def of_rank(self, rank: int) -> Endpoint:
        """That of another data-parallel rank: engines add its number to the port.

        Raises:
            UsageError: if there is no port, or none that high.
        """
        return Endpoint(_port_plus(self.events, rank), self.replay and _port_plus(self.replay, rank))


def _port_plus(address: str, rank: int) -> str:
    match = _ADDRESS.fullmatch(address)
    if match is None or match["port"] is None:
        raise UsageError(f"{address!r} has no port to add a rank to.", hint="use tcp:// for data-parallel engines")
    return f"tcp://{match['host']}:{int(match['port']) + rank}"


@dataclass(slots=True)
class Counts:
    """Totals since the gateway began to listen.

    Attributes:
        batches: applied.
        stored, removed: blocks of ours that came and went.
        skipped: blocks of the engine's that could not be placed, since what they follow was not known.
        malformed: events, or whole messages, that could not be read.
        gaps: that no replay could fill.
        replays: asked for.
        restarts: of the engine.
    """

    batches: int = 0
    stored: int = 0
    removed: int = 0
    skipped: int = 0
    malformed: int = 0
    gaps: int = 0
    replays: int = 0
    restarts: int = 0


@dataclass(slots=True)
class Source:
    """Follows one publisher.

    Args:
        endpoint: where it is.
        open_rank: makes room for one more of its ranks; None where there are too many.
        counts: that it adds to.
        on_change: called whenever `trust` may have changed.
    """

    endpoint: Endpoint
    open_rank: Callable[[], Rank | None]
    counts: Counts
    on_change: Callable[[], None]
    _ranks: dict[int, Rank] = field(default_factory=dict)
    _numbers: Numbering = field(default_factory=Numbering)
    _last: bytes = b""  # the batch that was applied last
    _is_connected: bool = False
    _is_heard: bool = False  # something is known, be it that there is nothing
    _is_complete: bool = True  # no event was lost since the engine had no blocks
    _is_current: bool = True  # nothing can have been missed since

    @property
    def trust(self) -> Trust:
        """How far what it told can be believed."""
        if not (self._is_connected and self._is_heard):
            return Trust.FALLBACK
        return Trust.EXACT if self._is_complete and self._is_current else Trust.DEGRADED

    @property
    def engine_blocks(self) -> int:
        """Blocks that the engine named and has not taken back."""
        return sum(len(rank.places) for rank in self._ranks.values())

    async def follow(self, context: zmq.asyncio.Context) -> None:
        """Follow the publisher until cancelled, through all its absences."""
        while True:
            try:
                await self._listen(context)
            except zmq.ZMQError as error:
                _log.warning("Listening to KV events at %s failed: %s", self.endpoint.events, error)
            self._left()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _listen(self, context: zmq.asyncio.Context) -> None:
        socket = context.socket(zmq.SUB)
        monitor: zmq.asyncio.Socket | None = None
        try:
            socket.set(zmq.RCVHWM, _QUEUED_BATCHES)
            _prepare(socket)
            monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            socket.subscribe(b"")
            socket.connect(self.endpoint.events)
            poller = zmq.asyncio.Poller()
            poller.register(monitor, zmq.POLLIN)
            poller.register(socket, zmq.POLLIN)
            while True:
                ready = dict(await poller.poll())
                if monitor in ready:
                    event = parse_monitor_message(await monitor.recv_multipart())["event"]
                    if event == zmq.EVENT_DISCONNECTED:
                        self._left()
                    else:
                        await self._joined(context)
                else:
                    await self._take(context, await socket.recv_multipart())
        finally:
            if monitor is not None:
                socket.disable_monitor()
                monitor.close(linger=0)
            socket.close(linger=0)

    # What happens

    def _left(self) -> None:
        self._is_connected = self._is_current = False
        self.on_change()

    async def _joined(self, context: zmq.asyncio.Context) -> None:
        if not await self._catch_up(context):
            self._is_current = not self._is_heard  # what comes next will say whether something was missed
        self._is_connected = True
        self.on_change()

    async def _take(self, context: zmq.asyncio.Context, frames: list[bytes]) -> None:
        """Take in a message that came as it was made."""
        number = _number(frames)
        if number is None:
            self.counts.malformed += 1
            self._is_complete = False
            self.on_change()
            return
        arrival = self._numbers.live(number)
        if arrival is Arrival.RESTARTED:
            self._restarted(live=number)
        if arrival in (Arrival.RESTARTED, Arrival.AFTER_GAP) and number > self._numbers.applied + 1:
            await self._catch_up(context)
        if number > self._numbers.applied:
            await self._apply(number, frames[-1])

    def _restarted(self, live: int = -1) -> None:
        self.counts.restarts += 1
        self._forget(live)

    def _forget(self, live: int = -1) -> None:
        """Begin anew: whatever was known is of a past that says nothing any more."""
        self._numbers.restart(live)
        self._last = b""
        self._is_complete = True
        for rank in self._ranks.values():
            rank.holdings.remove(rank.places.clear())

    async def _catch_up(self, context: zmq.asyncio.Context) -> bool:
        """Apply what the publisher has told since the last batch that we know; False if it does not answer."""
        if not self.endpoint.replay:
            return False
        try:
            while (replayed := await self._replay(context)) is not _Replayed.WHOLE:
                if replayed is _Replayed.OTHER:
                    self._restarted()
        except (TimeoutError, zmq.ZMQError) as error:
            _log.warning("No replay of KV events from %s: %s", self.endpoint.replay, error or "no answer")
            return False
        self._is_heard = self._is_current = True
        return True

    async def _replay(self, context: zmq.asyncio.Context) -> _Replayed:
        """Apply the batches from the last known one on, as far as they come.

        Raises:
            TimeoutError: if the publisher does not answer.
            zmq.ZMQError: if it cannot be asked.
        """
        known = self._numbers.applied
        is_same = known < 0
        self.counts.replays += 1
        try:
            async with aclosing(self._batches(context, max(known, 0))) as batches:
                async for number, payload in batches:
                    if not is_same:
                        if number != known or payload != self._last:
                            return _Replayed.OTHER
                        is_same = True
                    elif known < self._numbers.applied < number - 1:
                        return _Replayed.IN_PART
                    elif number > self._numbers.applied:
                        await self._apply(number, payload)
        except TimeoutError:
            if self._numbers.applied > known:
                return _Replayed.IN_PART
            raise
        return _Replayed.WHOLE if is_same else _Replayed.OTHER

    async def _batches(self, context: zmq.asyncio.Context, first: int) -> AsyncGenerator[tuple[int, bytes], None]:
        socket = context.socket(zmq.DEALER)
        try:
            socket.set(zmq.RCVHWM, 0)  # no limit: what we were slow to take, the publisher would drop
            _prepare(socket)
            socket.connect(self.endpoint.replay)
            await socket.send_multipart([b"", first.to_bytes(_NUMBER_BYTES, "big")])
            while True:
                frames = await asyncio.wait_for(socket.recv_multipart(), _REPLAY_SECONDS)
                number = _number(frames)
                if number is None:
                    self.counts.malformed += 1
                    self._is_complete = False
                elif number < 0:
                    return
                else:
                    yield number, frames[-1]
        finally:
            socket.close(linger=0)

    async def _apply(self, number: int, payload: bytes) -> None:
        if number > self._numbers.applied + 1:
            self.counts.gaps += self._numbers.applied >= 0
            self._is_complete = False
        self._numbers.applied = number
        self._last = payload
        self._is_heard = self._is_current = True
        self.counts.batches += 1
        self._absorb(decode_batch(payload))
        self.on_change()
        await asyncio.sleep(0)  # others go first, however much has queued up

    def _absorb(self, batch: Batch) -> None:
        counts = self.counts
        rank = self._ranks.get(batch.rank) or self.open_rank()
        if batch.malformed or rank is None:
            counts.malformed += batch.malformed or 1
            self._is_complete = False
        if rank is None:
            return
        self._ranks[batch.rank] = rank
        holdings, places = rank.holdings, rank.places
        for event in batch.events:
            match event:
                case Stored():
                    placed = places.stored(event)
                    holdings.add(placed.keys)
                    counts.stored += len(placed.keys)
                    if placed.skipped:
                        counts.skipped += placed.skipped
                        self._is_complete = False
                case Removed():
                    gone = places.removed(event)
                    holdings.remove(gone)
                    counts.removed += len(gone)
                case Cleared():
                    gone = places.clear()
                    holdings.remove(gone)
                    counts.removed += len(gone)
                    self._is_complete = True
        holdings.remove(places.forget_excess())


def _prepare(socket: zmq.asyncio.Socket) -> None:
    options: dict[int, Any] = {
        zmq.LINGER: 0,
        zmq.IPV6: 1,
        zmq.RECONNECT_IVL: _RECONNECT_MS,
        zmq.RECONNECT_IVL_MAX: _RECONNECT_MAX_MS,
        zmq.HEARTBEAT_IVL: _HEARTBEAT_MS,
        zmq.HEARTBEAT_TIMEOUT: _SILENCE_MS,
    }
    for option, value in options.items():
        socket.set(option, value)


def _number(frames: list[bytes]) -> int | None:
    """The number of a message; None where there is none."""
    if len(frames) < 2 or len(frames[-2]) != _NUMBER_BYTES:
        return None
    return int.from_bytes(frames[-2], "big", signed=True)
