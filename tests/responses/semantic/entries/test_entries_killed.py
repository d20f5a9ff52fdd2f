"""A process that is killed between any two statements: all of a change is there or nothing, and deleted is deleted."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from prefold.responses.semantic.entries.records import EntriesOptions, seal
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries

from ..entries_support import NOW, raw  # noqa: TID252 - of the folder above

TESTS = Path(__file__).parent


def check(path):
    """Every invariant of the file; ids of the entries, and their texts."""
    database = sqlite3.connect(path)
    try:
        assert [("ok",)] == database.execute("PRAGMA integrity_check").fetchall()
        assert [] == database.execute("PRAGMA foreign_key_check").fetchall()
        texts: dict[str, set[str]] = {}
        for number, id_, principals, size, answer in database.execute(
            "SELECT number, id, principals, bytes, answer FROM entries"
        ).fetchall():
            rows = database.execute("SELECT text, vector, seal FROM wordings WHERE entry = ?", (number,))
            wordings = rows.fetchall()
            assert wordings, id_
            assert all(mark == seal(id_, text, vector) for text, vector, mark in wordings)
            assert size == len(answer) + sum(len(text) + len(vector) for text, vector, _ in wordings)
            (counted,) = database.execute("SELECT count(*) FROM principals WHERE entry = ?", (number,)).fetchone()
            assert principals == max(1, counted)
            texts[id_.decode()] = {text.decode() for text, _, _ in wordings}
        assert (len(texts),) == database.execute("SELECT entries FROM totals").fetchone()
        assert database.execute("SELECT bytes FROM totals").fetchone() == (
            database.execute("SELECT coalesce(sum(bytes), 0) FROM entries").fetchone()
        )
        return texts
    finally:
        database.close()


AT_EVERY_STATEMENT = textwrap.dedent(
    """
    import asyncio, os, signal, sqlite3, sys
    from pathlib import Path
    from prefold.responses.semantic.entries.records import EntriesOptions
    from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
    from tests.responses.semantic.entries_support import EMBEDDER, NOW, entry, question, sample, vector

    async def work(path, log, allowed):
        entries = SqliteEntries(path, EntriesOptions(entries=4), lambda: NOW)
        def counted(statement):
            nonlocal allowed
            allowed -= 1
            if allowed == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        await entries._file.run(lambda database: database.set_trace_callback(counted))
        async def did(what, act):
            os.write(log, f"begin {what}\\n".encode())
            await act
            os.write(log, f"end {what}\\n".encode())
        id_ = "{:032x}".format
        for number in range(3):
            await did(f"put {number}", entries.put(entry(number, f"<<{number}>>", "ann", tags=["t"])))
        await did("word 0", entries.add_wording(id_(0), question("<<0 uno>>", "bob"), vector("uno"), EMBEDDER))
        await did("reject 1", entries.reject(id_(1), "x"))
        await did("delete 0", entries.delete(id_(0)))
        await did("quarantine 1", entries.quarantine(id_(1), "n"))
        await did("put 3", entries.put(entry(3, "<<3>>", "ann")))
        await did("invalidate t", entries.invalidate("t"))
        await did("record 0", entries.record(sample()))

    folder = Path(sys.argv[1])
    for allowed in range(1, 10_000):
        place = folder / str(allowed)
        place.mkdir()
        child = os.fork()
        if not child:
            log = os.open(place / "log", os.O_WRONLY | os.O_CREAT)
            asyncio.run(work(place / "a.db", log, allowed))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))
    """
)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_before_any_statement_all_of_a_change_is_there_or_nothing(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-c", AT_EVERY_STATEMENT, tmp_path],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=TESTS.parents[3],
    )
    assert (0, "") == (finished.returncode, finished.stderr)
    places = sorted(tmp_path.iterdir(), key=lambda place: int(place.name))
    assert 50 < len(places)
    for place in places:
        lines = (place / "log").read_text().splitlines()
        ended = {line[4:] for line in lines if line.startswith("end ")}
        begun = {line[6:] for line in lines if line.startswith("begin ")}
        asyncio.run(opened_and_closed(place / "a.db"))
        texts = {int(id_, 16): of for id_, of in check(place / "a.db").items()}
        for number in range(4):
            gone = number < 3 and ("invalidate t" in begun or (number == 0 and "delete 0" in begun))
            certainly_gone = number < 3 and ("invalidate t" in ended or (number == 0 and "delete 0" in ended))
            if f"put {number}" in ended and not gone:
                assert number in texts, (place, number)
            if certainly_gone:
                assert number not in texts, (place, number)
            assert (f"<<{number}>>".encode() in raw(place / "a.db")) == (number in texts), (place, number)
        if "word 0" in ended and "delete 0" not in begun:
            assert {"<<0>>", "<<0 uno>>"} == texts[0]


async def opened_and_closed(path):
    entries = SqliteEntries(path, EntriesOptions(), lambda: NOW)
    await entries.counts()
    await entries.close()


AT_RANDOM = textwrap.dedent(
    """
    import asyncio, random, sys
    from pathlib import Path
    from prefold.responses.semantic.entries.records import EntriesOptions
    from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
    from prefold.responses.store import StoreFailed
    from tests.responses.semantic.entries_support import EMBEDDER, NOW, entry, nearest, question, vector

    def say(*words):
        print(*words, flush=True)

    async def main(path, seed):
        chance = random.Random(seed)
        entries = SqliteEntries(path, EntriesOptions(), lambda: NOW)
        mine = []
        for step in range(100_000):
            number = seed * 1_000_000 + step
            kind = chance.choice(["put", "put", "word", "delete"]) if mine else "put"
            of = number if kind == "put" else chance.choice(mine)
            id_ = f"{of:032x}"
            say("begin", kind, of, number)
            if kind == "put":
                await entries.put(entry(of, f"<<{number}>>" * chance.choice([1, 30, 900]), "ann"))
                mine.append(of)
            elif kind == "word":
                text = f"<<{number}>>" * chance.choice([1, 500])
                await entries.add_wording(id_, question(text, str(step)), vector(text), EMBEDDER)
            else:
                await entries.delete(id_)
                mine.remove(of)
            say("end", kind, of, number)

    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
    """
)


@pytest.mark.slow
def test_killed_at_random_what_was_acknowledged_is_there_and_what_was_deleted_is_gone(tmp_path):
    path = tmp_path / "a.db"
    chance = random.Random(7)
    kept: dict[int, set[int]] = {}
    for seed in range(1, 9):
        with subprocess.Popen(
            [sys.executable, "-c", AT_RANDOM, path, str(seed)], stdout=subprocess.PIPE, text=True, cwd=TESTS.parents[3]
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            time.sleep(chance.uniform(0.05, 0.6))
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.read().splitlines()
        assert -signal.SIGKILL == process.returncode
        unsure: tuple[str, int, int] | None = None
        for line in lines:
            if len(words := line.split()) < 4:  # killed while it wrote
                continue
            kind, of, number = words[1], int(words[2]), int(words[3])
            if words[0] == "begin":
                unsure = (kind, of, number)
                continue
            unsure = None
            if kind == "delete":
                del kept[of]
            else:
                kept.setdefault(of, set()).add(number)
        asyncio.run(opened_and_closed(path))
        texts = {int(id_, 16): {int(text[2:].split(">>")[0]) for text in of} for id_, of in check(path).items()}
        if unsure is not None:  # it may or may not have happened
            kind, of, number = unsure
            if kind == "delete" and of not in texts:
                del kept[of]
            elif kind != "delete" and number in texts.get(of, set()):
                kept.setdefault(of, set()).add(number)
        assert kept == texts
        left = raw(path)
        assert all(f"<<{number}>>".encode() in left for of in kept.values() for number in of)
        gone = {int(line.split()[3]) for line in lines if line.startswith("end") and " delete " not in line}
        gone -= {number for of in kept.values() for number in of}
        assert not any(f"<<{number}>>".encode() in left for number in gone)
    assert len(kept) > 5
