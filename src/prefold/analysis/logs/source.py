"""Finding and opening the files of a log: folders, standard input, gzip and zstd."""

from __future__ import annotations

import gzip
import importlib
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from prefold.errors import InvalidRequest, MissingExtra, UsageError

STANDARD_INPUT = "-"

_BUFFER = 256 * 1024
_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_UNPACKED_AT_ONCE = 16 * 1024
_PACKED_AT_ONCE = 512  # bytes of zstd: at most 16 MiB unpacked, since no block of 4 bytes holds more than 128 KiB
_PACKED_SUFFIXES = (".gz", ".gzip", ".zst", ".zstd")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log.

    Attributes:
        path: where it can be opened, again and again.
        name: what messages call it.
        size: its bytes, as they are stored.
        is_named: whether the user named it, rather than a folder that holds it.
    """

    path: Path
    name: str
    size: int
    is_named: bool = True

    @property
    def plain_name(self) -> str:
        """Its name without that of its compression."""
        name = self.name
        for suffix in _PACKED_SUFFIXES:
            name = name.removesuffix(suffix)
        return name


class Files:
    """The files that some sources stand for.

    Standard input, and other streams that can be read only once, are copied to a temporary file first.

    Args:
        sources: paths of files or folders, or `-` for standard input.

    Raises:
        UsageError: if one is not there or cannot be read, or is a folder without a file that is not hidden.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        if not sources:
            raise UsageError("There is no log to read.", hint="Name a file or a folder; - is standard input.")
        self._copies: list[Path] = []
        try:
            self.files = tuple(file for source in sources for file in self._of(source))
        except BaseException:  # Ctrl-C, too, leaves no copy behind
            self.close()
            raise

    def close(self) -> None:
        """Remove temporary copies."""
        while self._copies:
            self._copies.pop().unlink(missing_ok=True)

    def _of(self, source: str) -> Iterator[LogFile]:
        if source == STANDARD_INPUT:
            yield self._copied(sys.stdin.buffer, "standard input")
            return
        path = Path(source)
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                yield from _in_folder(path)
            elif stat.S_ISREG(status.st_mode):
                yield LogFile(path, source, status.st_size)
            else:
                with path.open("rb") as stream:
                    yield self._copied(stream, source)
        except (FileNotFoundError, ValueError):  # a NUL in the name
            raise UsageError(f"There is no file {source}.", hint="Check the path; - is standard input.") from None
        except OSError as error:
            raise UsageError(f"{source} cannot be read: {error.strerror}.", hint="Check its rights.") from None

    def _copied(self, stream: BinaryIO, name: str) -> LogFile:
        descriptor, copy = tempfile.mkstemp(prefix="prefold-log-")
        self._copies.append(Path(copy))
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(stream, file, _BUFFER)
        return LogFile(Path(copy), name, Path(copy).stat().st_size)


def _in_folder(folder: Path) -> Iterator[LogFile]:
    """Files that are not hidden, in folders that are not hidden, sorted by path."""
    found: list[LogFile] = []
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(place, name)
            if not name.startswith(".") and path.is_file():
                found.append(LogFile(path, str(path), path.stat().st_size, is_named=False))
    if not found:
        raise UsageError(f"The folder {folder} holds no file.", hint="Name a file, or the folder that holds the logs.")
    yield from sorted(found, key=lambda file: file.path)


