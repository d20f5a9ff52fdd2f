"""The records of a log that is being written."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from prefold.analysis.follow.tail import Piped, Tail
from prefold.analysis.logs.checks import Check, Notes
from prefold.analysis.logs.formats import names, recognise
from prefold.analysis.logs.reader import HEAD_BYTES, BadLine, Head, Reader, Source
from prefold.analysis.record import Record
from prefold.errors import UsageError


class GrowingLog:
    """A log of lines that grows. Its format is recognised by its beginning, or, while it is empty, by what comes first.

    Args:
        source: the file, or a pipe, which ends by itself.
        wait: is called when there is nothing new in the file; False ends the reading.
        from_start: whether to read what is there already; of a pipe all is read.
        reader: reads it; None to recognise its format.

    Attributes:
        notes: what was counted so far; among the problems also how often the file was `rotated` and `truncated`.

    Raises:
        UsageError: if there is no such file, or it cannot be read.
    """

    def __init__(
        self,
        source: Path | BinaryIO,
        *,
        wait: Callable[[], bool],
        from_start: bool = False,
        reader: Reader | None = None,
    ) -> None:
        self.notes = Notes()
        self._file = source if isinstance(source, Path) else None
        self._name = str(source) if isinstance(source, Path) else "standard input"
        self._from_start = from_start or self._file is None
        self._reader = reader
        skipped = 0
        if isinstance(source, Path):
            tail = Tail(source, wait=wait, from_start=from_start, on_restart=self._restarted)
            self._lines, skipped = _Lines(tail, self._name), tail.skipped_lines
        else:
            self._lines = _Lines(Piped(source), self._name)
        self._reported: deque[BadLine] = deque()
        self._source = Source(self._name, self._lines, on_bad=self._reported.append, problems=self.notes.problems)
        self._source.number = skipped

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def __iter__(self) -> Iterator[Record | BadLine]:
        """Records, and lines that cannot be read, as they come.

        Raises:
            UsageError: if the file is in no known format, or in one that does not grow line by line.
        """
        reader = self._reader or self._recognised()
        if reader is None:
            return
        if reader.name == "csv" and not self._from_start:
            raise UsageError(
                f"{self._name} is a table, whose columns are named in its first line.", hint="Add --from-start."
            )
        check = Check(self.notes, {})
        for item in reader.read(self._source):
            while self._reported:
                yield self._refused(self._reported.popleft())
            if isinstance(item, BadLine):
                yield self._refused(item)
            elif record := check.passed(item, reader.name):
                yield record
        while self._reported:
            yield self._refused(self._reported.popleft())

    def _recognised(self) -> Reader | None:
        """What reads the log; None if nothing was ever written to it."""
        start = b""
        if self._file is not None:
            with self._file.open("rb") as file:
                start = file.read(HEAD_BYTES)
        head = Head.of(self._name, start if start.strip() else self._lines.peek(HEAD_BYTES))
        if not head.start.strip():
            return None
        reader = recognise(head)
        if reader is None:
            raise UsageError(f"{self._name} is in no known log format.", hint=f"Known formats: {names()}.")
        return reader

    def _refused(self, bad: BadLine) -> BadLine:
        self.notes.problems[bad.kind] += 1
        self.notes.skipped += 1
        return bad

    def _restarted(self, how: str) -> None:
        self.notes.problems[how] += 1
        self._source.number = 0


class _Lines(io.BufferedReader):
    """A stream that can be read line by line only, since its end never comes."""

    def __init__(self, stream: io.RawIOBase, name: str) -> None:
        super().__init__(stream, HEAD_BYTES)
        self._name = name

    def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002 - the signature of what it replaces
        """Refuse.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self._name} does not grow line by line.", hint="Follow a log with one request a line, such as .jsonl."
        )
