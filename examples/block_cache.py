"""The prefix cache as most engines teach it: fixed blocks, chained hashes, least recently used.

A prompt is cut into blocks of four tokens. The key of a block is a hash of its tokens and of the key before it, so it
names the whole prefix that ends there, and a prompt can be served as far as its keys are known. This file first builds
such a cache from nothing, in thirty lines, then asks prefold's core for the same numbers.

    python examples/block_cache.py
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from prefold.core.cache import Cache, NoValues
from prefold.core.tokens import pack

BLOCK_SIZE = 4
CAPACITY_TOKENS = 4_000


class BlockCache:
    """Which blocks are cached, least recently used first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def serve(self, prompt: list[int]) -> int:
        """Read a prompt; returns how many of its tokens were cached. All of its full blocks are cached afterwards."""
        keys = []
        parent = 0
        for start in range(0, len(prompt) - BLOCK_SIZE + 1, BLOCK_SIZE):
            parent = hash((parent, *prompt[start : start + BLOCK_SIZE]))
            keys.append(parent)
        known = 0
        while known < len(keys) and keys[known] in self.blocks:
            known += 1
        # The head of the prompt becomes the most recently used: a tail is of no use without its head.
        for key in reversed(keys):
            self.blocks[key] = None
            self.blocks.move_to_end(key)
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return known * BLOCK_SIZE


def prompts(prefix: int, suffix: int, requests: int) -> Iterator[list[int]]:
    """Requests that share their first `prefix` tokens and have `suffix` tokens of their own."""
    for request in range(requests):
        own = 1_000 + request * suffix
        yield [*range(prefix), *range(own, own + suffix)]


def hit_rates(prefix: int, suffix: int, requests: int) -> tuple[float, float]:
    """Share of the input tokens that were cached: with the blocks above, and with prefold."""
    blocks = BlockCache(CAPACITY_TOKENS // BLOCK_SIZE)
    cache = Cache(CAPACITY_TOKENS, NoValues(), None, grain=BLOCK_SIZE)
    hit = 0
    for prompt in prompts(prefix, suffix, requests):
        hit += blocks.serve(prompt)
        cache.release(cache.admit(pack(prompt), make_value=lambda *_: None))
    return hit / cache.counters.input, cache.counters.hit_rate


def main() -> None:
    """Print both caches' rates for four kinds of traffic."""
    print("                          blocks of 4         prefold, grain 4")
    print("prefix suffix requests    hit  computed       hit  computed")
    for prefix, suffix, requests in ((100, 20, 100), (100, 100, 100), (20, 100, 100), (400, 20, 1_000)):
        rates = (f"{rate:6.1%}  {1 - rate:8.1%}" for rate in hit_rates(prefix, suffix, requests))
        print(f"{prefix:6} {suffix:6} {requests:8} {'   '.join(rates)}")


if __name__ == "__main__":
    main()
