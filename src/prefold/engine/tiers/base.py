"""What a store of K/V blocks outside the pool does, whatever it is made of.

A block is the K and V of `Layout.block_tokens` consecutive tokens, as one record of `Layout.record_bytes` bytes (the
tokens' records of `KVPool.dump`, one after the other). It is named by its block key (see `prefold.core.keys`), which
says which tokens it holds, after exactly which others, under which salt. Blocks follow one another in chains; a
block is of use only with all blocks before it, so a tier never holds one without its parent.

Nothing here raises for what happens to a store: what is gone, late, cut short or altered is a miss, and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from prefold.core.keys import root_key

_LAYOUT_VERSION = b"prefold kv layout 1"


@dataclass(frozen=True, slots=True)
class Layout:
    """What makes two records interchangeable: of the same model, in the same form.

    Args:
        fingerprint: hex digest of all that a record's bytes depend on beside the tokens, from `layout_fingerprint`:
            the model's content (not its name), the arithmetic, the K/V format and its shape.
        block_tokens: tokens of a block.
        record_bytes: size of a block.
        about: the same for people, one line: model, format, shape. Nothing is decided by it.
    """

    fingerprint: str
    block_tokens: int
    record_bytes: int
    about: str = ""

    @property
    def root(self) -> bytes:
        """The key before every first block, for `prefold.core.keys`; 32 bytes."""
        return root_key(self.fingerprint)


def layout_fingerprint(model: str, dtype: str, pool_format: str, bytes_per_token: int, block_tokens: int) -> str:
    """The `Layout.fingerprint` of a model in a pool; 64 hex digits.

    Args:
        model: `Checkpoint.fingerprint`, which covers the model's config, so layers, heads and head size too; and
            `content_digest`, which covers every byte of its weights.
        dtype: in which the model computes: bfloat16 and float32 give other K/V even where both are kept as int8.
        pool_format: `KVPool.format`.
        bytes_per_token: `KVPool.bytes_per_token`.
        block_tokens: tokens of a block.
    """
    digest = sha256(_LAYOUT_VERSION)
    for part in (model, dtype, pool_format, str(bytes_per_token), str(block_tokens)):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "little") + encoded)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Stored:
    """A block that lies on disk or remote.

    Attributes:
        where: hex fingerprint of what it belongs to.
        key: block key.
        size: bytes, with its header.
        used: when it was last used (written, where the store knows no uses), nanoseconds since 1970; 0 if unknown.
        parent: key of the block before it; None for the first one, and where the store's names do not tell.
    """

    where: str
    key: bytes
    size: int
    used: int
    parent: bytes | None = None


@dataclass(frozen=True, slots=True)
class TierUsage:
    """What a tier holds and what it has done since it was opened.

    Attributes:
        blocks: blocks held; 0 where only the server knows.
        bytes: bytes they take, headers included; 0 where only the server knows.
        capacity: most bytes it may hold, None without a limit of its own.
        hits: blocks that `read` gave.
        misses: blocks that `read` was asked for and did not give.
        corrupt: blocks found cut short, altered or foreign, and removed.
        refused: blocks that `write` did not take: no parent, no room, or the store is down, full or read-only.
        evicted: blocks dropped to make room, or because they were too old.
        errors: operations that failed or took too long.
    """

    blocks: int = 0
    bytes: int = 0
    capacity: int | None = None
    hits: int = 0
    misses: int = 0
    corrupt: int = 0
    refused: int = 0
    evicted: int = 0
    errors: int = 0


class Tier(Protocol):
    """A store of K/V blocks.

    Any method may be called from any thread, at the same time; each is atomic towards the others. `find` waits for
    no other call and, on slow tiers, for no more than a time budget; what it knows in memory it says at once. `read`
    and `write` do I/O, within another budget: call them from another thread than the engine's.

    Attributes:
        name: "host", "disk", "redis", "s3", ...
        slow: whether blocks should be admitted at their second sighting only, which is up to the caller.
    """

    name: str
    slow: bool

    def find(self, keys: Sequence[bytes], *, sure: bool = False) -> int:
        """How many leading blocks of a chain are here, as far as is known; counts nothing, refreshes nothing.

        Args:
            keys: consecutive blocks of one chain.
            sure: whether to look again at what is known, for somebody may have removed it.
        """

    def read(self, keys: Sequence[bytes], into: memoryview) -> int:
        """Fill `into` with the leading blocks of a chain, checked; how many.

        A block that is missing, cut short, altered or foreign ends it and is removed. What lies in `into` behind the
        blocks that were read is undefined.

        Args:
            keys: consecutive blocks of one chain; from its first one if their use is to keep their parents too.
            into: `len(keys) * record_bytes` bytes, writable and contiguous.
        """

    def write(
        self, keys: Sequence[bytes], depths: Sequence[int], records: memoryview, parent: bytes | None = None
    ) -> int:
        """Store consecutive blocks of one chain; how many of the leading ones are here now, old ones included.

        Blocks behind one that was refused are refused. Writing a block that is here refreshes it and is cheap.

        Args:
            keys: the blocks.
            depths: each block's number in its chain, from 0.
            records: `len(keys) * record_bytes` bytes, one block after the other.
            parent: key of the block before the first one; needed where `depths[0]` is above 0, since a block whose
                parent is not here is refused. To go on with a chain: `n = tier.find(chain)`, then write
                `chain[n:]` with `chain[n - 1]` as parent.
        """

    def remove(self, keys: Sequence[bytes]) -> None:
        """Forget blocks, and what depends on them where the tier knows."""

    def clear(self) -> int:
        """Forget all blocks of this layout; how many there were, as far as is known."""

    def usage(self) -> TierUsage:
        """See `TierUsage`; no I/O."""

    def close(self) -> None:
        """Let go of files and connections; what is stored stays, except in memory."""
