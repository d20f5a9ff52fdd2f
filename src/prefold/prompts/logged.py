"""Requests as they were logged, with the time and the conversation they belong to, as far as the log says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from prefold.errors import InvalidRequest
from prefold.prompts.dialects import PROMPT_FIELDS, recognise
from prefold.prompts.json_text import JsonText
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect, Prompt, Section
from prefold.providers.usage import Usage, read_usage

_LINE_SUFFIXES = (".jsonl", ".ndjson")
_BEFORE_JSON = "\ufeff \t\r\n"
_BODY_FIELDS = ("request", "body", "request_body", "kwargs", "input")
_HOLDING_FIELDS = frozenset(_BODY_FIELDS).union(*PROMPT_FIELDS.values())
"""Fields of a body, or of a record."""
_ANSWER_FIELDS = ("usage", "response", "output")
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
        usage: what the provider counted for it; None where the log does not say.
    """

    prompt: Prompt
    time: float | None = None
    session: str = ""
    usage: Usage | None = None


class RequestLog(Iterable[Logged]):
    """The requests in a file, which is read again each time they are iterated, so that none need be kept.

    The file holds one request, or one in each line, each in a form that `parse_logged` reads; lines hold no plain text.

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
            is_lines = holds_lines(self._name, self._stream)
            self._stream.seek(0)
            if is_lines:
                yield from self._lines()
            else:
                yield parse_logged(self._stream.read(), self._dialect)
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"{self._name} is not UTF-8 text.", hint="Unpack compressed logs, and convert others, first."
            ) from None

    def _lines(self) -> Iterator[Logged]:
        for number, line in enumerate(self._stream, start=1):
            if line.strip():
                with in_line(number, self._name):
                    logged = parse_line(line.rstrip("\r\n"), self._dialect)
                    _ = logged.prompt.segments  # fails here, where the line is known
                yield logged


def holds_lines(name: str, lines: Iterable[str] | Iterable[bytes]) -> bool:
    """Whether each line of a file is a request: its name says so, or the first of several lines is a whole object."""
    full = (line for line in lines if line.strip())
    first = next(full, None)
    if first is None:
        return False
    return name.endswith(_LINE_SUFFIXES) or (_is_object(first) and next(full, None) is not None)


@contextmanager
def in_line(number: int, name: str) -> Iterator[None]:
    """Have what is wrong with a request name the line that it is in."""
    try:
        yield
    except InvalidRequest as error:
        message = f"Line {number} of {name}: {error.message}"
        raise InvalidRequest(message, hint=error.hint, param=error.param) from None


def parse_line(line: bytes | str, dialect: Dialect | str | None = None) -> Logged:
    """Read a line of a log, as `parse_logged`, but refuse plain text.

    Raises:
        InvalidRequest: as `parse_logged`, or if the line is no JSON object.
    """
    logged = parse_logged(line, dialect)
    if logged.prompt.document is None:
        raise InvalidRequest("There is no JSON object.", hint="Each line is a body or a record that holds one.")
    return logged


def parse_logged(content: bytes | str, dialect: Dialect | str | None = None) -> Logged:
    """Read a request: a body, a record that holds one together with its time and session, or plain text.

    A record holds its body as `request`, `body`, `request_body`, `kwargs` or `input`, as an object or as its JSON text,
    or holds a record that does. The body keeps its bytes.

    Args:
        content: one request.
        dialect: the form of the body; None to recognise it by content.

    Raises:
        InvalidRequest: if it is not JSON (naming line and column), or as `Prompt.parse`.
    """
    if isinstance(dialect, str):
        dialect = Dialect.named(dialect)
    source = _text_of(content)
    if source.lstrip(_BEFORE_JSON)[:1] != "{":
        return Logged(Prompt.parse(content, dialect))
    return _logged_in(JsonText.parse(source), dialect)


def _logged_in(record: JsonText, dialect: Dialect | None) -> Logged:
    body = record
    while (held := _held(body)) is not None:
        body = held.document
    metadata = body.value.get("metadata")
    sources = [record.value, body.value, metadata if isinstance(metadata, dict) else {}]
    sessions = (str(source[name]) for source in sources for name in _SESSION_FIELDS if _is_name(source.get(name)))
    by_user_id = str(sources[2].get("user_id") or "")
    answers = (record.value[name] for name in _ANSWER_FIELDS if isinstance(record.value.get(name), dict))
    times = (_seconds(record.value[name]) for name in _TIME_FIELDS if name in record.value)
    return Logged(
        prompt=Prompt(dialect or recognise(body.value), body),
        time=next((time for time in times if time is not None), None),
        session=next(sessions, by_user_id),
        usage=next(filter(None, map(read_usage, answers)), None),
    )


def with_body(content: bytes, body: bytes) -> bytes:
    """What `parse_logged` reads with another body in it; all around the body keeps its bytes."""
    new = body.decode(errors="surrogatepass")
    source = _text_of(content)
    is_object = source.lstrip(_BEFORE_JSON)[:1] == "{"
    return (_with_body(JsonText.parse(source), new) if is_object else new).encode(errors="surrogatepass")


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


def _text_of(content: bytes | str) -> str:
    """The text of a request; empty where it is no text, which `Prompt.parse` tells best."""
    try:
        return content if isinstance(content, str) else content.decode()
    except UnicodeDecodeError:
        return ""


@dataclass(frozen=True, slots=True)
class _Held:
    """A body, or another record, in a record.

    Attributes:
        field: where it is.
        document: it, as a document of its own.
        is_text: whether it is there as the text of JSON.
    """

    field: str
    document: JsonText
    is_text: bool


def _held(record: JsonText) -> _Held | None:
    """What a record holds; None for a body."""
    for name in _BODY_FIELDS:
        inner = record.value.get(name)
        if isinstance(inner, dict) and not _HOLDING_FIELDS.isdisjoint(inner):
            start, end = record.span(Path.of(name))
            return _Held(name, JsonText(record.source[start:end], inner), is_text=False)
        # What a body for the Responses API has as `input` is the user's words.
        is_words = name == "input" and "model" in record.value
        if isinstance(inner, str) and inner.lstrip()[:1] == "{" and not is_words and _is_object(inner):
            document = JsonText.parse(inner)
            if not _HOLDING_FIELDS.isdisjoint(document.value):
                return _Held(name, document, is_text=True)
    return None


def _with_body(record: JsonText, body: str) -> str:
    held = _held(record)
    if held is None:
        return body
    new = _with_body(held.document, body)
    if held.is_text:
        return record.with_value({**record.value, held.field: new}).source
    start, end = record.span(Path.of(held.field))
    return record.source[:start] + new + record.source[end:]


def _is_object(text: str | bytes) -> bool:
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
