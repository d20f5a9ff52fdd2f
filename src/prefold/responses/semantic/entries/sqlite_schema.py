"""Tables of entries in SQLite, and what is done to single rows. Whoever calls holds the transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from types import MappingProxyType

from prefold.responses.semantic.entries.records import (
    COUNTED_PRINCIPALS,
    AuditLine,
    Wording,
    lives,
    pack_features,
    principal_key,
    text_bytes,
    text_of,
    unpack_features,
)
from prefold.responses.semantic.types import Entry, KnownWording, Sample

VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    room BLOB NOT NULL,
    open_room BLOB NOT NULL,
    text_key BLOB NOT NULL,
    answer BLOB NOT NULL,
    cluster BLOB NOT NULL,
    created REAL NOT NULL,
    expires REAL NOT NULL,
    principals INTEGER NOT NULL DEFAULT 1,
    vetted INTEGER NOT NULL DEFAULT 0,
    quarantined INTEGER NOT NULL DEFAULT 0,
    worth INTEGER NOT NULL,
    uses INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS entries_by_expiry ON entries (expires);
CREATE TABLE IF NOT EXISTS wordings (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    entry INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,
    space BLOB NOT NULL,
    open_space BLOB NOT NULL,
    text_key BLOB NOT NULL,
    text BLOB NOT NULL,
    vector BLOB NOT NULL,
    seal BLOB NOT NULL,
    UNIQUE (entry, space, text_key)
);
CREATE INDEX IF NOT EXISTS wordings_by_space ON wordings (space);
CREATE INDEX IF NOT EXISTS wordings_by_text ON wordings (text_key);
CREATE TABLE IF NOT EXISTS principals (
    entry INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,
    key BLOB NOT NULL,
    PRIMARY KEY (entry, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rejections (
    entry INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,
    text_key BLOB NOT NULL,
    PRIMARY KEY (entry, text_key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tags (
    tag BLOB NOT NULL,
    entry INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,
    PRIMARY KEY (tag, entry)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tags_by_entry ON tags (entry);
CREATE TABLE IF NOT EXISTS samples (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    features BLOB NOT NULL,
    same INTEGER NOT NULL,
    entry BLOB NOT NULL,
    cluster BLOB NOT NULL,
    route BLOB NOT NULL,
    probability REAL NOT NULL,
    would_serve INTEGER NOT NULL,
    at REAL NOT NULL,
    pool BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS samples_by_pool ON samples (pool);
CREATE TABLE IF NOT EXISTS tallies (name TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    act TEXT NOT NULL,
    subject BLOB NOT NULL,
    note BLOB NOT NULL,
    entries INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS totals (
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    erasing INTEGER NOT NULL  -- whether deleted texts may still lie in unused parts of pages
);
INSERT INTO totals SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM totals);
CREATE TRIGGER IF NOT EXISTS entry_came AFTER INSERT ON entries BEGIN
    UPDATE totals SET entries = entries + 1, bytes = bytes + new.bytes;
END;
CREATE TRIGGER IF NOT EXISTS entry_went AFTER DELETE ON entries BEGIN
    UPDATE totals SET entries = entries - 1, bytes = bytes - old.bytes;
END;
CREATE TRIGGER IF NOT EXISTS entry_grew AFTER UPDATE OF bytes ON entries BEGIN
    UPDATE totals SET bytes = bytes + new.bytes - old.bytes;
END;
"""
_EXPIRED_AT_A_TIME = 64


def insert_entry(
    database: sqlite3.Connection, entry: Entry, wording: Wording, answer: bytes, worth: int, size: int
) -> int:
    """Add an entry with its tags and first wording, of `size` bytes together; its number."""
    number = database.execute(
        """
        INSERT INTO entries (id, room, open_room, text_key, answer, cluster, created, expires, worth, bytes)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number
        """,
        (
            text_bytes(entry.id),
            wording.room,
            wording.open_room,
            wording.text_key,
            answer,
            text_bytes(entry.cluster),
            entry.created,
            entry.expires,
            worth,
            size,
        ),
    ).fetchone()[0]
    database.executemany("INSERT INTO tags VALUES (?, ?)", [(text_bytes(tag), number) for tag in entry.question.tags])
    _insert_wording(database, number, entry.id, wording)
    return int(number)


