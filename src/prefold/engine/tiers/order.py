"""Which block of a tier to drop next: the least recently used one that nothing here depends on."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Block:
    parent: bytes | None
    size: int
    used: int


@dataclass(slots=True)
class LeafFirst:
    """Blocks in chains, with the time of their last use.

    A chain loses its end first: only a block that no other block here follows can be dropped. Using a block uses all
    those before it, so that a parent is never older than its children. Keys and parents are any bytes; a parent may
    be absent, come later, or go before its children. `key in order` may be asked from any thread.

    Attributes:
        total: bytes of all blocks together.
    """

    total: int = 0
    _blocks: dict[bytes, _Block] = field(default_factory=dict)
    # The blocks here that follow a block, here or not.
    _children: dict[bytes, set[bytes]] = field(default_factory=dict)
    # (last use, key) of leaves; stale pairs stay until they come up or there are too many.
    _leaves: list[tuple[int, bytes]] = field(default_factory=list)

    def __contains__(self, key: bytes) -> bool:
        return key in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._blocks)

    def used(self, key: bytes) -> int | None:
        """When a block was last used, None if it is not here."""
        block = self._blocks.get(key)
        return None if block is None else block.used

    def add(self, key: bytes, parent: bytes | None, size: int, now: int) -> None:
        """Take a block in, used at `now`; one that is here already is only used."""
        if key not in self._blocks:
            used = max([now, *(self._blocks[child].used for child in self._children.get(key, ()))])
            self._blocks[key] = _Block(parent, size, used - 1)
            self.total += size
            if parent is not None:
                self._children.setdefault(parent, set()).add(key)
            now = used
        self.use(key, now)

    def use(self, key: bytes, now: int) -> list[bytes]:
        """Note the use of a block that is here, and of those before it; which of them were used longer ago."""
        renewed = []
        at: bytes | None = key
        while at is not None and (block := self._blocks.get(at)) is not None and block.used < now:
            block.used = now
            self._push(at, block)
            renewed.append(at)
            at = block.parent
        return renewed

    def discard(self, key: bytes) -> None:
        """Let a block go, leaf or not; what follows it stays."""
        block = self._blocks.pop(key, None)
        if block is None:
            return
        self.total -= block.size
        if block.parent is not None:
            siblings = self._children[block.parent]
            siblings.discard(key)
            if not siblings:
                del self._children[block.parent]
                if block.parent in self._blocks:
                    self._push(block.parent, self._blocks[block.parent])

    def descendants(self, key: bytes) -> list[bytes]:
        """All blocks here that depend on a block, whether or not that one is here; parents before children."""
        found: dict[bytes, None] = {}
        to_visit = [key]
        while to_visit:
            follow = [child for child in self._children.get(to_visit.pop(), ()) if child not in found]
            found.update(dict.fromkeys(follow))
            to_visit += follow
        return list(found)

    def oldest_leaf(self, keep: bytes | None = None) -> bytes | None:
        """The leaf that was used longest ago, of equals the smallest key; `keep` is never it."""
        kept: tuple[int, bytes] | None = None
        result = None
        while self._leaves and result is None:
            used, key = self._leaves[0]
            block = self._blocks.get(key)
            if block is None or key in self._children or block.used != used:
                heapq.heappop(self._leaves)
            elif key == keep:
                kept = heapq.heappop(self._leaves)
            else:
                result = key
        if kept is not None:
            heapq.heappush(self._leaves, kept)
        return result

    def _push(self, key: bytes, block: _Block) -> None:
        if key in self._children:
            return
        heapq.heappush(self._leaves, (block.used, key))
        if len(self._leaves) > 4 * len(self._blocks) + 64:
            self._leaves = [(one.used, name) for name, one in self._blocks.items() if name not in self._children]
            heapq.heapify(self._leaves)
