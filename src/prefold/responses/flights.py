"""Single flight: requests that are the same, and come at once, are answered by one call upstream.

A flight is that call. It runs in a task of its own, so that it depends on nobody's connection: whoever asks first is
one listener among others. Each listener hears all chunks from the first on. When the last one leaves, the flight is
cancelled at once, unless the answer has been heard to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from prefold.errors import PrefoldError
from prefold.responses.endings import has_last_event

Headers = list[tuple[bytes, bytes]]


class LiveAnswer(Protocol):
    """An answer on its way; the gateway's upstreams give it."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Headers:
        """Of the answer, in lower case."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes; raises if it breaks off."""

    async def close(self) -> None:
        """Stop it at once, wherever it is."""


Fetch = Callable[[], Awaitable[LiveAnswer]]
Keep = Callable[[LiveAnswer, list[bytes] | None], Awaitable[None]]

_HTTP_OK = 200
_FLIGHTS_TRIED = 2


class FlightStopped(PrefoldError):
    """The cache was closed while the answer was on its way."""


def _stopped() -> FlightStopped:
    return FlightStopped("The answer was stopped before its end.", hint="send the request again")


class Flight:
    """One answer, and all who listen to it.

    Args:
        fetch: asks for the answer.
        keep: given a shared answer once it is whole, and its chunks; None in their place if it grew too long.
        limit: most bytes that are held. An answer that grows longer is neither kept nor shared with newcomers; then it
            comes as fast as the slowest listener takes it.
        unlist: called when nobody may join any more.

    Attributes:
        answer: its head, once there is one.
        task: in which it runs; done when the answer is kept or not to be.
    """

    def __init__(self, fetch: Fetch, keep: Keep, limit: int, unlist: Callable[[], None]) -> None:
        self.answer: LiveAnswer | None = None
        self._limit = limit
        self._unlist = unlist
        self._held: list[bytes] = []
        self._held_size = 0
        self._dropped = 0  # chunks before those held
        self._holds_all = True
        self._is_whole = False
        self._listeners: set[Listener] = set()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self.task = asyncio.create_task(self._run(fetch, keep))
        self.task.add_done_callback(self._end)

    @property
    def is_shared(self) -> bool:
        """Whether its answer is one to share: it has status 200, and no encoding that others might not accept."""
        return (
            self.answer is not None
            and self.answer.status == _HTTP_OK
            and dict(self.answer.headers).get(b"content-encoding", b"identity") == b"identity"
        )

    def join(self, *, is_first: bool) -> Listener:
        """Listen from the first chunk on; for flights that are still listed."""
        listener = Listener(self, is_first=is_first)
        self._listeners.add(listener)
        return listener

    async def wait_for_head(self) -> None:
        """Return when there is a head, or none to come."""
        while self.answer is None and not self.task.done():
            await self._news.wait()

    def check(self) -> None:
        """Raise what the flight failed with, if it did."""
        if self.task.cancelled():
            raise _stopped()
        if self.task.done():
            self.task.result()

    async def next_chunk(self, listener: Listener) -> bytes | None:
        """The next one that a listener has not heard, when it comes; None at the end.

        Raises:
            Exception: what the flight failed with.
        """
        while (place := listener.heard - self._dropped) >= len(self._held):
            if self._is_whole:
                return None
            self.check()
            await self._news.wait()
        chunk = self._held[place]
        listener.heard += 1
        if not self._holds_all:
            self._drop_heard()
        return chunk

    def leave(self, listener: Listener) -> None:
        """Stop listening."""
        self._listeners.discard(listener)
        if not self._listeners:
            if not self._is_whole and not self._has_said_all():
                self._unlist()
                self.task.cancel()
        elif not self._holds_all:
            self._drop_heard()

    async def _run(self, fetch: Fetch, keep: Keep) -> None:
        try:
            answer = await fetch()
            try:
                await self._pass_on(answer)
            finally:
                await answer.close()
            self._is_whole = True
        finally:
            if not self._is_whole:
                self._unlist()
        self._tell()
        if self.is_shared:
            await asyncio.sleep(0)  # listeners hear the end first
            await keep(answer, self._held if self._holds_all else None)

    async def _pass_on(self, answer: LiveAnswer) -> None:
        self.answer = answer
        if not self.is_shared:
            self._unlist()
        self._tell()
        async for chunk in answer.chunks():
            await self._take(chunk)

    async def _take(self, chunk: bytes) -> None:
        self._held.append(chunk)
        self._held_size += len(chunk)
        self._tell()
        if self._holds_all and self._held_size > self._limit:
            self._holds_all = False
            self._unlist()
            self._drop_heard()
        while self._held_size > self._limit:
            self._room.clear()
            await self._room.wait()

    def _drop_heard(self) -> None:
        """Let go of what every listener has heard."""
        count = min((listener.heard for listener in self._listeners), default=0) - self._dropped
        if count > 0:
            self._held_size -= sum(map(len, self._held[:count]))
            del self._held[:count]
            self._dropped += count
            self._room.set()

    def _has_said_all(self) -> bool:
        """Whether only the end of the connection is still to come."""
        return self.is_shared and self._holds_all and has_last_event(b"".join(self._held[-2:]))

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _end(self, task: asyncio.Task[None]) -> None:
        # A failure upstream is seen, even where nobody listens any more; one of `keep` is a fault that asyncio reports.
        if not task.cancelled() and not self._is_whole:
            task.exception()
        self._unlist()
        self._tell()


