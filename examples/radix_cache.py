"""A walk through prefold's radix tree: sharing, a split, a salt, a pin, an eviction.

Tokens are words here, so that the tree can be read; a node shows the words that it alone holds.

    python examples/radix_cache.py
"""

from __future__ import annotations

from prefold.core.cache import Cache, Lease
from prefold.core.keys import SHARED, Scope
from prefold.core.radix import Node
from prefold.core.tokens import pack

Words = tuple[str, ...]


class WordStore:
    """The host of the tree. The value of a node is its words; an engine would keep K/V slots."""

    def split(self, value: Words, length: int) -> tuple[Words, Words]:
        """Cut a value into those of its first `length` tokens and of the rest."""
        return value[:length], value[length:]

    def free(self, value: Words) -> None:
        """Take back the value of tokens that left the cache."""
        print(f"    evicted: {' '.join(value)}")


class WordCache:
    """A cache of 20 words."""

    def __init__(self) -> None:
        self.cache: Cache[Words] = Cache(20, WordStore(), ())
        self.vocabulary: dict[str, int] = {}

    def pack(self, words: Words) -> bytes:
        """Words as a run of tokens."""
        return pack(self.vocabulary.setdefault(word, len(self.vocabulary)) for word in words)

    def ask(self, text: str, scope: Scope = SHARED) -> None:
        """Serve a prompt from beginning to end, and say how much of it was known."""
        words = tuple(text.split())
        lease: Lease[Words] = self.cache.admit(
            self.pack(words), scope, make_value=lambda start, stop: words[start:stop]
        )
        self.cache.release(lease)
        print(f"    {lease.hit} of {len(words)} words hit: {text}")

    def show(self) -> None:
        """Print the tree, a node a line, and verify it."""
        self._show(self.cache.tree.root, depth=0)
        self.cache.check()
        print(f"    {self.cache.tree.size} words held, {self.cache.free} free")
        print()

    def _show(self, node: Node[Words], depth: int) -> None:
        for child in node.children.values():
            salt = f" [salt {child.edge[1]}]" if isinstance(child.edge, tuple) else ""
            pinned = " [pinned]" if child.pins else ""
            print(f"    {'. ' * depth}{' '.join(child.value)}{salt}{pinned}")
            self._show(child, depth + 1)


def main() -> None:
    """Take the walk."""
    words = WordCache()

    print("1. A first conversation is one node.")
    words.ask("You are helpful. What is a cache?")
    words.show()

    print("2. Its next turn adds what is new.")
    words.ask("You are helpful. What is a cache? A memory. Of what?")
    words.show()

    print("3. Another conversation parts in the middle of a node, which is split there.")
    words.ask("You are helpful. What is the time?")
    words.show()

    print("4. With a salt from word 3 on, only the words before it are shared.")
    words.ask("You are helpful. What is a cache?", Scope(salt="acme", salt_from=3))
    words.show()

    print("5. A pinned prefix stays.")
    pin = words.cache.pin(words.pack(("You", "are", "helpful.", "What", "is", "the", "time?")))
    words.show()

    print("6. A request that needs room: the longest unused go first, tails before heads, no word more than needed.")
    words.ask("Write a poem about rain in six words.")
    words.show()

    print("7. Unpinned, everything may go.")
    words.cache.unpin(pin)
    print(f"    {words.cache.reset()} words removed")
    words.show()


if __name__ == "__main__":
    main()
