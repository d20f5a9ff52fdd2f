"""Stores on other machines that are gone, slow, frozen, full or emptied."""

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from prefold.engine.tiers.base import Stored, Tier
from prefold.engine.tiers.lane import Lane
from prefold.engine.tiers.objects import FsspecObjects, RedisObjects
from prefold.engine.tiers.remote import RemoteTier
from prefold.engine.tiers.seal import Seal
from prefold.errors import UsageError

from .support import LAYOUT, RECORD, chain, read, running_redis, write

redis = pytest.importorskip("redis", reason="redis comes with the extra `tiers`")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def tier_at(url: str, clock: Callable[[], float] = time.monotonic, **options: object) -> RemoteTier:
    objects = RedisObjects(url, None, 0.5)
    return RemoteTier("redis", LAYOUT, objects, clock=clock, **options)  # type: ignore[arg-type]


def name(key: bytes) -> str:
    return f"prefold:kv:{LAYOUT.fingerprint}:{key.hex()}"


def test_no_flipped_bit_gets_through(redis_url: str) -> None:
    tier = tier_at(redis_url)
    client = redis.Redis.from_url(redis_url)
    keys = chain("flip", 2)
    write(tier, keys)
    whole = client.get(name(keys[1]))
    for place in range(0, len(whole), 3):
        altered = bytearray(whole)
        altered[place] ^= 1 << place % 8
        client.set(name(keys[1]), bytes(altered))
        assert 1 == read(tier, keys), place
        assert not client.exists(name(keys[1]))
    for length in (0, 1, 255, 256, len(whole) - 1):
        client.set(name(keys[1]), whole[:length])
        assert 1 == read(tier, keys), length
    client.set(name(keys[1]), whole + b"x")
    assert 1 == read(tier, keys)
    client.set(name(keys[1]), client.get(name(keys[0])))
    assert 1 == read(tier, keys)
    assert 2 == write(tier, keys)
    client.delete(name(keys[1]))
    client.rpush(name(keys[1]), "a list")
    corrupt = tier.usage().corrupt
    assert 1 == read(tier, keys)
    assert corrupt + 1 == tier.usage().corrupt
    assert 2 == write(tier, keys)
    assert 2 == read(tier, keys)
    assert 0 == tier.usage().errors
    client.close()


def test_with_another_key_nothing_is_found(redis_url: str) -> None:
    pytest.importorskip("cryptography")
    keys = chain("sealed", 2)
    tiers = [RemoteTier("redis", LAYOUT, RedisObjects(redis_url, None, 1), seal=Seal(bytes([n] * 32))) for n in (1, 2)]
    write(tiers[0], keys)
    assert 2 == read(tiers[0], keys)
    assert 0 == read(tiers[1], keys)


