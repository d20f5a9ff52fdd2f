"""Exact answers: a request that was answered before is answered from what was kept."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from prefold.core.breaker import Breaker
from prefold.errors import UsageError
from prefold.responses.endings import EVENTS, cut_between_events, usage_if_whole
from prefold.responses.flights import Fetch, Flights, Headers, Keep, LiveAnswer
from prefold.responses.guard import Guard
from prefold.responses.key import answer_key
from prefold.responses.observe import RepeatCounter, Repeats
from prefold.responses.store import Store, StoredAnswer

_KEPT_HEADERS = frozenset((b"content-type", b"content-length", b"cache-control", b"x-accel-buffering"))
"""Headers of the answer itself; others, such as rate limits, cookies and ids, belong to one exchange."""

_REPLAY_BYTES = 16 << 10
_CLOCK_SKEW_SECONDS = 5.0  # that two hosts may disagree


class Mode(StrEnum):
    """Whether answers are kept: not at all; not, but repeats are counted; or kept and served."""

    OFF = "off"
    OBSERVE = "observe"
    ON = "on"


class Source(StrEnum):
    """Where an answer comes from; the value of the header x-prefold-cache."""

    HIT = "hit"
    MISS = "miss"
    OFF = "off"
    OBSERVED = "observed"
    SHARED = "shared"
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True)
class AnswerCacheOptions:
    """What is kept, and how long.

    Attributes:
        ttl_seconds: from the end of an answer on; hits do not prolong it.
        every_request: also those whose answer is left to chance.
        by_credentials: clients with different credentials are kept apart though their tenant is the same; see
            `answer_key`.
        answer_bytes: a longer answer is not kept.
        flights: most answers that are on their way at a time; more are asked for without the cache. Times
            `answer_bytes`, the memory that they may take.
        budget_seconds: longest that the store is waited for.
        breaker_failures: of the store in a row, after which it is left alone.
        breaker_seconds: how long it is.
        observed_keys: most that are remembered to count repeats.
    """

    ttl_seconds: float = 3_600.0
    every_request: bool = False
    by_credentials: bool = True
    answer_bytes: int = 2 << 20
    flights: int = 256
    budget_seconds: float = 0.1
    breaker_failures: int = 5
    breaker_seconds: float = 10.0
    observed_keys: int = 200_000


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """What became of requests and their answers.

    Attributes:
        hits: answered from the store.
        misses: that went upstream, though they have a key.
        shared: answered by the call of another.
        off: without a key.
        kept: answers put into the store.
        refused: answers that came whole but may not be kept, or do not fit.
        store_failures: operations of the store that failed or took too long.
    """

    hits: int = 0
    misses: int = 0
    shared: int = 0
    off: int = 0
    kept: int = 0
    refused: int = 0
    store_failures: int = 0


class Reply(msgspec.Struct, frozen=True):
    """An answer to pass on.

    Attributes:
        source: where it comes from.
        status: HTTP status.
        headers: of the answer, in lower case.
        chunks: the body as it comes, to be read once; raises if it breaks off.
        stored: what it was read from, for a hit.
    """

    source: Source
    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]
    stored: StoredAnswer | None = None


class Replay:
    """A stored answer in the form of a live one, which is not to be stored again.

    Args:
        stored: the answer.
        source: what it counts as for whoever asked for it first.
    """

    def __init__(self, stored: StoredAnswer, source: Source = Source.HIT) -> None:
        self.stored = stored
        self.source = source
        self.status = stored.status
        self.headers: Headers = list(stored.headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body."""
        for chunk in self.stored.chunks:
            yield chunk

    async def close(self) -> None:
        """Nothing to stop."""


