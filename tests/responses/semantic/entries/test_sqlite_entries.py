"""The file: its faults, what is left in it, and other processes."""

import asyncio
import random
import sqlite3
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from prefold.responses.semantic.entries.records import EntriesOptions
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
from prefold.responses.store import StoreFailed

from ..entries_support import EMBEDDER, NOW, entry, nearest, question, raw, sample, vector  # noqa: TID252 - of the folder above

OPTIONS = EntriesOptions()
TESTS = Path(__file__).parent


def opened(path, *, now=NOW, options=OPTIONS, **more):
    return SqliteEntries(path, options, lambda: now, **more)


def test_files_are_for_their_owner_alone(tmp_path):
    async def scenario():
        entries = opened(tmp_path / "a.db")
        await entries.put(entry(1, "one"))
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        await entries.close()
        return modes

    assert {0o600} == asyncio.run(scenario())


def test_principals_and_partitions_are_not_in_the_file(tmp_path):
    async def scenario():
        entries = opened(tmp_path / "a.db")
        await entries.put(entry(1, "one", "PRINCIPAL", partition="PARTITION"))
        await entries.reject(f"{1:032x}", "REJECTED")
        await entries.close()

    asyncio.run(scenario())
    assert b"one" in raw(tmp_path / "a.db")
    assert not any(name in raw(tmp_path / "a.db") for name in (b"PRINCIPAL", b"PARTITION", b"REJECTED"))


@pytest.mark.parametrize("seed", [2])  # with it, secure_delete alone leaves copies of rows that were moved
def test_nothing_is_left_of_rows_that_were_moved_between_pages(tmp_path, seed):
    chance = random.Random(seed)

    async def scenario():
        entries = opened(tmp_path / "a.db")
        mine: dict[int, set[int]] = {}
        gone: set[int] = set()
        for step in range(560):
            kind = chance.choice(["put", "put", "word", "delete"]) if mine else "put"
            if kind == "put":
                await entries.put(entry(step, f"<<{step}>>" * chance.choice([1, 30, 900]), "ann"))
                mine[step] = {step}
                continue
            of = chance.choice(list(mine))
            if kind == "word":
                text = f"<<{step}>>" * chance.choice([1, 500])
                await entries.add_wording(f"{of:032x}", question(text, str(step)), vector(text), EMBEDDER)
                mine[of].add(step)
            else:
                await entries.delete(f"{of:032x}")
                gone |= mine.pop(of)
        left = raw(tmp_path / "a.db")
        await entries.close()
        return [number for number in gone if f"<<{number}>>".encode() in left]

    assert [] == asyncio.run(scenario())


