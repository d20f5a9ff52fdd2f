"""Requests as they were logged, with the time and the conversation they belong to, as far as the log says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TextIO

from prefold.errors import InvalidRequest
from prefold.prompts.dialects import PROMPT_FIELDS
from prefold.prompts.prompt import Dialect, Prompt, Section

_BODY_FIELDS = ("request", "body", "request_body", "kwargs", "input")
_TIME_FIELDS = ("timestamp", "time", "created", "ts")
_SESSION_FIELDS = ("session", "session_id", "conversation_id", "conversation", "user")
_MILLISECONDS_FROM = 1e11
"""An epoch number above this counts milliseconds: as seconds it would lie in the year 5138."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One request of a log.

    Attributes:
        prompt: the request.
        time: when it was sent, in seconds since 1970; None where the log does not say.
        session: the conversation that it belongs to; empty where the log does not say.
    """

    prompt: Prompt
    time: float | None = None
    session: str = ""


class RequestLog(Iterable[Logged]):
    """The requests in a file, which is read again each time they are iterated, so that none need be kept.

    The file holds one body (or the plain text of a prompt), or JSON Lines: bodies, or records that hold a body as
    `request`, `body`, `request_body`, `kwargs` or `input`.

    Args:
        stream: the file, which must be seekable.
        name: what messages call it.
        dialect: the form of the bodies; None to recognise it by content.
    """

    def __init__(self, stream: TextIO, name: str, dialect: Dialect | None = None) -> None:
        self._stream = stream
        self._name = name
        self._dialect = dialect

    def __iter__(self) -> Iterator[Logged]:
        """The requests in the order of the file.

        Raises:
            InvalidRequest: naming the line that holds no request.
        """
        try:
            self._stream.seek(0)
            first = self._first_line()
            is_lines = _is_object(first) and bool(self._first_line())
            self._stream.seek(0)
            if is_lines:
                yield from self._lines()
            else:
                source = self._stream.read()
                yield self._read(source) if _is_object(first) else Logged(Prompt.parse(source, self._dialect))
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"{self._name} is not UTF-8 text.", hint="Unpack compressed logs, and convert others, first."
            ) from None

    def _first_line(self) -> str:
        return next((line for line in self._stream if line.strip()), "")

    def _lines(self) -> Iterator[Logged]:
        for number, line in enumerate(self._stream, start=1):
            if not line.strip():
                continue
            try:
                logged = self._read(line.rstrip("\r\n"))
                _ = logged.prompt.segments  # fails here, where the line is known
                yield logged
            except (ValueError, RecursionError) as error:
                raise InvalidRequest(
                    f"Line {number} of {self._name} is not valid JSON: {error}.",
                    hint="Cut off lines that were not written to their end.",
                ) from None
            except InvalidRequest as error:
                raise InvalidRequest(f"Line {number} of {self._name}: {error.message}", hint=error.hint) from None

    def _read(self, source: str) -> Logged:
        """A body, which keeps its bytes, or a record that holds one."""
        record = json.loads(source)
        logged = logged_of(record, self._dialect)
        return logged if _body_of(record) is not record else replace(logged, prompt=Prompt.parse(source, self._dialect))


def logged_of(record: Any, dialect: Dialect | None = None) -> Logged:
    """Read a record of a log: a body, or an object that holds one together with its time and session.

    Raises:
        InvalidRequest: if it is no JSON object, or as `Prompt.of`.
    """
    if not isinstance(record, dict):
        raise InvalidRequest("There is no JSON object.", hint="Each line is a body or a record that holds one.")
    body = _body_of(record)
    metadata = body.get("metadata")
    sources = [record, body, metadata if isinstance(metadata, dict) else {}]
    sessions = (str(source[name]) for source in sources for name in _SESSION_FIELDS if _is_name(source.get(name)))
    by_user_id = str(sources[2].get("user_id") or "")
    times = (_seconds(record[name]) for name in _TIME_FIELDS if name in record)
    return Logged(
        prompt=Prompt.of(body, dialect),
        time=next((time for time in times if time is not None), None),
        session=next(sessions, by_user_id),
    )


class Conversations:
    """Tells which requests continue one another, where a log does not: the later begins with the earlier's messages.

    Args:
        remembered: how many requests can still be continued.
    """

    def __init__(self, remembered: int = 100_000) -> None:
        self._remembered = remembered
        self._of_messages: dict[int, str] = {}  # hash of all messages of a request -> its conversation
        self._begun = 0

    def of(self, logged: Logged) -> str:
        """The name of the conversation that a request belongs to."""
        if logged.session:
            return f"logged {logged.session}"
        ends: list[int] = []
        end = 0
        for segment in logged.prompt.segments:
            if segment.section is Section.MESSAGES:
                end = hash((end, segment.role, segment.text))
                ends.append(end)
        # The same messages once more are another conversation that begins alike, or a retry: nothing went on.
        known = next((found for end in reversed(ends[:-1]) if (found := self._of_messages.get(end))), None)
        if known is None:
            self._begun += 1
            known = f"found {self._begun}"
        if ends:
            self._of_messages[ends[-1]] = known
            if len(self._of_messages) > self._remembered:
                del self._of_messages[next(iter(self._of_messages))]
        return known


def _body_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in _BODY_FIELDS:
        inner = record.get(name)
        if isinstance(inner, str) and inner.lstrip()[:1] == "{" and _is_object(inner):
            inner = json.loads(inner)
        if isinstance(inner, dict) and (_has_prompt(inner) or any(field in inner for field in _BODY_FIELDS)):
            return _body_of(inner)
    return record


def _has_prompt(value: Mapping[str, Any]) -> bool:
    return any(not fields.isdisjoint(value) for fields in PROMPT_FIELDS.values())


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _is_name(value: object) -> bool:
    return isinstance(value, str | int) and value != ""


def _seconds(value: object) -> float | None:
    """A time stamp in seconds since 1970, or None if it is none. Times without a zone count as UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if value > _MILLISECONDS_FROM else float(value)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else datetime.fromisoformat(f"{moment.isoformat()}+00:00")).timestamp()
