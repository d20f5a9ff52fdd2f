"""The vectors nearest to a vector."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from prefold.errors import MissingExtra, ModelError
from prefold.responses.semantic.embedders.vectors import Vector

_FIRST_ROWS = 8  # an index for each context: most stay small
_EXACT_UP_TO = 10_000
_UNIT_TOLERANCE = 2e-3  # of the square

# What these reach stands at `VectorIndex`.
_NEIGHBOURS = 16
_EXPANSION_ADD = 128
_EXPANSION_SEARCH = 128


class VectorIndex:
    """Keys by their vectors: exact for the newest vectors, by a graph (HNSW) for those beyond.

    Where an addition goes beyond `exact_up_to`, it moves one vector into the graph, and no call does more than that, so
    that an event loop can make them. On one core, with 384 numbers a vector, questions of CLINC150 and BANKING77 and
    points between them (CPU time, median and 99th percentile):

    | vectors | add | search for 10 | of the 10 nearest it finds | bytes a vector |
    |---|---|---|---|---|
    | 1,000 | 2 us, 16 us | 0.03 ms, 0.07 ms | all | 1,550 to 3,100 |
    | 10,000 | 2 us, 4 us | 0.25 ms, 0.5 ms | all | 1,550 to 2,000 |
    | 100,000 | 0.5 ms, 1.3 ms | 0.7 ms, 1.3 ms | 99.5 %; 98 % after a quarter was replaced | 2,250 |

    Now and then an addition makes room for as many again: 2 ms at 10,000 vectors, 35 ms at 100,000.

    Used by one thread at a time.

    Args:
        size: numbers in a vector.
        exact_up_to: vectors that are compared one by one.
    """

    def __init__(self, size: int, exact_up_to: int = _EXACT_UP_TO) -> None:
        self._size = size
        self._exact_up_to = exact_up_to
        self._exact = _Exact(size, exact_up_to + 1)
        self._graph: _Graph | None = None

    def __len__(self) -> int:
        return len(self._exact) + (len(self._graph) if self._graph is not None else 0)

    def __contains__(self, key: int) -> bool:
        return key in self._exact or (self._graph is not None and key in self._graph)

    def add(self, key: int, vector: Any) -> None:
        """Keep a vector, in place of one of the same key.

        Args:
            key: 0 or more.
            vector: of unit length; an array, or the bytes of one in float32.

        Raises:
            ModelError: if it is not of this index's size, or not of unit length.
            MissingExtra: if there are more vectors than are compared one by one, and usearch is not installed.
        """
        row = self._row(vector)
        if self._graph is None and len(self._exact) >= self._exact_up_to:
            self._graph = _Graph(self._size)
        if self._graph is not None:
            self._graph.remove(key)
        self._exact.add(key, row)
        if self._graph is not None and len(self._exact) > self._exact_up_to:
            self._graph.add(*self._exact.pop_oldest())

    def remove(self, key: int) -> bool:
        """Forget a vector; whether there was one."""
        return self._exact.remove(key) or (self._graph is not None and self._graph.remove(key))

    def search(self, vector: Any, count: int) -> list[tuple[int, float]]:
        """The keys nearest to a vector, with their cosines, best first; of equal ones the lower key.

        Raises:
            ModelError: if it is not of this index's size, or not of unit length.
        """
        row = self._row(vector)
        if count < 1:
            return []
        found = self._exact.search(row, count)
        if self._graph is not None:
            found += self._graph.search(row, count)
        return sorted(found, key=lambda each: (-each[1], each[0]))[:count]

    def _row(self, vector: Any) -> Vector:
        row = np.frombuffer(vector, "<f4") if isinstance(vector, bytes | bytearray | memoryview) else np.asarray(vector)
        if row.shape != (self._size,):
            raise ModelError(
                f"A vector of shape {list(row.shape)} does not belong into an index of {self._size} numbers.",
                hint="vectors of another embedder need an index of their own",
            )
        found: Vector = row.astype(np.float32, copy=False)
        if not abs(float(found @ found) - 1.0) < _UNIT_TOLERANCE:  # which not a number is not, either
            raise ModelError(
                "A vector that is not of unit length does not belong into an index.", hint="embed it again"
            )
        return found


class _Exact:
    """Vectors in one array, row by row; the last takes the place of one that goes."""

    def __init__(self, size: int, most: int) -> None:
        self._most = most
        self._vectors = np.empty((_FIRST_ROWS, size), dtype=np.float32)  # [rows, size]; more than are used
        self._keys = np.empty(_FIRST_ROWS, dtype=np.int64)
        self._rows: OrderedDict[int, int] = OrderedDict()  # by key, oldest first

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: int) -> bool:
        return key in self._rows

    def add(self, key: int, vector: Vector) -> None:
        self.remove(key)
        row = len(self._rows)
        if row == len(self._keys):
            self._grow()
        self._vectors[row] = vector
        self._keys[row] = key
        self._rows[key] = row

    def remove(self, key: int) -> bool:
        row = self._rows.pop(key, None)
        if row is None:
            return False
        last = len(self._rows)
        if row != last:
            moved = int(self._keys[last])
            self._vectors[row] = self._vectors[last]
            self._keys[row] = moved
            self._rows[moved] = row
        return True

    def pop_oldest(self) -> tuple[int, Vector]:
        key, row = next(iter(self._rows.items()))
        vector = self._vectors[row].copy()
        self.remove(key)
        return key, vector

    def _grow(self) -> None:
        used = len(self._keys)
        rows = min(2 * used, max(self._most, used + 1))
        vectors, keys = np.empty((rows, self._vectors.shape[1]), dtype=np.float32), np.empty(rows, dtype=np.int64)
        vectors[:used], keys[:used] = self._vectors, self._keys
        self._vectors, self._keys = vectors, keys

    def search(self, vector: Vector, count: int) -> list[tuple[int, float]]:
        used = len(self._rows)
        # Not a product with the matrix: BLAS gives that to several threads, which wait for each other where others have
        # the cores. Under load here it took 20 ms at 10,000 vectors, and this 0.2 ms.
        cosines = np.vecdot(self._vectors[:used], vector)
        best = np.argpartition(-cosines, count - 1)[:count] if count < used else np.arange(used)
        return [(int(self._keys[row]), float(cosines[row])) for row in best]


class _Graph:
    """Vectors in a graph of neighbours, by usearch."""

    def __init__(self, size: int) -> None:
        try:
            from usearch.index import Index  # noqa: PLC0415 - small indexes do without
        except ModuleNotFoundError:
            raise MissingExtra(
                "An index of so many vectors needs the package usearch.", hint="pip install 'prefold[answers]'"
            ) from None
        self._index = Index(
            ndim=size,
            metric="ip",
            dtype="f32",
            connectivity=_NEIGHBOURS,
            expansion_add=_EXPANSION_ADD,
            expansion_search=_EXPANSION_SEARCH,
        )

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: int) -> bool:
        return key in self._index

    def add(self, key: int, vector: Vector) -> None:
        self._index.add(key, vector, threads=1)

    def remove(self, key: int) -> bool:
        return bool(self._index.remove(key, threads=1))

    def search(self, vector: Vector, count: int) -> list[tuple[int, float]]:
        if not len(self._index):
            return []
        found = self._index.search(vector, min(count, len(self._index)), threads=1)
        return [(int(key), 1.0 - float(distance)) for key, distance in zip(found.keys, found.distances, strict=True)]
