"""What both stream translators are: events in, events out, and an error instead of an answer cut short."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator

from prefold.gateway.translate.shapes import Json
from prefold.gateway.translate.sse import Event, EventReader, EventTooLong


class StreamTranslator(ABC):
    """Turns a stream of one API into one of the other as it comes.

    A stream that breaks off, or holds what cannot be read, ends with an error event: a client must not take half an
    answer for a whole one.
    """

    def __init__(self) -> None:
        self._reader = EventReader()
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the client has been told the end, or an error."""
        return self._is_over

    def feed(self, chunk: bytes) -> bytes:
        """Translate a chunk, cut anywhere; empty where it completes no event."""
        if self._is_over:
            return b""
        try:
            events = self._reader.feed(chunk)
        except EventTooLong:
            return b"".join(self._stop("The upstream's stream holds an event without an end"))
        return b"".join(piece for event in events for piece in self._translated(event))

    def end(self) -> bytes:
        """The upstream has closed the stream: what is left to say."""
        pieces = [piece for event in self._reader.end() for piece in self._translated(event)]
        if not self._is_over:
            pieces += self._ended()
            self._is_over = True
        return b"".join(pieces)

    def _translated(self, event: Event) -> Iterator[bytes]:
        if self._is_over:
            return
        if event.data == b"[DONE]":
            yield from self._ended()
            self._is_over = True
            return
        try:
            value = json.loads(event.data)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield from self._event(value)
        else:
            yield from self._stop("The upstream's stream holds an event that is no JSON object")

    def _stop(self, message: str) -> Iterator[bytes]:
        yield from self._failed(500, {"error": {"message": message}})

    def _failed(self, status: int, error: Json) -> Iterator[bytes]:
        """Tell the client of an error and say no more."""
        self._is_over = True
        yield self._error(status, error)

    @abstractmethod
    def _event(self, value: Json) -> Iterator[bytes]:
        """Translate an event."""

    @abstractmethod
    def _ended(self) -> Iterator[bytes]:
        """Translate the end of the stream."""

    @abstractmethod
    def _error(self, status: int, error: Json) -> bytes:
        """Write an error of the upstream for the client."""
