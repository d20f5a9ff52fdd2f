"""Bodies that applications give to SDKs, as JSON: answers of earlier turns, iterators and files are among them."""

from __future__ import annotations

import json
import os
from collections import UserString
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ABSENT = ("Omit", "NotGiven")  # what the SDKs have in place of arguments that were not given


class UnreadableIterator(Exception):
    """An iterator in a body failed while it was read, as it would have in the SDK's hands.

    Attributes:
        error: what it raised.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error


class _NotYetPlain(TypeError):
    """A body holds what can be read only once, or what is not to be sent at all."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body, and what it says.

    Attributes:
        value: the body; in place of iterators it has lists.
        text: its compact JSON as the SDK would send it, with a name in place of each file.
        files: those that the SDK will read, by these names.
    """

    value: Mapping[str, Any]
    text: str
    files: Mapping[str, object]

    def with_files(self, value: Any) -> Any:
        """A JSON value made of the text, with the files in place of their names."""
        if not self.files:
            return value
        if isinstance(value, dict):
            return {key: self.with_files(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.with_files(item) for item in value]
        return self.files.get(value, value) if isinstance(value, str) else value


def without_absent(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without those that were not given."""
    return {key: value for key, value in fields.items() if type(value).__name__ not in _ABSENT}


def read_body(value: Mapping[str, Any]) -> Body:
    """Read a body as the SDKs do when they send it.

    Args:
        value: the body; not changed, but iterators in it are used up. Send the body's `value` in its place.

    Raises:
        UnreadableIterator: if an iterator fails.
        TypeError: if something in it is not JSON.
        ValueError: if it contains itself.
    """
    files: dict[str, object] = {}

    def plain(item: object) -> Any:
        if callable(dump := getattr(item, "model_dump", None)):
            hidden = getattr(item, "__api_exclude__", None)  # what the SDKs add to an answer and never send back
            return dump(mode="json", exclude_unset=True, by_alias=True, exclude=hidden)
        if callable(written := getattr(item, "isoformat", None)):
            return written()
        if isinstance(item, os.PathLike) or hasattr(item, "read"):
            # Numbered, so that no two are the same; from one turn to the next the numbers stay.
            name = f"\0file {len(files)} {getattr(item, 'name', '')}"
            files[name] = item
            return name
        if isinstance(item, Iterator) or type(item).__name__ in _ABSENT:
            raise _NotYetPlain
        if isinstance(item, Mapping):
            return without_absent(item)
        if isinstance(item, Collection) and not isinstance(item, bytes | bytearray | memoryview | UserString):
            return list(item)
        raise TypeError(f"a {type(item).__name__} is not JSON")

    def written() -> str:
        files.clear()
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain)

    try:
        return Body(value, written(), files)
    except _NotYetPlain:
        value = {key: _at_rest(item) for key, item in without_absent(value).items()}
        return Body(value, written(), files)


def _at_rest(value: Any) -> Any:
    """The same with lists in place of iterators, and without what was not given."""
    if isinstance(value, Mapping):
        return {key: _at_rest(item) for key, item in without_absent(value).items()}
    if isinstance(value, Iterator) and not hasattr(value, "read"):
        try:
            value = list(value)
        except Exception as error:
            raise UnreadableIterator(error) from error
    return [_at_rest(item) for item in value] if isinstance(value, list | tuple) else value
