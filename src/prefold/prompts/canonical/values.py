"""Python values as JSON: equal values give equal text, in every process."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from prefold.errors import InvalidRequest
from prefold.prompts.canonical.moments import Granularity, written
from prefold.prompts.canonical.spelling import float_spelling
from prefold.prompts.paths import Path


def canonical_json(value: Any, *, granularity: Granularity = Granularity.SECOND) -> str:
    """A value as compact JSON with sorted keys.

    Takes what `plain` takes. Every key is sorted, so give it data: in a JSON Schema the order of `properties` has a
    meaning, which `canonicalize` respects.

    Raises:
        InvalidRequest: as `plain`.
    """
    text = json.dumps(plain(value, granularity), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair can be written as an escape only
        return json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True)
    return text


def plain(value: Any, granularity: Granularity = Granularity.SECOND) -> Any:
    """A value made of what JSON has, with mappings in their own order.

    | from | to |
    |---|---|
    | `Decimal` | a float's text where a float holds it exactly, so that `Decimal("1.50")` and `1.5` are equal |
    | `datetime` | ISO 8601, in UTC with `Z` unless it is naive, no finer than the granularity |
    | `date`, `time`, `UUID` | their text |
    | `Enum` | its value |
    | sets | a list, sorted by the JSON of its items |
    | dataclasses, pydantic models | an object of their fields |
    | keys that are no text | the text of their JSON |

    Raises:
        InvalidRequest: naming the place of a value of any other type, of a number that is not finite, and of two keys
            with one text.
    """
    return _plain(value, granularity, Path())


def _plain(value: Any, granularity: Granularity, path: Path) -> Any:  # noqa: C901, PLR0911 - a table of types
    match value:
        case Enum():
            return _plain(value.value, granularity, path)
        case None | bool() | int() | str():
            return value
        case float() | Decimal():
            return _number(value, path)
        case datetime():
            return written(value, granularity)
        case date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case Mapping():
            return _object(value.items(), granularity, path)
        case list() | tuple():
            return [_plain(item, granularity, path / index) for index, item in enumerate(value)]
        case set() | frozenset():
            items = [_plain(item, granularity, path) for item in value]
            return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
            return _object(fields, granularity, path)
        case _ if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
            return _plain(dump(), granularity, path)
        case _:
            raise _invalid(
                f"of type {type(value).__name__}, which has no one text",
                "Give texts, numbers, lists and dictionaries, or what the value means as one of them.",
                path,
            )


def _number(value: float | Decimal, path: Path) -> float:
    if not math.isfinite(value):
        raise _invalid(f"{value}, which JSON cannot say", "Give a finite number, or None.", path)
    number = float(value)
    if isinstance(value, Decimal) and value and Decimal(repr(number)) != value:
        raise _invalid(f"Decimal('{value}'), which no float holds", "Round it, or give it as a text.", path)
    return float(float_spelling(repr(number)))


def _object(items: Iterable[tuple[Any, Any]], granularity: Granularity, path: Path) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for key, item in items:
        name = key if type(key) is str else _key(_plain(key, granularity, path))
        if name in written:
            raise _invalid(f"an object with two keys {name!r}", "Keys must differ as texts.", path)
        written[name] = _plain(item, granularity, path / name)
    return written


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def _invalid(found: str, hint: str, path: Path) -> InvalidRequest:
    place = f"The value at {path}" if path.steps else "The value"
    return InvalidRequest(f"{place} is {found}.", hint=hint, param=str(path) or None)
