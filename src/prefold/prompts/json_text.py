"""JSON as a value and as the bytes it came in, so that what is not changed is sent on as it arrived."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prefold.errors import InvalidRequest
from prefold.prompts.paths import Path

_BYTE_ORDER_MARK = "\ufeff"
_WHITESPACE = re.compile(r"[ \t\n\r]*")
_scan_value: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode
_scan_string: Callable[[str, int], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of an object or an item of a list, in the source: characters from `start` to `end` are its value."""

    key: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON document.

    Attributes:
        source: its text.
        value: what `json.loads` makes of it; not to be changed in place.
    """

    source: str
    value: Any

    @classmethod
    def parse(cls, source: str) -> JsonText:
        """Read a document.

        Raises:
            InvalidRequest: naming line and column where it is not JSON, or saying that it is nested too deeply.
        """
        try:
            return cls(source, json.loads(source.removeprefix(_BYTE_ORDER_MARK)))
        except json.JSONDecodeError as error:
            raise InvalidRequest(
                f"The body is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}.",
                hint="Check the file at that place; a body cut off in a log ends so too.",
            ) from None
        except RecursionError:
            raise InvalidRequest("The body is nested too deeply.", hint="No provider accepts such a body.") from None
        except ValueError as error:  # a whole number of thousands of digits
            raise InvalidRequest(f"The body cannot be read: {error}.", hint="Check its numbers.") from None

    @classmethod
    def of(cls, value: Any) -> JsonText:
        """The compact document of a value.

        Raises:
            InvalidRequest: if the value cannot be written as JSON.
        """
        try:
            return cls(_dumped(value, ascii_only=False, compact=True), value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(
                f"The body cannot be written as JSON: {error}.", hint="Use texts, numbers, lists and dictionaries."
            ) from None

    def span(self, path: Path) -> tuple[int, int]:
        """First character of the value at a path in the source, and the one after it.

        Raises:
            LookupError: if there is no such value.
        """
        start, end = self._root()
        for step in path.steps:
            members = self._members(start)
            if isinstance(step, int):
                found = members[step]
            else:
                found = (
                    next((member for member in reversed(members) if member.key == step), None) or members[len(members)]
                )
            start, end = found.start, found.end
        return start, end

    def with_value(self, value: Any) -> JsonText:
        """The document of another value, in which every part that is (by identity) a part of this one keeps its text.

        Lists may be put into another order, objects given other keys: what they hold keeps its text all the same.
        """
        if value is self.value:
            return self
        start, end = self._root()
        written: list[str] = [self.source[:start]]
        self._write(value, self.value, start, end, written)
        written.append(self.source[end:])
        return JsonText("".join(written), value)

    def _root(self) -> tuple[int, int]:
        start = _skip(self.source, 1 if self.source.startswith(_BYTE_ORDER_MARK) else 0)
        return start, len(self.source.rstrip(" \t\n\r"))

    def _members(self, start: int) -> list[_Member]:
        """Members of the object, or items of the list, that begins at a character; none for other values."""
        source = self.source
        members: list[_Member] = []
        is_object = source[start] == "{"
        if not is_object and source[start] != "[":
            return members
        position = _skip(source, start + 1)
        while source[position] not in "}]":
            key = None
            if is_object:
                key, position = _scan_string(source, position + 1)
                position = _skip(source, _skip(source, position) + 1)  # over the colon
            _, end = _scan_value(source, position)
            members.append(_Member(key, position, end))
            position = _skip(source, end)
            if source[position] == ",":
                position = _skip(source, position + 1)
        return members

    def _write(self, new: Any, old: Any, start: int, end: int, written: list[str]) -> None:
        """Append the text of a value that takes the place of `old`, which lies from `start` to `end`."""
        if new is old or (type(new) is type(old) and not isinstance(new, dict | list) and repr(new) == repr(old)):
            written.append(self.source[start:end])
        elif isinstance(new, dict) and isinstance(old, dict):
            self._write_object(new, old, start, end, written)
        elif isinstance(new, list) and isinstance(old, list):
            self._write_list(new, old, start, end, written)
        else:
            written.append(self._fresh(new))

    def _write_object(self, new: dict[str, Any], old: dict[str, Any], start: int, end: int, written: list[str]) -> None:
        members = self._members(start)
        if [member.key for member in members] == list(new):  # so no key is there twice
            for member in members:
                written.append(self.source[start : member.start])
                self._write(new[str(member.key)], old[str(member.key)], member.start, member.end, written)
                start = member.end
            written.append(self.source[start:end])
            return
        places = {str(member.key): member for member in members}
        item, colon = (",", ":") if self._is_compact else (", ", ": ")
        written.append("{")
        for index, (key, value) in enumerate(new.items()):
            written.append(f"{item if index else ''}{self._fresh(key)}{colon}")
            if key in places:
                self._write(value, old[key], places[key].start, places[key].end, written)
            else:
                written.append(self._fresh(value))
        written.append("}")

    def _write_list(self, new: list[Any], old: list[Any], start: int, end: int, written: list[str]) -> None:
        members = self._members(start)
        places = {id(value): index for index, value in enumerate(old)}
        kept = {id(value) for value in new} & places.keys()
        same_length = len(new) == len(old)
        separator = "," if self._is_compact else ", "
        if not same_length:
            written.append("[")
        for index, value in enumerate(new):
            # An item that was moved takes its text along; one that was changed is written over its old self.
            place = places.get(id(value), index)
            if same_length:
                written.append(self.source[start : members[index].start])
                start = members[index].end
            elif index:
                written.append(separator)
            if place < len(old) and (id(value) in kept or id(old[place]) not in kept):
                self._write(value, old[place], members[place].start, members[place].end, written)
            else:
                written.append(self._fresh(value))
        written.append(self.source[start:end] if same_length else "]")

    def _fresh(self, value: Any) -> str:
        return _dumped(value, ascii_only=self.source.isascii(), compact=self._is_compact)

    @property
    def _is_compact(self) -> bool:
        return '": ' not in self.source[:200]


def _dumped(value: Any, *, ascii_only: bool, compact: bool) -> str:
    separators = (",", ":") if compact else (", ", ": ")
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
    if ascii_only or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair can be written as an escape only
        return json.dumps(value, separators=separators)
    return text


def _skip(source: str, position: int) -> int:
    """The next character that is not white space."""
    match = _WHITESPACE.match(source, position)
    return match.end() if match else position