def test_blocks_live_as_long_as_they_are_written(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    keys = chain("ttl", 2)
    tier = RemoteTier("redis", LAYOUT, RedisObjects(redis_url, 600, 1))
    write(tier, keys)
    assert all(590_000 < client.pttl(name(key)) <= 600_000 for key in keys)
    client.pexpire(name(keys[0]), 1000)
    write(tier, keys)
    assert 590_000 < client.pttl(name(keys[0]))
    client.pexpire(name(keys[1]), 1)
    time.sleep(0.01)
    assert 1 == tier.find(keys)
    assert 1 == read(tier, keys)
    client.close()


def test_a_store_that_was_emptied(redis_url: str) -> None:
    tier = tier_at(redis_url)
    keys = chain("flushed", 4)
    write(tier, keys)
    assert 4 == tier.find(keys)
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    client.close()
    assert 0 == read(tier, keys)
    assert 0 == write(tier, keys, first=2)
    assert 4 == write(tier, keys)
    assert 4 == read(tier, keys)


def test_nobody_is_there(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with running_redis(tmp_path) as (url, _):
        pass
    clock = Clock()
    tier = tier_at(url.replace("redis://", "redis://:secret@"), clock)
    keys = chain("a", 2)
    for _ in range(5):
        assert 0 == tier.find(keys)
        assert 0 == read(tier, keys)
        assert 0 == write(tier, keys)
    usage = tier.usage()
    assert 10 == usage.misses == usage.refused
    assert 4 == usage.errors  # two of reading, two of writing: then it is left alone
    assert 1 == caplog.text.count("requests go on without it")
    assert "secret" not in caplog.text
    tier.close()


def test_frozen_and_thawed(tmp_path: Path) -> None:
    with running_redis(tmp_path) as (url, process):
        clock = Clock()
        tier = tier_at(url, clock, find_seconds=0.1, move_seconds=0.1)
        keys = chain("a", 3)
        assert 3 == write(tier, keys)
        process.send_signal(signal.SIGSTOP)
        for _ in range(20):
            assert 0 == tier.find(keys)
            assert 0 == read(tier, keys)
            assert 0 == write(tier, chain("b", 2))
        assert tier.usage().errors <= 4
        process.send_signal(signal.SIGCONT)
        assert 0 == tier.find(keys)
        deadline = time.monotonic() + 20  # of a late operation that holds the way up
        while tier.find(keys) < 3 and time.monotonic() < deadline:
            clock.now += 5.1
            time.sleep(0.05)
        assert 3 == read(tier, keys)
        clock.now += 5.1
        assert 2 == write(tier, chain("b", 2))
        tier.close()


def test_gone_and_back_on_another_port_is_gone(tmp_path: Path) -> None:
    with running_redis(tmp_path) as (url, process):
        tier = tier_at(url)
        keys = chain("a", 3)
        write(tier, keys)
        process.kill()
        process.wait()
        assert 0 == tier.find(keys)
        assert 0 == read(tier, keys)
        assert 0 == write(tier, keys)


def test_a_full_server_is_still_read(tmp_path: Path) -> None:
    with running_redis(tmp_path, "--maxmemory-policy", "noeviction") as (url, _):
        tier = tier_at(url)
        keys = chain("a", 3)
        assert 3 == write(tier, keys)
        client = redis.Redis.from_url(url)
        client.config_set("maxmemory", 1)
        client.close()
        for number in range(5):
            assert 0 == write(tier, chain(f"b {number}", 2))
        assert 3 == read(tier, keys)
        tier.close()


class Slow:
    """Objects that answer when they are let."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls = 0

    def leading(self, names: Sequence[str]) -> int:
        self.calls += 1
        self.go.wait(20)
        return len(names)

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        self.leading(names)
        return [None for _ in names]

    def get_starts(self, names: Sequence[str], length: int) -> list[bytes | None]:
        return self.get(names)

    def put(self, objects: Mapping[str, bytes]) -> None:
        self.leading(list(objects))

    def renew(self, names: Sequence[str]) -> None:
        self.leading(names)

    def remove(self, names: Sequence[str]) -> None:
        self.leading(names)

    def items(self, where: str = "") -> Iterator[Stored]:
        self.leading([])
        return iter(())

    def close(self) -> None:
        self.leading([])


def test_a_library_that_waits_for_ever_is_not_waited_for() -> None:
    objects, clock = Slow(), Clock()
    tier: Tier = RemoteTier("slow", LAYOUT, objects, find_seconds=0.02, move_seconds=0.02, clock=clock)
    keys = chain("a", 2)
    into = memoryview(bytearray(2 * RECORD))
    for _ in range(4):
        assert 0 == tier.find(keys)
        assert 0 == tier.read(keys, into)
        assert 0 == write(tier, keys)
        clock.now += 6
    assert objects.calls <= 2  # one thread for each way, and nobody behind it
    objects.go.set()
    deadline = time.monotonic() + 20
    while tier.find(keys) < 2 and time.monotonic() < deadline:
        clock.now += 6
    assert 2 == tier.find(keys)
    tier.close()


def test_a_lane_hands_errors_on() -> None:
    lane = Lane()
    with pytest.raises(ZeroDivisionError):
        lane.call(lambda: 1 // 0, 10)
    assert 7 == lane.call(lambda: 7, 10)


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec comes with the extra `tiers`")
    objects = FsspecObjects(f"file://{tmp_path}/kv")
    for _ in range(2):
        objects.put({"ab/1": b"x"})
        assert [b"x"] == objects.get(["ab/1"])
        shutil.rmtree(tmp_path / "kv")
        assert 0 == objects.leading(["ab/1"])
        assert [None] == objects.get(["ab/1"])


@pytest.mark.parametrize("there", range(6))
def test_object_stores_are_searched_by_halves(there: int) -> None:
    pytest.importorskip("fsspec", reason="fsspec comes with the extra `tiers`")
    objects = FsspecObjects(f"memory://halves-{there}")
    keys = chain("a", 5)
    names = [f"{'ab' * 32}/{key.hex()}" for key in keys]
    objects.put(dict.fromkeys(names[:there], b"x"))
    assert there == objects.leading(names)
    assert [b"x"] * there + [None] * (5 - there) == objects.get(names)
    assert set(keys[:there]) == {stored.key for stored in objects.items()}
    objects.remove(names)
    assert [] == list(objects.items())


def test_urls_that_cannot_be() -> None:
    with pytest.raises(UsageError):
        RedisObjects("http://x", None, 1)
    pytest.importorskip("fsspec", reason="fsspec comes with the extra `tiers`")
    with pytest.raises(UsageError):
        FsspecObjects("nonsense://x")
