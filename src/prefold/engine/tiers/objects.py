"""Where remote tiers keep their objects: a Redis or Valkey server, or whatever fsspec reaches."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from prefold.engine.tiers.base import Stored
from prefold.errors import MissingExtra, UsageError

_EXTRA = 'pip install "prefold[tiers]"'
_PREFIX = "prefold:kv:"
_SCAN = 1000
_SECOND = 1_000_000_000
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Objects(Protocol):
    """Named bytes somewhere else. Names are `fingerprint/key` in hex.

    Methods raise whatever the library raises, and may take as long as they like: see `remote.Lane`.
    """

    def leading(self, names: Sequence[str]) -> int:
        """How many of the leading ones are there, if with each all before it are."""

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Their content, None for what is not there."""

    def get_starts(self, names: Sequence[str], length: int) -> list[bytes | None]:
        """The same of their first bytes."""

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Write them, in order where that is possible."""

    def renew(self, names: Sequence[str]) -> None:
        """Let them live as long as if they were written now."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove those that are there."""

    def items(self, where: str = "") -> Iterator[Stored]:
        """All blocks, or those of which the fingerprint begins so."""

    def close(self) -> None:
        """Let go of connections."""


class RedisObjects:
    """Strings in Redis or Valkey; the server bounds its memory (`maxmemory`, `allkeys-lru`).

    Args:
        url: redis://, rediss:// or unix://, with the password.
        ttl: seconds that an object lives after its last writing or renewal; None for ever.
        timeout: seconds to wait for a connection or for the next bytes.

    Raises:
        UsageError: for another URL.
        MissingExtra: without the package `redis`.
    """

    def __init__(self, url: str, ttl: float | None, timeout: float) -> None:
        try:
            from redis import Redis  # noqa: PLC0415 - an optional package
            from redis.backoff import NoBackoff  # noqa: PLC0415 - the same
            from redis.retry import Retry  # noqa: PLC0415 - the same
        except ImportError:
            raise MissingExtra("Tiers in Redis need the package redis.", hint=_EXTRA) from None
        try:
            self._client = Redis.from_url(
                url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
            )
        except ValueError:
            raise UsageError(
                "The URL of the Redis tier cannot be used.",
                hint="write redis://HOST:PORT/0, rediss://... or unix://...",
            ) from None
        self._ttl = None if ttl is None else max(1, int(ttl * 1000))

    def leading(self, names: Sequence[str]) -> int:
        """See `Objects`; one round trip."""
        with self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.exists(_redis_name(name))
            there = pipeline.execute()
        return there.index(0) if 0 in there else len(names)

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """See `Objects`; one round trip, and another if not all are there."""
        found: Any = self._client.mget([_redis_name(name) for name in names])
        if None in found:
            # A key of another type is taken for one without content, or it would stand in the way for ever.
            first = found.index(None)
            if self._client.type(_redis_name(names[first])) not in (b"none", b"string"):
                found[first] = b""
        return list(found)

    def get_starts(self, names: Sequence[str], length: int) -> list[bytes | None]:
        """See `Objects`; one round trip."""
        with self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.getrange(_redis_name(name), 0, length - 1)
            return [start or None for start in pipeline.execute()]

    def put(self, objects: Mapping[str, bytes]) -> None:
        """See `Objects`; one round trip."""
        with self._client.pipeline(transaction=False) as pipeline:
            for name, data in objects.items():
                pipeline.set(_redis_name(name), data, px=self._ttl)
            pipeline.execute()

    def renew(self, names: Sequence[str]) -> None:
        """See `Objects`; one round trip, also for the server's own idea of recent use."""
        with self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                if self._ttl is None:
                    pipeline.touch(_redis_name(name))
                else:
                    pipeline.pexpire(_redis_name(name), self._ttl)
            pipeline.execute()

    def remove(self, names: Sequence[str]) -> None:
        """See `Objects`."""
        for start in range(0, len(names), _SCAN):
            self._client.unlink(*(_redis_name(name) for name in names[start : start + _SCAN]))

    def items(self, where: str = "") -> Iterator[Stored]:
        """See `Objects`; uses are known where the server counts idle time (not under an LFU policy)."""
        found: list[bytes] = []
        for name in self._client.scan_iter(match=f"{_PREFIX}{where}*", count=_SCAN):
            found.append(name)
            if len(found) == _SCAN:
                yield from self._describe(found)
                found = []
        yield from self._describe(found)

    def close(self) -> None:
        """See `Objects`."""
        self._client.close()

    def _describe(self, names: Sequence[bytes]) -> Iterator[Stored]:
        with self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.strlen(name)
                pipeline.object("idletime", name)
            answers = pipeline.execute(raise_on_error=False)
        now = time.time_ns()
        for name, size, idle in zip(names, answers[::2], answers[1::2], strict=True):
            if isinstance(size, int) and size:  # neither gone nor of another type
                where, _, key = name.decode(errors="replace").removeprefix(_PREFIX).partition(":")
                yield from _stored(where, key, size, now - idle * _SECOND if isinstance(idle, int) else 0)


