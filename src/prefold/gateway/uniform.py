"""Answers whose time says nothing about what was cached.

Whoever shares a cache with others can ask whether it holds a text, by how fast an answer begins, and so rebuild what
others have sent, token by token (PromptPeek, Wu et al., NDSS 2025). For groups that ask for it, answers are therefore
held back:

- The first byte leaves no sooner than a miss would have let it, and only at times on a fixed scale; so an answer that
  took longer than is expected of a miss tells the step on the scale at most, and not its time.
- All that follows keeps its distance from the first byte: a hit's answer has no head start that could be seen later.
- First bytes leave in the order in which a tenant's requests came. Engines serve requests with a long match first, and
  the order of answers would tell that.
- What usage and headers say about caches is taken out.

What can still be told is in the documentation, under "What uniform times leave open".
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Self

import msgspec

from prefold.gateway.call import Call
from prefold.gateway.handed import Handed
from prefold.gateway.hidden_usage import HiddenStream, hide_in_whole, quiet_headers
from prefold.gateway.miss_times import MissTimes, Work
from prefold.gateway.upstream import Headers, UpstreamFailed
from prefold.providers.usage import Usage
from prefold.responses.cache import Reply, Source

STEP = 1.25
"""Ratio of two neighbouring times on the scale."""

PATIENCE = 16.0
"""Times what is expected of a miss, for which a call waits for those that came before it; one may hang."""

_LONGEST_ANSWER = 64 << 20  # bytes of an answer that comes at once
_READ_AHEAD = 1 << 20  # bytes of a stream that wait for their time
_EVENT_STREAM = b"text/event-stream"
_LEARNS_FROM = frozenset({Source.OFF, Source.MISS, Source.OBSERVED})


class Held(msgspec.Struct, frozen=True):
    """An answer that may leave now.

    Attributes:
        headers: to send.
        chunks: the body, each part at its time.
    """

    headers: Headers
    chunks: AsyncIterator[bytes]


class Uniform:
    """Holds back the answers of groups whose `ttft` is `uniform`; others pass as they are.

    Args:
        clock: monotonic seconds.
        sleep: waits for seconds.
        draw: a random number from 0 to below 1, for the jitter.

    Attributes:
        last: the latest call of each tenant and model that is not over.
    """

    def __init__(
        self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]], draw: Callable[[], float]
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        self.draw = draw
        self.times = MissTimes()
        self.last: dict[tuple[str, str], Turn] = {}

    def turn(self, call: Call, arrived: float) -> Turn:
        """A call's place among those of its tenant, from before it goes upstream until its answer has left.

        Args:
            call: the request.
            arrived: when it came, on the clock.
        """
        return Turn(self, call, arrived)


class Turn:
    """A call that is answered in its turn.

    Attributes:
        tokens: of the prompt, where somebody has counted; 0 for a guess by the size of the body.
        handed: who computed the prompt, where that is another replica than the one that answers.
    """

    def __init__(self, uniform: Uniform, call: Call, arrived: float) -> None:
        self.tokens = 0
        self.handed: Handed | None = None
        self._uniform = uniform
        self._call = call
        self._arrived = arrived
        self._is_held = call.tenant.group.ttft == "uniform" and call.api.uses_prefixes
        self._before: Turn | None = None
        self._has_left = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._is_held:
            self._before = self._uniform.last.get(self._key)
            self._uniform.last[self._key] = self
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_held:
            await self.leave()
            if self._uniform.last.get(self._key) is self:
                del self._uniform.last[self._key]

    @property
    def _key(self) -> tuple[str, str]:
        """Whose turns these are."""
        return self._call.tenant.name, self._call.model

    async def hold(self, reply: Reply) -> Held:
        """Wait until an answer may leave.

        What this tenant was answered before may leave at once, but still says nothing about caches.

        Raises:
            UpstreamFailed: if it breaks off before it begins, or cannot be read.
        """
        if not self._is_held:
            return Held(reply.headers, reply.chunks)
        headers = dict(reply.headers)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise UpstreamFailed(
                "The upstream's answer is compressed, and so cannot be held back", hint="turn that off"
            )
        if headers.get(b"content-type", b"").startswith(_EVENT_STREAM):
            return await self._hold_stream(reply)
        return await self._hold_whole(reply)

    async def leave(self) -> None:
        """Let those go that came later; what is still read of the answer is not wanted any more."""
        self._has_left.set()
        self._before = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _hold_whole(self, reply: Reply) -> Held:
        parts: list[bytes] = []
        size = 0
        async for part in reply.chunks:
            parts.append(part)
            size += len(part)
            if size > _LONGEST_ANSWER:
                raise UpstreamFailed("The upstream's answer is too long to be held back", hint="ask for a stream")
        came = self._uniform.clock()
        body, usage = hide_in_whole(self._call.api, b"".join(parts))
        work = self._work(usage, written=max(1, usage.output) if usage else 1)
        await self._wait(reply, work, came)
        self._learn(reply, usage, work, came)
        length = (b"content-length", str(len(body)).encode())
        return Held([*quiet_headers(reply.headers), length], _one(body))

    async def _hold_stream(self, reply: Reply) -> Held:
        reader = _Reader(reply.chunks, HiddenStream(self._call.api), self._uniform.clock)
        self._reading = asyncio.create_task(reader.run())
        came = await reader.begun()
        work = self._work(reader.usage, written=1)
        await self._wait(reply, work, came)
        return Held(quiet_headers(reply.headers), self._shifted(reply, reader, came, self._uniform.clock() - came))

    async def _shifted(self, reply: Reply, reader: _Reader, came: float, shift: float) -> AsyncIterator[bytes]:
        """The parts of a stream, all of them as late as the first one that says something."""
        uniform = self._uniform
        async for part in reader.parts():
            due = max(part.at, came) + shift
            if (wait := due - uniform.clock()) > 0:
                await uniform.sleep(wait)
            yield part.data
        if reader.usage is not None:
            self._learn(reply, reader.usage, self._work(reader.usage, written=1), came)

    def _work(self, usage: Usage | None, written: int) -> Work:
        """What the answer took, were nothing cached. Where usage comes late, its length is only known roughly."""
        if usage is not None and usage.input:
            return Work(usage.input, written)
        return Work(self.tokens or self._uniform.times.tokens(self._call.model, len(self._call.body)), written)

    async def _wait(self, reply: Reply, work: Work, came: float) -> None:
        """Wait for the time of the first byte, and for the calls before this one."""
        if reply.source not in (Source.HIT, Source.SEMANTIC):
            uniform = self._uniform
            expected = uniform.times.expected(self._call.model, work)
            jitter_seconds = self._call.tenant.group.jitter_seconds
            jitter = uniform.draw() * jitter_seconds
            await self._until(on_scale(max(expected, came - self._arrived)) + jitter)
            if self._before is not None and not self._before._has_left.is_set():
                await self._after(self._before, self._arrived + PATIENCE * expected + jitter_seconds)
                if not self._before._has_left.is_set():
                    await self._until(on_scale(uniform.clock() - self._arrived) + jitter)
        self._has_left.set()
        self._before = None

    async def _until(self, seconds: float) -> None:
        """Wait until so long after the call came."""
        if (wait := self._arrived + seconds - self._uniform.clock()) > 0:
            await self._uniform.sleep(wait)

    async def _after(self, before: Turn, latest: float) -> None:
        """Wait until another call's answer has left, but no longer than to a time."""
        left = asyncio.ensure_future(before._has_left.wait())
        patience = asyncio.ensure_future(self._uniform.sleep(max(0.0, latest - self._uniform.clock())))
        try:
            await asyncio.wait((left, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
            patience.cancel()

    def _learn(self, reply: Reply, usage: Usage | None, work: Work, came: float) -> None:
        if usage is None or not usage.input or reply.status >= 400 or reply.source not in _LEARNS_FROM:
            return
        if self.handed is not None:  # the time of both halves is learned, and so the work of both
            usage = self.handed.corrected(usage)
        cached = usage.read if usage.is_reported else None
        size = len(self._call.body)
        self._uniform.times.add(self._call.model, work, came - self._arrived, cached=cached, size=size)


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes, and when they came."""

    at: float
    data: bytes


class _Reader:
    """Reads a stream as it comes, whoever waits for it."""

    def __init__(self, chunks: AsyncIterator[bytes], hidden: HiddenStream, clock: Callable[[], float]) -> None:
        self._chunks = chunks
        self._hidden = hidden
        self._clock = clock
        self._parts: deque[_Part] = deque()
        self._size = 0
        self._begun_at: float | None = None
        self._is_over = False
        self._failure: Exception | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def usage(self) -> Usage | None:
        """What was told so far."""
        return self._hidden.usage

    async def run(self) -> None:
        """Read to the end."""
        try:
            async for chunk in self._chunks:
                self._take(self._hidden.feed(chunk))
                while self._size > _READ_AHEAD:
                    self._room.clear()
                    await self._room.wait()
            self._take(self._hidden.end())
        except Exception as error:  # noqa: BLE001 - handed to whoever reads the parts
            self._failure = error
        finally:
            self._is_over = True
            self._news.set()

    async def begun(self) -> float:
        """When something came that was computed, or the end.

        Raises:
            Exception: what broke the stream off before.
        """
        while self._begun_at is None:
            if self._failure is not None:
                raise self._failure
            if self._is_over or self._size > _READ_AHEAD:
                return self._clock()
            await self._next()
        return self._begun_at

    async def parts(self) -> AsyncIterator[_Part]:
        """What has come, and comes.

        Raises:
            Exception: what broke the stream off.
        """
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._size -= len(part.data)
                self._room.set()
                yield part
            if self._is_over:
                break
            await self._next()
        if self._failure is not None:
            raise self._failure

    def _take(self, data: bytes) -> None:
        if not data:
            return
        now = self._clock()
        if self._begun_at is None and self._hidden.has_begun:
            self._begun_at = now
        self._parts.append(_Part(now, data))
        self._size += len(data)
        self._news.set()

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()


def on_scale(seconds: float) -> float:
    """The first time on the scale that is not before a time."""
    if seconds <= 0:
        return 0.0
    step = math.floor(math.log(seconds, STEP))
    return next(at for at in (STEP**step, STEP ** (step + 1), STEP ** (step + 2)) if at >= seconds)


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body