class Listener:
    """One of those who hear a flight's answer: an iterator over its chunks, which raises if it breaks off.

    Attributes:
        is_first: whether the flight is its own call, rather than another's.
        heard: chunks that it was given.
    """

    def __init__(self, flight: Flight, *, is_first: bool) -> None:
        self.is_first = is_first
        self.heard = 0
        self._flight = flight

    @property
    def answer(self) -> LiveAnswer:
        """The head of what it hears.

        Raises:
            FlightStopped: if there is none.
        """
        if self._flight.answer is None:
            raise _stopped()
        return self._flight.answer

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._flight.next_chunk(self)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def leave(self) -> None:
        """Stop listening; more than once does nothing."""
        self._flight.leave(self)


class Flights:
    """All flights on their way, by key.

    Args:
        limit: most bytes of one answer that are held.
        count: most flights at a time, so that `limit * count` bounds the memory.
    """

    def __init__(self, limit: int, count: int) -> None:
        self._limit = limit
        self._count = count
        self._listed: dict[bytes, Flight] = {}
        self._all: set[Flight] = set()

    def __len__(self) -> int:
        return len(self._all)

    async def board(self, key: bytes, fetch: Fetch, keep: Keep) -> Listener | None:
        """Join the flight to this key, or start it; return when its head is there.

        A flight that fails before its head, or whose answer is not one to share, concerns only who started it: of the
        others, one starts the next flight. If that fails too, they go their own ways, lest they wait in a queue for an
        upstream that is down.

        Returns:
            None for those who go their own way.

        Raises:
            Exception: what `fetch` raised, for who started the flight.
        """
        for _ in range(_FLIGHTS_TRIED):
            flight = self._listed.get(key)
            is_first = flight is None
            if flight is None:
                if len(self._all) >= self._count:
                    return None
                flight = self._start(key, fetch, keep)
            listener = flight.join(is_first=is_first)
            is_aboard = False
            try:
                await flight.wait_for_head()
                if is_first and flight.answer is None:
                    flight.check()
                is_aboard = flight.answer is not None and (is_first or flight.is_shared)
            finally:
                if not is_aboard:
                    listener.leave()
            if is_aboard:
                return listener
        return None

    async def close(self, seconds: float) -> None:
        """Give flights that are whole this long to be kept, then stop what is left."""
        tasks = [flight.task for flight in self._all]
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=seconds)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    def _start(self, key: bytes, fetch: Fetch, keep: Keep) -> Flight:
        def unlist() -> None:
            if self._listed.get(key) is flight:
                del self._listed[key]

        flight = Flight(fetch, keep, self._limit, unlist)
        self._listed[key] = flight
        self._all.add(flight)
        flight.task.add_done_callback(lambda _: self._all.discard(flight))
        return flight
