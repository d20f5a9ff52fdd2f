"""A folder, and what can go wrong with it."""

import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prefold.engine.tiers.disk import DiskTier
from prefold.engine.tiers.folder import Folder
from prefold.engine.tiers.record import _CRC, _FIELDS, HEADER_BYTES, _crc, parse_header
from prefold.engine.tiers.seal import Seal
from prefold.errors import UsageError

from .support import LAYOUT, OTHER_LAYOUT, RECORD, chain, read, records, write

STORED = HEADER_BYTES + RECORD
MINUTE = 60 * 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = time.time_ns()

    def __call__(self) -> int:
        return self.now


def disk(folder: Path, blocks: int = 100, **options: object) -> DiskTier:
    patient = {"find_seconds": 20.0, "move_seconds": 20.0, **options}
    return DiskTier(LAYOUT, folder, blocks * STORED, **patient)  # type: ignore[arg-type]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.kv"))


def file_of(folder: Path, key: bytes) -> Path:
    (path,) = folder.glob(f"*/{key.hex()}-*.kv")
    return path


def test_a_restart_finds_everything(tmp_path: Path) -> None:
    tier = disk(tmp_path)
    keys = chain("a", 5)
    write(tier, keys)
    tier.close()
    tier = disk(tmp_path)
    assert 5 == tier.usage().blocks
    assert 5 * STORED == tier.usage().bytes
    assert 5 == read(tier, keys)


def test_a_restart_knows_what_was_used_last(tmp_path: Path) -> None:
    clock = Clock()
    tier = disk(tmp_path, 6, now=clock)
    first, second = chain("1", 3), chain("2", 3)
    write(tier, first)
    clock.now += MINUTE
    write(tier, second)
    clock.now += 2 * MINUTE
    read(tier, first)
    tier.close()
    clock.now += MINUTE
    tier = disk(tmp_path, 6, now=clock)
    write(tier, chain("3", 1))
    assert 3 == tier.find(first)
    assert 2 == tier.find(second)
    assert 6 == len(files(tmp_path))


def test_only_the_owner_may_look(tmp_path: Path) -> None:
    tier = disk(tmp_path / "new" / "kv")
    write(tier, chain("a", 2))
    for path in (tmp_path / "new" / "kv").rglob("*"):
        assert (0o700 if path.is_dir() else 0o600) == stat.S_IMODE(path.stat().st_mode)
    assert 0o700 == stat.S_IMODE((tmp_path / "new" / "kv").stat().st_mode)


def test_files_say_what_they_are(tmp_path: Path) -> None:
    tier = disk(tmp_path)
    keys = chain("a", 2)
    write(tier, keys)
    header = parse_header(file_of(tmp_path, keys[1]).read_bytes())
    assert header is not None
    assert (LAYOUT.fingerprint, keys[1], keys[0], 1) == (header.fingerprint, header.key, header.parent, header.depth)
    assert (64, RECORD, "tiny bfloat16 2x1x4") == (header.block_tokens, header.record_bytes, header.about)


@pytest.mark.parametrize("sealed", [False, True])
def test_no_flipped_bit_gets_through(tmp_path: Path, sealed: bool) -> None:
    """Every byte of a file, one bit each; the block before it still comes."""
    if sealed:
        pytest.importorskip("cryptography")
    seal = Seal(bytes(32)) if sealed else None
    tier = disk(tmp_path, seal=seal)
    keys = chain("a", 2)
    write(tier, keys)
    path = file_of(tmp_path, keys[1])
    whole = path.read_bytes()
    for place in range(len(whole)):
        altered = bytearray(whole)
        altered[place] ^= 1 << random.Random(place).randrange(8)
        path.write_bytes(altered)
        assert 2 == tier.find(keys)
        assert 1 == read(tier, keys), place
        assert not path.exists()
        assert place + 1 == tier.usage().corrupt
        write(tier, keys, first=1)
    assert 2 == read(tier, keys)


def test_no_truncated_file_gets_through(tmp_path: Path) -> None:
    tier = disk(tmp_path)
    keys = chain("a", 3)
    write(tier, keys)
    path = file_of(tmp_path, keys[1])
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert 1 == read(tier, keys)
        assert not path.exists()
        write(tier, keys, first=1)
    path.write_bytes(whole + b"x")
    assert 1 == read(tier, keys)
    write(tier, keys, first=1)
    path.write_bytes(whole[:-1])
    tier = disk(tmp_path)
    assert not path.exists()
    assert 1 == tier.usage().corrupt
    assert 1 == read(tier, keys)


