"""Writing files that a user asked for."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from prefold.cli.inputs import STANDARD_INPUT
from prefold.errors import PrefoldError, UsageError


def write_file(path: Path, content: bytes) -> None:
    """Put a file's content in its place, as `replacing` does.

    Raises:
        UsageError: if it cannot be written.
    """
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A draft that takes a file's place at once, so that nobody ever reads half of it; the file keeps its mode.

    What is no regular file, such as a pipe or a device, is written to as it is. After an error, Ctrl-C too, all is as
    it was.

    Raises:
        UsageError: if it cannot be written.
        BrokenPipeError: if it is a pipe that nobody reads any more.
    """
    try:
        if _is_special(path):
            with path.open("wb") as file:
                yield file
            return
        target = path.resolve()  # a link stays a link
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
            if target.exists():
                shutil.copymode(target, draft)
            else:
                Path(draft).chmod(0o666 & ~_umask())
            Path(draft).replace(target)
        except BaseException:  # Ctrl-C, too, leaves no draft behind
            Path(draft).unlink(missing_ok=True)
            raise
    except BrokenPipeError:  # who read it has seen enough, as with standard output
        raise
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.", hint="Check the path and the rights of its folder."
        ) from None


def check_output(path: Path, sources: Sequence[str]) -> None:
    """Refuse a file that is about to be written, before a log is read for it.

    Args:
        path: the file.
        sources: files and folders that are read, or - for standard input.

    Raises:
        UsageError: if it is a log among the sources, or its folder is not there.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no such folder.", hint="Make the folder first.")
    if not path.is_file():
        return
    if any(_is_read(path, source) for source in sources):
        raise UsageError(f"{path} is one of the logs that are read.", hint="Write to another file.")


def _is_read(path: Path, source: str) -> bool:
    """Whether a file is a source, or a log in one that is a folder."""
    if source == STANDARD_INPUT:
        try:
            return os.path.samestat(path.stat(), os.fstat(0))
        except OSError:  # it is closed
            return False
    place = Path(source)
    if place.is_dir():
        return path.resolve().is_relative_to(place.resolve()) and _is_log(path)
    return place.exists() and place.samefile(path)


def _is_log(path: Path) -> bool:
    from prefold.analysis.logs.formats import recognise
    from prefold.analysis.logs.reader import HEAD_BYTES, Head
    from prefold.analysis.logs.source import LogFile, opened

    file = LogFile(path, str(path), 0)
    try:
        with opened(file) as handle:
            return recognise(Head.of(file.plain_name, handle.stream.peek(HEAD_BYTES))) is not None
    except PrefoldError:  # it is packed, and damaged
        return False


def _is_special(path: Path) -> bool:
    """Whether something is there that is neither a file nor a folder. It is looked at through links."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
