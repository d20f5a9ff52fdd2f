"""A log as one run of records, whatever files and formats it is made of."""

from __future__ import annotations

import heapq
import io
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice

from prefold.analysis.logs.checks import SHOWN_PLACES, Check, Notes, Progress
from prefold.analysis.logs.formats import READERS, names, reader_named, recognise
from prefold.analysis.logs.reader import HEAD_BYTES, BadLine, Head, Reader, Source
from prefold.analysis.logs.source import Files, LogFile, Opened, opened
from prefold.analysis.record import Place, Record
from prefold.errors import InvalidRequest, PrefoldError, UsageError

MOST_OPEN = 200
"""Files that are read side by side, so that their records come in order of time."""

_RECORDS_PER_REPORT = 256
_FIRST_ITEMS = 100


def open_log(
    sources: Sequence[str],
    *,
    log_format: str | None = None,
    lenient: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Log:
    """Open a log.

    Args:
        sources: paths of files or folders, or `-` for standard input. In folders, files of no known format are left
            out, and hidden ones.
        log_format: the format of all files; None to recognise each by its content.
        lenient: leave out lines that cannot be read, and count them, instead of stopping at the first.
        on_progress: told now and then how far the reading is.

    Raises:
        UsageError: if there is no such file or format, or nothing in a folder.
    """
    reader = reader_named(log_format) if log_format else None
    return Log(Files(sources), reader, lenient, on_progress)


class Log(Iterable[Record]):
    """The records of some files, in order of time where the files tell it, else file after file.

    It can be iterated again and again, and holds no more than one record of each file. Records that repeat a request
    id are left out.

    Args:
        files: where they are.
        reader: reads all of them; None to recognise each one's format.
        lenient: whether to leave out lines that cannot be read.
        on_progress: told now and then how far the reading is.
        clock: seconds since some moment.

    Attributes:
        notes: what was found in the latest iteration; complete when it has ended.
    """

    def __init__(
        self,
        files: Files,
        reader: Reader | None = None,
        lenient: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.notes = Notes()
        self._files = files
        self._reader = reader
        self._lenient = lenient
        self._on_progress = on_progress
        self._clock = clock
        self._seen: dict[int, None] = {}
        self._done = 0

    def close(self) -> None:
        """Remove temporary copies of streams."""
        self._files.close()

    def refuse(self, place: Place, problem: str) -> None:
        """Count a record that was given out as a bad line after all, since its body turned out to be none.

        Raises:
            InvalidRequest: naming place and problem, unless the log is lenient.
        """
        self.notes.records -= 1
        self._refuse(BadLine(place, problem))

    def __iter__(self) -> Iterator[Record]:
        """The records.

        Raises:
            InvalidRequest: at the first line that cannot be read, naming it, unless the log is lenient.
            UsageError: if a file cannot be read, or one that was named is in no known format.
        """
        self.notes = Notes()
        self._seen = {}
        self._done = 0
        started = self._clock()
        files = self._files.files
        total = sum(file.size for file in files)
        positions: dict[LogFile, Callable[[], int]] = {}
        records = self._merged(positions) if len(files) > 1 else self._records_of(files[0], positions)
        with closing(records):
            for number, record in enumerate(records, start=1):
                if self._on_progress and number % _RECORDS_PER_REPORT == 0:
                    done = self._done + sum(position() for position in positions.values())
                    self._on_progress(Progress(done, total, self.notes.records, self._clock() - started))
                yield record
        if self._on_progress:
            self._on_progress(Progress(total, total, self.notes.records, self._clock() - started))
        if not self.notes.formats and not self.notes.problems and not any(file.is_named for file in files):
            raise UsageError("The folder holds no log.", hint=f"Known formats: {names()}.")

    def _merged(self, positions: dict[LogFile, Callable[[], int]]) -> Generator[Record, None, None]:
        """Records of all files, by time; then those of files that tell no time, one after another.

        A file is open from its first record's time on, so that logs that follow one another are never open at once.
        """
        begun = [(self._begin_of(file), index, file) for index, file in enumerate(self._files.files)]
        waiting = sorted(((moment, index, file) for moment, index, file in begun if moment is not None), reverse=True)
        running: list[tuple[float, int, Record, Generator[Record, None, None]]] = []
        try:
            while waiting or running:
                if waiting and len(running) < MOST_OPEN and (not running or waiting[-1][0] <= running[0][0]):
                    latest, index, file = waiting.pop()
                    records = self._records_of(file, positions)
                else:
                    latest, index, record, records = heapq.heappop(running)
                    yield record
                following = next(records, None)
                if following is not None:
                    moment = latest if following.time is None else following.time
                    heapq.heappush(running, (moment, index, following, records))
        finally:
            for *_, records in running:
                records.close()
        for untold, _, file in begun:
            if untold is None:
                yield from self._records_of(file, positions)

    def _begin_of(self, file: LogFile) -> float | None:
        """The time of a file's first record; None where it does not say."""
        try:
            with opened(file) as handle:
                reader = self._reader_of(file, handle)
                if reader is None:
                    return None
                items = reader.read(Source(file.name, handle.stream, on_bad=lambda _: None))
                times = (item.time for item in islice(items, _FIRST_ITEMS) if isinstance(item, Record))
                return next((moment for moment in times if moment is not None), None)
        except PrefoldError:
            return None  # it will be raised again when the file's turn has come

    def _reader_of(self, file: LogFile, handle: Opened) -> Reader | None:
        """What reads a file; None for an empty one, and for one in a folder that is in no known format.

        Raises:
            UsageError: if a file that was named is in no known format.
        """
        head = Head.of(file.plain_name, handle.stream.peek(HEAD_BYTES))
        if not head.start.strip():
            return None
        reader = self._reader or recognise(head)
        if reader is None and file.is_named:
            raise UsageError(f"{file.name} is in no known log format.", hint=f"Known formats: {names()}.")
        return reader

    def _records_of(self, file: LogFile, positions: dict[LogFile, Callable[[], int]]) -> Generator[Record, None, None]:
        """The records of one file, checked and counted."""
        with opened(file) as handle:
            positions[file] = handle.position
            reported: deque[BadLine] = deque()
            source = Source(file.name, handle.stream, on_bad=reported.append, problems=self.notes.problems)
            check = Check(self.notes, self._seen)
            is_empty = True
            for item, reader in self._items_of(file, handle, source):
                is_empty = False
                while reported:
                    self._refuse(reported.popleft())
                if isinstance(item, BadLine):
                    self._refuse(item, is_half=item.place.line == source.unfinished)
                elif record := check.passed(item, reader.name):
                    yield record
            is_empty = is_empty and not reported
            for bad in reported:
                self._refuse(bad)
            if is_empty and file.is_named and source.number:
                self.notes.problems["no_records"] += 1
            del positions[file]
            self._done += file.size

    def _items_of(self, file: LogFile, handle: Opened, source: Source) -> Iterator[tuple[Record | BadLine, Reader]]:
        """What a file's reader finds, and which reader that was: a line of another format is left to that one's."""
        try:
            reader = self._reader_of(file, handle)
            if reader is None:
                return
            for item in reader.read(source):
                is_current = isinstance(item, BadLine) and item.place.line == source.number
                other = self._other_reader(source) if is_current else None
                if other is None or other is reader:
                    yield item, reader
                else:
                    line = Source(source.name, io.BytesIO(source.current), problems=self.notes.problems)
                    line.number = source.number - 1
                    for found in other.read(line):
                        yield found, other
        except InvalidRequest as error:
            yield BadLine(source.place(source.number + 1), error.message), self._reader or READERS[-1]
        except OSError as error:
            raise UsageError(
                f"{file.name} cannot be read: {error.strerror or error}.", hint="Check the disk."
            ) from None

    def _other_reader(self, source: Source) -> Reader | None:
        """What reads a line that the file's own reader cannot; None if nothing does, or the format was named."""
        return None if self._reader else recognise(Head.of(source.name, source.current))

    def _refuse(self, bad: BadLine, *, is_half: bool = False) -> None:
        """Count a line that cannot be read, and stop at it unless the log is lenient.

        The half last line of a file that is still being written never stops.
        """
        notes = self.notes
        notes.problems["half_last_line" if is_half else bad.kind] += 1
        notes.skipped += 1
        if len(notes.skipped_places) < SHOWN_PLACES:
            notes.skipped_places.append(bad.place)
        if not self._lenient and not is_half:
            raise bad.error
