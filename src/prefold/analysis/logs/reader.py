"""What a reader of one log format is given, and what it gives back.

A reader recognises its format by the beginning of a file (`Head`) and turns the file (`Source`) into records. What is
wrong in a file is a `BadLine` among the records, so that the reader of the log decides whether to stop or to go on.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Protocol

from prefold.analysis.record import Place, Record
from prefold.errors import InvalidRequest

HEAD_BYTES = 256 * 1024
"""How much of a file its format is recognised by, unpacked."""

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of one line, unpacked: Anthropic takes bodies of 32 MB, and few take longer ones."""

LARGEST_WHOLE = 256 * 1024 * 1024
"""Bytes of a file that must be held as a whole, unpacked."""

_OBJECTS_IN_HEAD = 8
_PIECE = 256 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHITESPACE = b" \t\r\n"
_STRUCTURE = re.compile(rb'[\[\]{},"]')
_OPENING, _CLOSING = (b"[", b"{"), (b"]", b"}")
_STRING_END = re.compile(rb'["\\]')


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that holds no request that can be read.

    Attributes:
        place: where it is.
        problem: what is wrong, one sentence.
        kind: the name under which it is counted.
        hint: what can be done about it, one sentence; empty where it can only be left out.
    """

    place: Place
    problem: str
    kind: str = "bad_line"
    hint: str = ""

    @property
    def error(self) -> InvalidRequest:
        """What to raise where no bad line is allowed."""
        return InvalidRequest(
            f"{self.place}: {self.problem}",
            hint=self.hint or "With --lenient such lines are counted and left out.",
        )


@dataclass(frozen=True)
class Head:
    """The beginning of a file.

    Attributes:
        name: the file's name, without that of its compression, such as `log.jsonl`.
        start: its first bytes, unpacked, at most `HEAD_BYTES`, without a byte order mark.
    """

    name: str
    start: bytes

    @classmethod
    def of(cls, name: str, start: bytes) -> Head:
        """The head of a file that begins with some bytes."""
        return cls(name, start.removeprefix(_BYTE_ORDER_MARK)[:HEAD_BYTES])

    @cached_property
    def first(self) -> Any:
        """The first JSON value; None where the file does not begin with one, or with one longer than the head."""
        text = self.start.decode(errors="replace").lstrip()
        try:
            return json.JSONDecoder().raw_decode(text)[0]
        except (ValueError, RecursionError):
            return None

    @cached_property
    def objects(self) -> tuple[dict[str, Any], ...]:
        """The first JSON objects that are each a whole line; a list's first objects where the file is one list."""
        if isinstance(self.first, list):
            return tuple(item for item in self.first if isinstance(item, dict))[:_OBJECTS_IN_HEAD]
        found: list[dict[str, Any]] = []
        for line in self.start.split(b"\n")[: 4 * _OBJECTS_IN_HEAD]:
            value = _loaded(line)
            if isinstance(value, dict):
                found.append(value)
            if len(found) == _OBJECTS_IN_HEAD:
                break
        if not found and self.start[:1] == b"[":  # a list that is longer than the head
            found = [value for item in self._items() if isinstance(value := _loaded(item), dict)]
        return tuple(found)

    def _items(self) -> Iterator[bytes]:
        scanner = _ListScanner()
        for index, item in enumerate(scanner.feed(self.start)):
            if index == _OBJECTS_IN_HEAD:
                return
            yield item