class FsspecObjects:
    """Files of any file system of fsspec, such as `s3://bucket/prefix` or `memory://kv`.

    Credentials and endpoints come from where fsspec and the file system's package take them: environment variables,
    `~/.config/fsspec/*.json`, a machine's role.

    Args:
        url: the prefix under which objects lie.

    Raises:
        UsageError: if the URL cannot be used.
        MissingExtra: without fsspec, or the package that it needs for this kind of URL.
    """

    def __init__(self, url: str) -> None:
        kind = url.partition("://")[0]
        try:
            import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional package without types
        except ImportError:
            raise MissingExtra(f"Tiers at {kind}:// need the package fsspec.", hint=_EXTRA) from None
        try:
            # Listings that were cached would hide what others write.
            self._files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            raise MissingExtra(
                f"fsspec lacks what it needs for {kind}://: {error}", hint="install that package"
            ) from None
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"The URL of the {kind} tier cannot be used: {error}",
                hint="write KIND://PLACE, such as s3://BUCKET/PREFIX",
            ) from None
        self._root = str(root).rstrip("/")
        self._made: set[str] = set()

    def leading(self, names: Sequence[str]) -> int:
        """See `Objects`; as many round trips as halvings of the number of names."""
        low, high = 0, len(names)  # names[:low] are there, names[high] is not
        if names and not self._files.exists(self._path(names[0])):
            return 0
        while low < high:
            middle = (low + high) // 2
            if self._files.exists(self._path(names[middle])):
                low = middle + 1
            else:
                high = middle
        return low

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """See `Objects`; side by side, where the file system can."""
        paths = [self._path(name) for name in names]
        return [_content(value) for value in map(self._files.cat(paths, on_error="return").get, paths)]

    def get_starts(self, names: Sequence[str], length: int) -> list[bytes | None]:
        """See `Objects`."""
        found: list[bytes | None] = []
        for name in names:
            try:
                found.append(self._files.cat_file(self._path(name), start=0, end=length))
            except FileNotFoundError:
                found.append(None)
        return found

    def put(self, objects: Mapping[str, bytes]) -> None:
        """See `Objects`; side by side, where the file system can."""
        contents = {self._path(name): data for name, data in objects.items()}
        wheres = {name.partition("/")[0] for name in objects}
        self._make(wheres - self._made)
        try:
            self._files.pipe(contents)
        except FileNotFoundError:  # somebody has removed the folder
            self._make(wheres)
            self._files.pipe(contents)

    def renew(self, names: Sequence[str]) -> None:
        """Nothing: how long objects live is the bucket's own rule."""

    def remove(self, names: Sequence[str]) -> None:
        """See `Objects`."""
        for name in names:
            try:
                self._files.rm_file(self._path(name))
            except FileNotFoundError:
                continue

    def items(self, where: str = "") -> Iterator[Stored]:
        """See `Objects`; uses are not known, only when each was written."""
        root = f"{self._root}/{where}" if _DIGEST.fullmatch(where) else self._root
        for path, about in self._files.find(root, detail=True).items():
            used = about.get("LastModified") or about.get("mtime") or about.get("updated") or about.get("created")
            if isinstance(used, datetime):
                used = used.timestamp()
            folder, _, key = "/".join(path.split("/")[-2:]).partition("/")
            if folder.startswith(where):
                seconds = float(used) if isinstance(used, int | float) else 0.0
                yield from _stored(folder, key, int(about.get("size") or 0), int(seconds * _SECOND))

    def close(self) -> None:
        """Nothing: fsspec lets go of what nobody holds."""

    def _make(self, wheres: Iterable[str]) -> None:
        for where in wheres:
            self._files.makedirs(f"{self._root}/{where}", exist_ok=True)
            self._made.add(where)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _content(value: object) -> bytes | None:
    """What `cat` gave for one path."""
    if value is None or isinstance(value, FileNotFoundError):
        return None
    if isinstance(value, Exception):
        raise value
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _stored(where: str, key: str, size: int, used: int) -> Iterator[Stored]:
    """The block of that name, if it is one's."""
    if _DIGEST.fullmatch(where) and _DIGEST.fullmatch(key):
        yield Stored(where, bytes.fromhex(key), size, used)


def _redis_name(name: str) -> str:
    return _PREFIX + name.replace("/", ":")
