"""Fields of a JSON body, read with their types checked and faults named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from prefold.errors import InvalidRequest

_LONGEST_SHOWN = 80


def shown(value: object) -> str:
    """A client's value for an error message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class Fields:
    """A JSON object; a field that is null counts as absent.

    Every method raises `InvalidRequest`, naming the field, for a value of another type. `true` and `false` are never
    numbers.
    """

    def __init__(self, values: Mapping[str, Any], within: str = "") -> None:
        self._values = values
        self._within = within

    def get(self, name: str) -> Any:
        """A field as it is, None where absent."""
        return self._values.get(name)

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """A truth value."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def integer(self, name: str) -> int | None:
        """A whole number."""
        value = self.get(name)
        if value is not None and type(value) is not int:
            self.refuse(name, "a whole number")
        return value

    def number(self, name: str, default: float) -> float:
        """A number; one too large for a float counts as infinite."""
        value = self.get(name)
        if value is None:
            return default
        if type(value) not in (int, float):
            self.refuse(name, "a number")
        try:
            return float(value)
        except OverflowError:
            return float("inf")

    def text(self, name: str) -> str | None:
        """A string."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, "a string")
        return value

    def objects(self, name: str) -> list[dict[str, Any]] | None:
        """A list of objects."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.refuse(name, "a list of objects")
        return value

    def part(self, name: str) -> Fields | None:
        """An object."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return Fields(value, f"{self._within}{name}.")

    def refuse(self, name: str, allowed: str) -> NoReturn:
        """Say what a field may be, and that it is not."""
        path = f"{self._within}{name}"
        raise InvalidRequest(f"{path} is {shown(self.get(name))}", hint=f"it must be {allowed}", param=path)


def read_json(body: bytes) -> Fields:
    """The fields of a request body.

    Raises:
        InvalidRequest: if it is not a JSON object in UTF-8, saying where the fault is.
    """
    try:
        values = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"The body is not valid UTF-8: byte {error.start} is 0x{body[error.start]:02x}", hint="send UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"The body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})",
            hint="send one JSON object",
        ) from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply", hint="send fewer lists within lists") from None
    except ValueError as error:  # a number with thousands of digits
        raise InvalidRequest(f"The body holds a value that cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise InvalidRequest(f"The body is {shown(values)}", hint="send a JSON object")
    return Fields(values)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"The body holds {name}, which is not JSON", hint="numbers must be finite")