@pytest.mark.parametrize("by", ["delete", "invalidate"])
def test_deleted_texts_and_vectors_are_gone_from_the_file_at_once(tmp_path, by):
    chance = random.Random(by)
    sizes = [chance.choice([3, 40, 400, 5_000, 90_000]) for _ in range(120)]

    def text(number):
        return f"<<{number}>>" * (sizes[number] // 5 + 1)

    async def scenario():
        entries = opened(tmp_path / "a.db")
        for number in range(120):
            await entries.put(entry(number, text(number), tags=["odd"] if number % 2 else []))
            other = f"another {text(number)}"
            await entries.add_wording(f"{number:032x}", question(other), vector(other), EMBEDDER)
        if by == "delete":
            order = list(range(1, 120, 2))
            chance.shuffle(order)
            for number in order:
                assert await entries.delete(f"{number:032x}")
        else:
            assert 60 == await entries.invalidate("odd")
        left = raw(tmp_path / "a.db")  # while it is open, and the log is there
        await entries.close()
        return left

    left = asyncio.run(scenario())
    for number in range(120):
        marks = (f"<<{number}>>".encode(), vector(text(number)), vector(f"another {text(number)}"))
        assert [number % 2 == 0] * 3 == [mark in left for mark in marks], number


def test_what_another_process_kept_in_the_log_by_reading_goes_with_the_next_change(tmp_path):
    path = tmp_path / "a.db"

    async def scenario():
        entries = opened(path)
        await entries.put(entry(1, "<<secret>>"))
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchall()
        assert await entries.delete(f"{1:032x}")
        assert [] == await nearest(entries, "<<secret>>")
        reader.close()
        await entries.put(entry(2, "two"))
        assert b"<<secret>>" not in raw(path)
        await entries.close()

    asyncio.run(scenario())


def test_a_locked_file_fails_and_works_again(tmp_path):
    path = tmp_path / "a.db"

    async def scenario():
        entries = opened(path)
        await entries.put(entry(1, "one"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed, match="SQLITE_BUSY"):
            await entries.put(entry(2, "two"))
        assert "one" == (await nearest(entries, "two"))[0].wording  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        assert f"{2:032x}" == await entries.put(entry(2, "two"))
        await entries.close()

    asyncio.run(scenario())


def test_a_file_locked_while_it_is_opened(tmp_path):
    path = tmp_path / "a.db"

    async def scenario():
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        entries = opened(path)
        with pytest.raises(StoreFailed, match="SQLITE_BUSY"):
            await nearest(entries, "one")
        other.execute("ROLLBACK")
        other.close()
        assert [] == await nearest(entries, "one")
        await entries.close()

    asyncio.run(scenario())


FULL = textwrap.dedent(
    """
    import asyncio, os, resource, signal, sys
    from pathlib import Path
    from tests.responses.semantic.entries_support import EMBEDDER, NOW, entry, nearest
    from prefold.responses.semantic.entries.records import EntriesOptions
    from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
    from prefold.responses.store import StoreFailed

    async def main():
        entries = SqliteEntries(Path(sys.argv[1]), EntriesOptions(), lambda: NOW)
        await entries.put(entry(1, "small"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        large = entry(2, os.urandom(300_000).hex())
        try:
            await entries.put(large)
        except StoreFailed as failed:
            print(failed.message.rpartition(" ")[2])
        (found,) = await nearest(entries, "small")
        assert found.wording == "small", found
        assert await entries.answer(found.entry) is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert await entries.put(large) == large.id
        assert (await entries.counts())["entries"] == 2
        await entries.close()

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    asyncio.run(main())
    """
)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on a file's size is Linux's")
def test_a_full_disk_fails_and_serves_what_is_there(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "a.db"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=TESTS.parents[3],
    )
    assert "" == finished.stderr
    assert finished.stdout.startswith(("SQLITE_FULL", "SQLITE_IOERR"))


async def filled(path, count=60):
    entries = opened(path)
    for number in range(count):
        await entries.put(entry(number, f"{number} " * 500))
    await entries.close()


DAMAGES = {
    "text": lambda whole: b"not a database, but a text that is long enough" * 90,
    "pages": lambda whole: whole[:4096] + b"\xa5" * (len(whole) - 4096),
    "cut": lambda whole: whole[: len(whole) // 2 + 100],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_not_served_until_somebody_moves_it_away(tmp_path, damage):
    path = tmp_path / "a.db"

    async def scenario():
        await filled(path)
        damaged = damage(path.read_bytes())
        path.write_bytes(damaged)
        entries = opened(path)
        for _ in range(2):
            with pytest.raises(StoreFailed):
                await nearest(entries, "1")
            with pytest.raises(StoreFailed):
                await entries.put(entry(1, "one"))
        assert damaged == path.read_bytes()
        path.rename(tmp_path / "elsewhere")
        assert [] == await nearest(entries, "1")
        await entries.put(entry(1, "one"))
        await entries.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_set_aside_if_that_is_wanted(tmp_path, damage):
    path = tmp_path / "a.db"

    async def scenario():
        await filled(path)
        damaged = damage(path.read_bytes())
        path.write_bytes(damaged)
        entries = opened(path, replace_damaged=True)
        with pytest.raises(StoreFailed):
            await nearest(entries, "1")
        assert [] == await nearest(entries, "1")
        await entries.put(entry(1, "one"))
        assert 1 == len(await nearest(entries, "one"))
        assert damaged == (tmp_path / "a.db.damaged").read_bytes()
        await entries.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("column", ["text", "vector", "answer"])
def test_a_row_that_was_changed_is_not_served(tmp_path, column):
    path = tmp_path / "a.db"

    async def scenario():
        await filled(path, 1)
        table = "entries" if column == "answer" else "wordings"
        with sqlite3.connect(path) as database:
            (data,) = database.execute(f"SELECT {column} FROM {table}").fetchone()
            changed = data[:20] + bytes([data[20] ^ 1]) + data[21:]
            database.execute(f"UPDATE {table} SET {column} = ?", (changed,))
        database.close()
        entries = opened(path)
        with pytest.raises(StoreFailed, match="Damaged"):
            await entries.answer(f"{0:032x}") if column == "answer" else await nearest(entries, "0 " * 500)
        with pytest.raises(StoreFailed, match="is damaged"):
            await entries.counts()
        await entries.close()

    asyncio.run(scenario())


def test_an_answer_under_another_entry_is_not_served(tmp_path):
    path = tmp_path / "a.db"

    async def scenario():
        await filled(path, 2)
        with sqlite3.connect(path) as database:
            database.execute("UPDATE entries SET answer = (SELECT answer FROM entries WHERE number = 1)")
        database.close()
        entries = opened(path)
        assert await entries.answer(f"{0:032x}") is not None
        with pytest.raises(StoreFailed, match="Damaged"):
            await entries.answer(f"{1:032x}")
        await entries.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "foreign",
    ["CREATE TABLE other (a); INSERT INTO other VALUES ('theirs')", "PRAGMA user_version = 2"],
    ids=["another program's", "another version's"],
)
def test_a_foreign_file_is_left_alone(tmp_path, foreign):
    path = tmp_path / "a.db"

    async def scenario():
        if "version" in foreign:
            await filled(path, 1)
        database = sqlite3.connect(path, isolation_level=None)
        database.executescript(foreign)
        database.close()
        before = path.read_bytes()
        entries = opened(path, replace_damaged=True)
        with pytest.raises(StoreFailed, match="not written by this version"):
            await nearest(entries, "1")
        with pytest.raises(StoreFailed, match="not written by this version"):
            await entries.put(entry(1, "one"))
        await entries.close()
        assert before == path.read_bytes()
        assert ["a.db"] == sorted(file.name for file in tmp_path.iterdir())

    asyncio.run(scenario())


def test_a_path_that_cannot_be_used(tmp_path):
    (tmp_path / "file").touch()

    async def scenario():
        entries = opened(tmp_path / "file" / "a.db")
        with pytest.raises(StoreFailed, match=r"a\.db failed"):
            await nearest(entries, "one")
        await entries.close()

    asyncio.run(scenario())


def test_a_file_that_was_removed_is_made_again_for_all(tmp_path):
    async def scenario():
        one, other = (opened(tmp_path / "a.db") for _ in range(2))
        await one.put(entry(1, "one"))
        assert 1 == len(await nearest(other, "one"))
        for path in tmp_path.iterdir():
            path.unlink()
        await one.put(entry(2, "two"))
        assert ["two"] == [found.wording for found in await nearest(other, "one")]
        await one.close()
        await other.close()

    asyncio.run(scenario())


def test_use_is_remembered_over_a_restart(tmp_path):
    options = EntriesOptions(entries=3)

    async def scenario():
        entries = opened(tmp_path / "a.db", options=options)
        for number in range(3):
            await entries.put(entry(number, f"text {number}"))
        for _ in range(5):
            await entries.answer(f"{0:032x}")
        await entries.put(entry(0, "text 0"))  # writes the uses
        await entries.close()
        entries = opened(tmp_path / "a.db", options=options)
        await entries.put(entry(7, "text 7"))
        assert await entries.answer(f"{0:032x}") is not None
        assert await entries.answer(f"{1:032x}") is None
        await entries.close()

    asyncio.run(scenario())


def test_indexes_in_memory_are_bounded(tmp_path):
    async def scenario():
        entries = opened(tmp_path / "a.db", options=EntriesOptions(index_vectors=2 * 64))
        for number in range(60):
            await entries.put(entry(number, f"text {number}", partition=f"p{number % 6}"))
        for _ in range(2):
            for number in range(6):
                assert 10 == len(await nearest(entries, "x", 99, partition=f"p{number}"))
                assert [] == await nearest(entries, "x", partition=f"nobody {number}")
        assert 20 == len(entries._spaces)
        await entries.close()

    asyncio.run(scenario())


def test_vectors_of_what_was_deleted_leave_memory(tmp_path):
    async def scenario():
        entries = opened(tmp_path / "a.db")
        for number in range(10):
            await entries.put(entry(number, f"text {number}"))
        await nearest(entries, "x")
        await entries.delete(f"{3:032x}")
        assert 9 == len(entries._spaces)
        await entries.close()

    asyncio.run(scenario())


def test_samples_survive(tmp_path):
    async def scenario():
        entries = opened(tmp_path / "a.db")
        await entries.record(sample())
        await entries.close()
        entries = opened(tmp_path / "a.db")
        assert [sample().features] == [one.features for one in await entries.samples("pool")]
        await entries.close()

    asyncio.run(scenario())
