"""`prefold cache`."""

import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from prefold.cli.cache import cache
from prefold.engine.tiers.base import Layout
from prefold.engine.tiers.disk import DiskTier
from prefold.engine.tiers.objects import FsspecObjects, RedisObjects
from prefold.engine.tiers.remote import RemoteTier
from prefold.engine.tiers.seal import Seal
from prefold.errors import UsageError

RECORD = 96
STORED = 256 + RECORD
ONE = Layout("ab" * 32, 64, RECORD, "tiny bfloat16 2x1x4")
TWO = Layout("cd" * 32, 64, RECORD, "other float32 2x1x4")
MINUTE = 60 * 1_000_000_000


def chain(name: str, length: int) -> list[bytes]:
    return [sha256(f"{name}/{number}".encode()).digest() for number in range(length)]


def fill(tier: DiskTier | RemoteTier, name: str, length: int) -> list[bytes]:
    keys = chain(name, length)
    assert length == tier.write(keys, range(length), memoryview(bytes(length * RECORD)))
    return keys


def disk(folder: Path, layout: Layout = ONE, minutes_ago: float = 0, seal: Seal | None = None) -> DiskTier:
    now = time.time_ns() - int(minutes_ago * MINUTE)
    return DiskTier(layout, folder, 1 << 20, seal=seal, now=lambda: now)


def age(folder: Path, minutes: float) -> None:
    """Make all files in a folder so old."""
    for path in folder.glob("*/*.kv"):
        then = path.stat().st_mtime - minutes * 60
        os.utime(path, (then, then))


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cache, arguments, input=stdin, env={"COLUMNS": "200"})


