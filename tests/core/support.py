"""A store that catches every dishonest move, and a tree's contents in the oracle's terms."""

from collections.abc import Callable

from prefold.core.keys import SHARED, Scope
from prefold.core.naive import Prefix, marked
from prefold.core.radix import RadixTree
from prefold.core.tokens import pack, unpack


def run(text: str) -> bytes:
    """A run whose tokens are the characters of a text."""
    return pack(map(ord, text))


def nothing(start: int, stop: int) -> None:
    """The value of new tokens in a cache that only counts."""


class Slots:
    """A K/V pool in miniature: a value is the list of its tokens' slots; a slot knows which token it was filled for."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.spare = list(range(capacity))
        self.filled: dict[int, Prefix] = {}

    def maker(self, tokens: bytes, scope: Scope = SHARED) -> Callable[[int, int], list[int]]:
        """The `make_value` of one sequence."""
        prefix = marked(tokens, scope)

        def make(start: int, stop: int) -> list[int]:
            slots = [self.spare.pop() for _ in range(start, stop)]
            self.filled.update((slot, prefix[: start + offset + 1]) for offset, slot in enumerate(slots))
            return slots

        return make

    def split(self, value: list[int], length: int) -> tuple[list[int], list[int]]:
        assert 0 < length < len(value)
        return value[:length], value[length:]

    def free(self, value: list[int]) -> None:
        assert value
        for slot in value:
            del self.filled[slot]  # KeyError if it was freed before
            self.spare.append(slot)

    def check(self, tree: RadixTree[list[int]]) -> None:
        """Every token of the tree has one slot of its own, filled for exactly that token, and all others are spare."""
        assert {slot: prefix for prefix, (slot, _) in contents(tree).items()} == self.filled
        assert sorted([*self.filled, *self.spare]) == list(range(self.capacity))


def contents(tree: RadixTree[list[int]]) -> dict[Prefix, tuple[int, int]]:
    """Slot and last use of each token in the tree, by the prefix that ends in it."""
    found: dict[Prefix, tuple[int, int]] = {}
    stack = [((), tree.root)]
    while stack:
        prefix, node = stack.pop()
        assert len(node.value) == node.length
        for child_edge, child in node.children.items():
            namespace, salt, _ = ("", None, b"") if isinstance(child_edge, bytes) else child_edge
            below = prefix
            for offset, (token, slot) in enumerate(zip(unpack(child.run), child.value, strict=True)):
                below += ((namespace, salt, token) if offset == 0 else ("", None, token),)
                assert below not in found
                found[below] = (slot, child.used)
            stack.append((below, child))
    return found