def _insert_wording(database: sqlite3.Connection, number: int, entry: str, wording: Wording) -> None:
    database.execute(
        "INSERT INTO wordings (entry, space, open_space, text_key, text, vector, seal) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            wording.space,
            wording.open_space,
            wording.text_key,
            wording.text,
            wording.vector,
            wording.seal(entry),
        ),
    )


def keep_wording(database: sqlite3.Connection, number: int, entry: str, wording: Wording, most: int) -> None:
    """Add a wording to an entry, unless it is there, or `most` are."""
    kept, has_it = database.execute(
        "SELECT count(*), sum(space = ? AND text_key = ?) FROM wordings WHERE entry = ?",
        (wording.space, wording.text_key, number),
    ).fetchone()
    if not has_it and kept < most:
        _insert_wording(database, number, entry, wording)
        _grow(database, number, wording.size)


def _quarantine(database: sqlite3.Connection, entry: str) -> int:
    return database.execute("UPDATE entries SET quarantined = 1 WHERE id = ?", (text_bytes(entry),)).rowcount


def _vet(database: sqlite3.Connection, entry: str) -> int:
    return database.execute(
        "UPDATE entries SET quarantined = 0, vetted = 1 WHERE id = ?", (text_bytes(entry),)
    ).rowcount


def _share(database: sqlite3.Connection, entry: str) -> int:
    """Let an entry be found by its own question in its open room; how many there are that can."""
    row = database.execute(
        "UPDATE entries SET quarantined = 0, vetted = 1 WHERE id = ? AND open_room != x'' RETURNING number, text_key",
        (text_bytes(entry),),
    ).fetchone()
    if row is None:
        return 0
    added = database.execute(
        """
        INSERT OR IGNORE INTO wordings (entry, space, open_space, text_key, text, vector, seal)
        SELECT entry, open_space, open_space, text_key, text, vector, seal FROM wordings
        WHERE entry = ? AND text_key = ? AND open_space != x'' RETURNING length(text) + length(vector)
        """,
        row,
    ).fetchall()
    _grow(database, row[0], sum(size for (size,) in added))
    return 1


MARKS: Mapping[str, Callable[[sqlite3.Connection, str], int]] = MappingProxyType(
    {"quarantine": _quarantine, "vet": _vet, "share": _share}
)
"""What an act does to an entry; how many there are of its id that it can be done to."""


def remove_wording(database: sqlite3.Connection, number: int, text_key: bytes) -> None:
    """Remove a wording from an entry, in all spaces."""
    removed = database.execute(
        "DELETE FROM wordings WHERE entry = ? AND text_key = ? RETURNING length(text) + length(vector)",
        (number, text_key),
    ).fetchall()
    _grow(database, number, -sum(size for (size,) in removed))


def _grow(database: sqlite3.Connection, number: int, size: int) -> None:
    """Count bytes that came to an entry, or left it."""
    database.execute("UPDATE entries SET bytes = bytes + ? WHERE number = ?", (size, number))


def confirm(database: sqlite3.Connection, number: int, entry: str, principal: str) -> None:
    """Count a principal, once; nobody in particular counts as none, but an entry has at least one."""
    if key := principal_key(entry, principal):
        database.execute(
            """
            INSERT OR IGNORE INTO principals SELECT ?1, ?2
            WHERE (SELECT count(*) FROM principals WHERE entry = ?1) < ?3
            """,
            (number, key, COUNTED_PRINCIPALS),
        )
        database.execute(
            "UPDATE entries SET principals = (SELECT count(*) FROM principals WHERE entry = ?1) WHERE number = ?1",
            (number,),
        )


