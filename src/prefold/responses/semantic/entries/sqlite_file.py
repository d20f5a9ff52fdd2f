"""One SQLite file in WAL mode with a thread of its own; what is done when it is locked, full, foreign or damaged."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from prefold.errors import PrefoldError
from prefold.responses.semantic.entries.records import Damaged
from prefold.responses.store import StoreFailed

_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)

_BUSY_MILLISECONDS = 50
_LOG_BYTES = 4 << 20
_APPLICATION = 0x50464C41  # "PFLA", in the file's head
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "Damaged")
_OF_THE_MOMENT = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_CONSTRAINT", "OverflowError", "ValueError")
_FILES = ("", "-wal", "-shm")


class _ForeignFile(Exception):
    """The file belongs to something else, or to another version."""


class SqliteFile:
    """Runs functions on a database, one at a time, in order.

    What is committed survives the process (each transaction is in the log before it is acknowledged) and the machine
    (`synchronous = FULL`). What is deleted is overwritten with zeros (`secure_delete`); older copies of it in the
    write-ahead log are gone after `scrub`.

    A damaged file, found by `quick_check` when it is opened, by SQLite later, or by `Damaged` that a function raises,
    is never read again. Unless told to replace it, everything fails until somebody puts another file in its place.

    Args:
        path: of the file; made, with its folder, when first used, for its owner alone.
        schema: statements that make its tables.
        version: of the schema; a file of another one is left as it is, and everything fails.
        replace_damaged: move a damaged file aside (its name with ".damaged" behind; it still holds texts) and begin an
            empty one.
        opened: told of each new connection, in the thread.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        version: int,
        *,
        replace_damaged: bool,
        opened: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._path = path
        self._schema = schema
        self._version = version
        self._replace_damaged = replace_damaged
        self._opened = opened
        self._thread = ThreadPoolExecutor(1, "prefold-meaning")
        self._database: sqlite3.Connection | None = None
        self._inode = 0
        self._damaged_inode = 0
        self._scrub_is_due = False
        self._is_closed = False

    async def run(self, use: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """What a function makes of the database.

        Raises:
            StoreFailed: if it cannot be run to its end; nothing of its last transaction has happened then.
        """
        if self._is_closed:
            raise StoreFailed(f"{self._path} is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, use)

    async def close(self) -> None:
        """Let go of the file, after what is still waiting for it."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)

    @contextmanager
    def change(self, database: sqlite3.Connection) -> Iterator[None]:
        """A transaction that writes: all of it happens, or nothing."""
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
            database.execute("COMMIT")
        except BaseException:  # whatever interrupts it, half of it never stays
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        if self._scrub_is_due:
            self.scrub(database)

    def scrub(self, database: sqlite3.Connection) -> None:
        """Empty the write-ahead log; while another process is reading, that waits for the next change."""
        (busy, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._scrub_is_due = bool(busy)

    def _run(self, use: Callable[[sqlite3.Connection], _Result]) -> _Result:
        try:
            return use(self._connected())
        except StoreFailed:
            raise
        except PrefoldError as error:
            raise StoreFailed(error.message, hint=error.hint) from None
        except _ForeignFile:
            raise StoreFailed(
                f"{self._path} was not written by this version.", hint="name another file, or move this one away"
            ) from None
        except (sqlite3.Error, OSError, Damaged, ValueError, OverflowError) as error:
            name = str(getattr(error, "sqlite_errorname", _kind(error)))
            if not name.startswith(_OF_THE_MOMENT):
                self._disconnect()
            if name.startswith(_DAMAGED):
                self._set_aside()
            raise StoreFailed(f"{self._path} failed: {name}.", hint="check the disk and the file's owner") from None

    def _connected(self) -> sqlite3.Connection:
        """A connection to the file that lies at the path now."""
        number = self._file_number()
        if number and number == self._damaged_inode:
            raise StoreFailed(f"{self._path} is damaged.", hint="move it away, or allow that a fresh one is begun")
        self._damaged_inode = 0
        if self._database is not None and number != self._inode:
            self._disconnect()
        return self._database or self._connect()

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # SQLite gives its other files the mode of this one.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._inode = os.fstat(descriptor).st_ino
        os.close(descriptor)
        database = sqlite3.connect(self._path, isolation_level=None)
        try:
            database.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
            self._verify(database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute("PRAGMA secure_delete = ON")
            database.execute("PRAGMA foreign_keys = ON")
            database.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            self._make_tables(database)
            self.scrub(database)  # a process that was killed may have left deleted texts in the log
            self._opened(database)
        except BaseException:  # nobody else will close it
            database.close()
            raise
        self._database = database
        return database

    def _verify(self, database: sqlite3.Connection) -> None:
        """Refuse a file that is not ours, before anything is written to it, or that is damaged."""
        application, version = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        is_new = database.execute("SELECT NOT EXISTS (SELECT 1 FROM sqlite_master)").fetchone()[0]
        if not is_new and (application, version) != (_APPLICATION, self._version):
            raise _ForeignFile
        if database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise Damaged

    def _make_tables(self, database: sqlite3.Connection) -> None:
        """Make them in one transaction, unless another process has."""
        if database.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION:
            return
        database.executescript(
            f"""
            BEGIN IMMEDIATE;
            {self._schema}
            PRAGMA user_version = {self._version};
            PRAGMA application_id = {_APPLICATION};
            COMMIT;
            """
        )

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()

    def _set_aside(self) -> None:
        """Never read the file again, and make way for another if that is wanted."""
        with suppress(OSError):
            if self._file_number() != self._inode:  # another process has put a new one in its place
                return
            self._damaged_inode = self._inode
            if not self._replace_damaged:
                _log.error("%s is damaged; nothing is answered by meaning until it is moved away.", self._path)
                return
            _log.warning("%s is damaged; it is kept as %s.damaged, and a fresh one begun.", self._path, self._path.name)
            for ending in _FILES:
                file = self._path.with_name(self._path.name + ending)
                with suppress(FileNotFoundError):
                    file.replace(self._path.with_name(f"{self._path.name}.damaged{ending}"))

    def _file_number(self) -> int:
        """What tells the file at the path from another one that was there before; 0 where there is none."""
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return 0


def _kind(error: Exception) -> str:
    """The name of an error; those of Unicode count as what they are made of."""
    return "ValueError" if isinstance(error, ValueError) else type(error).__name__
