"""A memory of what was worked out before, bounded by size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Values by key, those asked for least recently forgotten first, in two generations.

    What is asked for moves into the young generation; when that is full it becomes the old one, and what was still in
    the old one is forgotten. So a look costs one or two dictionary lookups, whatever the order.

    Args:
        capacity: the size of all that is kept.
        size_of: the size of a key and its value.
    """

    def __init__(self, capacity: int, size_of: Callable[[K, V], int]) -> None:
        self._limit = capacity // 2
        self._size_of = size_of
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._size = 0

    def get(self, key: K) -> V | None:
        """The value; None where it is not known."""
        value = self._young.get(key)
        if value is None and (value := self._old.pop(key, None)) is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Remember a value; one larger than a generation is not kept."""
        size = self._size_of(key, value)
        if size > self._limit:
            return
        if (replaced := self._young.pop(key, None)) is not None:
            self._size -= self._size_of(key, replaced)
        if self._size + size > self._limit:
            self._old, self._young, self._size = self._young, {}, 0
        self._young[key] = value
        self._size += size
