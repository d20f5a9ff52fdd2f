"""Entries in one SQLite file: the truth for one machine, used by several processes at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prefold.responses.semantic.entries import sqlite_schema as schema
from prefold.responses.semantic.entries.eviction import Shelf, worth_of
from prefold.responses.semantic.entries.records import (
    AuditLine,
    EntriesOptions,
    Wording,
    belongs,
    key_of,
    lives,
    pack_answer,
    room_of,
    space_of,
    text_bytes,
    text_of,
    unpack_answer,
    unseal,
    wording_of,
)
from prefold.responses.semantic.entries.spaces import Loaded, Spaces
from prefold.responses.semantic.entries.sqlite_file import SqliteFile
from prefold.responses.semantic.types import Answer, Candidate, Entry, KnownWording, Question, Sample
from prefold.responses.store import StoreFailed

_WORDINGS_PER_CANDIDATE = 4
_LISTEN = """
CREATE TEMP TRIGGER wording_went AFTER DELETE ON main.wordings BEGIN
    SELECT wording_went(old.space, length(old.vector), old.number);
END;
CREATE TEMP TRIGGER entry_went AFTER DELETE ON main.entries BEGIN
    SELECT entry_went(old.number);
END;
"""


class SqliteEntries:
    """See `Entries`. All methods run in one thread of their own, each change in one transaction.

    The indexes in memory are made from the file when a context is first asked for. What other processes add is seen
    at the next question; what they remove is not found in the file any more, and then leaves the index.

    A text belongs to the first live entry of its context that knows it, as its question or as another wording, unless
    it was rejected for that entry. Rejection is for good: the wording is removed, and not taken in again. An entry
    that is rejected for its own question is quarantined. An entry in quarantine keeps its texts, so that the same
    wrong answer does not come back by being asked for again.

    Deleting and invalidating write the file anew, once for each call (some 10 ms a megabyte), so that no text
    or vector of what is gone is left in it or its write-ahead log, unless another process uses the file at that moment:
    then the next change does it. That takes as much free space again, in the temporary folder too. What expires or has
    to make room is overwritten in place, and copies that SQLite made of it stay until then. Samples hold no texts and
    stay, as does an audit line with the id.

    With 10,000 wordings of 384 numbers (26 MB), on a busy machine: a question takes 0.7 ms of CPU, a new entry 2 to 3
    ms with its way to the disk, opening the file 60 ms, loading the context 80 ms.

    Args:
        path: of the file; see `SqliteFile` for modes and faults.
        options: bounds.
        clock: Unix seconds.
        replace_damaged: begin a fresh file in place of a damaged one.
    """

    def __init__(
        self, path: Path, options: EntriesOptions, clock: Callable[[], float], *, replace_damaged: bool = False
    ) -> None:
        self._options = options
        self._clock = clock
        self._file = SqliteFile(
            path, schema.SCHEMA, schema.VERSION, replace_damaged=replace_damaged, opened=self._opened
        )
        self._spaces = Spaces(options.index_vectors)
        self._shelf = Shelf()
        self._uses: dict[int, int] = {}  # of entries, by number; not yet in the file
        self._gone_wordings: list[tuple[bytes, int, int]] = []  # in the present transaction
        self._gone_entries: list[int] = []  # likewise
        self._is_erasing = False

    async def nearest(self, question: Question, vector: bytes, embedder: str, count: int) -> list[Candidate]:
        """See `Entries.nearest`."""
        return await self._file.run(lambda database: self._nearest(database, question, vector, embedder, count))

    async def answer(self, entry: str) -> Answer | None:
        """See `Entries.answer`."""
        return await self._file.run(lambda database: self._answer(database, entry))

    async def put(self, entry: Entry) -> str:
        """See `Entries.put`."""
        return await self._file.run(lambda database: self._put(database, entry))

    async def add_wording(self, entry: str, question: Question, vector: bytes, embedder: str) -> None:
        """See `Entries.add_wording`. Nothing happens if the entry is gone, expired or quarantined.

        Raises:
            StoreFailed: also if the question is of another context than the entry.
        """
        await self._file.run(lambda database: self._add_wording(database, entry, question, vector, embedder))

    async def reject(self, entry: str, text: str) -> None:
        """See `Entries.reject`."""
        await self._file.run(lambda database: self._reject(database, entry, text))

    async def quarantine(self, entry: str, note: str) -> bool:
        """See `Entries.quarantine`."""
        return await self._file.run(lambda database: self._mark(database, entry, "quarantine", note))

    async def vet(self, entry: str) -> bool:
        """See `Entries.vet`."""
        return await self._file.run(lambda database: self._mark(database, entry, "vet", ""))

    async def share(self, entry: str) -> bool:
        """See `Entries.share`. Its own question is found by everybody from now on, its other wordings are not."""
        return await self._file.run(lambda database: self._mark(database, entry, "share", ""))

    async def delete(self, entry: str) -> bool:
        """See `Entries.delete`."""
        return await self._file.run(lambda database: self._delete(database, entry))

    async def invalidate(self, tag: str) -> int:
        """See `Entries.invalidate`."""
        return await self._file.run(lambda database: self._invalidate(database, tag))

    async def record(self, sample: Sample) -> None:
        """See `Entries.record`."""
        await self._file.run(lambda database: self._record(database, sample))

    async def samples(self, pool: str, after: int = 0) -> list[Sample]:
        """See `Entries.samples`."""
        return await self._file.run(lambda database: schema.read_samples(database, pool, after))

    async def pools(self) -> list[str]:
        """See `Entries.pools`."""
        return await self._file.run(schema.read_pools)

    async def wordings(self, question: Question, embedder: str) -> list[KnownWording]:
        """See `Entries.wordings`."""
        space = space_of(room_of(question), embedder)
        return await self._file.run(lambda database: schema.read_wordings(database, space, self._clock()))

    async def tally(self, news: Mapping[str, int]) -> None:
        """See `Entries.tally`."""
        await self._file.run(lambda database: self._tally(database, news))

    async def tallies(self) -> Mapping[str, int]:
        """See `Entries.tallies`."""
        return await self._file.run(schema.read_tally)

    async def audit(self, after: int = 0) -> list[AuditLine]:
        """Acts of administrators with a higher number than `after`, oldest first."""
        return await self._file.run(lambda database: schema.read_audit(database, after))

    async def counts(self) -> Mapping[str, int]:
        """See `Entries.counts`."""
        return await self._file.run(schema.read_counts)

    async def close(self) -> None:
        """See `Entries.close`."""
        await self._file.close()

    # In the thread

    def _opened(self, database: sqlite3.Connection) -> None:
        """Begin anew with what is in memory: it may belong to another file."""
        # Temporary triggers also hear of rows that go with their entry.
        database.create_function("wording_went", 3, lambda *wording: self._gone_wordings.append(wording))
        database.create_function("entry_went", 1, self._gone_entries.append)
        database.executescript(_LISTEN)
        self._spaces.clear()
        self._uses.clear()
        self._shelf = Shelf()
        self._meet_others(database)
        (self._is_erasing,) = database.execute("SELECT erasing FROM totals").fetchone()
        if self._is_erasing:
            self._erase(database)

    @contextmanager
    def _change(self, database: sqlite3.Connection) -> Iterator[None]:
        """A transaction, after which what is in memory is put in step."""
        self._gone_wordings.clear()
        self._gone_entries.clear()
        try:
            with self._file.change(database):
                yield
        except BaseException:
            self._shelf = Shelf()  # it may have let go of entries that are still there
            raise
        for number in self._gone_entries:
            self._shelf.remove(number)
            self._uses.pop(number, None)
        for space, size, number in self._gone_wordings:
            self._spaces.remove(space, size, number)
        if self._is_erasing:
            self._erase(database)

    def _erase(self, database: sqlite3.Connection) -> None:
        """Write the file anew, without what was deleted; where that cannot be now, the next change tries again.

        `secure_delete` does not do: SQLite leaves copies of rows behind when it moves them between pages.
        """
        try:
            database.execute("VACUUM")
            database.execute("UPDATE totals SET erasing = 0")
            self._file.scrub(database)
        except sqlite3.OperationalError:  # another process writes, or there is no space to write it anew
            return
        self._is_erasing = False

    def _meet_others(self, database: sqlite3.Connection) -> None:
        """Put entries on the shelf that other processes have added."""
        for number, worth, uses in database.execute(
            "SELECT number, worth, uses FROM entries WHERE number > ? ORDER BY number", (self._shelf.latest,)
        ):
            self._shelf.add(number, worth, uses)

    def _nearest(
        self, database: sqlite3.Connection, question: Question, vector: bytes, embedder: str, count: int
    ) -> list[Candidate]:
        wording = wording_of(question, vector, embedder)
        now = self._clock()
        database.execute("BEGIN")
        try:
            loaded = self._load(database, wording)
            wanted = max(1, count) * _WORDINGS_PER_CANDIDATE
            while True:
                near = loaded.index.search(vector, wanted)
                found = self._look_up(database, loaded, near, wording.text_key, now)
                if len(found) >= count or len(near) < wanted:
                    return found[: max(0, count)]
                wanted *= 4
        finally:
            if database.in_transaction:
                database.execute("COMMIT")

    def _load(self, database: sqlite3.Connection, wording: Wording) -> Loaded:
        """The index of a space, with all that the file holds now."""
        size = len(wording.vector)
        loaded = self._spaces.of(wording.space, size)
        for number, data in database.execute(
            "SELECT number, vector FROM wordings WHERE space = ? AND number > ? AND length(vector) = ? ORDER BY number",
            (wording.space, loaded.latest, size),
        ):
            loaded.index.add(number, data)
            loaded.latest = number
        self._spaces.keep(wording.space, size, loaded)
        return loaded

    def _look_up(
        self,
        database: sqlite3.Connection,
        loaded: Loaded,
        near: list[tuple[int, float]],
        text_key: bytes,
        now: float,
    ) -> list[Candidate]:
        """Candidates for wordings, best first, one for each entry."""
        found: dict[bytes, Candidate] = {}
        for number, similarity in near:
            row = database.execute(
                """
                SELECT e.id, e.cluster, e.created, e.expires, e.principals, e.vetted, e.quarantined,
                    EXISTS (SELECT 1 FROM rejections r WHERE r.entry = e.number AND r.text_key = ?),
                    w.text, w.vector, w.seal
                FROM wordings w JOIN entries e ON e.number = w.entry WHERE w.number = ?
                """,
                (text_key, number),
            ).fetchone()
            if row is None:  # another process removed it
                loaded.index.remove(number)
                continue
            entry, cluster, created, expires, principals, vetted, quarantined, rejected, *wording = row
            if entry in found or not lives(created, expires, now):
                continue
            text, vector, check = wording
            unseal(check, entry, text, vector)
            found[entry] = Candidate(
                entry=text_of(entry),
                wording=text_of(text),
                similarity=float(similarity),
                cluster=text_of(cluster),
                principals=principals,
                vetted=bool(vetted),
                quarantined=bool(quarantined),
                rejected=bool(rejected),
                created=created,
                expires=expires,
            )
        return list(found.values())

    def _answer(self, database: sqlite3.Connection, entry: str) -> Answer | None:
        row = database.execute(
            "SELECT number, created, expires, answer FROM entries WHERE id = ? AND NOT quarantined",
            (text_bytes(entry),),
        ).fetchone()
        if row is None:
            return None
        number, created, expires, data = row
        if not lives(created, expires, self._clock()):
            return None
        answer = unpack_answer(entry, data)
        self._shelf.use(number)
        self._uses[number] = self._uses.get(number, 0) + 1
        return answer

    def _put(self, database: sqlite3.Connection, entry: Entry) -> str:
        wording = wording_of(entry.question, entry.vector, entry.embedder)
        answer = pack_answer(entry.id, entry.answer)
        size = len(answer) + wording.size
        if size > self._options.bytes:
            raise StoreFailed("An entry is larger than all room for entries.", hint="allow more bytes")
        with self._change(database):
            now = self._clock()
            schema.remove_expired(database, now)
            self._meet_others(database)
            known = self._knowing(database, wording, now)
            if known is None:
                number = schema.insert_entry(database, entry, wording, answer, worth_of(entry.answer, size), size)
                schema.confirm(database, number, entry.id, entry.question.principal)
            self._make_room(database)
            database.executemany(
                "UPDATE entries SET uses = uses + ? WHERE number = ?",
                [(uses, used) for used, uses in self._uses.items()],
            )
        self._uses.clear()
        self._meet_others(database)
        return known or entry.id

    def _knowing(self, database: sqlite3.Connection, wording: Wording, now: float) -> str | None:
        """Id of the live entry that a text belongs to, if any; also of one in quarantine."""
        rows = database.execute(
            """
            SELECT e.id, e.created, e.expires
            FROM wordings w JOIN entries e ON e.number = w.entry
            WHERE w.text_key = ?1 AND e.room = ?2
                AND NOT EXISTS (SELECT 1 FROM rejections r WHERE r.entry = e.number AND r.text_key = ?1)
            ORDER BY w.number
            """,
            (wording.text_key, wording.room),
        )
        for id_, created, expires in rows:
            if lives(created, expires, now):
                return text_of(id_)
        return None

    def _make_room(self, database: sqlite3.Connection) -> None:
        """Remove entries until the rest fits; never one that the present transaction brought in."""
        while True:
            entries, size = database.execute("SELECT entries, bytes FROM totals").fetchone()
            if entries <= self._options.entries and size <= self._options.bytes:
                return
            if (victim := self._shelf.victim()) is None:
                return
            self._shelf.remove(victim)
            database.execute("DELETE FROM entries WHERE number = ?", (victim,))

    def _add_wording(
        self, database: sqlite3.Connection, entry: str, question: Question, vector: bytes, embedder: str
    ) -> None:
        wording = wording_of(question, vector, embedder)
        with self._change(database):
            row = database.execute(
                """
                SELECT number, room, open_room, created, expires,
                    EXISTS (SELECT 1 FROM rejections r WHERE r.entry = number AND r.text_key = ?)
                FROM entries WHERE id = ? AND NOT quarantined
                """,
                (wording.text_key, text_bytes(entry)),
            ).fetchone()
            if row is None:
                return
            number, room, open_room, created, expires, is_rejected = row
            if not belongs(wording, room, open_room):
                return
            if is_rejected or not lives(created, expires, self._clock()):
                return
            schema.confirm(database, number, entry, question.principal)
            schema.keep_wording(database, number, entry, wording, self._options.wordings)
            self._make_room(database)

    def _reject(self, database: sqlite3.Connection, entry: str, text: str) -> None:
        text_key = key_of(text)
        with self._change(database):
            row = database.execute("SELECT number, text_key FROM entries WHERE id = ?", (text_bytes(entry),)).fetchone()
            if row is None:
                return
            number, own_key = row
            database.execute("INSERT OR IGNORE INTO rejections VALUES (?, ?)", (number, text_key))
            if text_key == own_key:
                database.execute("UPDATE entries SET quarantined = 1 WHERE number = ?", (number,))
            else:
                schema.remove_wording(database, number, text_key)

    def _mark(self, database: sqlite3.Connection, entry: str, act: str, note: str) -> bool:
        with self._change(database):
            found = schema.MARKS[act](database, entry)
            schema.write_audit(database, self._clock(), act, entry, note if found else "", found)
        return bool(found)

    def _delete(self, database: sqlite3.Connection, entry: str) -> bool:
        with self._change(database):
            id_ = text_bytes(entry)
            found = database.execute("DELETE FROM entries WHERE id = ?", (id_,)).rowcount
            database.execute("UPDATE audit SET note = x'' WHERE subject = ?", (id_,))
            schema.write_audit(database, self._clock(), "delete", entry, "", found)
            self._begin_to_erase(database, found)
        return bool(found)

    def _invalidate(self, database: sqlite3.Connection, tag: str) -> int:
        with self._change(database):
            data = (text_bytes(tag),)
            tagged = "SELECT entry FROM tags WHERE tag = ?"
            database.execute(
                f"UPDATE audit SET note = x'' WHERE subject IN (SELECT id FROM entries WHERE number IN ({tagged}))",  # noqa: S608
                data,
            )
            found = database.execute(f"DELETE FROM entries WHERE number IN ({tagged})", data).rowcount  # noqa: S608
            schema.write_audit(database, self._clock(), "invalidate", tag, "", found)
            self._begin_to_erase(database, found)
        return found

    def _begin_to_erase(self, database: sqlite3.Connection, entries: int) -> None:
        if entries:
            database.execute("UPDATE totals SET erasing = 1")
            self._is_erasing = True

    def _record(self, database: sqlite3.Connection, sample: Sample) -> None:
        with self._change(database):
            schema.write_sample(database, sample, self._options.samples)

    def _tally(self, database: sqlite3.Connection, news: Mapping[str, int]) -> None:
        with self._change(database):
            schema.add_tally(database, news)
