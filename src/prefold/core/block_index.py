"""Which replica holds which blocks: what exact routing asks.

Keys are chained like those of `prefold.core.keys`, a block's following from its parent's and its own tokens, with the
salt in the same place. But they are made with Python's own `hash`, which is several times as fast and differs from
process to process: they never leave this one. Should two blocks share a key, a request goes to a replica that does not
hold what it was thought to, and is computed there; nobody outside can look for such blocks, since `hash` has a secret.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from itertools import islice, repeat

from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import WIDTH

_BATCH = 64  # a share of one in so many blocks is forgotten at once


class BlockIndex:
    """Blocks by key, each with the replicas that hold it.

    Where there are too many, the oldest blocks are forgotten, but for those that a prompt matched since they were
    stored, or since they were last passed over (the clock algorithm). A block that is forgotten costs a wrong guess.

    Args:
        max_blocks: different blocks that are remembered, at least 1.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._holders: dict[int, int] = {}  # bit masks of replicas, the oldest block first
        self._held: dict[int, set[int]] = {}  # the same by replica
        self._used: set[int] = set()

    # Keys

    def keys(self, run: bytes, block_size: int, scope: Scope = SHARED) -> list[int]:
        """Keys of the whole blocks of a prompt.

        Args:
            run: its tokens, packed.
            block_size: tokens per block.
            scope: who may share it.
        """
        step = block_size * WIDTH
        blocks = struct.Struct(f"{step}s" * (len(run) // step)).unpack_from(run)  # faster than slicing one by one
        parent = _root(scope.namespace)
        if scope.salt is None:
            return [parent := hash((parent, block)) for block in blocks]
        private = scope.salt_from // block_size  # the first block that holds a token of the salt's
        keys = [parent := hash((parent, block)) for block in blocks[:private]]
        parent = _salted(parent, scope.salt)
        return keys + [parent := hash((parent, block)) for block in blocks[private:]]

    def next_key(self, parent: int | None, block: bytes, *, salt: str | None = None, namespace: str = "") -> int:
        """Key of the block that follows another.

        Args:
            parent: key of the block before it; None where it is the first one.
            block: its tokens, packed.
            salt: the salt whose first token is in this block; None for all blocks before and behind.
            namespace: of the whole chain; only looked at for the first block.
        """
        if parent is None:
            parent = _root(namespace)
        if salt is not None:
            parent = _salted(parent, salt)
        return hash((parent, block))

    # What replicas hold

    def add(self, replica: int, keys: Collection[int]) -> None:
        """Note that a replica holds blocks."""
        bit = 1 << replica
        holders = self._holders
        for key in keys:
            holders[key] = holders.get(key, 0) | bit
        self._held.setdefault(replica, set()).update(keys)
        while len(holders) > self._max_blocks:
            self._forget_some()

    def remove(self, replica: int, keys: Collection[int]) -> None:
        """Note that a replica no longer holds blocks; those that it was not known to hold change nothing."""
        held = self._held.get(replica)
        if held:
            self._release(replica, held.intersection(keys))
            held.difference_update(keys)

    def clear(self, replica: int) -> None:
        """Note that a replica holds nothing, or is gone."""
        self._release(replica, self._held.pop(replica, set()))

    def _release(self, replica: int, keys: Collection[int]) -> None:
        bit = 1 << replica
        holders = self._holders
        for key in keys:
            rest = holders[key] & ~bit
            if rest:
                holders[key] = rest
            else:
                del holders[key]
                self._used.discard(key)

    def _forget_some(self) -> None:
        """Forget the oldest blocks: at least the excess, up to some more, since finding the oldest one takes long."""
        size = len(self._holders)
        oldest = list(islice(self._holders, max(size - self._max_blocks, size // _BATCH)))
        for key in oldest:
            holders = self._holders.pop(key)
            if key in self._used:
                self._used.discard(key)
                self._holders[key] = holders
            else:
                self._forget(key, holders)

    def _forget(self, key: int, holders: int) -> None:
        while holders:
            lowest = holders & -holders
            self._held[lowest.bit_length() - 1].discard(key)
            holders ^= lowest

    # Asking

    def match(self, keys: Sequence[int]) -> list[int]:
        """How many of the leading blocks each replica holds, by its index; those behind the last one hold none."""
        matched = [0] * (max(self._held, default=-1) + 1)
        live = (1 << len(matched)) - 1
        count = 0
        for holders in list(map(self._holders.get, keys, repeat(0))):  # in one go, which is faster than one by one
            if holders != live:
                still = holders & live
                if still != live:
                    self._note(matched, live ^ still, count)
                    live = still
                    if not live:
                        break
            count += 1
        self._note(matched, live, count)
        self._used.update(keys[: max(matched, default=0)])
        return matched

    @staticmethod
    def _note(matched: list[int], replicas: int, count: int) -> None:
        while replicas:
            lowest = replicas & -replicas
            matched[lowest.bit_length() - 1] = count
            replicas ^= lowest

    @property
    def size(self) -> int:
        """Different blocks that are remembered."""
        return len(self._holders)

    def blocks_of(self, replica: int) -> int:
        """Blocks that a replica is known to hold."""
        return len(self._held.get(replica, ()))


def _root(namespace: str) -> int:
    return hash(("root", namespace))


def _salted(parent: int, salt: str) -> int:
    return hash(("salt", parent, salt))
