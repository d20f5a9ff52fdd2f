"""The files of disk tiers: names, and reading and writing them safely.

    <folder>/.lock                                     held shared by writers
    <folder>/<fingerprint, 64 hex>/<key>-<parent>.kv   a block (see `record`); keys in hex, 64 zeros for no parent
    <folder>/<fingerprint, 64 hex>/.tmp-<32 hex>       one that is being written

A block's file is written under a temporary name, synced and renamed, and never changes afterwards; its time of
modification is that of its last use. Names tell all that the index needs. Everything is opened relative to the folder
and without following symbolic links, so nothing outside it is ever read, written or removed. Temporary files are swept
by whoever gets the lock for itself: then no writer is alive.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from prefold.engine.tiers.base import Stored
from prefold.engine.tiers.record import NO_PARENT

_WHERE = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})\.kv")
_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{32}")
_LOCK = ".lock"
_CLOSED = -1  # what the system calls a bad file descriptor
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the place of a file keeps nobody waiting


def file_name(key: bytes, parent: bytes | None) -> str:
    """The name of a block's file (132 bytes: short enough for any file system)."""
    return f"{key.hex()}-{(parent or NO_PARENT).hex()}.kv"


class Folder:
    """A folder with blocks of any number of models. Methods raise `OSError`, and only that.

    Args:
        path: the folder; made, with mode 0700, where it does not exist and `create` is set.
        create: whether to make it.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path.resolve()
        self._create = create
        self._root = self._open_root()
        self._folders: dict[str, int] = {}
        self._lock = _CLOSED
        self._retired: list[int] = []  # of folders that are gone; closed late, since another thread may use them yet
        self._opening = RLock()

    def close(self) -> None:
        """Let go of the folder."""
        with self._opening:
            self._retire(_CLOSED)
            for descriptor in self._retired:
                os.close(descriptor)
            self._retired = []

    def wheres(self) -> list[str]:
        """Fingerprints of which there are folders."""
        with os.scandir(self._live_root()) as entries:
            return sorted(
                entry.name for entry in entries if _WHERE.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            )

    def scan(self, where: str) -> Iterator[Stored]:
        """The blocks of a fingerprint, in any order; none if the folder is not there."""
        with suppress(FileNotFoundError), os.scandir(self._folder(where)) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match is None:
                    continue
                with suppress(FileNotFoundError):  # another process was faster
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        key, parent = bytes.fromhex(match[1]), bytes.fromhex(match[2])
                        before = None if parent == NO_PARENT else parent
                        yield Stored(where, key, about.st_size, about.st_mtime_ns, before)

    def look(self, where: str, key: bytes, parent: bytes | None) -> Stored | None:
        """A block's file, None if it is not there."""
        try:
            about = os.stat(file_name(key, parent), dir_fd=self._folder(where), follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(about.st_mode):
            return None
        return Stored(where, key, about.st_size, about.st_mtime_ns, parent)

    def read(self, where: str, name: str, head: bytearray, payload: memoryview) -> bool:
        """Fill `head` and `payload` from a file; whether it has exactly that length."""
        descriptor = os.open(name, _READ, dir_fd=self._folder(where))
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_size != len(head) + len(payload):
                return False
            done = os.preadv(descriptor, [head, payload], 0)
            while len(head) <= done < len(head) + len(payload):
                more = os.preadv(descriptor, [payload[done - len(head) :]], done)
                if more == 0:
                    return False
                done += more
            return done == len(head) + len(payload)
        finally:
            os.close(descriptor)

    def read_start(self, where: str, name: str, length: int) -> bytes:
        """The first bytes of a file; none of what is no file."""
        descriptor = os.open(name, _READ, dir_fd=self._folder(where))
        try:
            return os.pread(descriptor, length, 0) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        finally:
            os.close(descriptor)

    def make(self, where: str) -> None:
        """Make the folder of a fingerprint, if it is not there."""
        try:
            self._folder(where)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(where, 0o700, dir_fd=self._live_root())
            os.fchmod(self._folder(where), 0o700)

    def write_temporary(self, where: str, parts: Sequence[bytes | memoryview]) -> str:
        """Write and sync a file under a temporary name, to be published or removed; its name.

        Call it while `writing`.
        """
        name = f".tmp-{secrets.token_hex(16)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self._folder(where))
        try:
            total = sum(map(len, parts))
            done = os.writev(descriptor, parts)
            if done < total:
                rest = memoryview(b"".join(parts))
                while done < total:
                    done += os.write(descriptor, rest[done:])
            os.fsync(descriptor)
        except OSError:
            self.remove(where, name)
            raise
        finally:
            os.close(descriptor)
        return name

    def publish(self, where: str, temporary: str, name: str) -> None:
        """Give a temporary file its name."""
        folder = self._folder(where)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def sync(self, where: str) -> None:
        """Make what was published durable."""
        os.fsync(self._folder(where))

    def renew(self, where: str, name: str, now: int) -> None:
        """Note that a file was used now, in nanoseconds since 1970."""
        os.utime(name, ns=(now, now), dir_fd=self._folder(where), follow_symlinks=False)

    def remove(self, where: str, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder(where))

    def remove_empty(self, where: str) -> None:
        """Remove the folder of a fingerprint, if nothing is left in it."""
        with suppress(OSError):
            os.rmdir(where, dir_fd=self._live_root())

    def reopen(self) -> None:
        """Start again from the path: somebody may have removed the folder and made another."""
        with self._opening:
            self._retire(self._open_root())

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock that keeps temporary files from being swept."""
        lock = self._lock_file()
        with suppress(OSError):  # file systems without locks are not swept
            fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)

    def sweep(self) -> int:
        """Remove temporary files of writers that were killed, unless one is writing now; how many."""
        lock = self._lock_file()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        swept = 0
        try:
            for where in self.wheres():
                with os.scandir(self._folder(where)) as entries:
                    names = [entry.name for entry in entries if _TEMPORARY.fullmatch(entry.name)]
                for name in names:
                    self.remove(where, name)
                swept += len(names)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
        return swept

    def _open_root(self) -> int:
        if self._create:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _folder(self, where: str) -> int:
        with self._opening:
            root = self._live_root()
            descriptor = self._folders.get(where)
            if descriptor is not None and _is_removed(descriptor):
                self._retired.append(self._folders.pop(where))
                descriptor = None
            if descriptor is None:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = self._folders[where] = os.open(where, flags, dir_fd=root)
            return descriptor

    def _live_root(self) -> int:
        """The folder; made again where somebody has removed it."""
        with self._opening:
            if self._root >= 0 and _is_removed(self._root):
                self._retire(self._open_root())
            return self._root

    def _retire(self, root: int) -> None:
        """Use another root, and nothing that was opened before."""
        open_now = (*self._folders.values(), self._root, self._lock)
        self._retired += [descriptor for descriptor in open_now if descriptor >= 0]
        self._folders, self._root, self._lock = {}, root, _CLOSED

    def _lock_file(self) -> int:
        with self._opening:
            root = self._live_root()
            if self._lock == _CLOSED:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._lock = os.open(_LOCK, flags, 0o600, dir_fd=root)
            return self._lock


def _is_removed(folder: int) -> bool:
    """Whether an open folder has no name any more."""
    return os.fstat(folder).st_nlink == 0