def test_a_record_under_another_name_is_a_miss(tmp_path: Path) -> None:
    tier = disk(tmp_path)
    keys = chain("a", 3)
    write(tier, keys)
    file_of(tmp_path, keys[1]).write_bytes(file_of(tmp_path, keys[2]).read_bytes())
    assert 1 == read(tier, keys)
    assert 1 == tier.usage().corrupt


def test_another_models_record_is_a_miss(tmp_path: Path) -> None:
    tier, other = disk(tmp_path), DiskTier(OTHER_LAYOUT, tmp_path, 100 * STORED)
    keys = chain("a", 1)
    write(tier, keys)
    write(other, keys)
    mine, theirs = (next((tmp_path / layout.fingerprint).glob("*.kv")) for layout in (LAYOUT, OTHER_LAYOUT))
    mine.write_bytes(theirs.read_bytes())
    assert 0 == read(tier, keys)


def test_models_share_the_capacity(tmp_path: Path) -> None:
    clock = Clock()
    old = DiskTier(OTHER_LAYOUT, tmp_path, 4 * STORED, now=clock)
    keys = chain("a", 4)
    write(old, keys)
    old.close()
    clock.now += MINUTE
    tier = disk(tmp_path, 4, now=clock)
    write(tier, keys[:3])
    assert 4 == len(files(tmp_path))
    assert 1 == DiskTier(OTHER_LAYOUT, tmp_path, 4 * STORED, now=clock).find(keys)
    write(tier, keys, first=3)
    tier.sweep()
    assert [LAYOUT.fingerprint] == [path.name for path in tmp_path.iterdir() if path.is_dir()]


def test_old_blocks_are_misses_and_swept(tmp_path: Path) -> None:
    clock = Clock()
    tier = disk(tmp_path, ttl=600, now=clock)
    first, second = chain("1", 2), chain("2", 3)
    write(tier, first)
    write(tier, second)
    clock.now += 9 * MINUTE
    read(tier, second[:2])
    clock.now += 2 * MINUTE
    assert 0 == tier.find(first)
    assert 0 == read(tier, first)
    assert 2 == read(tier, second)
    assert 3 == tier.sweep()
    assert 2 == len(files(tmp_path))
    clock.now += 11 * MINUTE
    assert 0 == disk(tmp_path, ttl=600, now=clock).usage().blocks
    assert [] == files(tmp_path)


def test_what_another_process_used_is_not_old(tmp_path: Path) -> None:
    clock = Clock()
    tier, other = disk(tmp_path, ttl=600, now=clock), disk(tmp_path, ttl=600, now=clock)
    keys = chain("a", 2)
    write(tier, keys)
    clock.now += 9 * MINUTE
    assert 2 == read(other, keys)
    clock.now += 2 * MINUTE
    assert 0 == tier.sweep()
    assert 2 == read(tier, keys)


def test_a_chain_of_another_process_goes_on(tmp_path: Path) -> None:
    tier, other = disk(tmp_path), disk(tmp_path)
    keys = chain("a", 5)
    write(other, keys[:3])
    assert 3 == tier.find(keys)
    assert 2 == write(tier, keys, first=3)
    assert 5 == other.clear()
    assert [] == files(tmp_path)


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    keys = chain("a", 2)
    secret = outside / "secret"
    folder = tmp_path / "kv"
    tier = disk(folder)
    write(tier, keys)
    path = file_of(folder, keys[1])
    path.rename(secret)
    path.symlink_to(secret)
    assert 1 == read(tier, keys)
    assert secret.exists()
    tier.close()
    (folder / LAYOUT.fingerprint).rename(outside / "moved")
    (folder / LAYOUT.fingerprint).symlink_to(outside / "moved")
    tier = disk(folder)
    assert 0 == tier.find(keys)
    assert 0 == write(tier, keys)
    assert 1 == len(list((outside / "moved").glob("*.kv")))


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    tier = disk(tmp_path)
    keys = chain("a", 1)
    write(tier, keys)
    path = file_of(tmp_path, keys[0])
    path.unlink()
    os.mkfifo(path)
    assert 0 == read(tier, keys)


