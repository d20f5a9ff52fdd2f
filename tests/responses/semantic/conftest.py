"""Servers for all tests of this folder that do not stop them; each test finds its server empty."""

import asyncio

import pytest

from prefold.responses.semantic.entries.records import EntriesOptions
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries

from .entries_support import NOW, running_postgres, running_redis, running_search


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    with running_redis(tmp_path_factory.mktemp("redis")) as (url, _):
        yield url


@pytest.fixture(scope="session")
def search_server(tmp_path_factory):
    with running_search(tmp_path_factory.mktemp("search")) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_server():
    with running_postgres() as conninfo:
        yield conninfo


@pytest.fixture
def redis(redis_server):
    """Opens entries on a plain server; see `make` in `test_entries`."""
    return _opener(redis_server)


@pytest.fixture
def search(search_server):
    """Opens entries on a server with the search module."""
    return _opener(search_server)


def _opener(url):
    pytest.importorskip("redis", reason="redis comes with the extra `gateway`")
    from redis.asyncio import Redis  # noqa: PLC0415 - may not be there

    from prefold.responses.semantic.entries.redis_entries import RedisEntries  # noqa: PLC0415 - imports redis

    async def empty():
        client = Redis.from_url(url)
        await client.flushall()
        await client.aclose()

    asyncio.run(empty())

    def with_clock(now):
        def opened(**options):
            return RedisEntries(url, EntriesOptions(**options), now, budget_seconds=10)

        return opened

    return with_clock


@pytest.fixture
def postgres(postgres_server):
    """Opens entries in PostgreSQL."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    from prefold.responses.semantic.entries.postgres_entries import PostgresEntries  # noqa: PLC0415 - imports psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS prefold_meaning_1 CASCADE")

    def with_clock(now):
        def opened(**options):
            return PostgresEntries(postgres_server, EntriesOptions(**options), now, budget_seconds=10)

        return opened

    return with_clock


PLACES = ["sqlite", "redis", "search", "postgres"]


@pytest.fixture(params=PLACES)
def make(request, tmp_path):
    """Opens the same place again each time that it is called."""
    clock = [NOW]

    def now():
        return clock[0]

    if request.param != "sqlite":
        opened = request.getfixturevalue(request.param)(now)
        opened.clock = clock
        return opened

    def opened(**options):
        return SqliteEntries(tmp_path / "folder" / "entries.db", EntriesOptions(**options), now)

    opened.clock = clock
    return opened
