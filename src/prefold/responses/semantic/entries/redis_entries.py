"""Entries in Redis or Valkey: the truth for many gateways.

Works on plain servers (tried with Redis 7.0 and Valkey 9.1): the vectors of a context are fetched once, kept in the
process, and searched there; what others add or remove is seen at the next question. With the search module (tried with
RediSearch 2.10 in Valkey 9.1; valkey-search was not there to be tried) the server searches, by HNSW.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from prefold.errors import UsageError
from prefold.responses.semantic.entries import redis_scripts as scripts
from prefold.responses.semantic.entries.eviction import Shelf, worth_of
from prefold.responses.semantic.entries.records import (
    CLOCK_SKEW_SECONDS,
    COUNTED_PRINCIPALS,
    AuditLine,
    Damaged,
    EntriesOptions,
    Wording,
    belongs,
    key_of,
    lives,
    pack_answer,
    principal_key,
    room_of,
    space_of,
    text_bytes,
    text_of,
    unpack_answer,
    unseal,
    wording_of,
)
from prefold.responses.semantic.entries.redis_samples import fields_of, sample_of
from prefold.responses.semantic.entries.spaces import Loaded, Spaces
from prefold.responses.semantic.types import Answer, Candidate, Entry, KnownWording, Question, Sample
from prefold.responses.store import StoreFailed

_PREFIX = b"prefold:meaning:1:"
_CONNECTIONS = 32
_AT_A_TIME = 500
_GRACE_SECONDS = 3600.0
_WORDINGS_PER_CANDIDATE = 4


class RedisEntries:
    """See `Entries`, and `SqliteEntries` for what texts, rejection and quarantine mean. Each change is one script.

    What has expired is removed with the next entry that is put; where none is, by the server, an hour later. A server
    that drops keys for want of memory (`maxmemory`) makes entries incomplete; those are as good as gone. What is
    deleted is gone from memory at once, but from snapshots and append-only files only when the server writes them
    anew. How much an entry was used is known to the process alone. No cluster of servers.

    With 3,000 wordings of 384 numbers, on a busy machine: a question takes 2 ms (4 ms by the search module), a new
    entry 1 to 2 ms.

    Args:
        url: redis://, rediss:// or unix://, with the password.
        options: bounds; they may be exceeded for as long as it takes to remove what is too much.
        clock: Unix seconds.
        budget_seconds: longest that a connection, or one answer of the server, is waited for. Once, without a retry.
        search: whether the search module is used where the server has it.

    Raises:
        UsageError: for another URL.
    """

    def __init__(
        self,
        url: str,
        options: EntriesOptions,
        clock: Callable[[], float],
        budget_seconds: float = 0.1,
        *,
        search: bool = True,
    ) -> None:
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=budget_seconds,
                socket_timeout=budget_seconds,
                socket_connect_timeout=budget_seconds,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
        except ValueError:
            raise UsageError(
                "The URL of Redis cannot be used.", hint="write redis://HOST:PORT/0, rediss://... or unix://..."
            ) from None
        self._client = Redis.from_pool(pool)
        self._options = options
        self._clock = clock
        self._search = search
        self._searchable: set[int] = set()  # sizes of vectors, in bytes, for which the server has an index
        self._spaces = Spaces(options.index_vectors)
        self._shelf = Shelf()
        self._ids: dict[int, bytes] = {}  # of the entries on the shelf
        self._numbers: dict[bytes, int] = {}
        self._is_closed = False

    async def nearest(self, question: Question, vector: bytes, embedder: str, count: int) -> list[Candidate]:
        """See `Entries.nearest`."""
        wording = wording_of(question, vector, embedder)
        wanted = max(1, count) * _WORDINGS_PER_CANDIDATE
        while True:
            near = await self._near(wording, wanted)
            found = await self._look_up(wording, near)
            if len(found) >= count or len(near) < wanted:
                return found[: max(0, count)]
            wanted *= 4

    async def answer(self, entry: str) -> Answer | None:
        """See `Entries.answer`."""
        id_ = text_bytes(entry)
        created, expires, quarantined, data = await self._call(
            "HMGET", _key("e:", entry), "created", "expires", "quarantined", "answer"
        )
        if data is None or quarantined == b"1" or not lives(float(created), float(expires), self._clock()):
            return None
        try:
            answer = unpack_answer(entry, data)
        except Damaged:
            raise _damaged() from None
        if (number := self._numbers.get(id_)) is not None:
            self._shelf.use(number)
        return answer

    async def put(self, entry: Entry) -> str:
        """See `Entries.put`."""
        question, now = entry.question, self._clock()
        wording = wording_of(question, entry.vector, entry.embedder)
        answer = pack_answer(entry.id, entry.answer)
        size = len(answer) + wording.size
        if size > self._options.bytes:
            raise StoreFailed("An entry is larger than all room for entries.", hint="allow more bytes")
        life = 0 if math.isinf(entry.expires) else max(1, int((entry.expires - now + _GRACE_SECONDS) * 1000))
        await self._is_searchable(len(entry.vector))
        id_ = await self._script(
            scripts.PUT,
            now,
            CLOCK_SKEW_SECONDS,
            COUNTED_PRINCIPALS,
            text_bytes(entry.id),
            wording.open_room,
            answer,
            text_bytes(entry.cluster),
            entry.created,
            entry.expires,
            worth_of(entry.answer, size),
            size,
            principal_key(entry.id, question.principal),
            life,
            *_parts(wording, entry.id),
            *map(text_bytes, question.tags),
        )
        kept = text_of(id_)
        if kept == entry.id:
            await self._make_room(id_)
        return kept

    async def add_wording(self, entry: str, question: Question, vector: bytes, embedder: str) -> None:
        """See `Entries.add_wording`. Nothing happens if the entry is gone, expired or quarantined.

        Raises:
            StoreFailed: also if the question is of another context than the entry.
        """
        wording = wording_of(question, vector, embedder)
        await self._is_searchable(len(vector))
        other = await self._script(
            scripts.ADD_WORDING,
            self._clock(),
            CLOCK_SKEW_SECONDS,
            COUNTED_PRINCIPALS,
            text_bytes(entry),
            principal_key(entry, question.principal),
            self._options.wordings,
            *_parts(wording, entry),
        )
        if other is not None:
            belongs(wording, *other)

    async def reject(self, entry: str, text: str) -> None:
        """See `Entries.reject`."""
        await self._script(scripts.REJECT, text_bytes(entry), key_of(text))

    async def quarantine(self, entry: str, note: str) -> bool:
        """See `Entries.quarantine`."""
        act = (text_bytes(entry), "quarantine", text_bytes(note))
        return bool(await self._script(scripts.MARK, self._clock(), *act))

    async def vet(self, entry: str) -> bool:
        """See `Entries.vet`."""
        return bool(await self._script(scripts.MARK, self._clock(), text_bytes(entry), "vet", ""))

    async def share(self, entry: str) -> bool:
        """See `Entries.share`. Its own question is found by everybody from now on, its other wordings are not."""
        return bool(await self._script(scripts.MARK, self._clock(), text_bytes(entry), "share", ""))

    async def delete(self, entry: str) -> bool:
        """See `Entries.delete`."""
        return bool(await self._script(scripts.DELETE, self._clock(), text_bytes(entry), "delete"))

    async def invalidate(self, tag: str) -> int:
        """See `Entries.invalidate`. Each entry goes in one step, many of them not in the same."""
        total = 0
        while True:
            seen, gone = await self._script(scripts.INVALIDATE, self._clock(), text_bytes(tag), _AT_A_TIME, total)
            total += int(gone)
            if not seen:
                return total

    async def record(self, sample: Sample) -> None:
        """See `Entries.record`."""
        await self._script(scripts.RECORD, text_bytes(sample.pool), self._options.samples, *fields_of(sample))

    async def samples(self, pool: str, after: int = 0) -> list[Sample]:
        """See `Entries.samples`."""
        stream = self._stream(_key("samples:", pool), after)
        return [sample_of(pool, number, fields) async for number, fields in stream]

    async def pools(self) -> list[str]:
        """See `Entries.pools`."""
        return [text_of(pool) for pool in sorted(await self._call("SMEMBERS", _key("pools")))]

    async def wordings(self, question: Question, embedder: str) -> list[KnownWording]:
        """See `Entries.wordings`."""
        space = space_of(room_of(question), embedder).hex()
        latest, found = 0, []
        while True:
            rows = await self._script(scripts.WORDINGS, self._clock(), CLOCK_SKEW_SECONDS, space, latest, _AT_A_TIME)
            for name, *used in rows:
                latest = int(name.partition(b":")[2])
                if used:
                    found.append(KnownWording(text_of(used[0]), text_of(used[1]), used[2]))
            if len(rows) < _AT_A_TIME:
                return found

    async def tally(self, news: Mapping[str, int]) -> None:
        """See `Entries.tally`."""
        await self._script(scripts.TALLY, *(part for item in news.items() for part in item))

    async def tallies(self) -> Mapping[str, int]:
        """See `Entries.tallies`."""
        found = await self._call("HGETALL", _key("tallies"))
        return {name.decode(): int(count) for name, count in sorted(found.items())}

    async def audit(self, after: int = 0) -> list[AuditLine]:
        """Acts of administrators with a higher number than `after`, oldest first; notes go with their entries."""
        found = []
        async for number, fields in self._stream(_key("audit"), after):
            subject = text_of(fields[b"subject"])
            note = await self._call("HGET", _key("e:", subject), f"n:{number}")
            found.append(
                AuditLine(
                    number,
                    float(fields[b"at"]),
                    fields[b"act"].decode(),
                    subject,
                    text_of(note or b""),
                    int(fields[b"entries"]),
                )
            )
        return found

    async def counts(self) -> Mapping[str, int]:
        """See `Entries.counts`."""
        size, wordings = await self._call("HMGET", _key("sums"), "bytes", "wordings")
        pools = await self._call("SMEMBERS", _key("pools"))
        return {
            "entries": await self._call("ZCARD", _key("all")),
            "wordings": int(wordings or 0),
            "quarantined": await self._call("SCARD", _key("quarantined")),
            "samples": sum([await self._call("XLEN", _key("samples:") + pool) for pool in pools]),
            "bytes": int(size or 0),
        }

    async def close(self) -> None:
        """See `Entries.close`."""
        self._is_closed = True
        try:
            await self._client.aclose()
        except (RedisError, OSError, ValueError) as error:
            raise _failed(error) from None

    # Inside

    async def _near(self, wording: Wording, count: int) -> list[tuple[bytes, float]]:
        """Wordings near a vector, by the names of their keys, with their cosines."""
        if (found := await self._search_there(wording, count)) is not None:
            return found
        loaded, size = await self._load(wording), len(wording.vector)
        return [(b"%d:%d" % (size, number), cosine) for number, cosine in loaded.index.search(wording.vector, count)]

    async def _search_there(self, wording: Wording, count: int) -> list[tuple[bytes, float]] | None:
        """What the search module finds; None where the server has none."""
        size = len(wording.vector)
        if not await self._is_searchable(size):
            return None
        try:
            _, *found = await self._call(
                "FT.SEARCH",
                _key("vectors:", str(size)),
                f"(@space:{{{wording.space.hex()}}})=>[KNN {count} @vector $asked AS distance]",
                *("PARAMS", 2, "asked", wording.vector, "RETURN", 1, "distance", "LIMIT", 0, count, "DIALECT", 2),
            )
        except StoreFailed:
            self._searchable.discard(size)  # the server may have been emptied
            raise
        start = len(_key("w:"))
        near = [(key[start:], 1 - float(fields[1])) for key, fields in zip(found[::2], found[1::2], strict=True)]
        return sorted(near, key=lambda one: -one[1])

    async def _is_searchable(self, size: int) -> bool:
        """Have the server index vectors of a size in bytes; whether it does.

        Done before the first of them is written: what is there already is indexed in the background, and until then
        not found.
        """
        if not self._search or size in self._searchable:
            return self._search
        field = ("vector", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", size // 4, "DISTANCE_METRIC", "COSINE")
        name, prefix = _key("vectors:", str(size)), _key("w:", f"{size}:")
        try:
            await self._client.execute_command(  # type: ignore[no-untyped-call]
                "FT.CREATE", name, "ON", "HASH", "PREFIX", 1, prefix, "SCHEMA", "space", "TAG", *field
            )
        except ResponseError as error:
            self._search = "exists" in str(error)
        except (RedisError, OSError, ValueError) as error:
            raise _failed(error) from None
        self._searchable.add(size)
        return self._search

    async def _load(self, wording: Wording) -> Loaded:
        """The index of a space, with all that the server holds now."""
        size = len(wording.vector)
        loaded = self._spaces.of(wording.space, size)
        while True:
            found = await self._script(scripts.NEW_WORDINGS, wording.space.hex(), loaded.latest, _AT_A_TIME)
            for name, data in zip(found[::2], found[1::2], strict=True):
                number = int(name.partition(b":")[2])
                if data is not None and len(data) == size:
                    loaded.index.add(number, data)
                loaded.latest = max(loaded.latest, number)
            self._spaces.keep(wording.space, size, loaded)  # whoever asks next goes on from here
            if len(found) < 2 * _AT_A_TIME:
                return loaded

    async def _look_up(self, wording: Wording, near: list[tuple[bytes, float]]) -> list[Candidate]:
        """Candidates for wordings, best first, one for each entry."""
        rows = await self._script(scripts.LOOK_UP, wording.text_key, *(name for name, _ in near)) if near else []
        found: dict[bytes, Candidate] = {}
        now = self._clock()
        for (name, similarity), row in zip(near, rows, strict=True):
            if not row:  # it went in the meantime
                self._spaces.remove(wording.space, len(wording.vector), int(name.partition(b":")[2]))
                continue
            entry, text, vector, check, *of_entry = row
            cluster, created, expires, counted, vetted, quarantined, rejected = of_entry
            if entry in found or not lives(float(created), float(expires), now):
                continue
            try:
                unseal(check, entry, text, vector)
            except Damaged:
                raise _damaged() from None
            found[entry] = Candidate(
                entry=text_of(entry),
                wording=text_of(text),
                similarity=similarity,
                cluster=text_of(cluster),
                principals=max(1, int(counted)),
                vetted=vetted == b"1",
                quarantined=quarantined == b"1",
                rejected=bool(rejected),
                created=float(created),
                expires=float(expires),
            )
        return list(found.values())

    async def _make_room(self, newest: bytes) -> None:
        """Remove entries until the rest fits, but not the one that just came."""
        await self._meet_others()
        while True:
            entries = await self._call("ZCARD", _key("all"))
            size = int(await self._call("HGET", _key("sums"), "bytes") or 0)
            if entries <= self._options.entries and size <= self._options.bytes:
                break
            if (victim := self._shelf.victim()) is None:
                break
            self._shelf.remove(victim)
            id_ = self._ids.pop(victim)
            del self._numbers[id_]
            if id_ != newest:
                await self._script(scripts.DELETE, self._clock(), id_, "")

    async def _meet_others(self) -> None:
        """Put entries on the shelf that are new there. Uses before that, and those of other gateways, are not known."""
        news = await self._call("ZRANGEBYSCORE", _key("all"), f"({self._shelf.latest}", "+inf", "WITHSCORES")
        for id_, score in _pairs(news):
            number = int(float(score))
            worth = await self._call("HGET", _key("e:") + id_, "worth")
            self._shelf.add(number, int(worth or 1), 0)
            self._ids[number] = id_
            self._numbers[id_] = number

    async def _stream(self, key: bytes, after: int) -> Any:
        """Numbers and fields of a stream, oldest first."""
        while True:
            found = await self._call("XRANGE", key, f"({after}-0", "+", "COUNT", _AT_A_TIME)
            for line, fields in found:
                after = int(line.partition(b"-")[0])
                yield after, fields
            if len(found) < _AT_A_TIME:
                return

    async def _call(self, *command: Any) -> Any:
        return await self._send(lambda: self._client.execute_command(*command))  # type: ignore[no-untyped-call]

    async def _script(self, source: str, *arguments: Any) -> Any:
        script = self._client.register_script(source)
        return await self._send(lambda: script(args=[_PREFIX, *arguments]))

    async def _send(self, send: Callable[[], Any]) -> Any:
        if self._is_closed:
            raise StoreFailed("The connection to Redis is closed.")
        try:
            return await send()
        except (RedisError, OSError, ValueError) as error:
            raise _failed(error) from None


def _parts(wording: Wording, entry: str) -> tuple[bytes | str, ...]:
    """A wording as scripts are given it; spaces in hexadecimal, as the search module wants them."""
    return (
        wording.room,
        wording.space.hex(),
        wording.open_space.hex(),
        wording.text_key,
        wording.text,
        wording.vector,
        wording.seal(entry),
    )


def _key(kind: str, name: str = "") -> bytes:
    return _PREFIX + kind.encode() + text_bytes(name)


def _pairs(flat: Iterable[Any]) -> Iterable[tuple[bytes, Any]]:
    """Members and scores, in the form that the client library gives them or in the server's."""
    items = list(flat)
    if items and isinstance(items[0], tuple | list):
        return [(item[0], item[1]) for item in items]
    return zip(items[::2], items[1::2], strict=True)


def _damaged() -> StoreFailed:
    return StoreFailed("What Redis holds of an entry is not what was written.", hint="delete the entry")


def _failed(error: Exception) -> StoreFailed:
    # The text of the error may hold the server's address, with its password.
    return StoreFailed(f"Redis failed: {type(error).__name__}.", hint="check that it runs and accepts connections")
