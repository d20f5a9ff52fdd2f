"""Which entries go when there are too many: a policy of `prefold.core`, driven by entries instead of prompts."""

from __future__ import annotations

from typing import NoReturn

from prefold.core.keys import SHARED
from prefold.core.policies import GDSF
from prefold.core.radix import Node, RadixTree
from prefold.core.tokens import pack
from prefold.responses.semantic.types import Answer

_MOST_WORTH = 64
_COUNTED_USES = 32
_OUTPUT_WEIGHT = 4  # an output token costs about as much as four of the input
_CHARACTERS_PER_TOKEN = 4  # where an upstream reported no tokens
_WORTH_SCALE = 8


def worth_of(answer: Answer, size: int) -> int:
    """What an entry saves each time that it is used, for each byte that it takes, on a scale of 1 to 64.

    What an answer cost to make is counted in input tokens; 4 tokens a byte, and more, make it worth most.
    """
    output = answer.output_tokens or len(answer.text) // _CHARACTERS_PER_TOKEN
    cost = answer.input_tokens + _OUTPUT_WEIGHT * output
    return max(1, min(_MOST_WORTH, _WORTH_SCALE * cost // max(1, size)))


class Shelf:
    """Numbers of entries in the order in which greedy dual size frequency lets them go: by cost, size, use and age.

    Each entry is a branch of its own in a tree of the core, as long as it is worth. With an attention span of one
    token, what the policy takes for the cost of a token grows with its position, and so with the entry's worth.
    """

    def __init__(self) -> None:
        self._policy = GDSF(attention_span=1)
        self._tree: RadixTree[int] = RadixTree(0, _split, self._policy.leaves)
        self._nodes: dict[int, Node[int]] = {}
        self._clock = 0
        self.latest = 0
        """Highest number that was ever added."""

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, number: int, worth: int, uses: int) -> None:
        """An entry came in; `uses` of it are known from before."""
        self.latest = max(self.latest, number)
        if number in self._nodes:
            return
        node = self._tree.insert(pack([number % 2**32]) * worth, SHARED, lambda *_: number, self._clock).node
        self._nodes[number] = node
        self._policy.added(node, None)
        for _ in range(1 + min(uses, _COUNTED_USES)):
            self.use(number)

    def use(self, number: int) -> None:
        """An entry was of use; it may be gone."""
        if (node := self._nodes.get(number)) is not None:
            self._clock += 1
            self._tree.touch(node, self._clock)
            self._policy.used(node, float(self._clock))  # uses, not seconds: clocks of a wall jump

    def remove(self, number: int) -> None:
        """An entry is gone."""
        if (node := self._nodes.pop(number, None)) is not None:
            self._policy.removing(node, 0)
            self._tree.truncate(node, 0)

    def victim(self) -> int | None:
        """The entry that should go first; None where there is none."""
        node = self._policy.victim()
        return None if node is None else node.value


def _split(value: int, length: int) -> NoReturn:
    raise AssertionError(f"entry {value} was split at {length}: another one has its number")
