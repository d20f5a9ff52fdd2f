"""What an administrator sees of the entries in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.responses.semantic.entries import sqlite_schema as schema
from prefold.responses.semantic.entries.records import text_bytes, text_of, unpack_answer
from prefold.responses.semantic.entries.sqlite_file import SqliteFile
from prefold.responses.semantic.types import Answer

_COLUMNS = """
SELECT e.number, e.id, e.answer, e.created, e.expires, e.principals, e.vetted, e.quarantined, e.uses,
    EXISTS (SELECT 1 FROM wordings w WHERE w.entry = e.number AND e.open_room != x'' AND w.space = w.open_space),
    (SELECT count(*) FROM rejections r WHERE r.entry = e.number)
FROM entries e
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry.

    Attributes:
        number: rises with each entry.
        id: see `Entry`.
        wordings: texts that it is known under, its own question first.
        answer: kept.
        created: Unix seconds.
        expires: Unix seconds.
        principals: how many independent ones got this answer.
        vetted: by an administrator or a judge.
        quarantined: not served.
        shared: with all partitions.
        uses: how often it was read to be served, as far as it is written down.
        rejections: texts that were found to have another answer.
        tags: by which it is invalidated.
    """

    number: int
    id: str
    wordings: tuple[str, ...]
    answer: Answer
    created: float
    expires: float
    principals: int
    vetted: bool
    quarantined: bool
    shared: bool
    uses: int
    rejections: int
    tags: tuple[str, ...]


class SqliteListing:
    """Reads entries; of whom they are is not known, since partitions are kept as hashes.

    Args:
        path: of the file of `SqliteEntries`.
    """

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(
            path, schema.SCHEMA, schema.VERSION, replace_damaged=False, opened=lambda _database: None
        )

    async def page(self, after: int, count: int) -> list[Listed]:
        """Entries with a higher number than `after`, oldest first, with their own question alone.

        Raises:
            StoreFailed: if they cannot be read.
        """
        return await self._file.run(
            lambda database: [
                _listed(database, row, wordings=1)
                for row in database.execute(f"{_COLUMNS} WHERE e.number > ? ORDER BY e.number LIMIT ?", (after, count))
            ]
        )

    async def entry(self, entry: str) -> Listed | None:
        """All of one; None where there is none of this id.

        Raises:
            StoreFailed: if it cannot be read.
        """

        def read(database: sqlite3.Connection) -> Listed | None:
            row = database.execute(f"{_COLUMNS} WHERE e.id = ?", (text_bytes(entry),)).fetchone()
            return _listed(database, row, wordings=-1) if row else None

        return await self._file.run(read)

    async def close(self) -> None:
        """Let go of the file."""
        await self._file.close()


def _listed(database: sqlite3.Connection, row: Sequence[Any], *, wordings: int) -> Listed:
    number, id_, answer, created, expires, principals, vetted, quarantined, uses, shared, rejections = row
    name = text_of(id_)
    # Its question comes twice where it is shared, or where several embedders have seen it.
    texts = database.execute(
        "SELECT text FROM wordings WHERE entry = ? GROUP BY text_key ORDER BY min(number) LIMIT ?", (number, wordings)
    )
    tags = database.execute("SELECT tag FROM tags WHERE entry = ? ORDER BY tag", (number,))
    return Listed(
        number=number,
        id=name,
        wordings=tuple(text_of(text) for (text,) in texts),
        answer=unpack_answer(name, answer),
        created=created,
        expires=expires,
        principals=principals,
        vetted=bool(vetted),
        quarantined=bool(quarantined),
        shared=bool(shared),
        uses=uses,
        rejections=rejections,
        tags=tuple(text_of(tag) for (tag,) in tags),
    )
