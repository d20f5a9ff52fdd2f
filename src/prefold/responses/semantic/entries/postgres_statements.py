"""Tables of entries in PostgreSQL with pgvector, and what is done to them."""

from __future__ import annotations

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS prefold_meaning_1;
SET search_path = prefold_meaning_1, public;
CREATE EXTENSION IF NOT EXISTS vector SCHEMA public;
CREATE TABLE IF NOT EXISTS entries (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id BYTEA NOT NULL UNIQUE,
    room BYTEA NOT NULL,
    open_room BYTEA NOT NULL,
    text_key BYTEA NOT NULL,
    answer BYTEA NOT NULL,
    cluster BYTEA NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION NOT NULL,
    vetted BOOLEAN NOT NULL DEFAULT false,
    quarantined BOOLEAN NOT NULL DEFAULT false,
    worth INTEGER NOT NULL,
    bytes BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS entries_by_expiry ON entries (expires);
CREATE TABLE IF NOT EXISTS wordings (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entry BIGINT NOT NULL REFERENCES entries ON DELETE CASCADE,
    space BYTEA NOT NULL,
    open_space BYTEA NOT NULL,
    text_key BYTEA NOT NULL,
    text BYTEA NOT NULL,
    vector public.vector NOT NULL,
    bytes BIGINT NOT NULL,
    UNIQUE (entry, space, text_key)
);
CREATE INDEX IF NOT EXISTS wordings_by_space ON wordings (space);
CREATE INDEX IF NOT EXISTS wordings_by_text ON wordings (text_key);
CREATE TABLE IF NOT EXISTS principals (
    entry BIGINT NOT NULL REFERENCES entries ON DELETE CASCADE,
    key BYTEA NOT NULL,
    PRIMARY KEY (entry, key)
);
CREATE TABLE IF NOT EXISTS rejections (
    entry BIGINT NOT NULL REFERENCES entries ON DELETE CASCADE,
    text_key BYTEA NOT NULL,
    PRIMARY KEY (entry, text_key)
);
CREATE TABLE IF NOT EXISTS tags (
    tag BYTEA NOT NULL,
    entry BIGINT NOT NULL REFERENCES entries ON DELETE CASCADE,
    PRIMARY KEY (tag, entry)
);
CREATE INDEX IF NOT EXISTS tags_by_entry ON tags (entry);
CREATE TABLE IF NOT EXISTS samples (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    features BYTEA NOT NULL,
    same BOOLEAN NOT NULL,
    entry BYTEA NOT NULL,
    cluster BYTEA NOT NULL,
    route BYTEA NOT NULL,
    probability DOUBLE PRECISION NOT NULL,
    would_serve BOOLEAN NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    pool BYTEA NOT NULL
);
CREATE INDEX IF NOT EXISTS samples_by_pool ON samples (pool);
CREATE TABLE IF NOT EXISTS tallies (name TEXT PRIMARY KEY, count BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS audit (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    act TEXT NOT NULL,
    subject BYTEA NOT NULL,
    note BYTEA NOT NULL,
    entries BIGINT NOT NULL
);
"""
SETTING_UP, IN_ORDER = 0x50464C41_00000001, 0x50464C41_00000002
"""Advisory locks: on making the tables; on giving numbers to samples, so that they become visible in order."""

NEAREST = """
SELECT e.id, near.text, 1 - near.distance, e.cluster,
    (SELECT count(*) FROM principals p WHERE p.entry = e.number), e.vetted, e.quarantined,
    EXISTS (SELECT 1 FROM rejections r WHERE r.entry = e.number AND r.text_key = %(text_key)s), e.created, e.expires
FROM (
    SELECT DISTINCT ON (w.entry) w.entry, w.text, w.vector <=> %(vector)s::vector AS distance
    FROM wordings w WHERE w.space = %(space)s AND vector_dims(w.vector) = %(numbers)s
    ORDER BY w.entry, distance, w.number
) near JOIN entries e ON e.number = near.entry
WHERE e.created <= %(now)s + %(skew)s AND e.expires > %(now)s
ORDER BY near.distance, e.number LIMIT %(count)s
"""
KNOWING = """
SELECT e.id FROM wordings w JOIN entries e ON e.number = w.entry
WHERE w.text_key = %(text_key)s AND e.room = %(room)s AND e.created <= %(now)s + %(skew)s AND e.expires > %(now)s
    AND NOT EXISTS (SELECT 1 FROM rejections r WHERE r.entry = e.number AND r.text_key = %(text_key)s)
ORDER BY w.number LIMIT 1
"""
RECEIVING = """
SELECT number, room, open_room FROM entries e
WHERE id = %(id)s AND NOT quarantined AND created <= %(now)s + %(skew)s AND expires > %(now)s
    AND NOT EXISTS (SELECT 1 FROM rejections r WHERE r.entry = e.number AND r.text_key = %(text_key)s)
FOR UPDATE
"""
CONFIRM = """
INSERT INTO principals SELECT %(number)s, %(key)s
WHERE (SELECT count(*) FROM principals WHERE entry = %(number)s) < %(most)s
ON CONFLICT DO NOTHING
"""
ADD_WORDING = """
WITH added AS (
    INSERT INTO wordings (entry, space, open_space, text_key, text, vector, bytes)
    SELECT %(number)s, %(space)s, %(open_space)s, %(text_key)s, %(text)s, %(vector)s::vector, %(size)s
    WHERE (SELECT count(*) FROM wordings WHERE entry = %(number)s) < %(most)s
    ON CONFLICT DO NOTHING RETURNING bytes
)
UPDATE entries SET bytes = entries.bytes + added.bytes FROM added WHERE number = %(number)s
"""
REMOVE_WORDINGS = """
WITH removed AS (DELETE FROM wordings WHERE entry = %(number)s AND text_key = %(text_key)s RETURNING bytes)
UPDATE entries SET bytes = bytes - (SELECT coalesce(sum(bytes), 0) FROM removed) WHERE number = %(number)s
"""
INSERT = """
INSERT INTO entries (id, room, open_room, text_key, answer, cluster, created, expires, worth, bytes)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING number
"""
SHARE = """
WITH entry AS (
    UPDATE entries SET quarantined = false, vetted = true WHERE id = %(id)s AND open_room != ''
    RETURNING number, text_key
), added AS (
    INSERT INTO wordings (entry, space, open_space, text_key, text, vector, bytes)
    SELECT w.entry, w.open_space, w.open_space, w.text_key, w.text, w.vector, w.bytes
    FROM wordings w JOIN entry e ON w.entry = e.number AND w.text_key = e.text_key
    WHERE w.open_space NOT IN ('', w.space)
    ON CONFLICT DO NOTHING RETURNING bytes
)
SELECT number, (SELECT coalesce(sum(bytes), 0)::bigint FROM added) FROM entry
"""
WORDINGS = """
SELECT e.cluster, w.text, w.vector::real[] FROM wordings w JOIN entries e ON e.number = w.entry
WHERE w.space = %(space)s AND NOT e.quarantined AND e.created <= %(now)s + %(skew)s AND e.expires > %(now)s
ORDER BY w.number
"""
RECORD = """
INSERT INTO samples (features, same, entry, cluster, route, probability, would_serve, at, pool)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING number
"""
SAMPLES = """
SELECT features, same, entry, cluster, route, probability, would_serve, at, number
FROM samples WHERE pool = %s AND number > %s ORDER BY number
"""
REMOVE_EXPIRED = """
DELETE FROM entries WHERE number IN (
    SELECT number FROM entries WHERE expires <= %(now)s ORDER BY expires LIMIT 64 FOR UPDATE SKIP LOCKED
)
"""
ANSWER = """
SELECT number, answer FROM entries
WHERE id = %(id)s AND NOT quarantined AND created <= %(now)s + %(skew)s AND expires > %(now)s
"""
TALLY = """
INSERT INTO tallies VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET count = tallies.count + excluded.count
"""
COUNTS = """
SELECT (SELECT count(*) FROM entries), (SELECT count(*) FROM wordings),
    (SELECT count(*) FROM entries WHERE quarantined), (SELECT count(*) FROM samples),
    (SELECT coalesce(sum(bytes), 0)::bigint FROM entries)
"""
