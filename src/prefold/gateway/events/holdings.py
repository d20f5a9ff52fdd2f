"""What a replica holds, or will in a moment, put into the index.

Between the choice of a replica and its first event some requests go by. So a prompt's blocks count as held from the
moment it is sent there; should no event confirm them, that lapses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from prefold.core.block_index import BlockIndex


class Holdings:
    """The blocks of one replica.

    Args:
        replica: its number in the index.
        index: where its blocks are noted.
    """

    def __init__(self, replica: int, index: BlockIndex) -> None:
        self._replica = replica
        self._index = index
        self._times: dict[int, int] = {}  # an engine may hold a block more than once, and ranks may share one
        self._predicted: dict[int, float] = {}
        self._lapses: deque[tuple[float, Sequence[int]]] = deque()

    def add(self, keys: Collection[int]) -> None:
        """Blocks are there."""
        times, predicted = self._times, self._predicted
        for key in keys:
            times[key] = times.get(key, 0) + 1
        if predicted:
            for key in keys:
                predicted.pop(key, None)
        self._index.add(self._replica, keys)

    def remove(self, keys: Collection[int]) -> None:
        """Blocks are gone, each once."""
        times = self._times
        gone = []
        for key in keys:
            left = times.get(key, 0) - 1
            if left > 0:
                times[key] = left
            else:
                times.pop(key, None)
                self._predicted.pop(key, None)
                gone.append(key)
        self._index.remove(self._replica, gone)

    def predict(self, keys: Sequence[int], until: float) -> None:
        """Count blocks as held until a time, at most; those that are held stay so."""
        fresh = [key for key in keys if key not in self._times]
        if fresh:
            self._predicted.update(dict.fromkeys(fresh, until))
            self._lapses.append((until, fresh))
            self._index.add(self._replica, fresh)

    def lapse(self, now: float) -> None:
        """Drop what was predicted and has not come by now."""
        while self._lapses and self._lapses[0][0] <= now:
            until, keys = self._lapses.popleft()
            late = [key for key in keys if self._predicted.get(key) == until]
            for key in late:
                del self._predicted[key]
            self._index.remove(self._replica, late)

    def clear(self) -> None:
        """Nothing is there, nor will be."""
        self._times.clear()
        self._predicted.clear()
        self._lapses.clear()
        self._index.clear(self._replica)