def remove_expired(database: sqlite3.Connection, now: float) -> None:
    """Remove some of the entries whose time is over, those first that have been so longest."""
    database.execute(
        "DELETE FROM entries WHERE number IN (SELECT number FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?)",
        (now, _EXPIRED_AT_A_TIME),
    )


def write_audit(database: sqlite3.Connection, at: float, act: str, subject: str, note: str, entries: int) -> None:
    """Note an act."""
    database.execute(
        "INSERT INTO audit (at, act, subject, note, entries) VALUES (?, ?, ?, ?, ?)",
        (at, act, text_bytes(subject), text_bytes(note), entries),
    )


def read_audit(database: sqlite3.Connection, after: int) -> list[AuditLine]:
    """Lines with a higher number, oldest first."""
    return [
        AuditLine(number, at, act, text_of(subject), text_of(note), entries)
        for number, at, act, subject, note, entries in database.execute(
            "SELECT number, at, act, subject, note, entries FROM audit WHERE number > ? ORDER BY number", (after,)
        )
    ]


def write_sample(database: sqlite3.Connection, sample: Sample, most: int) -> None:
    """Keep a sample, and of all of them the newest `most`."""
    number = database.execute(
        """
        INSERT INTO samples (features, same, entry, cluster, route, probability, would_serve, at, pool)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            pack_features(sample.features),
            sample.same,
            text_bytes(sample.entry),
            text_bytes(sample.cluster),
            text_bytes(sample.route),
            sample.probability,
            sample.would_serve,
            sample.at,
            text_bytes(sample.pool),
        ),
    ).lastrowid
    database.execute("DELETE FROM samples WHERE number <= ?", ((number or 0) - most,))


def read_samples(database: sqlite3.Connection, pool: str, after: int) -> list[Sample]:
    """Samples of a pool with a higher number, oldest first."""
    return [
        Sample(
            features=unpack_features(features),
            same=bool(same),
            entry=text_of(entry),
            cluster=text_of(cluster),
            route=text_of(route),
            probability=probability,
            would_serve=bool(would_serve),
            at=at,
            pool=pool,
            number=number,
        )
        for number, features, same, entry, cluster, route, probability, would_serve, at in database.execute(
            """
            SELECT number, features, same, entry, cluster, route, probability, would_serve, at
            FROM samples WHERE pool = ? AND number > ? ORDER BY number
            """,
            (text_bytes(pool), after),
        )
    ]


def read_pools(database: sqlite3.Connection) -> list[str]:
    """Pools that have samples."""
    return [text_of(pool) for (pool,) in database.execute("SELECT DISTINCT pool FROM samples ORDER BY pool")]


def add_tally(database: sqlite3.Connection, news: Mapping[str, int]) -> None:
    """Add to what was counted."""
    database.executemany(
        "INSERT INTO tallies VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
        news.items(),
    )


def read_tally(database: sqlite3.Connection) -> dict[str, int]:
    """What was counted."""
    return dict(database.execute("SELECT name, count FROM tallies ORDER BY name"))


def read_wordings(database: sqlite3.Connection, space: bytes, now: float) -> list[KnownWording]:
    """Each wording whose entry may be used."""
    return [
        KnownWording(text_of(cluster), text_of(text), vector)
        for cluster, text, vector, created, expires in database.execute(
            """
            SELECT e.cluster, w.text, w.vector, e.created, e.expires
            FROM wordings w JOIN entries e ON e.number = w.entry
            WHERE w.space = ? AND NOT e.quarantined ORDER BY w.number
            """,
            (space,),
        )
        if lives(created, expires, now)
    ]


def read_counts(database: sqlite3.Connection) -> dict[str, int]:
    """See `Entries.counts`."""
    entries, size, wordings, quarantined, samples = database.execute(
        """
        SELECT entries, bytes, (SELECT count(*) FROM wordings), (SELECT count(*) FROM entries WHERE quarantined),
            (SELECT count(*) FROM samples)
        FROM totals
        """
    ).fetchone()
    return {"entries": entries, "wordings": wordings, "quarantined": quarantined, "samples": samples, "bytes": size}