def in_json(*arguments: str) -> list[dict]:
    finished = run(*arguments, "--json")
    assert finished.exit_code in (0, 1), finished.output
    answer = json.loads(finished.stdout)
    assert 1 == answer["schema_version"]
    return answer["tiers"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five blocks of one model, two of another."""
    place = tmp_path / "kv"
    with closing(disk(place)) as one, closing(disk(place, TWO)) as two:
        fill(one, "a", 3)
        fill(one, "b", 2)
        fill(two, "a", 2)
    return place


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("no redis-server here")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    place = tmp_path_factory.mktemp("redis")
    with subprocess.Popen([*command, "--dir", str(place)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b"Ready to accept connections" in line:
                    break
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()


@pytest.fixture(params=["memory", "redis"])
def remote(request: pytest.FixtureRequest) -> Iterator[tuple[str, RemoteTier]]:
    """A remote place with a chain of three and one of two, and its URL."""
    if request.param == "redis":
        pytest.importorskip("redis")
        url: str = request.getfixturevalue("redis_url")
        objects: RedisObjects | FsspecObjects = RedisObjects(url, None, 5)
    else:
        pytest.importorskip("fsspec")
        url = f"memory://{uuid.uuid4().hex}/kv"
        objects = FsspecObjects(url)
    tier = RemoteTier("remote", ONE, objects, find_seconds=10, move_seconds=10)
    fill(tier, "a", 3)
    fill(tier, "b", 2)
    yield url, tier
    tier.clear()
    tier.close()


def test_models_are_listed(folder: Path) -> None:
    shown = run("ls", str(folder)).stdout
    for text in ("abababababab", "tiny bfloat16 2x1x4", "cdcdcdcdcdcd", "other float32 2x1x4", "5", "2", "1.72 KiB"):
        assert text in shown
    (tier,) = in_json("ls", f"disk={folder},5GiB")
    first, second = sorted(tier["models"], key=lambda model: model["fingerprint"])
    assert (5, 5 * STORED, "ab" * 32, False) == tuple(
        first[name] for name in ("blocks", "bytes", "fingerprint", "encrypted")
    )
    assert 2 == second["blocks"]
    assert abs(time.time() - first["last_used"]) < 60
    (tier,) = in_json("ls", str(folder), "--model", "cd")
    assert ["cd" * 32] == [model["fingerprint"] for model in tier["models"]]


def test_an_empty_folder(tmp_path: Path) -> None:
    assert f"{tmp_path}: empty\n" == run("ls", str(tmp_path)).stdout
    assert [{"tier": str(tmp_path), "blocks": 0, "bytes": 0}] == in_json("du", str(tmp_path))


def test_encrypted_blocks_are_told_and_checked(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    fill(disk(tmp_path, seal=Seal(bytes(32))), "a", 2)
    assert "tiny bfloat16 2x1x4 (encrypted)" in run("ls", str(tmp_path)).stdout
    assert 0 == run("verify", str(tmp_path)).exit_code


def test_sizes(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert [7, 0] == [tier["blocks"] for tier in in_json("du", str(folder), str(other))]
    assert f"7 blocks  {folder}" in run("du", str(folder)).stdout


def test_damage_is_found(folder: Path) -> None:
    assert 0 == run("verify", str(folder)).exit_code
    flipped, short, foreign, good = sorted(folder.glob("abab*/*.kv"))[:4]
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 1
    flipped.write_bytes(data)
    short.write_bytes(short.read_bytes()[:-1])
    foreign.write_bytes(good.read_bytes())
    finished = run("verify", str(folder))
    assert 1 == finished.exit_code
    assert 3 == finished.stdout.count("damaged: ")
    assert f"{folder}: 7 blocks read, 3 damaged\n" in finished.stdout
    (tier,) = in_json("verify", str(folder), "--remove")
    assert 3 == len(tier["damaged"])
    assert not flipped.exists()
    assert 0 == run("verify", str(folder)).exit_code


def test_the_oldest_go_and_ends_before_beginnings(tmp_path: Path) -> None:
    with closing(disk(tmp_path)) as tier:
        old = fill(tier, "old", 3)
    age(tmp_path, 60)
    with closing(disk(tmp_path)) as tier:
        new = fill(tier, "new", 3)
    assert (
        "1 block (352 B) would be removed" in run("prune", str(tmp_path), "--to", str(5 * STORED), "--dry-run").stdout
    )
    (tier,) = in_json("prune", str(tmp_path), "--to", str(5 * STORED))
    assert (1, STORED) == (tier["blocks"], tier["bytes"])
    opened = disk(tmp_path)
    assert 2 == opened.find(old)
    assert 3 == opened.find(new)
    assert "2 blocks (704 B) removed" in run("prune", str(tmp_path), "--older-than", "30m").stdout
    opened = disk(tmp_path)
    assert 0 == opened.find(old)
    assert 3 == opened.find(new)
    assert "0 blocks" in run("prune", str(tmp_path), "--older-than", "30m", "--to", "1MiB").stdout


def test_clear_asks(folder: Path) -> None:
    finished = run("clear", str(folder), stdin="n\n")
    assert 1 == finished.exit_code
    assert f"Remove 7 blocks (2.41 KiB) from {folder}?" in finished.stderr
    assert 7 == in_json("du", str(folder))[0]["blocks"]
    assert "2 blocks" in run("clear", str(folder), "--model", "cdcd", "--yes").stdout
    assert 0 == run("clear", str(folder), stdin="y\n").exit_code
    assert [] == list(folder.glob("*/*"))
    assert "0 blocks" in run("clear", str(folder)).stdout


def test_remote_tiers(remote: tuple[str, RemoteTier]) -> None:
    url, tier = remote
    ((model,),) = (held["models"] for held in in_json("ls", url))
    assert (5, 5 * STORED, "tiny bfloat16 2x1x4") == tuple(model[name] for name in ("blocks", "bytes", "about"))
    assert 0 == run("verify", url).exit_code
    in_json("prune", url, "--to", str(4 * STORED))
    assert {(2, 2), (3, 1)} >= {(tier.find(chain("a", 3)), tier.find(chain("b", 2)))}
    assert 4 == in_json("clear", url, "--yes")[0]["blocks"]
    assert 0 == tier.find(chain("a", 3))


def test_what_cannot_be_used(tmp_path: Path) -> None:
    for arguments, reason in (
        (["ls", str(tmp_path / "none")], "No such file"),
        (["ls", "host=5GiB"], "memory of a server"),
        (["ls", "disk="], "names no folder"),
        (["du", "redis://:secret@127.0.0.1:1/0"], "redis://127.0.0.1:1/0 cannot be used: ConnectionError"),
        (["prune", str(tmp_path)], "Nothing says what to remove"),
        (["prune", str(tmp_path), "--older-than", "soon"], "not a duration"),
    ):
        finished = run(*arguments)
        assert isinstance(finished.exception, UsageError)
        assert reason in finished.exception.message
        assert "secret" not in str(finished.exception)
    assert 2 == run("ls").exit_code
