"""Whether an answer came whole and well. Only such an answer may be given to anybody else.

The answer's own form says whose it is, so that what a translation made is judged like what came from upstream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from prefold.providers.usage import StreamUsage, Usage, read_usage

EVENTS = b"text/event-stream"

_GOOD_REASONS: frozenset[str | None] = frozenset(("stop", "length", "tool_calls", "function_call"))
_GOOD_STOPS: frozenset[str | None] = frozenset(("end_turn", "max_tokens", "stop_sequence", "tool_use"))
_DONE = b"[DONE]"
_LAST_TYPES = frozenset(("message_stop", "response.completed", "response.incomplete"))
_ERRORS = frozenset(("error", "response.failed"))
_EVENTS_BEHIND = 3  # such as a usage or a ping, at most, behind the last one of a text
_LONGEST_LAST_EVENT = 64
_LONGEST_END_OF_RESPONSE = 4 << 10  # bytes behind the usage, and of it
_RESPONSES_USAGE = re.compile(rb'"usage"\s*:\s*\{(?:[^{}]|\{[^{}]*\})*"total_tokens"')


def usage_if_whole(headers: Mapping[bytes, bytes], body: bytes) -> Usage | None:
    """Usage of an answer with status 200 that ended as it should, zeros where it reports none; None for any other.

    It must not be compressed; a stream must have the event that ends it; every choice must have a finish reason, and
    one that would be the same next time: not a filter, an error, an abort or a pause.

    Args:
        headers: of the answer, in lower case.
        body: all of it.
    """
    if headers.get(b"content-encoding", b"identity") != b"identity":
        return None
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    try:
        if content_type == EVENTS:
            return _of_stream(body)
        return _of_document(body) if content_type == b"application/json" else None
    except (msgspec.DecodeError, RecursionError):
        return None


def has_last_event(tail: bytes) -> bool:
    """Whether a stream that ends in these bytes has said all: clients leave as soon as they have heard that.

    The last event of OpenAI's Responses holds the whole response, so that its beginning may be far away. Near its end
    there is the usage, which is null in all events before it.
    """
    end = tail[-_LONGEST_LAST_EVENT:].rstrip()
    if not end.endswith(b"}"):
        return end.endswith(_DONE)
    usage = _RESPONSES_USAGE.search(tail, max(0, len(tail) - _LONGEST_END_OF_RESPONSE))
    return b'"message_stop"' in end or (usage is not None and b'"input_tokens"' in usage[0])


class Ending(Enum):
    """How a stream ended whose connection ended well."""

    WHOLE = auto()
    """With its last event, or one that ends the text: not every server sends `[DONE]`."""
    ERROR = auto()
    """With an event that tells its client of an error."""
    MISSING = auto()
    """In the middle, or it never was a stream of such events."""


def ending_of(tail: bytes) -> Ending:
    """How a stream ended of which these are the last bytes, those of its last event at least."""
    if has_last_event(tail):
        return Ending.WHOLE
    for data in [*event_data(tail)][: -_EVENTS_BEHIND - 1 : -1]:
        if (ending := _ending_at(data)) is not None:
            return ending
    return Ending.MISSING


def _ending_at(data: bytes) -> Ending | None:
    """How a stream ended of which this is the last event; None where the one before it says that."""
    if data == _DONE:
        return Ending.WHOLE
    try:
        event = _PART.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return Ending.MISSING
    if event.error is not None or event.type in _ERRORS:
        return Ending.ERROR
    if event.type in _LAST_TYPES or any(choice.finish_reason for choice in event.choices or ()):
        return Ending.WHOLE
    return Ending.MISSING if event.choices else None


class _Choice(msgspec.Struct):
    index: int | None = None
    finish_reason: str | None = None


class _Part(msgspec.Struct):
    """What says in an answer, or in an event of one, how it ended."""

    type: str = ""
    object: str = ""
    error: Any = None
    choices: list[_Choice] | None = None
    stop_reason: str | None = None
    status: str | None = None
    data: msgspec.Raw = msgspec.Raw()
    input_tokens: int | None = None


class _Stop(msgspec.Struct):
    stop_reason: str | None = None


class _MessageDelta(msgspec.Struct):
    delta: _Stop


# Typed, since a stream may have thousands of events: what is not asked for is skipped.
_PART = msgspec.json.Decoder(_Part)
_MESSAGE_DELTA = msgspec.json.Decoder(_MessageDelta)


def _of_document(body: bytes) -> Usage | None:
    answer = _PART.decode(body)
    if answer.error is not None:
        return None
    if answer.type == "message":
        is_whole = answer.stop_reason in _GOOD_STOPS
    elif answer.object == "response":
        is_whole = answer.status == "completed"
    elif answer.choices is not None:
        is_whole = _ended_well(choice.finish_reason for choice in answer.choices)
    elif answer.object == "list":  # embeddings
        is_whole = bytes(answer.data) not in (b"", b"[]", b"null")
    else:
        is_whole = answer.input_tokens is not None
    return (read_usage(msgspec.json.decode(body)) or Usage()) if is_whole else None


def _of_stream(body: bytes) -> Usage | None:
    usage = StreamUsage()
    reasons: dict[int | None, str | None] = {}
    stop: str | None = None
    end = ""
    for data in event_data(body):
        if data == _DONE:
            end = "[DONE]"
            continue
        event = _PART.decode(data)
        if event.error is not None:
            return None
        end = event.type
        for choice in event.choices or ():
            # The reason stands in a choice's last event; an empty one may follow with the usage.
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
        if end == "message_delta":
            stop = _MESSAGE_DELTA.decode(data).delta.stop_reason
        if b'"usage"' in data:
            usage.feed(msgspec.json.decode(data))
    if end == "[DONE]":
        is_whole = _ended_well(reasons.values())
    elif end == "message_stop":
        is_whole = stop in _GOOD_STOPS
    else:
        is_whole = end == "response.completed"
    return (usage.usage or Usage()) if is_whole else None


def _ended_well(reasons: Iterable[str | None]) -> bool:
    """Whether there are choices, and each has a good finish reason."""
    found = set(reasons)
    return bool(found) and found <= _GOOD_REASONS


def event_data(body: bytes) -> Iterator[bytes]:
    """Data of each server-sent event."""
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        if lines := [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]:
            yield b"\n".join(lines)


def cut_between_events(body: bytes, size: int) -> tuple[bytes, ...]:
    """A stream in chunks of whole events, each as long as it may be within `size` bytes, or one event."""
    chunks = []
    start = 0
    while len(body) - start > size:
        end = body.rfind(b"\n\n", start, start + size)
        if end < 0:
            end = body.find(b"\n\n", start)
        if end < 0:
            break
        chunks.append(body[start : end + 2])
        start = end + 2
    if start < len(body):
        chunks.append(body[start:])
    return tuple(chunks)
