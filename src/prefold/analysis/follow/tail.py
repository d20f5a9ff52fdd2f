"""What grows line by line: a file, read like `tail -F` reads it, or a pipe."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from prefold.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PIECE = 256 * 1024
_HEAD = 256  # bytes at the start of a file by which it is recognised


class Tail(io.RawIOBase):
    """A file that grows, as a stream that waits for more. It gives whole lines, and pieces of very long ones.

    When the file was moved away, what is left in it is read to its end, then the new one from its start. When it was
    cut, or written anew in its place, it is read again from its start. A last line without its end is kept until it is
    whole; if the file was moved away, or waiting is given up, the line ends there.

    Args:
        path: the file. It must be there; later it may be away for a while.
        wait: is called when there is nothing new; False ends the stream.
        from_start: whether to read what is there already, instead of beginning with what comes.
        on_restart: is called when reading begins anew: with `rotated` or `truncated`.

    Attributes:
        skipped_lines: lines before the first that is given.

    Raises:
        UsageError: if there is no such file, or it cannot be read.
    """

    def __init__(
        self,
        path: Path,
        *,
        wait: Callable[[], bool],
        from_start: bool = False,
        on_restart: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self.skipped_lines = 0
        self._path = path
        self._wait = wait
        self._on_restart = on_restart
        self._rest = bytearray()  # read, but not yet given
        self._searched = 0  # bytes of it that hold no end of line
        self._is_inside_line = False  # the last piece given had no end of line
        try:
            if not path.is_file():
                problem = "is no file" if path.exists() else "is not there"
                raise UsageError(f"{path} {problem}.", hint="Give a log file that is being written.")
            self._file: BinaryIO = path.open("rb", buffering=0)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.", hint="Give a log file.") from None
        self._head = os.pread(self._file.fileno(), _HEAD, 0)
        if not from_start:
            self._skip()

    def readable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Give lines, as many as fit and are there; waits for one if none is. 0 when waiting was given up."""
        view = memoryview(buffer).cast("B")
        while True:
            end = self._rest.rfind(b"\n", self._searched) + 1
            if end or len(self._rest) >= len(view):
                length = min(end or len(self._rest), len(view))
                return self._give(view, length)
            self._searched = len(self._rest)
            if not self._more():
                return self._give(view, len(self._rest)) if self._rest else 0

    def _give(self, view: memoryview, length: int) -> int:
        view[:length] = self._rest[:length]
        self._is_inside_line = self._rest[length - 1] != ord("\n")
        del self._rest[:length]
        self._searched = 0
        return length

    def _more(self) -> bool:
        """Wait until there is more to search; False if that was given up."""
        while True:
            if self._is_cut():
                self._begin_anew()
            if self._read():
                return True
            if self._is_moved():
                # What was written between the last read and the move; then the old file is complete.
                if self._read():
                    return True
                if self._rest or self._is_inside_line:
                    self._rest += b"\n"
                    return True
                if self._open_next():
                    continue
            if not self._wait():
                return False

    def _read(self) -> bool:
        piece = self._file.read(_PIECE)
        if piece and len(self._head) < _HEAD:
            self._head = os.pread(self._file.fileno(), _HEAD, 0)
        self._rest += piece
        return bool(piece)

    def _is_cut(self) -> bool:
        """Whether the file is shorter than what was read of it, or begins otherwise than it did."""
        descriptor = self._file.fileno()
        if os.fstat(descriptor).st_size < self._file.tell():
            return True
        return os.pread(descriptor, len(self._head), 0) != self._head

    def _begin_anew(self) -> None:
        self._rest.clear()
        self._searched = 0
        if self._is_inside_line:
            self._rest += b"\n"
        self._file.seek(0)
        self._head = b""
        self._on_restart("truncated")

    def _is_moved(self) -> bool:
        """Whether another file stands in its place."""
        try:
            now = self._path.stat()
        except OSError:
            return False
        mine = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def _open_next(self) -> bool:
        try:
            opened: BinaryIO = self._path.open("rb", buffering=0)
        except OSError:  # it is away again, or not ours to read: wait
            return False
        self._file.close()
        self._file = opened
        self._head = b""
        self._on_restart("rotated")
        return True

    def _skip(self) -> None:
        """Go to the end, or to the start of a last line that is not yet whole; count the lines before."""
        end = 0
        while piece := self._file.read(_PIECE):
            self.skipped_lines += piece.count(b"\n")
            if (last := piece.rfind(b"\n")) >= 0:
                end = self._file.tell() - len(piece) + last + 1
        self._file.seek(end)


class Piped(io.RawIOBase):
    """What comes through a pipe, line by line.

    Args:
        stream: its end; it is not closed here.
    """

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Give a line, or a piece of a long one; waits for it. 0 at the end."""
        view = memoryview(buffer).cast("B")
        line = self._stream.readline(len(view))
        view[: len(line)] = line
        return len(line)
