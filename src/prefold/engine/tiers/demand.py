"""Which blocks are likely to be asked for again, so that a slow tier should take them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

REMEMBERED = 200_000
"""Blocks of which is remembered how often they were asked for, and answers of which is remembered where they ended."""

_ENOUGH = 2


class Demand:
    """Remembers what was asked for.

    A block is wanted once two requests have asked for it. So is all of a conversation once a request has gone on from
    an answer, for then the next will as well: else its newest blocks, which are the first to leave, would not be kept.
    """

    def __init__(self) -> None:
        self._asked: OrderedDict[bytes, int] = OrderedDict()
        self._ends: OrderedDict[bytes, None] = OrderedDict()

    def asked(self, keys: Sequence[bytes]) -> None:
        """A request asks for a chain of blocks."""
        goes_on = any(key in self._ends for key in keys)
        for key in keys:
            self._asked[key] = max(self._asked.pop(key, 0) + 1, _ENOUGH if goes_on else 0)
        forget_oldest(self._asked)

    def ended(self, keys: Sequence[bytes], prompt: int) -> None:
        """An answer has ended.

        Args:
            keys: of the whole blocks of prompt and answer.
            prompt: how many of them the prompt alone has.
        """
        if keys:
            self._ends[keys[-1]] = None
            forget_oldest(self._ends)
        if prompt and self.wanted(keys[:prompt]) == prompt:
            self._asked.update(dict.fromkeys(keys[prompt:], _ENOUGH))

    def wanted(self, keys: Sequence[bytes]) -> int:
        """How many leading blocks of a chain are wanted."""
        for number, key in enumerate(keys):
            if self._asked.get(key, 0) < _ENOUGH:
                return number
        return len(keys)

    def clear(self) -> None:
        """Forget everything."""
        self._asked.clear()
        self._ends.clear()


def forget_oldest(memory: OrderedDict[bytes, int] | OrderedDict[bytes, None]) -> None:
    """Keep a memory within its bound."""
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
