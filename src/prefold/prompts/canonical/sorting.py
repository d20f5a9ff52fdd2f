"""Sorting what may be sorted: keys of objects, and lists in which a cache marker says "all up to here".

A marker belongs to a place in the list, not to the item that happens to carry it. What lies before it is one part of
the prompt and what lies behind it another, so each part is sorted by itself and the marker stays where it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prefold.prompts.dialects import MARKERS

_MARKERS = frozenset(MARKERS)

NAME_MAPS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependentRequired", "$defs", "definitions"}
)
"""Fields of a schema whose keys are names that its author chose, in an order that a model follows when it answers."""

DATA = frozenset({"const", "default", "enum", "example", "examples", "input_examples"})
"""Fields of a tool definition that show data as the application wants it written."""


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """Sorted keys at any depth.

    Attributes:
        fields: sort the keys of objects.
        properties: sort those of name maps, and `required`.
    """

    fields: bool
    properties: bool

    def apply(self, value: Any, *, is_name_map: bool = False) -> Any:
        """The value with sorted keys; parts in which nothing moves are the same objects."""
        if isinstance(value, list):
            items = [self.apply(item) if isinstance(item, dict | list) else item for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        if not isinstance(value, dict):
            return value
        keys = list(value)
        if self.properties if is_name_map else self.fields:
            keys.sort()
            if not _MARKERS.isdisjoint(keys):  # last, so that one that moves away changes nothing in front of it
                keys.sort(key=_MARKERS.__contains__)
        changed: dict[str, Any] = {}
        for key, item in value.items():
            if isinstance(item, dict | list) and (new := self._member(key, item, is_name_map=is_name_map)) is not item:
                changed[key] = new
        if not changed and keys == list(value):
            return value
        return {key: changed.get(key, value[key]) for key in keys}

    def _member(self, key: str, item: Any, *, is_name_map: bool) -> Any:
        if is_name_map:
            return self.apply(item)
        if key in DATA:
            return item
        if key == "required" and self.properties and isinstance(item, list) and all(type(name) is str for name in item):
            return item if item == sorted(item) else sorted(item)
        return self.apply(item, is_name_map=key in NAME_MAPS)


def sorted_between_markers(items: Sequence[Any], key: Callable[[Any], Any]) -> list[Any]:
    """The same items in order of their key, equal ones by what is in them, none moved across a marker.

    Args:
        items: JSON values. One that carries a marker ends a part, and so does an entry that is nothing but a marker, as
            Bedrock's `{"cachePoint": ...}` is. Put the markers back with `with_markers_of`.
        key: of an item that is not such an entry.
    """
    ordered: list[Any] = []
    part: list[Any] = []
    for item in items:
        markers = markers_of(item)
        if markers and markers.keys() == item.keys():
            ordered += [*_sorted(part, key), item]
            part = []
            continue
        part.append(item)
        if markers:
            ordered += _sorted(part, key)
            part = []
    return ordered + _sorted(part, key)


def _sorted(items: list[Any], key: Callable[[Any], Any]) -> list[Any]:
    ranks = [key(item) for item in items]
    if len(set(ranks)) == len(ranks):
        return sorted(items, key=key)
    return sorted(items, key=lambda item: (key(item), *content_rank(item)))


def content_rank(item: Any) -> tuple[str, str]:
    """An item's JSON, with its keys sorted and as they are."""
    plain = without_markers(item)
    return json.dumps(plain, sort_keys=True), json.dumps(plain)


def with_markers_of(items: Sequence[Any], places: Sequence[Any]) -> list[Any]:
    """Objects with the markers of those that stand at the same places elsewhere; they come last in an object."""
    return [
        item if markers_of(item) == (markers := markers_of(place)) else {**without_markers(item), **markers}
        for item, place in zip(items, places, strict=True)
    ]


def markers_of(item: Any) -> dict[str, Any]:
    """The cache markers on a JSON value, by their names."""
    if not isinstance(item, dict):
        return {}
    return {name: item[name] for name in sorted(MARKERS) if item.get(name) is not None}


def without_markers(item: Any) -> Any:
    """A JSON value without its cache markers."""
    markers = markers_of(item)
    return {name: value for name, value in item.items() if name not in markers} if markers else item
