"""Reading single values of a log: times, names, counts, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from prefold.analysis.logs.reader import Source
from prefold.errors import InvalidRequest
from prefold.providers.usage import LARGEST_COUNT, Usage, read_usage

_UNITS_FROM = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""Epoch numbers from which nano-, micro- and milliseconds are counted: as seconds they would lie thousands of years
ahead."""
_NUMERIC = (int, float, str)
_LONGEST_NAME = 500
_decoded = msgspec.json.Decoder().decode
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_TOTALS = ("prompt_tokens", "input_tokens", "promptTokenCount")
_PARTS = ("cached_tokens", "prompt_cache_hit_tokens", "num_cached_tokens", "cachedContentTokenCount")


def moment(value: object) -> float | None:
    """A time stamp in seconds since 1970; None if it is none.

    Numbers count seconds, or milli-, micro- or nanoseconds, as their size says. Times without a zone count as UTC.
    """
    if isinstance(value, str):
        return _moment_of_text(value)
    if isinstance(value, datetime):
        return _timestamp(value)
    number = real(value)
    if number is None:
        return None
    for start, unit in _UNITS_FROM:
        if number > start:
            return number / unit
    return number


def _moment_of_text(text: str) -> float | None:
    try:
        return _timestamp(datetime.fromisoformat(text.strip()))
    except ValueError:
        pass
    try:
        return moment(float(text)) if len(text) <= 40 else None
    except ValueError:
        return None


def _timestamp(stamp: datetime) -> float | None:
    try:
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def real(value: object) -> float | None:
    """A finite number; None if it is none. Texts of numbers count."""
    if not isinstance(value, _NUMERIC) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def seconds(value: object, *, unit: float = 1.0) -> float | None:
    """A duration in seconds, given in some unit of so many seconds; None if it is none, or negative."""
    number = real(value)
    return None if number is None or number < 0 else number * unit


def name(*values: object) -> str:
    """The first of some values that can be a name: a text that is not empty, or a whole number; else empty."""
    for value in values:
        if isinstance(value, str):
            if value:
                return value[:_LONGEST_NAME]
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**30:
            return str(value)
    return ""


def first(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first field of a record that is there and not null; else None."""
    for field in names:
        value = record.get(field)
        if value is not None:
            return value
    return None


def count(value: object, source: Source) -> int | None:
    """A number of tokens; None where there is none. An absurd one is noted, and counts as absent."""
    number = real(value)
    if number is None:
        return None
    if not 0 <= number <= LARGEST_COUNT:
        source.note("absurd_count")
        return None
    return int(number)


def usage_of(payload: object, source: Source) -> Usage | None:
    """Usage in a response, or in a usage object.

    Negative numbers, and those above `LARGEST_COUNT`, are noted as `absurd_count` and count as absent. Where more
    tokens came from cache than were sent, the whole is noted as `usage_contradicts_text` and left out.
    """
    if not isinstance(payload, dict):
        return None
    usage = _plausible(payload, source, depth=0)
    holders = (usage, *(value for value in usage.values() if isinstance(value, dict)))
    if any(_has_parts_above_total(holder) for holder in holders):
        source.note("usage_contradicts_text")
        return None
    return read_usage(usage)


def _plausible(value: dict[str, Any], source: Source, depth: int) -> dict[str, Any]:
    """An object without absurd numbers; whole numbers that are written as floats or texts become such."""
    kept: dict[str, Any] = {}
    for key, part in value.items():
        if isinstance(part, dict):
            kept[key] = _plausible(part, source, depth + 1) if depth < 4 else {}
        elif isinstance(part, list):
            kept[key] = [
                _plausible(item, source, depth + 1) for item in part[:8] if isinstance(item, dict) and depth < 4
            ]
        elif (type(part) is int and 0 <= part <= LARGEST_COUNT) or not _counts_tokens(key):
            kept[key] = part
        elif (number := count(part, source)) is not None:
            kept[key] = number
    return kept


def _counts_tokens(key: str) -> bool:
    return "token" in key.lower() or key in ("prompt_n", "cache_n", "predicted_n")


def _has_parts_above_total(usage: dict[str, Any]) -> bool:
    total = first(usage, _TOTALS)
    if not isinstance(total, int):
        return False
    details = first(usage, _DETAILS)
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return any(isinstance(part, int) and part > total for part in (cached, *map(usage.get, _PARTS)))


def loaded(content: bytes | str | msgspec.Raw) -> Any:
    """A JSON value.

    Raises:
        InvalidRequest: saying where it is no JSON, or that it is nested too deeply.
    """
    try:
        return _decoded(content)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        pass  # JSON as Python reads it has NaN and halves of surrogate pairs, too
    if isinstance(content, msgspec.Raw):
        content = bytes(content)
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        problem = f"The line is not valid JSON: {error.msg} at character {error.pos + 1}."
    except UnicodeDecodeError as error:
        problem = f"The line is not UTF-8 text: byte {error.start + 1} is 0x{error.object[error.start]:02X}."
    except RecursionError:
        problem = "The line is nested too deeply."
    except ValueError:
        problem = "The line holds a whole number of thousands of digits."
    raise InvalidRequest(problem, hint="Check the file at that place.")


def dumped(value: object) -> bytes:
    """The compact JSON of a value.

    Raises:
        InvalidRequest: if it has none.
    """
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError):
        pass  # halves of surrogate pairs, and whole numbers of more than 64 bits
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"The prompt cannot be written as JSON: {error}.", hint="Check the record.") from None