def test_what_vanishes_is_a_miss(tmp_path: Path) -> None:
    tier = disk(tmp_path)
    keys = chain("a", 4)
    write(tier, keys)
    file_of(tmp_path, keys[2]).unlink()
    assert 2 == read(tier, keys)
    assert 2 == tier.find(keys)
    assert 0 == tier.usage().corrupt
    assert 2 == write(tier, keys, first=2)
    assert 4 == read(tier, keys)


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    tier = disk(folder)
    keys = chain("a", 3)
    write(tier, keys)
    subprocess.run(["rm", "-r", folder], check=True)
    assert 0 == read(tier, keys)
    assert 3 == write(tier, keys)
    assert 3 == read(tier, keys)
    assert 3 == len(files(folder))


def remove_fingerprint(folder: Path) -> None:
    shutil.rmtree(folder / LAYOUT.fingerprint)


def remove_files(folder: Path) -> None:
    for path in files(folder):
        path.unlink()


@pytest.mark.parametrize("remove", [shutil.rmtree, remove_fingerprint, remove_files])
def test_who_only_reads_finds_what_is_written_after_all_was_removed(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    folder = tmp_path / "kv"
    reader, writer = disk(folder), disk(folder)
    write(writer, chain("a", 2))
    assert 2 == read(reader, chain("a", 2))
    for name in ("b", "c"):
        remove(folder)
        reader.find(chain(name, 2))
        assert 2 == write(writer, chain(name, 2))
        assert 2 == reader.find(chain(name, 2))
        assert 2 == read(reader, chain(name, 2))


@pytest.mark.parametrize("remove", [shutil.rmtree, remove_fingerprint, remove_files])
def test_behind_what_was_removed_nothing_is_believed(tmp_path: Path, remove: Callable[[Path], None]) -> None:
    folder = tmp_path / "kv"
    tier = disk(folder)
    keys = chain("a", 6)
    write(tier, keys[:4])
    remove(folder)
    assert 0 == write(tier, keys, first=4)
    assert 0 == tier.find(keys)
    assert 6 == write(tier, keys)
    remove(folder)
    assert 6 == tier.find(keys)  # as far as is known
    assert 0 == tier.find(keys, sure=True)
    assert 6 == write(tier, keys)
    assert 6 == len(files(folder))


def test_a_use_tells_what_was_removed(tmp_path: Path) -> None:
    clock = Clock()
    tier = disk(tmp_path, now=clock)
    keys = chain("a", 4)
    write(tier, keys)
    file_of(tmp_path, keys[1]).unlink()
    clock.now += 2 * MINUTE
    write(tier, keys)  # of which the last one is still there
    assert 1 == tier.find(keys)
    assert 4 == write(tier, keys)
    assert 4 == read(tier, keys)


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes the disk hang in an operation of `Folder`, until the end of the test or until it is called with ""."""
    hung, go = "", threading.Event()

    def set_hung(name: str) -> None:
        nonlocal hung
        hung = name
        (go.clear if name else go.set)()

    def wrapped(name: str) -> Callable[..., object]:
        function = getattr(Folder, name)

        def wrapper(*arguments: object) -> object:
            if name == hung:
                go.wait(30)
            return function(*arguments)

        return wrapper

    for name in ("look", "read", "write_temporary", "sync", "remove"):
        monkeypatch.setattr(Folder, name, wrapped(name))
    yield set_hung
    set_hung("")


@pytest.mark.parametrize("name", ["look", "read", "write_temporary", "sync", "remove"])
def test_a_disk_that_hangs_is_not_waited_for(tmp_path: Path, hang: Callable[[str], None], name: str) -> None:
    clock = Clock()
    tier = disk(tmp_path, now=clock, find_seconds=0.1, move_seconds=0.3)
    known = chain("a", 2)
    while write(tier, known) < 2:  # on a busy machine
        clock.now += MINUTE
    hang(name)
    into = memoryview(bytearray(2 * RECORD))
    for number in range(6):
        assert tier.find(known) in (0, 2)
        tier.find(chain(f"b {number}", 2))
        tier.read(known, into)
        write(tier, chain(f"b {number}", 2))
    tier.clear() if name == "look" else tier.remove(known)
    assert 1 <= tier.usage().errors <= 4  # then it is left alone
    hang("")
    deadline = time.monotonic() + 20
    while (write(tier, known) < 2 or read(tier, known) < 2) and time.monotonic() < deadline:
        clock.now += MINUTE
    assert 2 == read(tier, known)
    tier.close()


def test_what_comes_late_does_not_come_into_memory_that_others_use(tmp_path: Path, hang: Callable[[str], None]) -> None:
    clock = Clock()
    tier = disk(tmp_path, now=clock, move_seconds=0.3)
    keys = chain("a", 1)
    while write(tier, keys) < 1:  # on a busy machine
        clock.now += MINUTE
    hang("read")
    into = memoryview(bytearray(RECORD))
    assert 0 == tier.read(keys, into)
    hang("")
    tier._moves.call(lambda: None, 20)  # behind what was late
    assert bytes(RECORD) == into
    late = memoryview(bytearray(records(chain("b", 1))))
    hang("write_temporary")
    assert 0 == tier.write(chain("b", 1), [0], late)
    late[:] = bytes(RECORD)
    hang("")
    tier._moves.call(lambda: None, 20)
    clock.now += MINUTE
    assert 0 == read(tier, chain("b", 1))
    assert [] == list(tmp_path.rglob(".tmp-*"))


HANGS = """
import sys, threading
from pathlib import Path
sys.path.insert(0, {support!r})
from support import LAYOUT, chain, write
from prefold.engine.tiers.disk import DiskTier
from prefold.engine.tiers.folder import Folder
Folder.write_temporary = lambda *_: threading.Event().wait()
tier = DiskTier(LAYOUT, Path({folder!r}), 40 * 352, move_seconds=0.1)
assert 0 == write(tier, chain("a", 4))
tier.close()
print("closed")
"""


def test_a_disk_that_hangs_keeps_no_process_from_ending(tmp_path: Path) -> None:
    code = HANGS.format(support=str(Path(__file__).parent), folder=str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert b"closed\n" == ended.stdout


def test_what_others_put_there_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    tier = disk(tmp_path)
    write(tier, chain("a", 2))
    (tmp_path / LAYOUT.fingerprint / "notes.txt").write_text("mine")
    tier.clear()
    disk(tmp_path)
    assert 2 == len(list(tmp_path.rglob("notes.txt")))


def test_two_in_one_folder_keep_to_the_capacity(tmp_path: Path) -> None:
    clock = Clock()
    one, two = disk(tmp_path, 8, now=clock), disk(tmp_path, 8, now=clock)
    for number in range(20):
        clock.now += MINUTE
        assert 3 == write(one, chain(f"one {number}", 3))
        assert 3 == write(two, chain(f"two {number}", 3))
        assert 3 == read(one, chain(f"one {number}", 3))
    clock.now += MINUTE
    write(one, chain("last", 1))
    assert len(files(tmp_path)) <= 8


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
from support import LAYOUT, chain, write
from prefold.engine.tiers.disk import DiskTier
tier = DiskTier(LAYOUT, Path({folder!r}), 40 * 352)
print("ready", flush=True)
number = 0
while True:
    write(tier, chain(f"{name} {{number % 30}}", 5))
    number += 1
"""


@contextmanager
def writer(folder: Path, name: str) -> Iterator[None]:
    """A process that writes until it is killed at the end of the block."""
    code = WRITER.format(support=str(Path(__file__).parent), folder=str(folder), name=name)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert b"ready\n" == process.stdout.readline()
            yield
        finally:
            process.kill()


def check_all(tier: DiskTier, name: str) -> int:
    """Whatever comes is right."""
    found = 0
    for number in range(30):
        keys = chain(f"{name} {number}", 5)
        found += tier.find(keys)
        read(tier, keys)  # checks what comes; others may have evicted or written some in between
    return found


def test_killed_at_any_moment(tmp_path: Path) -> None:
    dice = random.Random(7)
    for _ in range(8):
        with writer(tmp_path, "w"):
            time.sleep(dice.uniform(0.0, 0.15))
        tier = disk(tmp_path, 40)
        assert [] == list(tmp_path.rglob(".tmp-*"))
        assert check_all(tier, "w") == tier.usage().hits  # everything that is found reads back
        assert 0 == tier.usage().corrupt
        assert len(files(tmp_path)) <= 40
        tier.close()
    assert check_all(disk(tmp_path, 40), "w")


def test_two_processes_at_once(tmp_path: Path) -> None:
    tier = disk(tmp_path, 40)
    with writer(tmp_path, "a"), writer(tmp_path, "b"):
        until = time.monotonic() + 2
        while time.monotonic() < until:
            check_all(tier, "a")
            check_all(tier, "b")
            write(tier, chain("c", 3))
    assert 0 == tier.usage().corrupt
    assert 0 == tier.usage().errors


def test_temporary_files_of_the_living_stay(tmp_path: Path) -> None:
    tier, other = disk(tmp_path), disk(tmp_path)
    write(tier, chain("a", 1))
    draft = tmp_path / LAYOUT.fingerprint / f".tmp-{'0' * 32}"
    draft.write_bytes(b"half")
    with tier._folder.writing():
        assert 0 == other.sweep()
        assert draft.exists()
    assert 1 == other.sweep()
    assert not draft.exists()


def test_a_limit_on_files_is_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the system refuses is counted and said once; what is there is still read."""
    tier = disk(tmp_path)
    keys = chain("a", 2)
    write(tier, keys)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        assert 0 == write(tier, chain("b", 2))
        assert 0 == write(tier, chain("c", 2))
        assert 2 == read(tier, keys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert 4 == tier.usage().refused
    assert 2 == tier.usage().errors
    assert 1 == caplog.text.count("cannot be written")
    assert [] == list(tmp_path.rglob(".tmp-*"))
    assert 2 == write(tier, chain("b", 2))


def test_after_failures_it_waits_before_it_tries_again(tmp_path: Path) -> None:
    clock = Clock()
    tier = disk(tmp_path, now=clock)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        for number in range(10):
            assert 0 == write(tier, chain(f"{number}", 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert 3 == tier.usage().errors
    assert 0 == write(tier, chain("a", 1))
    clock.now += MINUTE
    assert 1 == write(tier, chain("a", 1))
    assert 1 == write(tier, chain("b", 1))


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this needs the right to mount a file system")
    yield folder  # type: ignore[misc]
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    tier = disk(small_disk, 1000)
    for number in range(30):
        write(tier, chain(f"{number}", 2))
    usage = tier.usage()
    assert 1 == caplog.text.count("cannot be written")
    assert usage.errors < 5
    # It goes on with what it has, the newest in the place of the oldest.
    assert 2 == read(tier, chain("29", 2))
    assert 0 == tier.find(chain("0", 2))
    assert [] == list(small_disk.rglob(".tmp-*"))


def test_a_folder_that_cannot_be_written(small_disk: Path) -> None:
    tier = disk(small_disk)
    keys = chain("a", 2)
    write(tier, keys)
    tier.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    tier = disk(small_disk)
    assert 2 == read(tier, keys)
    assert 0 == write(tier, chain("b", 2))
    assert 2 == tier.usage().refused
    tier.remove(keys)
    assert 0 == tier.find(keys)
    tier.close()


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "kv"):
        with pytest.raises(UsageError, match="cannot be used"):
            disk(path)
    with pytest.raises(UsageError, match="hold no block"):
        DiskTier(LAYOUT, tmp_path, STORED - 1)


def test_with_another_key_nothing_is_found(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    keys = chain("a", 2)
    tier = disk(tmp_path, seal=Seal(bytes(32)))
    write(tier, keys)
    for other in (disk(tmp_path, seal=Seal(bytes(31) + b"\1")), disk(tmp_path)):
        assert 0 == other.find(keys)
        assert 0 == read(other, keys)
        assert 0 == other.usage().corrupt
    assert 2 == read(tier, keys)
    content = b"".join(path.read_bytes() for path in files(tmp_path))
    assert not any(bytes(records([key]))[:16] in content for key in keys)


def test_a_moved_record_stays_sealed(tmp_path: Path) -> None:
    """Even with a header made to fit its new name."""
    pytest.importorskip("cryptography")
    keys = chain("a", 2)
    tier = disk(tmp_path, seal=Seal(bytes(32)))
    write(tier, keys)
    there, other = file_of(tmp_path, keys[1]), file_of(tmp_path, keys[0]).read_bytes()
    forged = there.read_bytes()[:236] + other[236:252]
    assert _FIELDS.size == len(forged)
    there.write_bytes(forged + _CRC.pack(_crc(forged)) + other[HEADER_BYTES:])
    assert 1 == read(tier, keys)
    assert 1 == tier.usage().corrupt
