"""K/V blocks in a folder, which a restart finds again and other processes may use at the same time.

A file per block: files per run of blocks are no faster to write (46 MB in 32 files, synced four at a time: 35 ms; in
one file: 45 ms) or to read (20 ms with the check, from the page cache), and would tie blocks of unequal use together.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from prefold.core.breaker import Breaker
from prefold.engine.tiers.base import Layout, Stored
from prefold.engine.tiers.folder import Folder, file_name
from prefold.engine.tiers.lane import Attempts, Lane, side_by_side
from prefold.engine.tiers.local import Got, LocalTier
from prefold.engine.tiers.order import LeafFirst
from prefold.engine.tiers.record import HEADER_BYTES, Codec
from prefold.engine.tiers.seal import Seal
from prefold.errors import UsageError

_Result = TypeVar("_Result")

_KEY_BYTES = 32
_SECOND = 1_000_000_000
_RENEW_AFTER = 60 * _SECOND
_LOOK_AGAIN_AFTER = 10 * _SECOND
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MOVED = (errno.ENOENT, errno.ESTALE, errno.EBADF)
_WRITERS = 4
_FIND_SECONDS = 0.25
_MOVE_SECONDS = 2.0
_CLEAR_SECONDS = 60.0
_SLOWEST = 8 << 20  # bytes a second; what is slower than that is late
_TOGETHER = 8 << 20  # bytes that are read in one operation
_PAUSE_SECONDS = 10.0


class DiskTier(LocalTier):
    """Keeps records in files. The capacity is that of the whole folder, whatever model its blocks are of.

    Other processes' blocks are found as soon as they are there. Together, processes may exceed the capacity for some
    seconds, until one of them looks at the folder again.

    Args:
        layout: of the records.
        path: the folder, made where it does not exist.
        capacity: bytes, at least one block.
        ttl: seconds after its last use from which a block is a miss and removed; None for never. Best effort: what
            nobody asks for is removed at the next start, eviction or `sweep`.
        seal: encrypts; None does not.
        now: nanoseconds since 1970.
        find_seconds: longest that `find` takes.
        move_seconds: longest that reading or writing takes, beside a second for each 8 MiB.

    Raises:
        UsageError: if the folder cannot be used at all, or no block fits.
    """

    def __init__(
        self,
        layout: Layout,
        path: Path,
        capacity: int,
        *,
        ttl: float | None = None,
        seal: Seal | None = None,
        now: Callable[[], int] = time.time_ns,
        find_seconds: float = _FIND_SECONDS,
        move_seconds: float = _MOVE_SECONDS,
    ) -> None:
        self._codec = Codec(layout, seal)
        size = self._codec.stored_bytes
        super().__init__("disk", slow=True, record_bytes=layout.record_bytes, block_bytes=size, capacity=capacity)
        if capacity < size:
            raise UsageError(
                f"The disk tier's {capacity} bytes hold no block of {layout.block_tokens} tokens.",
                hint=f"give at least {size} bytes",
            )
        self._where = self._codec.where
        self._limit = capacity
        self._ttl = None if ttl is None else int(ttl * _SECOND)
        self._time = now
        self._files: dict[bytes, Stored] = {}
        self._unremovable: set[bytes] = set()
        self._look_again = 0
        self._find_seconds = find_seconds
        self._move_seconds = move_seconds
        self._together = max(1, min(_WRITERS * 8, _TOGETHER // size))
        self._buffers: list[memoryview] = []
        self._late = Event()  # set when nobody waits any more for what is being written
        # A disk may hang like any store far away, so everything but the index is done in these.
        self._finding, self._moves = Lane(), Lane()
        self._attempts = Attempts(f"disk={path}", self._counts)
        self._answers = Breaker(2, _PAUSE_SECONDS, lambda: now() / _SECOND)
        # One that is full or read-only still answers.
        self._writes = Breaker(3, _PAUSE_SECONDS, lambda: now() / _SECOND)
        try:
            self._folder = Folder(path)
            self._look()
        except OSError as error:
            raise UsageError(
                f"The disk tier's folder {path} cannot be used: {error.strerror}.",
                hint="choose a folder that can be read and written, or leave the tier out",
            ) from None
        self.sweep()

    def find(self, keys: Sequence[bytes], *, sure: bool = False) -> int:
        """See `Tier`; another process's blocks are seen where `keys` begin with the chain's first or a known one."""
        found = super().find(keys)
        if found == len(keys) and not sure:
            return found
        if sure:
            self._ask(self._moves, self._seconds(0), partial(self._confirm, tuple(keys), None))
        self._ask(self._finding, self._find_seconds, partial(self._adopt, tuple(keys), None))
        return super().find(keys)

    def read(self, keys: Sequence[bytes], into: memoryview) -> int:
        """See `Tier`."""
        size = self._record_bytes
        done = 0
        while done < len(keys):
            group = tuple(keys[done : done + self._together])
            before = keys[done - 1] if done else None
            read = self._ask(self._moves, self._seconds(len(group)), partial(self._read_apart, group, before))
            if read is None:
                break
            got, buffer = read
            into[done * size : (done + got) * size] = buffer[: got * size]
            self._buffers.append(buffer)
            done += got
            if got < len(group):
                break
        self._counts.hits += done
        self._counts.misses += len(keys) - done
        return done

    def write(
        self, keys: Sequence[bytes], depths: Sequence[int], records: memoryview, parent: bytes | None = None
    ) -> int:
        """See `Tier`."""
        done = 0
        if keys:
            late = Event()

            def write() -> int:
                self._late = late
                return self._write(keys, depths, records, parent)

            written = self._ask(self._moves, self._seconds(len(keys)), write)
            if written is None:
                late.set()  # the caller may now reuse `records`
            done = written or 0
        self._counts.refused += len(keys) - done
        return done

    def remove(self, keys: Sequence[bytes]) -> None:
        """See `Tier`."""
        self._ask(self._moves, self._seconds(len(keys)), partial(super().remove, tuple(keys)))

    def clear(self) -> int:
        """See `Tier`; other processes' blocks of the layout go too."""
        clear = super().clear

        def look_and_clear() -> int:
            self._try_to_look()
            return clear()

        return self._ask(self._moves, _CLEAR_SECONDS, look_and_clear) or 0

    def sweep(self) -> int:
        """Remove what is too old, and temporary files of the dead; how many files."""

        def sweep() -> int:
            swept = self._expire()
            try:
                swept += self._folder.sweep()
                for where in self._folder.wheres():
                    if where != self._where:
                        self._folder.remove_empty(where)
            except OSError as error:
                self._failed("swept", error)
            return swept

        return self._ask(self._moves, _CLEAR_SECONDS, sweep) or 0

    def close(self) -> None:
        """See `Tier`; a disk that hangs is left as it is."""
        with self._index:
            self._order = LeafFirst()
        self._capacity = self._limit = 0
        self._look_again = 1 << 63
        self._ask(self._moves, self._move_seconds, self._folder.close)

    def _ask(self, lane: Lane, seconds: float, operation: Callable[[], _Result]) -> _Result | None:
        return self._attempts.ask(self._answers, lane, seconds, operation)

    def _seconds(self, blocks: int) -> float:
        return self._move_seconds + blocks * self._block_bytes / _SLOWEST

    def _read_apart(self, keys: Sequence[bytes], before: bytes | None) -> tuple[int, memoryview]:
        """Leading blocks, and memory of our own with them: what is late must not write to what others use again."""
        try:
            buffer = self._buffers.pop()
        except IndexError:
            buffer = memoryview(bytearray(self._together * self._record_bytes))
        self._adopt(keys, before)
        return self._read(keys, buffer), buffer

    def _write(self, keys: Sequence[bytes], depths: Sequence[int], records: memoryview, parent: bytes | None) -> int:
        if depths[0] and parent is not None and parent not in self._order:
            self._look_if_due()  # it may be another process's
        self._adopt(keys, parent)
        self._confirm(keys, parent)
        return super()._write(keys, depths, records, parent)

    def _now(self) -> int:
        return self._time()

    def _is_own(self, key: bytes) -> bool:
        return len(key) == _KEY_BYTES

    def _is_here(self, key: bytes) -> bool:
        used = self._order.used(key)
        return used is not None and not self._is_old(used)

    def _is_old(self, used: int) -> bool:
        return self._ttl is not None and used < self._time() - self._ttl

    def _get(self, key: bytes, into: memoryview) -> Got:
        stored = self._files.get(key)
        if stored is None:  # `find` took it in while it was removed
            return Got.GONE
        payload = into if self._codec.seal is None else memoryview(bytearray(self._codec.payload_bytes))
        head = bytearray(HEADER_BYTES)
        try:
            whole = self._folder.read(self._where, _file(stored), head, payload)
        except FileNotFoundError:
            return Got.GONE
        except OSError as error:
            if error.errno == errno.ELOOP:  # a symbolic link
                return Got.CORRUPT
            self._failed("read", error)
            return Got.FAILED
        return Got.WHOLE if whole and self._codec.open(head, key, payload, into) else Got.CORRUPT

    def _put(self, keys: Sequence[bytes], parent: bytes | None, depth: int, records: memoryview) -> int:
        if not keys or not self._writes.allows():
            return 0
        blocks = [
            Stored(self._where, key, self._block_bytes, self._time(), before)
            for key, before in zip(keys, [parent, *keys[:-1]], strict=True)
        ]
        done = 0
        try:
            with self._folder.writing():
                self._folder.make(self._where)
                done, failure = self._write_all(blocks, depth, records)
                if done:
                    self._folder.sync(self._where)
            if failure is not None:
                raise failure
        except OSError as error:
            self._failed("written", error)
            self._writes.failed()
            if error.errno in _FULL:
                # What it holds now is what it can hold, until the next look at the folder.
                self._capacity = min(self._capacity, self._order.total)
            elif error.errno in _MOVED:
                self._start_again()
        else:
            self._writes.worked()
        return done

    def _write_all(self, blocks: Sequence[Stored], depth: int, records: memoryview) -> tuple[int, OSError | None]:
        """Write blocks side by side, publish them in order: whatever happens, none is there without its parent.

        Returns:
            How many of the leading ones are there now, and what ended it.
        """
        results: list[str | OSError] = [""] * len(blocks)

        def write(number: int, block: Stored) -> None:
            record = records[number * self._record_bytes : (number + 1) * self._record_bytes]
            parts = self._codec.encode(block.key, block.parent, depth + number, record)
            try:
                results[number] = self._folder.write_temporary(self._where, parts)
            except OSError as error:
                results[number] = error

        side_by_side([partial(write, number, block) for number, block in enumerate(blocks)], _WRITERS)
        done = 0
        failure: OSError | None = TimeoutError(errno.ETIMEDOUT, "too late") if self._late.is_set() else None
        for block, result in zip(blocks, results, strict=True):
            try:
                if isinstance(result, OSError):
                    raise result
                if failure is None:
                    self._folder.publish(self._where, result, _file(block))
                    self._files[block.key] = block
                    self._add(block.key, block.parent)
                    done += 1
                else:
                    self._folder.remove(self._where, result)
            except OSError as error:
                failure = failure or error
        return done, failure

    def _drop(self, key: bytes) -> None:
        stored = self._files.pop(key, None)
        if stored is None:
            return
        try:
            self._folder.remove(stored.where, _file(stored))
        except OSError as error:
            self._unremovable.add(key)
            self._failed("cleaned", error)

    def _used(self, keys: Sequence[bytes]) -> None:
        now = self._time()
        gone = []
        for key in keys:
            stored = self._files.get(key)
            if stored is not None and now - stored.used > _RENEW_AFTER:
                self._files[key] = replace(stored, used=now)
                try:
                    self._folder.renew(stored.where, _file(stored), now)
                except FileNotFoundError:  # somebody removed it
                    gone.append(key)
                except OSError as error:
                    self._failed("marked as used", error)
        self._forget(gone)

    def _make_room(self, blocks: int, keep: bytes | None) -> int:
        self._expire()
        if self._order.total + blocks * self._block_bytes > self._capacity:
            self._look_if_due()
        return super()._make_room(blocks, keep)

    def _expire(self) -> int:
        """Remove what is too old; how many blocks."""
        old: list[bytes] = []
        with self._index:
            leaf = self._order.oldest_leaf()
        if leaf is not None and self._is_old(self._order.used(leaf) or 0):
            self._look_if_due()  # another process may have used it since
        with self._index:
            while (leaf := self._order.oldest_leaf()) is not None and self._is_old(self._order.used(leaf) or 0):
                self._order.discard(leaf)
                old.append(leaf)
        for key in old:
            self._drop(key)
        self._counts.evicted += len(old)
        return len(old)

    def _on_disk(self, key: bytes, parent: bytes | None) -> Stored | None:
        """A block's file, if it is there and may be used."""
        try:
            stored = self._folder.look(self._where, key, parent)
        except OSError:
            return None
        is_good = stored is not None and stored.size == self._block_bytes and not self._is_old(stored.used)
        return stored if is_good and key not in self._unremovable else None

    def _adopt(self, keys: Sequence[bytes], parent: bytes | None) -> None:
        """Take leading blocks into the index that another process has written."""
        for key in keys:
            if key not in self._order:
                stored = self._on_disk(key, parent)
                if stored is None:
                    return
                with self._index:  # the only change that `find` makes, from whatever thread
                    self._files[key] = stored
                    self._order.add(key, parent, stored.size, min(stored.used, self._time()))
            parent = key

    def _confirm(self, keys: Sequence[bytes], parent: bytes | None) -> None:
        """Forget what somebody has removed of a chain that is to go on."""
        at = parent if parent is not None and parent in self._order else None
        for key in keys:
            if key not in self._order:
                break
            at = key
        gone = None
        with suppress(OSError):
            while at is not None and (stored := self._files.get(at)) is not None:
                if self._folder.look(stored.where, stored.key, stored.parent) is not None:
                    break
                gone, at = at, stored.parent
        if gone is not None:
            self._forget([gone])

    def _look(self) -> None:
        """Bring the index up to date with the folder."""
        started = self._time()
        found: dict[bytes, Stored] = {}
        for where in self._folder.wheres():
            prefix = self._prefix(where)
            for stored in self._folder.scan(where):
                if where == self._where and stored.size != self._block_bytes:
                    self._counts.corrupt += 1
                    self._folder.remove(where, _file(stored))
                else:
                    found[prefix + stored.key] = stored
        order = LeafFirst()
        # Newest first: then no block's time is set twice.
        for key, stored in sorted(found.items(), key=lambda item: -item[1].used):
            parent = None if stored.parent is None else self._prefix(stored.where) + stored.parent
            order.add(key, parent, stored.size, max(min(stored.used, started), self._order.used(key) or 0))
        with self._index:
            self._order, self._files = order, found
        ended = self._time()
        # At most a fiftieth of the time goes into looking.
        self._look_again = ended + max(_LOOK_AGAIN_AFTER, 50 * (ended - started))
        self._capacity = self._limit

    def _look_if_due(self) -> None:
        if self._time() >= self._look_again:
            self._try_to_look()

    def _try_to_look(self) -> None:
        try:
            self._look()
        except OSError as error:
            self._failed("read", error)
            self._look_again = self._time() + _LOOK_AGAIN_AFTER

    def _start_again(self) -> None:
        """Make the folder again, which somebody has removed."""
        try:
            self._folder.reopen()
            self._look()
        except OSError as error:
            self._failed("opened again", error)

    def _prefix(self, where: str) -> bytes:
        """What tells other layouts' keys apart in the index."""
        return b"" if where == self._where else bytes.fromhex(where)

    def _failed(self, what: str, error: OSError) -> None:
        self._attempts.failed(f"cannot be {what}: {error.strerror}")


def _file(stored: Stored) -> str:
    return file_name(stored.key, stored.parent)