def _raise(error: OSError) -> None:
    """A folder that cannot be read must not look empty."""
    raise error


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file.

    Attributes:
        stream: what it holds, unpacked.
        position: bytes of it that have been read, as they are stored.
    """

    stream: io.BufferedReader[Any]
    position: Callable[[], int]


@contextmanager
def opened(file: LogFile) -> Iterator[Opened]:
    """Open a file and unpack it, whatever its name, as its first bytes say.

    Reading from it raises `InvalidRequest` where the file is damaged.

    Raises:
        UsageError: if it cannot be opened.
        MissingExtra: if it is packed with zstd, and there is nothing to unpack that.
    """
    try:
        packed = io.BufferedReader(file.path.open("rb", buffering=0), _BUFFER)
    except OSError as error:
        raise UsageError(f"{file.name} cannot be read: {error.strerror}.", hint="Check its rights.") from None
    with packed:
        try:
            start = packed.peek(4)[:4]
        except OSError as error:  # a folder's link, a disk that fails
            raise UsageError(f"{file.name} cannot be read: {error.strerror}.", hint="Check the file.") from None
        unpack = _unpacker(start)
        stream = io.BufferedReader(_Unpacked(unpack(packed)), _BUFFER) if unpack else packed
        yield Opened(stream, packed.raw.tell)


def _unpacker(start: bytes) -> Callable[[BinaryIO], Iterator[bytes]] | None:
    """What unpacks a file that begins with some bytes, piece by piece; None for a plain file."""
    if start.startswith(_GZIP):
        return lambda packed: _pieces(gzip.GzipFile(fileobj=packed))
    return _zstd_unpacker() if start == _ZSTD else None


def _pieces(content: Any) -> Iterator[bytes]:
    while piece := content.read1(_UNPACKED_AT_ONCE):
        yield piece


def _zstd_unpacker() -> Callable[[BinaryIO], Iterator[bytes]]:
    try:
        zstandard = importlib.import_module("zstandard")
    except ModuleNotFoundError:
        pass
    else:
        return lambda packed: _zstd_pieces(packed, zstandard.ZstdDecompressor())
    try:
        compression = importlib.import_module("compression.zstd")  # Python 3.14 has it built in
    except ModuleNotFoundError:
        raise MissingExtra(
            "A log packed with zstd needs the package zstandard, which is not installed.",
            hint="pip install 'prefold[analysis]', or unpack the log first.",
        ) from None
    return lambda packed: _pieces(compression.ZstdFile(packed))


def _zstd_pieces(packed: BinaryIO, unpacker: Any) -> Iterator[bytes]:
    """What the frames of a file hold; the streams of `zstandard` take a frame that is cut off for a whole one.

    Raises:
        EOFError: if the last frame has no end.
    """
    frame, rest = unpacker.decompressobj(), b""
    is_begun = False
    while part := rest or packed.read(_PACKED_AT_ONCE):
        yield frame.decompress(part)
        rest, is_begun = frame.unused_data, not frame.eof
        if frame.eof:
            frame = unpacker.decompressobj()
    if is_begun:
        raise EOFError


class _Unpacked(io.RawIOBase):
    """What a packed file holds; the library's own errors become `InvalidRequest`.

    Args:
        pieces: of what it holds.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")  # of the latest piece
        self._error: InvalidRequest | None = None

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; returns how many bytes, 0 at the end.

        Raises:
            InvalidRequest: if the file is damaged or cut off, once all that comes before that has been read.
        """
        done = 0
        # The buffer is filled, so that the first piece is long enough to recognise the format by.
        while done < len(buffer) and (self._left or self._advance()):
            size = min(len(buffer) - done, len(self._left))
            buffer[done : done + size] = self._left[:size]
            self._left = self._left[size:]
            done += size
        if self._error and not done:
            raise self._error
        return done

    def _advance(self) -> bool:
        """Unpack the next piece; false if there is none."""
        try:
            while not self._left and (piece := next(self._pieces, None)) is not None:
                self._left = memoryview(piece)
        except EOFError:
            self._fail("it ends too early")
        except Exception as error:  # noqa: BLE001 - the zstd libraries share no error of Python's
            self._fail(str(error).rstrip("."))
        return bool(self._left)

    def _fail(self, problem: str) -> None:
        self._error = InvalidRequest(
            f"The file cannot be unpacked: {problem}.", hint="Check that the file is complete."
        )


@contextmanager
def seekable(stream: BinaryIO) -> Iterator[BinaryIO]:
    """The rest of a stream as a file in which one can move about: itself, or a temporary copy."""
    if stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, _BUFFER)
        copy.seek(0)
        yield copy
