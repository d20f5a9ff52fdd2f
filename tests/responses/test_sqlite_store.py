"""The file: its bounds, its faults, and other processes."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from prefold.responses.sqlite_store import SqliteStore
from prefold.responses.store import StoredAnswer, StoreFailed

from .support import KEY, NOW, stored


def key(number):
    return number.to_bytes(32, "big")


def incompressible(size):
    return StoredAnswer(200, (), (os.urandom(size),), NOW)


def test_time_is_over(tmp_path):
    clock = [NOW]

    async def scenario():
        store = SqliteStore(tmp_path / "a.db", 1 << 20, lambda: clock[0])
        await store.put(KEY, stored(), 60)
        clock[0] = NOW + 59
        assert await store.get(KEY) is not None
        clock[0] = NOW + 60
        assert await store.get(KEY) is None
        await store.put(key(1), stored(), 60)
        await store.close()

    asyncio.run(scenario())
    with sqlite3.connect(tmp_path / "a.db") as database:
        assert [(key(1),)] == database.execute("SELECT key FROM answers_1").fetchall()  # the old one is gone
    database.close()


def test_room_is_bounded_and_the_first_to_expire_goes(tmp_path):
    bound = 1 << 20

    async def scenario():
        store = SqliteStore(tmp_path / "a.db", bound, lambda: NOW)
        for number in range(300):
            await store.put(key(number), incompressible(10_000), 60 + number)
        found = [await store.get(key(number)) is not None for number in range(300)]
        await store.close()
        return found

    found = asyncio.run(scenario())
    assert found == sorted(found)
    assert 30 < sum(found) < 110
    assert (tmp_path / "a.db").stat().st_size <= bound * 1.1


def test_an_answer_beyond_all_room_is_not_kept(tmp_path):
    async def scenario():
        store = SqliteStore(tmp_path / "a.db", 100_000, lambda: NOW)
        await store.put(KEY, incompressible(200_000), 60)
        assert await store.get(KEY) is None
        await store.put(KEY, stored(), 60)
        assert stored() == await store.get(KEY)
        await store.close()

    asyncio.run(scenario())


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
def test_only_the_owner_may_read_it(tmp_path):
    async def scenario():
        store = SqliteStore(tmp_path / "a.db", 1 << 20, lambda: NOW)
        await store.put(KEY, stored(), 60)
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
        await store.close()
        return modes

    assert {"a.db": "0o600", "a.db-wal": "0o600", "a.db-shm": "0o600"} == asyncio.run(scenario())


WORKER = textwrap.dedent(
    """
    import asyncio, pathlib, sys
    from prefold.responses.sqlite_store import SqliteStore
    from prefold.responses.store import StoredAnswer, StoreFailed

    path, worker = pathlib.Path(sys.argv[1]), int(sys.argv[2])

    async def main():
        store = SqliteStore(path, 64 << 20, lambda: 0.0)
        for number in range(100):
            key = (worker * 1000 + number).to_bytes(32, "big")
            while True:
                try:
                    await store.put(key, StoredAnswer(200, (), (b"%d" % number,), 0.0), 60)
                    break
                except StoreFailed as failed:  # busy for longer than it waits: the gateway would go on without
                    assert "SQLITE_BUSY" in failed.message, failed
        await store.close()

    asyncio.run(main())
    """
)


def test_several_processes_write_at_once(tmp_path):
    path = tmp_path / "a.db"
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, path, str(worker)]) for worker in range(3)]
    assert [0, 0, 0] == [worker.wait(timeout=100) for worker in workers]

    async def scenario():
        store = SqliteStore(path, 64 << 20, lambda: 0.0)
        found = [await store.get(key(worker * 1000 + number)) for worker in range(3) for number in range(100)]
        await store.close()
        return [answer.chunks[0] for answer in found]

    assert [b"%d" % number for number in range(100)] * 3 == asyncio.run(scenario())


@pytest.mark.parametrize(
    "damage", [b"not a database, but a text that is long enough" * 90, "pages"], ids=["text", "pages"]
)
def test_a_damaged_file_is_a_miss_and_then_a_fresh_one(tmp_path, damage):
    path = tmp_path / "a.db"

    async def scenario():
        store = SqliteStore(path, 8 << 20, lambda: NOW)
        for number in range(50):
            await store.put(key(number), incompressible(9_000), 60)
        await store.close()
        whole = path.read_bytes()
        path.write_bytes(damage if isinstance(damage, bytes) else whole[:4096] + b"\xa5" * (len(whole) - 4096))

        store = SqliteStore(path, 8 << 20, lambda: NOW)
        with pytest.raises(StoreFailed, match=r"SQLITE_(CORRUPT|NOTADB)"):
            await store.get(KEY)
        assert await store.get(key(1)) is None
        await store.put(KEY, stored(), 60)
        assert stored() == await store.get(KEY)
        await store.close()

    asyncio.run(scenario())


def test_two_processes_that_find_the_damage_end_with_one_file(tmp_path):
    path = tmp_path / "a.db"

    async def scenario():
        one, other = (SqliteStore(path, 8 << 20, lambda: NOW) for _ in range(2))
        for number in range(50):
            await one.put(key(number), incompressible(9_000), 60)
        await other.get(key(0))
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        with path.open("r+b") as file:
            file.write(b"\xa5" * path.stat().st_size)
        with pytest.raises(StoreFailed):
            await one.get(KEY)
        await one.put(KEY, stored(), 60)
        assert stored() == await other.get(KEY)
        await other.put(KEY, stored((b"new",)), 60)
        assert stored((b"new",)) == await one.get(KEY)
        await one.close()
        await other.close()

    asyncio.run(scenario())


def test_a_file_that_was_removed_is_made_again_for_all(tmp_path):
    async def scenario():
        one, other = (SqliteStore(tmp_path / "a.db", 1 << 20, lambda: NOW) for _ in range(2))
        for store in (one, other):
            await store.put(KEY, stored(), 60)
        for path in tmp_path.iterdir():
            path.unlink()
        await one.put(key(1), stored(), 60)
        assert await other.get(KEY) is None  # its connection to the old file is closed, and harms nothing of the new
        assert stored() == await other.get(key(1))
        await one.put(key(2), stored(), 60)
        assert stored() == await other.get(key(2))
        await one.close()
        await other.close()

    asyncio.run(scenario())


def test_a_table_that_vanished_is_made_again(tmp_path):
    async def scenario():
        store = SqliteStore(tmp_path / "a.db", 1 << 20, lambda: NOW)
        await store.put(KEY, stored(), 60)
        database = sqlite3.connect(tmp_path / "a.db")
        database.execute("DROP TABLE answers_1")
        database.commit()
        database.close()
        with pytest.raises(StoreFailed):
            await store.get(KEY)
        assert await store.get(KEY) is None
        await store.close()

    asyncio.run(scenario())


def test_a_path_that_cannot_be_used(tmp_path):
    (tmp_path / "file").touch()

    async def scenario():
        store = SqliteStore(tmp_path / "file" / "a.db", 1 << 20, lambda: NOW)
        with pytest.raises(StoreFailed, match=r"a\.db failed"):
            await store.get(KEY)
        await store.close()

    asyncio.run(scenario())


FULL = textwrap.dedent(
    """
    import asyncio, os, pathlib, resource, signal, sys
    from prefold.responses.sqlite_store import SqliteStore
    from prefold.responses.store import StoredAnswer, StoreFailed

    async def main():
        store = SqliteStore(pathlib.Path(sys.argv[1]), 64 << 20, lambda: 0.0)
        small, large = (StoredAnswer(200, (), (os.urandom(size),), 0.0) for size in (1_000, 400_000))
        await store.put(b"small", small, 60)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        try:
            await store.put(b"large", large, 60)
        except StoreFailed as failed:
            print(failed.message.rpartition(" ")[2])
        assert await store.get(b"small") == small
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await store.put(b"large", large, 60)
        assert await store.get(b"large") == large
        await store.close()

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    asyncio.run(main())
    """
)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on a file's size is Linux's")
def test_a_disk_that_is_full(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "a.db"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "" == finished.stderr
    assert finished.stdout.startswith(("SQLITE_FULL", "SQLITE_IOERR"))
