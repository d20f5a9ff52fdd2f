"""Answers in one SQLite file, used by several processes at once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from prefold.responses.store import StoredAnswer, StoreFailed, decode_answer, encode_answer

_Result = TypeVar("_Result")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers_1 (key BLOB PRIMARY KEY, expires REAL NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS answers_1_by_expiry ON answers_1 (expires);
"""
_BUSY_MILLISECONDS = 50
_LOG_BYTES = 4 << 20
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_OF_THE_MOMENT = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL")
_DELETED_AT_A_TIME = 64
_ROOM_SHARE = 0.9  # of the bound that is left full when answers are dropped to make room


class SqliteStore:
    """A file in WAL mode, read and written by a thread of its own.

    An answer is dropped when its time is over or, for want of room, when it is the one that expires first. A file that
    turns out damaged is replaced by an empty one, by the process that finds out; the others see that and follow.

    Args:
        path: of the file; made, with its folder, when first used, for its owner alone.
        max_bytes: most that its pages take; the write-ahead log comes on top, some 4 MiB.
        clock: Unix seconds.
    """

    def __init__(self, path: Path, max_bytes: int, clock: Callable[[], float]) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "prefold-answers")
        self._database: sqlite3.Connection | None = None
        self._inode = 0

    async def get(self, key: bytes) -> StoredAnswer | None:
        """See `Store.get`."""
        return await self._in_thread(lambda database: self._get(database, key))

    async def put(self, key: bytes, answer: StoredAnswer, ttl: float) -> None:
        """See `Store.put`."""
        await self._in_thread(lambda database: self._put(database, key, answer, ttl))

    async def close(self) -> None:
        """See `Store.close`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, use: Callable[[sqlite3.Connection], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._use, use)

    def _use(self, use: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run something on the database; what goes wrong decides whether connection and file can be used again."""
        try:
            if self._database is not None and self._file_number() != self._inode:
                self._disconnect()
            return use(self._database or self._connect())
        except (sqlite3.Error, OSError) as error:
            name = str(getattr(error, "sqlite_errorname", type(error).__name__))
            if not name.startswith(_OF_THE_MOMENT):
                self._disconnect()
            if name.startswith(_DAMAGED):
                self._remove()
            raise StoreFailed(f"{self._path} failed: {name}.", hint="check the disk and the file's owner") from None

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # SQLite gives its other files the mode of this one.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._inode = os.fstat(descriptor).st_ino
        os.close(descriptor)
        database = sqlite3.connect(self._path, isolation_level=None)
        try:
            database.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            database.executescript(_SCHEMA)
        except sqlite3.Error:
            database.close()
            raise
        self._database = database
        return database

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()

    def _remove(self) -> None:
        """Remove the damaged file, unless another process has put a new one in its place."""
        with suppress(OSError):
            if self._file_number() == self._inode:
                for ending in ("", "-wal", "-shm"):
                    self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    def _file_number(self) -> int:
        """What tells the file at the path from another one that was there before; 0 where there is none."""
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return 0

    def _get(self, database: sqlite3.Connection, key: bytes) -> StoredAnswer | None:
        row = database.execute(
            "SELECT data FROM answers_1 WHERE key = ? AND expires > ?", (key, self._clock())
        ).fetchone()
        return decode_answer(key, row[0]) if row is not None else None

    def _put(self, database: sqlite3.Connection, key: bytes, answer: StoredAnswer, ttl: float) -> None:
        data = encode_answer(key, answer)
        now = self._clock()
        database.execute("BEGIN IMMEDIATE")
        try:
            database.execute("INSERT OR REPLACE INTO answers_1 VALUES (?, ?, ?)", (key, now + ttl, data))
            _delete_first(database, now)
            if _size(database) > self._max_bytes:
                while _size(database) > self._max_bytes * _ROOM_SHARE and _delete_first(database, float("inf")):
                    pass
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise


def _size(database: sqlite3.Connection) -> int:
    """Bytes of the pages in use."""
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _delete_first(database: sqlite3.Connection, until: float) -> int:
    """Delete some of the answers that expire first, up to a time; how many it were."""
    return database.execute(
        """
        DELETE FROM answers_1 WHERE rowid IN (
            SELECT rowid FROM answers_1 WHERE expires <= ? ORDER BY expires LIMIT ?
        )
        """,
        (until, _DELETED_AT_A_TIME),
    ).rowcount
