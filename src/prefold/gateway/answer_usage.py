"""Usage out of an answer that passes through, without looking at each of its chunks.

A whole answer is kept, if it is not too long, and only its first level is read. Of a stream the beginning and the end
are kept: Anthropic counts the input in the first event, and all count the rest in one of the last. Chunks may be cut
anywhere.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import msgspec

from prefold.providers.usage import Usage, read_usage
from prefold.responses.endings import Ending, ending_of, has_last_event

_HEAD = 4 << 10  # bytes of a stream's beginning; `message_start` has some 500
_TAIL = 8 << 10  # bytes of an end; a usage has some 300, and few events follow it
_WHOLE = 1 << 20  # bytes of a whole answer; of a longer one only the end is looked at, where usage usually is
_OPENING = b"{["
_USAGE, _TIMINGS = b'"usage"', b'"timings"'  # inside of strings quotes are escaped, so that these are never text
_FIRST_EVENT = b'"message_start"'
_LONGEST_OBJECT = 2 << 10
_BYTES_PER_TOKEN = 4
_EVENT_BYTES = 256  # of an event around its text

_object_at = json.JSONDecoder().raw_decode


class _Holders(msgspec.Struct):
    """The fields of a whole answer that may hold its usage."""

    usage: Any = None
    timings: Any = None
    meta_info: Any = None
    x_groq: Any = None


_holders_of = msgspec.json.Decoder(_Holders).decode


class AnswerUsage:
    """Keeps of an answer what its usage is read from.

    Attributes:
        is_stream: whether it comes in events; None before anything came.
    """

    __slots__ = ("_events", "_head", "_head_size", "_is_whole", "_size", "_tail", "_tail_size", "is_stream")

    def __init__(self) -> None:
        self.is_stream: bool | None = None
        self._head: list[bytes] = []
        self._head_size = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._is_whole = True
        self._size = 0
        self._events = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk."""
        if self.is_stream is None:
            start = chunk.lstrip()[:1]
            if not start:
                return
            self.is_stream = start not in _OPENING
        self._size += len(chunk)
        if self.is_stream:
            self._events += chunk.count(b"data:")
        if self._head_size < (_HEAD if self.is_stream else _WHOLE):
            self._head.append(chunk)
            self._head_size += len(chunk)
            return
        self._is_whole = False
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        while self._tail_size - len(self._tail[0]) >= _TAIL:
            self._tail_size -= len(self._tail.popleft())

    def read(self) -> Usage | None:
        """What the answer says; None where it does not."""
        if self.is_stream is None:
            return None
        head = b"".join(self._head)
        if not self.is_stream and self._is_whole:
            return _of_whole(head)
        # A usage may be cut where the head ends and the tail begins, if they are neighbours.
        end = head[-_TAIL:] + b"".join(self._tail)
        last, timings = _last_object(end, _USAGE), _last_object(end, _TIMINGS)
        if self.is_stream and last is not None and _FIRST_EVENT in head[:_TAIL]:
            last = {**(_first_object(head[:_TAIL], _USAGE) or {}), **last}
        if last is None and timings is None:
            return None
        return read_usage({"usage": last or {}, **({"timings": timings} if timings else {})})

    def has_last_event(self) -> bool:
        """Whether what came is a stream that has said all."""
        return bool(self.is_stream) and has_last_event((b"".join(self._head) + b"".join(self._tail))[-_TAIL:])

    def ending(self) -> Ending:
        """How a stream ended whose connection has ended."""
        return ending_of((b"".join(self._head) if self._tail_size < _TAIL else b"") + b"".join(self._tail))

    def estimate(self) -> int:
        """Output tokens of what came so far, where nobody counts.

        Four bytes are one. Of a stream, most of whose bytes are not text, each event is one, and so are four bytes
        beyond the 256 that an event may have around its text.
        """
        if not self.is_stream:
            return self._size // _BYTES_PER_TOKEN
        return max(self._events, (self._size - self._events * _EVENT_BYTES) // _BYTES_PER_TOKEN)


def _of_whole(body: bytes) -> Usage | None:
    try:
        return read_usage(msgspec.structs.asdict(_holders_of(body)))
    except (msgspec.DecodeError, RecursionError):  # no JSON, or cut off
        return None


def _first_object(text: bytes, mark: bytes) -> Any:
    """The object that follows the first of some marks which one follows; None where none does."""
    position = text.find(mark)
    while position >= 0:
        if (value := _object_behind(text, position + len(mark))) is not None:
            return value
        position = text.find(mark, position + 1)
    return None


def _last_object(text: bytes, mark: bytes) -> Any:
    """The same from the end."""
    position = text.rfind(mark)
    while position >= 0:
        if (value := _object_behind(text, position + len(mark))) is not None:
            return value
        position = text.rfind(mark, 0, position)
    return None


def _object_behind(text: bytes, position: int) -> Any:
    """The object behind a key; None where the key has another value, or the object is cut off."""
    rest = text[position : position + _LONGEST_OBJECT].lstrip(b" \t\r\n:")
    if rest[:1] != b"{":
        return None
    try:
        value, _ = _object_at(rest.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return value
