"""Entries in PostgreSQL with pgvector: the truth for many gateways.

Tried with PostgreSQL 16, pgvector 0.8 and psycopg 3.3.

Similarity is computed by the server, exactly, over the wordings of one context (cosine by `<=>`); its time grows with
their number.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from psycopg import AsyncConnection, Error
from psycopg.errors import UndefinedFile

from prefold.responses.semantic.entries import postgres_statements as sql
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
    pack_answer,
    pack_features,
    principal_key,
    room_of,
    space_of,
    text_bytes,
    text_of,
    unpack_answer,
    unpack_features,
    wording_of,
)
from prefold.responses.semantic.types import Answer, Candidate, Entry, KnownWording, Question, Sample
from prefold.responses.store import StoreFailed

_Result = TypeVar("_Result")
_Connection = AsyncConnection[tuple[Any, ...]]


class PostgresEntries:
    """See `Entries`, and `SqliteEntries` for what texts, rejection and quarantine mean. Each change is one transaction.

    One connection a process; what it is asked for is done one after the other. What is deleted is gone from the tables
    at once, from their files with the next vacuum, and from the write-ahead log as the server recycles it. How much an
    entry was used is known to the process alone.

    With 3,000 wordings of 384 numbers, on a busy machine: a question takes 10 ms, a new entry 4 ms.

    Args:
        conninfo: of libpq: a URL or key=value words, with the password; whoever connects first must be allowed to make
            a schema, and the extension `vector` if it is not there.
        options: bounds; they may be exceeded for as long as it takes to remove what is too much.
        clock: Unix seconds.
        budget_seconds: longest that one operation may take, but for those of administrators and reading samples.
    """

    def __init__(
        self, conninfo: str, options: EntriesOptions, clock: Callable[[], float], budget_seconds: float = 0.1
    ) -> None:
        self._conninfo = conninfo
        self._options = options
        self._clock = clock
        self._budget = budget_seconds
        self._lock = asyncio.Lock()
        self._connection: _Connection | None = None
        self._is_closed = False
        self._shelf = Shelf()

    async def nearest(self, question: Question, vector: bytes, embedder: str, count: int) -> list[Candidate]:
        """See `Entries.nearest`."""
        wording = wording_of(question, vector, embedder)
        values = {
            "space": wording.space,
            "text_key": wording.text_key,
            "vector": _numbers(vector),
            "numbers": len(vector) // 4,
            "count": max(0, count),
            **self._moment(),
        }

        async def use(database: _Connection) -> list[Candidate]:
            rows = await (await database.execute(sql.NEAREST, values)).fetchall()
            return [
                Candidate(
                    entry=text_of(entry),
                    wording=text_of(text),
                    similarity=similarity,
                    cluster=text_of(cluster),
                    principals=max(1, principals),
                    vetted=vetted,
                    quarantined=marks[0],
                    rejected=marks[1],
                    created=created,
                    expires=expires,
                )
                for entry, text, similarity, cluster, principals, vetted, *marks, created, expires in rows
            ]

        return await self._within(use)

    async def answer(self, entry: str) -> Answer | None:
        """See `Entries.answer`."""

        async def use(database: _Connection) -> Answer | None:
            cursor = await database.execute(sql.ANSWER, {"id": text_bytes(entry), **self._moment()})
            if (row := await cursor.fetchone()) is None:
                return None
            self._shelf.use(row[0])
            return unpack_answer(entry, row[1])

        return await self._within(use)

    async def put(self, entry: Entry) -> str:
        """See `Entries.put`."""
        wording = wording_of(entry.question, entry.vector, entry.embedder)
        answer = pack_answer(entry.id, entry.answer)
        size = len(answer) + wording.size
        if size > self._options.bytes:
            raise StoreFailed("An entry is larger than all room for entries.", hint="allow more bytes")
        name = int.from_bytes(wording.text_key[:8], "little", signed=True)

        async def use(database: _Connection) -> str:
            # Whoever puts the same text waits here for the other.
            await database.execute("SELECT pg_advisory_xact_lock(%s)", (name,))
            moment = self._moment()
            await database.execute(sql.REMOVE_EXPIRED, moment)
            asked = {"text_key": wording.text_key, "room": wording.room, **moment}
            known = await (await database.execute(sql.KNOWING, asked)).fetchone()
            if known is not None:
                return text_of(known[0])
            number = await self._insert(database, entry, wording, answer, size)
            await self._add(database, number, entry.id, entry.question.principal, wording)
            return entry.id

        kept = await self._within(use)
        await self._within(self._make_room)
        return kept

    async def add_wording(self, entry: str, question: Question, vector: bytes, embedder: str) -> None:
        """See `Entries.add_wording`. Nothing happens if the entry is gone, expired or quarantined.

        Raises:
            StoreFailed: also if the question is of another context than the entry.
        """
        wording = wording_of(question, vector, embedder)

        async def use(database: _Connection) -> None:
            values = {"id": text_bytes(entry), "text_key": wording.text_key, **self._moment()}
            row = await (await database.execute(sql.RECEIVING, values)).fetchone()
            if row is None:
                return
            number, room, open_room = row
            if belongs(wording, room, open_room):
                await self._add(database, number, entry, question.principal, wording)

        await self._within(use)

    async def reject(self, entry: str, text: str) -> None:
        """See `Entries.reject`."""
        text_key = key_of(text)

        async def use(database: _Connection) -> None:
            cursor = await database.execute(
                "SELECT number, text_key FROM entries WHERE id = %s FOR UPDATE", (text_bytes(entry),)
            )
            if (row := await cursor.fetchone()) is None:
                return
            number, own_key = row
            await database.execute("INSERT INTO rejections VALUES (%s, %s) ON CONFLICT DO NOTHING", (number, text_key))
            if text_key == own_key:
                await database.execute("UPDATE entries SET quarantined = true WHERE number = %s", (number,))
            else:
                await database.execute(sql.REMOVE_WORDINGS, {"number": number, "text_key": text_key})

        await self._within(use)

    async def quarantine(self, entry: str, note: str) -> bool:
        """See `Entries.quarantine`."""

        async def use(database: _Connection) -> bool:
            cursor = await database.execute("UPDATE entries SET quarantined = true WHERE id = %s", (text_bytes(entry),))
            await self._audit(database, "quarantine", entry, note if cursor.rowcount else "", cursor.rowcount)
            return bool(cursor.rowcount)

        return await self._run(use)

    async def vet(self, entry: str) -> bool:
        """See `Entries.vet`."""

        async def use(database: _Connection) -> bool:
            cursor = await database.execute(
                "UPDATE entries SET quarantined = false, vetted = true WHERE id = %s", (text_bytes(entry),)
            )
            await self._audit(database, "vet", entry, "", cursor.rowcount)
            return bool(cursor.rowcount)

        return await self._run(use)

    async def share(self, entry: str) -> bool:
        """See `Entries.share`. Its own question is found by everybody from now on, its other wordings are not."""

        async def use(database: _Connection) -> bool:
            row = await (await database.execute(sql.SHARE, {"id": text_bytes(entry)})).fetchone()
            if row is not None:
                number, size = row
                await database.execute("UPDATE entries SET bytes = bytes + %s WHERE number = %s", (size, number))
            await self._audit(database, "share", entry, "", int(row is not None))
            return row is not None

        return await self._run(use)

    async def delete(self, entry: str) -> bool:
        """See `Entries.delete`."""

        async def use(database: _Connection) -> bool:
            id_ = text_bytes(entry)
            cursor = await database.execute("DELETE FROM entries WHERE id = %s", (id_,))
            await database.execute("UPDATE audit SET note = '' WHERE subject = %s", (id_,))
            await self._audit(database, "delete", entry, "", cursor.rowcount)
            return bool(cursor.rowcount)

        return await self._run(use)

    async def invalidate(self, tag: str) -> int:
        """See `Entries.invalidate`."""

        async def use(database: _Connection) -> int:
            cursor = await database.execute(
                "DELETE FROM entries WHERE number IN (SELECT entry FROM tags WHERE tag = %s) RETURNING id",
                (text_bytes(tag),),
            )
            ids = [id_ for (id_,) in await cursor.fetchall()]
            await database.execute("UPDATE audit SET note = '' WHERE subject = ANY(%s)", (ids,))
            await self._audit(database, "invalidate", tag, "", len(ids))
            return len(ids)

        return await self._run(use)

    async def record(self, sample: Sample) -> None:
        """See `Entries.record`."""
        values = (
            pack_features(sample.features),
            sample.same,
            text_bytes(sample.entry),
            text_bytes(sample.cluster),
            text_bytes(sample.route),
            sample.probability,
            sample.would_serve,
            sample.at,
            text_bytes(sample.pool),
        )

        async def use(database: _Connection) -> None:
            await database.execute("SELECT pg_advisory_xact_lock(%s)", (sql.IN_ORDER,))
            cursor = await database.execute(sql.RECORD, values)
            (number,) = await cursor.fetchone() or (0,)
            await database.execute("DELETE FROM samples WHERE number <= %s", (number - self._options.samples,))

        await self._within(use)

    async def samples(self, pool: str, after: int = 0) -> list[Sample]:
        """See `Entries.samples`."""

        async def use(database: _Connection) -> list[Sample]:
            cursor = await database.execute(sql.SAMPLES, (text_bytes(pool), after))
            return [
                Sample(
                    unpack_features(features),
                    same,
                    text_of(entry),
                    text_of(cluster),
                    text_of(route),
                    probability,
                    would_serve,
                    at,
                    pool,
                    number,
                )
                for features, same, entry, cluster, route, probability, would_serve, at, number in (
                    await cursor.fetchall()
                )
            ]

        return await self._run(use)

    async def pools(self) -> list[str]:
        """See `Entries.pools`."""

        async def use(database: _Connection) -> list[str]:
            cursor = await database.execute("SELECT DISTINCT pool FROM samples ORDER BY pool")
            return [text_of(pool) for (pool,) in await cursor.fetchall()]

        return await self._run(use)

    async def wordings(self, question: Question, embedder: str) -> list[KnownWording]:
        """See `Entries.wordings`."""
        values = {"space": space_of(room_of(question), embedder), **self._moment()}

        async def use(database: _Connection) -> list[KnownWording]:
            rows = await (await database.execute(sql.WORDINGS, values)).fetchall()
            return [
                KnownWording(text_of(cluster), text_of(text), struct.pack(f"<{len(vector)}f", *vector))
                for cluster, text, vector in rows
            ]

        return await self._run(use)

    async def tally(self, news: Mapping[str, int]) -> None:
        """See `Entries.tally`."""

        async def use(database: _Connection) -> None:
            for item in sorted(news.items()):  # in order, so that two do not wait for each other
                await database.execute(sql.TALLY, item)

        await self._within(use)

    async def tallies(self) -> Mapping[str, int]:
        """See `Entries.tallies`."""

        async def use(database: _Connection) -> dict[str, int]:
            return dict(await (await database.execute("SELECT name, count FROM tallies ORDER BY name")).fetchall())

        return await self._run(use)

    async def audit(self, after: int = 0) -> list[AuditLine]:
        """Acts of administrators with a higher number than `after`, oldest first."""

        async def use(database: _Connection) -> list[AuditLine]:
            cursor = await database.execute(
                "SELECT number, at, act, subject, note, entries FROM audit WHERE number > %s ORDER BY number", (after,)
            )
            return [
                AuditLine(number, at, act, text_of(subject), text_of(note), entries)
                for number, at, act, subject, note, entries in await cursor.fetchall()
            ]

        return await self._run(use)

    async def counts(self) -> Mapping[str, int]:
        """See `Entries.counts`."""

        async def use(database: _Connection) -> dict[str, int]:
            row = await (await database.execute(sql.COUNTS)).fetchone() or ()
            return dict(zip(("entries", "wordings", "quarantined", "samples", "bytes"), row, strict=True))

        return await self._run(use)

    async def close(self) -> None:
        """See `Entries.close`."""
        async with self._lock:
            self._is_closed = True
            await self._disconnect()

    # Inside

    def _moment(self) -> dict[str, float]:
        return {"now": self._clock(), "skew": CLOCK_SKEW_SECONDS}

    async def _insert(self, database: _Connection, entry: Entry, wording: Wording, answer: bytes, size: int) -> int:
        """Add an entry without a wording; its number."""
        values = (
            text_bytes(entry.id),
            wording.room,
            wording.open_room,
            wording.text_key,
            answer,
            text_bytes(entry.cluster),
            entry.created,
            entry.expires,
            worth_of(entry.answer, size),
            len(answer),
        )
        (number,) = await (await database.execute(sql.INSERT, values)).fetchone() or (0,)
        for tag in entry.question.tags:
            await database.execute("INSERT INTO tags VALUES (%s, %s)", (text_bytes(tag), number))
        return int(number)

    async def _add(self, database: _Connection, number: int, entry: str, principal: str, wording: Wording) -> None:
        """Add principal and wording of a question to an entry, as far as they are new and there is room."""
        if key := principal_key(entry, principal):
            await database.execute(sql.CONFIRM, {"number": number, "key": key, "most": COUNTED_PRINCIPALS})
        values = {
            "number": number,
            "space": wording.space,
            "open_space": wording.open_space,
            "text_key": wording.text_key,
            "text": wording.text,
            "vector": _numbers(wording.vector),
            "size": wording.size,
            "most": self._options.wordings,
        }
        await database.execute(sql.ADD_WORDING, values)

    async def _make_room(self, database: _Connection) -> None:
        """Remove entries until the rest fits, but not the newest."""
        cursor = await database.execute(
            "SELECT number, worth FROM entries WHERE number > %s ORDER BY number", (self._shelf.latest,)
        )
        news = await cursor.fetchall()
        for number, worth in news[:-1]:
            self._shelf.add(number, worth, 0)
        cursor = await database.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM entries")
        entries, size = await cursor.fetchone() or (0, 0)
        while entries > self._options.entries or size > self._options.bytes:
            if (victim := self._shelf.victim()) is None:
                break
            self._shelf.remove(victim)
            cursor = await database.execute("DELETE FROM entries WHERE number = %s RETURNING bytes", (victim,))
            if (row := await cursor.fetchone()) is not None:
                entries, size = entries - 1, size - row[0]
        for number, worth in news[-1:]:
            self._shelf.add(number, worth, 0)

    async def _audit(self, database: _Connection, act: str, subject: str, note: str, entries: int) -> None:
        await database.execute(
            "INSERT INTO audit (at, act, subject, note, entries) VALUES (%s, %s, %s, %s, %s)",
            (self._clock(), act, text_bytes(subject), text_bytes(note), entries),
        )

    async def _within(self, use: Callable[[_Connection], Awaitable[_Result]]) -> _Result:
        """Run something in a transaction, within the budget."""
        try:
            async with asyncio.timeout(self._budget):
                return await self._run(use)
        except TimeoutError:
            raise StoreFailed("PostgreSQL took too long.", hint="look at its load and locks") from None

    async def _run(self, use: Callable[[_Connection], Awaitable[_Result]]) -> _Result:
        """Run something in a transaction."""
        async with self._lock:
            if self._is_closed:
                raise StoreFailed("The connection to PostgreSQL is closed.")
            try:
                database = self._connection or await self._connect()
                async with database.transaction():
                    return await use(database)
            except StoreFailed:
                raise
            except UndefinedFile:
                await self._disconnect()
                raise StoreFailed("PostgreSQL has no pgvector.", hint="install the extension `vector`") from None
            except Damaged:
                raise StoreFailed("An answer is not what was written.", hint="delete the entry") from None
            except (Error, OSError, ValueError, OverflowError) as error:
                await self._disconnect()
                # The text of the error may hold the server's address.
                raise StoreFailed(
                    f"PostgreSQL failed: {type(error).__name__}.", hint="check that it runs and what it logs"
                ) from None
            except BaseException:
                await self._disconnect()  # it was interrupted, and nobody knows where
                raise

    async def _connect(self) -> _Connection:
        database = await AsyncConnection.connect(self._conninfo, autocommit=True)
        try:
            async with database.transaction():
                await database.execute("SELECT pg_advisory_xact_lock(%s)", (sql.SETTING_UP,))
                await database.execute(sql.SCHEMA)
            await database.execute("SET search_path = prefold_meaning_1, public")
        except BaseException:  # nobody else will close it
            await database.close()
            raise
        self._connection = database
        self._shelf = Shelf()
        return database

    async def _disconnect(self) -> None:
        database, self._connection = self._connection, None
        if database is not None:
            await database.close()


def _numbers(vector: bytes) -> str:
    """A vector as pgvector reads it."""
    return str(list(struct.unpack(f"<{len(vector) // 4}f", vector)))
