"""Small records, and chains of them, for tests of stores."""

import random
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from prefold.engine.tiers.base import Layout, Tier

RECORD = 96
LAYOUT = Layout("ab" * 32, 64, RECORD, "tiny bfloat16 2x1x4")
OTHER_LAYOUT = Layout("cd" * 32, 64, RECORD, "another model")


def chain(name: str, length: int) -> list[bytes]:
    """Keys of a chain."""
    return [sha256(f"{name}/{number}".encode()).digest() for number in range(length)]


def record(key: bytes, size: int = RECORD) -> bytes:
    """What belongs to a key, so that wrong bytes are seen."""
    return random.Random(key).randbytes(size)


def records(keys: Sequence[bytes], size: int = RECORD) -> memoryview:
    return memoryview(b"".join(record(key, size) for key in keys))


def write(tier: Tier, keys: Sequence[bytes], first: int = 0, size: int = RECORD) -> int:
    """Write `keys[first:]` of a chain."""
    parent = keys[first - 1] if first else None
    return tier.write(keys[first:], range(first, len(keys)), records(keys[first:], size), parent)


def read(tier: Tier, keys: Sequence[bytes], size: int = RECORD) -> int:
    """Read a chain; how many blocks came, all of them checked against what was written."""
    into = memoryview(bytearray(len(keys) * size))
    done = tier.read(keys, into)
    assert records(keys[:done], size) == into[: done * size]
    return done


@contextmanager
def running_redis(folder: Path, *options: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A Redis server of our own, and its URL; skips where there is none to run."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("no redis-server here")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen([*command, "--dir", str(folder), *options], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b"Ready to accept connections" in line:
                    break
            yield f"redis://127.0.0.1:{port}/0", process
        finally:
            process.kill()  # ends a stopped process too
