"""What least recently used would have hit: a shadow that holds no keys, only sums of tokens.

Under LRU a cache holds whatever was used last, up to its capacity. So it is enough to know, for each moment, how many
tokens were used then for the last time, and since which moment they all still fit.
"""

from __future__ import annotations


class LRUShadow:
    """The books of a cache that evicts the least recently used, tails before heads.

    Exact for a host that tells the moment of the last use of all it asks for; a moment is one path's use.

    Args:
        capacity: tokens that it holds.
    """

    def __init__(self, capacity: int) -> None:
        self.moment = 0
        """The latest one; the first is 1."""
        self.hits = 0
        """Tokens hit."""
        self._capacity = capacity
        self._last_used: dict[int, int] = {}  # tokens by the moment of their last use
        self._size = 0
        self._since = 1  # moments before this one are gone; of this one, what is left is nearest to the root

    def begin(self) -> int:
        """The next moment begins; returns it."""
        self.moment += 1
        return self.moment

    def leave(self, moment: int, tokens: int) -> None:
        """Tokens last used at `moment`, next on a path from the root, are used now: counts the hits among them."""
        if moment >= self._since:
            held = min(tokens, self._last_used[moment])
            self._last_used[moment] -= held
            self._size -= held
            self.hits += held

    def enter(self, tokens: int) -> None:
        """So many tokens are used in this moment, those that were there before included."""
        last_used = self._last_used
        last_used[self.moment] = last_used.get(self.moment, 0) + tokens
        self._size += tokens
        while self._size > self._capacity:
            oldest = last_used[self._since]
            gone = min(oldest, self._size - self._capacity)
            self._size -= gone
            if gone < oldest:
                last_used[self._since] = oldest - gone
                break
            del last_used[self._since]
            self._since += 1
