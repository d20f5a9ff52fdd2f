"""What both directions share: JSON as it came, read without trusting its shape, and how to refuse a part of it."""

from __future__ import annotations

from typing import Any

from prefold.errors import InvalidRequest
from prefold.server.fields import Fields

Json = dict[str, Any]


def refused(path: str, why: str, hint: str) -> InvalidRequest:
    """The error that says which part of a request the other API has no words for.

    Args:
        path: of the part, such as `tools[2]`.
        why: ends the sentence that begins with the path.
        hint: what to do about it.
    """
    return InvalidRequest(f"{path} {why}", hint=hint, param=path)


def blocks(fields: Fields, name: str, path: str) -> list[tuple[Fields, str]]:
    """A list of objects, each with its path.

    Raises:
        InvalidRequest: if it is something else.
    """
    places = ((block, f"{path}[{index}]") for index, block in enumerate(fields.objects(name) or ()))
    return [(Fields(block, f"{place}."), place) for block, place in places]


def needed(fields: Fields, name: str) -> str:
    """A string that has to be there.

    Raises:
        InvalidRequest: if it is not.
    """
    value = fields.text(name)
    if value is None:
        fields.refuse(name, "a string")
    return value


# What upstreams send is read leniently: a part of an unknown shape counts as absent.


def part(value: object, name: str) -> Json:
    """An object within an object; an empty one where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def items(value: object, name: str) -> list[Json]:
    """The objects of a list within an object."""
    found = value.get(name) if isinstance(value, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(value: object, name: str) -> str:
    """A string within an object; an empty one where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def integer(value: object, name: str) -> int | None:
    """A whole number within an object."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if type(found) is int else None