class AnswerCache:
    """Looks up, shares and keeps the answers of one gateway.

        key = answers.key(call.api, call.fields, call.body, call.tenant.name, call.headers)
        async with answers.reply(key, fetch) as reply:  # fetch: routes, sends, returns an upstream's answer
            await exchange.begin(reply.status, [*reply.headers, (b"x-prefold-cache", reply.source.encode())])
            async for chunk in reply.chunks:
                await exchange.write(chunk)
            await exchange.finish()

    The one rule for `fetch`: it and the answer that it gives are run by a task of the cache, not of the client, since
    others may be listening when the client leaves. What must happen once per call upstream (metering its usage, for
    one) belongs in there; what must happen once per client belongs around `reply`. When the last client leaves the
    `async with`, the task is cancelled, wherever it is, and the answer closed. An error of `fetch` is raised by
    `reply`, for the client whose `fetch` it was.

    Where there is no key, `fetch` is called as if there were no cache. Upstreams should be asked for an answer that is
    not compressed where there is one: a compressed answer is passed on, but neither read nor kept.

    Args:
        mode: whether answers are kept.
        store: where; never waited for longer than its budget, and never the reason that a request fails. None unless
            `mode` is `ON`.
        options: limits.
        clock: Unix seconds.
        monotonic: seconds that only grow.

    Raises:
        UsageError: if answers are to be kept, and there is no store.
    """

    def __init__(
        self,
        mode: Mode,
        store: Store | None,
        options: AnswerCacheOptions,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if mode is Mode.ON and store is None:
            raise UsageError("Answers are to be kept, but there is no store.", hint="name one, or use mode observe")
        self.mode = mode
        self._options = options
        self._clock = clock
        breaker = Breaker(options.breaker_failures, options.breaker_seconds, monotonic)
        self._store = Guard(store, options.budget_seconds, breaker) if store is not None and mode is Mode.ON else None
        self._flights = Flights(options.answer_bytes, options.flights)
        self._repeats = RepeatCounter(options.ttl_seconds, options.observed_keys, monotonic)
        self._sources = dict.fromkeys(Source, 0)
        self._kept = self._refused = 0

    @property
    def counts(self) -> AnswerCounts:
        """What happened so far."""
        return AnswerCounts(
            hits=self._sources[Source.HIT],
            misses=self._sources[Source.MISS],
            shared=self._sources[Source.SHARED],
            off=self._sources[Source.OFF],
            kept=self._kept,
            refused=self._refused,
            store_failures=self._store.failures if self._store else 0,
        )

    @property
    def repeats(self) -> Repeats:
        """How often requests repeated, in mode `OBSERVE`."""
        return self._repeats.counts

    def key(
        self,
        api: str,
        fields: Mapping[str, Any],
        body: bytes,
        tenant_scope: str,
        headers: Mapping[bytes, bytes],
    ) -> bytes | None:
        """The key of a request; None where its answer may not be kept, or nothing is. See `answer_key`."""
        if self.mode is Mode.OFF:
            return None
        return answer_key(
            api,
            fields,
            body,
            tenant_scope,
            headers,
            by_credentials=self._options.by_credentials,
            every_request=self._options.every_request,
        )

    def source_of(self, key: bytes | None) -> Source:
        """What an answer that is fetched counts as."""
        if key is None:
            return Source.OFF
        return Source.MISS if self.mode is Mode.ON else Source.OBSERVED

    async def look_up(self, key: bytes) -> StoredAnswer | None:
        """The answer kept under a key; None where there is none that may still be served.

        Its age is read from the answer, whatever the store says: after a jump of the clock, an answer from the future
        is none.
        """
        if self._store is None or (stored := await self._store.get(key)) is None:
            return None
        age = self._clock() - stored.created
        return stored if -_CLOCK_SKEW_SECONDS <= age < self._options.ttl_seconds else None

    def reply(self, key: bytes | None, fetch: Fetch) -> AbstractAsyncContextManager[Reply]:
        """The answer to a request: kept, on its way already, or fetched.

        Raises:
            Exception: what `fetch` raised.
        """
        return self._straight(key, fetch) if self._store is None or key is None else self._found(key, fetch)

    def _straight(self, key: bytes | None, fetch: Fetch) -> _Straight:
        """The answer as if there were no cache."""
        if self.mode is Mode.OBSERVE:
            self._repeats.see(key)
        source = self.source_of(key)
        self._sources[source] += 1
        return _Straight(source, fetch)

    @asynccontextmanager
    async def _found(self, key: bytes, fetch: Fetch) -> AsyncIterator[Reply]:
        """The answer by way of the cache."""
        listener = await self._flights.board(key, self._find_or(key, fetch), self._keep_under(key))
        if listener is None:
            async with self._straight(key, fetch) as reply:
                yield reply
            return
        answer = listener.answer
        stored = answer.stored if isinstance(answer, Replay) else None
        source = Source.MISS if listener.is_first else Source.SHARED
        if isinstance(answer, Replay):
            source = answer.source
        self._sources[source] += 1
        headers = answer.headers if listener.is_first else _kept_headers(answer.headers)
        try:
            yield Reply(source, answer.status, headers, listener, stored)
        finally:
            listener.leave()

    async def close(self, seconds: float = 1.0) -> None:
        """Give whole answers this long to be kept, stop the others, and close the store."""
        await self._flights.close(seconds)
        if self._store is not None:
            await self._store.close()

    def _find_or(self, key: bytes, fetch: Fetch) -> Fetch:
        async def find_or_fetch() -> LiveAnswer:
            stored = await self.look_up(key)
            return Replay(stored) if stored is not None else await fetch()

        return find_or_fetch

    def _keep_under(self, key: bytes) -> Keep:
        async def keep(answer: LiveAnswer, chunks: list[bytes] | None) -> None:
            if isinstance(answer, Replay) or self._store is None:
                return
            stored = self._stored(answer, b"".join(chunks)) if chunks is not None else None
            if stored is None:
                self._refused += 1
            elif await self._store.put(key, stored, self._options.ttl_seconds):
                self._kept += 1

        return keep

    def _stored(self, answer: LiveAnswer, body: bytes) -> StoredAnswer | None:
        """What is to be kept of an answer; None for nothing."""
        headers = dict(answer.headers)
        usage = usage_if_whole(headers, body)
        if usage is None:
            return None
        is_stream = headers[b"content-type"].startswith(EVENTS)
        return StoredAnswer(
            status=answer.status,
            headers=tuple(_kept_headers(answer.headers)),
            chunks=cut_between_events(body, _REPLAY_BYTES) if is_stream else (body,),
            created=self._clock(),
            input_tokens=usage.input,
            output_tokens=usage.output,
        )


class _Straight:
    """An answer that is fetched for one client alone; a generator would take several times as long to come and go."""

    __slots__ = ("_answer", "_fetch", "_source")

    def __init__(self, source: Source, fetch: Fetch) -> None:
        self._source = source
        self._fetch = fetch

    async def __aenter__(self) -> Reply:
        self._answer = answer = await self._fetch()
        source = answer.source if isinstance(answer, Replay) else self._source
        return Reply(source, answer.status, answer.headers, answer.chunks())

    async def __aexit__(self, *_: object) -> None:
        await self._answer.close()


def _kept_headers(headers: Headers) -> Headers:
    """Those headers of an answer that hold for all who are given it."""
    return [(name, value) for name, value in headers if name in _KEPT_HEADERS]
