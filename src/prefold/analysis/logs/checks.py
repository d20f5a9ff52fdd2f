"""What is counted while a log is read: records, formats, and what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from prefold.analysis.record import Body, Place, Record
from prefold.prompts.prompt import Dialect

SHOWN_PLACES = 100
"""Skipped lines whose places are kept."""
REMEMBERED_REQUESTS = 131_072
"""Request ids among which a repeated one is recognised."""

_WHOLE_BODIES = frozenset({"bodies", *Dialect})
"""Formats that hold all of a request. Others may leave out its tools or its system prompt, so that there is no saying
how long it can be."""
_HIDDEN_TOKENS = 2_000
"""What a provider may add of its own, such as the prompt that explains tools."""
_FEWEST_BYTES = 2_000
_BYTES_PER_TOKEN = 24
"""Twice what the tersest text has: Chinese in escapes."""
_NOT_ALL_TEXT = (
    *(b'"image', b'"file', b'"document', b'"audio', b'"video', b'"input_', b"nlineData", b"inline_data", b"base64"),
    *(b"encrypted", b'"signature"'),
)
_NOT_ALL_SENT = (
    *(b'"previous_response_id"', b'"conversation"', b"cachedContent", b"cached_content", b'"container"', b"http"),
    *_NOT_ALL_TEXT,
)


@dataclass(slots=True)
class Notes:
    """What was found in a log beside its records; complete when all of them have been read.

    Attributes:
        records: how many were given out.
        formats: records by format; bodies by dialect, or as `token_ids`.
        skipped: lines that were left out.
        skipped_places: where the first of them are.
        problems: what is wrong, by name: `bad_line`, `oversized_line`, `half_last_line`, `clock_backwards`,
            `duplicate`, `missing_time`, `missing_usage`, `usage_contradicts_text`, `absurd_count`, `mixed_formats`,
            `no_records` (files of a known format in which there is no request).
    """

    records: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    skipped_places: list[Place] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the reading of a log is.

    Attributes:
        done: bytes read, as they are stored.
        total: bytes of all files, as they are stored.
        records: records so far.
        seconds: since the reading began.
    """

    done: int
    total: int
    records: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


class Check:
    """Looks at the records of one file.

    Args:
        notes: where what is found is counted.
        seen: hashes of the request ids of the whole log, the oldest first; the oldest are forgotten.
    """

    def __init__(self, notes: Notes, seen: dict[int, None]) -> None:
        self._notes = notes
        self._seen = seen
        self._first_format = ""
        self._latest: float | None = None

    def passed(self, record: Record, reader: str) -> Record | None:
        """The record to give out; None for one that repeats an earlier one's request id.

        Usage that the text contradicts is left out of it. A time before that of the record before it is only counted:
        who replays the log holds its clock.

        Args:
            record: as its reader made it.
            reader: the name of its format.
        """
        problems = self._notes.problems
        if record.request_id and self._is_repeated(record.request_id):
            problems["duplicate"] += 1
            return None
        if record.time is None:
            problems["missing_time"] += 1
        else:
            if self._latest is not None and record.time < self._latest:
                problems["clock_backwards"] += 1
            self._latest = record.time
        if isinstance(record.content, Body):
            if record.usage is None:
                problems["missing_usage"] += 1
            elif _contradicts(record.usage.input, record.content.content, is_whole=reader in _WHOLE_BODIES):
                problems["usage_contradicts_text"] += 1
                record = replace(record, usage=None)
        self._count_format(record, reader)
        return record

    def _is_repeated(self, request_id: str) -> bool:
        key = hash(request_id)
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > REMEMBERED_REQUESTS:
            del self._seen[next(iter(self._seen))]
        return False

    def _count_format(self, record: Record, reader: str) -> None:
        name = reader
        if reader == "bodies":
            name = str(record.content.dialect or reader) if isinstance(record.content, Body) else "token_ids"
        self._first_format = self._first_format or name
        if name != self._first_format:
            self._notes.problems["mixed_formats"] += 1
        self._notes.formats[name] += 1
        self._notes.records += 1


def _contradicts(tokens: int, body: bytes, *, is_whole: bool) -> bool:
    """Whether a body, if it is the whole, cannot be as long as reported: no token is shorter than a byte, few have 12.

    What the body only points to, such as a file or an earlier response, makes it longer than it looks, and what is no
    text, such as an image, shorter.
    """
    if tokens > len(body) + _HIDDEN_TOKENS:
        return is_whole and not any(mark in body for mark in _NOT_ALL_SENT)
    if len(body) >= _FEWEST_BYTES and tokens * _BYTES_PER_TOKEN < len(body):
        return not any(mark in body for mark in _NOT_ALL_TEXT)
    return False
