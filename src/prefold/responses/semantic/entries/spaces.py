"""Indexes in memory over wordings whose truth lies elsewhere."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from prefold.responses.semantic.entries.index import VectorIndex

_LEAST_ROWS = 64
"""That an index has room for, at least."""


@dataclass(slots=True)
class Loaded:
    """The wordings of a space, up to a number; some may have gone from the truth since.

    Attributes:
        index: by number.
        latest: highest number that was loaded.
    """

    index: VectorIndex
    latest: int = 0


class Spaces:
    """Indexes by space and size of vectors in bytes; the one that was asked least recently goes first.

    Args:
        most_vectors: that lie in memory.
    """

    def __init__(self, most_vectors: int) -> None:
        self._most = most_vectors
        self._loaded: OrderedDict[tuple[bytes, int], Loaded] = OrderedDict()

    def __len__(self) -> int:
        """Vectors in memory."""
        return sum(len(loaded.index) for loaded in self._loaded.values())

    def of(self, space: bytes, size: int) -> Loaded:
        """What is in memory of a space; a new one, of no wordings, is only kept by `keep`."""
        return self._loaded.get((space, size)) or Loaded(VectorIndex(size // 4))

    def keep(self, space: bytes, size: int, loaded: Loaded) -> None:
        """Hold what was loaded, unless there is nothing in it, and let go of others for it."""
        if len(loaded.index):
            self._loaded[space, size] = loaded
            self._loaded.move_to_end((space, size))
        else:
            self._loaded.pop((space, size), None)
        total = sum(max(_LEAST_ROWS, len(other.index)) for other in self._loaded.values())
        while total > self._most and len(self._loaded) > 1:
            _, other = self._loaded.popitem(last=False)
            total -= max(_LEAST_ROWS, len(other.index))

    def remove(self, space: bytes, size: int, number: int) -> None:
        """A wording is gone."""
        if (loaded := self._loaded.get((space, size))) is not None:
            loaded.index.remove(number)

    def clear(self) -> None:
        """Begin anew."""
        self._loaded.clear()
