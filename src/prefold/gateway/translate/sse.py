"""Server-sent events: read from a stream that may be cut at any byte, and written.

Follows https://html.spec.whatwg.org/multipage/server-sent-events.html; `id` and `retry` mean nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefold.server.asgi import encode_json

LONGEST_EVENT = 16 << 20
"""Most bytes of one event; a stream without line ends would fill the memory."""

_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event is longer than `LONGEST_EVENT`."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        name: empty for none.
        data: its lines, joined by line feeds.
    """

    name: str
    data: bytes


class EventReader:
    """Puts events together from the chunks of a stream."""

    __slots__ = ("_after_return", "_begun", "_data", "_line", "_name", "_size")

    def __init__(self) -> None:
        self._begun = False
        self._after_return = False  # the last chunk ended in CR: a LF that follows belongs to it
        self._line: list[bytes] = []  # pieces of the line that is not complete
        self._data: list[bytes] = []
        self._name = ""
        self._size = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that a chunk completes.

        Raises:
            EventTooLong: if one has no end.
        """
        if not chunk:
            return []
        if self._after_return:
            chunk = chunk.removeprefix(b"\n")
        self._after_return = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = chunk.split(b"\n")
        self._line.append(first)
        self._size += len(chunk)
        events = []
        for piece in others:
            line = b"".join(self._line)
            self._line = [piece]
            if (event := self._take(line)) is not None:
                events.append(event)
                self._size = len(piece)
        if self._size > LONGEST_EVENT:
            raise EventTooLong
        return events

    def end(self) -> list[Event]:
        """What is left when the stream is over: an event without the empty line behind it."""
        last = self._take(b"".join(self._line))
        self._line = []
        event = self._take(b"") if last is None else last
        return [] if event is None else [event]

    def _take(self, line: bytes) -> Event | None:
        """Read a line; an empty one completes an event."""
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if line:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                self._data.append(value)
            elif name == b"event":
                self._name = value.decode(errors="replace")
            return None
        data = b"\n".join(self._data)
        event = Event(self._name, data) if data else None
        self._data = []
        self._name = ""
        return event


def openai_event(value: dict[str, Any]) -> bytes:
    """An event of OpenAI's streams."""
    return b"data: %b\n\n" % encode_json(value)


def anthropic_event(value: dict[str, Any]) -> bytes:
    """An event of Anthropic's streams, named by its type."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), encode_json(value))