class Source:
    """An open file of a log, unpacked.

    Args:
        name: what messages call it.
        raw: the file; seekable only where it is not compressed.
        on_bad: what is told of lines that no reader gets to see; by default they end the reading.
        problems: where what is noted is counted.

    Attributes:
        current: the line, or the item of a list, that the reader was given last.
        number: its number.
        unfinished: number of the last line where it has no end of line; else 0.
    """

    def __init__(
        self,
        name: str,
        raw: BinaryIO,
        *,
        on_bad: Callable[[BadLine], None] | None = None,
        problems: Counter[str] | None = None,
    ) -> None:
        self.name = name
        self.raw = raw
        self.current = b""
        self.number = 0
        self.unfinished = 0
        self._on_bad = on_bad or _stop
        self._problems: Counter[str] = Counter() if problems is None else problems

    def place(self, number: int) -> Place:
        """The place of a line, or of a record in a file without lines; counted from 1."""
        return Place(self.name, number)

    def note(self, problem: str) -> None:
        """Count something that is wrong with a record that can be read all the same, such as `absurd_count`."""
        self._problems[problem] += 1

    def peek(self) -> bytes:
        """What comes next, without reading it: at least a byte where there is one, and mostly `HEAD_BYTES`."""
        if isinstance(self.raw, io.BufferedReader):
            return self.raw.peek(HEAD_BYTES)
        start = self.raw.read(HEAD_BYTES)
        self.raw.seek(-len(start), io.SEEK_CUR)
        return start

    def values(self) -> Iterator[tuple[int, bytes]]:
        """The texts of the JSON values that the file holds: one a line, or the items of one list, or a single one.

        Raises:
            InvalidRequest: as `items` and `whole`.
        """
        start = self.peek().removeprefix(_BYTE_ORDER_MARK).lstrip()
        if start[:1] == b"[":
            yield from self.items()
        elif start[:1] == b"{" and _spans_lines(start):
            self.number, self.current = 1, self.whole()
            yield 1, self.current
        else:
            yield from self.lines()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Lines that are not blank, with their numbers, without end of line and byte order mark.

        A line longer than `LONGEST_LINE` is reported, and never held.
        """
        for line in self.whole_lines():
            stripped = line.rstrip(b"\r\n")
            if stripped and not stripped.isspace():
                self.current = stripped
                yield self.number, stripped

    def whole_lines(self) -> Iterator[bytes]:
        """All lines, with their ends, but without byte order mark; too long ones as in `lines`."""
        read = self.raw.readline
        while line := read(_PIECE):
            self.number += 1
            if self.number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line[-1:] == b"\n":
                yield line
            elif (whole := self._rest_of(line, self.number)) is not None:
                yield whole

    def _rest_of(self, start: bytes, number: int) -> bytes | None:
        """A line that does not end in the piece that was read; None if it is too long, and then it is read over."""
        pieces, size = [start], len(start)
        while piece := self.raw.readline(_PIECE):
            size += len(piece)
            if size <= LONGEST_LINE:
                pieces.append(piece)
            else:
                pieces.clear()
            if piece[-1:] == b"\n":
                break
        else:
            self.unfinished = number
        if size <= LONGEST_LINE:
            return b"".join(pieces)
        limit = LONGEST_LINE // 1024**2
        self._on_bad(BadLine(self.place(number), f"The line is longer than {limit} MiB.", "oversized_line"))
        return None

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Items of the JSON list that the file is, with their numbers, read one after another.

        What follows the list is not read. An item longer than `LONGEST_LINE` is reported, and never held.

        Raises:
            InvalidRequest: if the file ends before the list does; items that are no JSON are the reader's to find.
        """
        scanner = _ListScanner()
        piece = self.raw.read(_PIECE).removeprefix(_BYTE_ORDER_MARK)
        while piece:
            for item in scanner.feed(piece):
                self.number += 1
                if item is scanner.TOO_LONG:
                    limit = LONGEST_LINE // 1024**2
                    problem = f"The item is longer than {limit} MiB."
                    self._on_bad(BadLine(self.place(self.number), problem, "oversized_line"))
                else:
                    self.current = item
                    yield self.number, item
            if scanner.is_done:
                return
            piece = self.raw.read(_PIECE)
        raise InvalidRequest(
            f"The file ends in the middle of item {self.number + 1} of its list.", hint="Check that it is complete."
        )

    def whole(self) -> bytes:
        """The rest of the file.

        Raises:
            InvalidRequest: if it is larger than `LARGEST_WHOLE`.
        """
        content = self.raw.read(LARGEST_WHOLE + 1)
        if len(content) > LARGEST_WHOLE:
            raise InvalidRequest(
                f"The file is one JSON value of more than {LARGEST_WHOLE // 1024**2} MiB.",
                hint="Convert it to JSON Lines, one record a line.",
            )
        return content.removeprefix(_BYTE_ORDER_MARK)


class Reader(Protocol):
    """Reads one format of logs.

    Attributes:
        name: what counts and `--log-format` call it.
    """

    @property
    def name(self) -> str:
        """What counts and `--log-format` call the format."""

    def recognises(self, head: Head, /) -> bool:
        """Whether a file that begins so is of this format."""

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file, in its order.

        Raises:
            InvalidRequest: if the rest of the file cannot be read.
        """


class _ListScanner:
    """Finds the items of a JSON list in pieces of it, without reading the items."""

    TOO_LONG = b"(too long)"

    def __init__(self) -> None:
        self.is_done = False
        self._depth = 0
        self._in_string = False
        self._escaped = False  # the piece ended after a backslash
        self._kept: list[bytes] = []  # of the item that has begun
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Items that end in a piece."""
        position = item_start = 0
        while not self.is_done:
            position = self._after_string(piece, position)
            match = _STRUCTURE.search(piece, position) if position < len(piece) else None
            if match is None:
                break
            position, mark = match.end(), match.group()
            was_inside = self._depth == 1
            self._in_string = mark == b'"'
            self._depth += (mark in _OPENING) - (mark in _CLOSING)
            if not was_inside and self._depth == 1 and mark in _OPENING:
                item_start = position
            elif was_inside and (mark == b"," or self._depth == 0):
                item = self._ended(piece[item_start : position - 1])
                item_start = position
                self.is_done = self._depth == 0
                if item:
                    yield item
        if not self.is_done and self._depth:
            self._keep(piece[item_start:])

    def _after_string(self, piece: bytes, position: int) -> int:
        """Where the string ends that the scanner is in, if it is in one; the end of the piece if it goes on."""
        if self._escaped:
            position, self._escaped = position + 1, False
        while self._in_string:
            match = _STRING_END.search(piece, position)
            if match is None:
                return len(piece)
            position = match.end()
            if match.group() == b"\\":
                self._escaped = position == len(piece)
                position += 1
            else:
                self._in_string = False
        return position

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= LONGEST_LINE:
            self._kept.append(part)
        else:
            self._kept.clear()

    def _ended(self, part: bytes) -> bytes:
        self._keep(part)
        item = b"".join(self._kept).strip(_WHITESPACE) if self._size <= LONGEST_LINE else self.TOO_LONG
        self._kept.clear()
        self._size = 0
        return item


def _spans_lines(start: bytes) -> bool:
    """Whether a file that begins with an object is one object in several lines."""
    line, newline, rest = start.partition(b"\n")
    if not newline or not rest.strip() or isinstance(_loaded(line), dict):
        return False
    head = Head.of("", start)
    return isinstance(head.first, dict) or (head.first is None and line.strip() == b"{" and not head.objects)


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _stop(bad: BadLine) -> None:
    raise bad.error
