"""From an engine's own block hashes to the keys of our index.

An engine's hash is opaque: it depends on its version, its settings, sometimes on the process. So keys are computed anew
from the tokens that come with an event, and the hash only serves to find the block that another follows. Engines may
cut prompts otherwise than the index does (SGLang's pages are often of one token): a block of ours is held from the
moment that the engine's block with its last token is, until that block is gone. Engines free the end of a prompt first,
so what lies before is there for as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from prefold.core.block_index import BlockIndex
from prefold.core.tokens import WIDTH
from prefold.gateway.events.decode import PLAIN, Extra, Hash, Removed, Stored, Tier

_MAX_TIERS = 64  # more than any engine has; what comes on top counts as the last one
_BATCH = 64  # a share of one in so many blocks is forgotten at once


@dataclass(slots=True)
class _Place:
    """Where a block of the engine ends in the prompts that begin with it.

    Attributes:
        key: ours, of the last whole block of ours up to there; None before the first.
        rest: tokens behind that block, packed.
        extra: what the block that they begin will depend on.
        keys: ours, of the blocks that end in this one.
        tiers: bit mask of the tiers that hold it.
    """

    key: int | None
    rest: bytes
    extra: Extra
    keys: tuple[int, ...]
    tiers: int = 0


_BEGINNING = _Place(None, b"", PLAIN, ())


@dataclass(frozen=True, slots=True)
class Placed:
    """What a `Stored` came to.

    Attributes:
        keys: of our blocks that are held now and were not before.
        skipped: blocks of the engine that could not be placed, because what they follow is not known.
    """

    keys: Sequence[int]
    skipped: int = 0


class Places:
    """The blocks that one engine holds, by its own hashes.

    Args:
        index: makes the keys; it is not changed.
        block_size: tokens of the index's blocks.
        max_blocks: hashes that are remembered; the oldest are forgotten, and their keys with them.
    """

    def __init__(self, index: BlockIndex, block_size: int, max_blocks: int) -> None:
        self._next_key = index.next_key
        self._step = block_size * WIDTH
        self._max_blocks = max_blocks
        self._places: dict[Hash, _Place] = {}
        self._bits: dict[Tier, int] = {}
        self._fleeting: set[int] = set()  # groups of layers

    def __len__(self) -> int:
        """Blocks of the engine that are known."""
        return len(self._places)

    def stored(self, event: Stored) -> Placed:
        """Take note of blocks that are there."""
        if event.is_fleeting:
            self._fleeting.add(event.tier.group)
            return Placed(())
        bit = self._bit(event.tier)
        if not event.tokens:
            self._also_in(bit, event.hashes)
            return Placed(())
        place = _BEGINNING if event.parent is None else self._places.get(event.parent)
        size = event.block_size * WIDTH
        if place is None or size * len(event.hashes) != len(event.tokens):
            return Placed((), skipped=len(event.hashes))
        keys: list[int] = []
        tokens, extras, adapter, places = event.tokens, event.extras, event.adapter, self._places
        for number, name in enumerate(event.hashes):
            known = places.get(name)
            if known is None:
                extra = extras[number] if extras else PLAIN
                known = self._behind(place, tokens[number * size : (number + 1) * size], extra, adapter)
                places[name] = known
                keys += known.keys
            known.tiers |= bit
            place = known
        return Placed(keys)

    def removed(self, event: Removed) -> list[int]:
        """Take note of blocks that are no longer in a tier; the keys of those that are in no other one."""
        if event.tier.group in self._fleeting:
            return []
        kept = ~self._bit(event.tier) if event.tier.medium else 0
        keys: list[int] = []
        for name in event.hashes:
            place = self._places.get(name)
            if place is not None:
                place.tiers &= kept
                if not place.tiers:
                    del self._places[name]
                    keys += place.keys
        return keys

    def clear(self) -> list[int]:
        """Forget everything; the keys of what was held."""
        keys = [key for place in self._places.values() for key in place.keys]
        self._places.clear()
        return keys

    def forget_excess(self) -> list[int]:
        """Forget the oldest blocks if there are too many; the keys of what was forgotten."""
        size = len(self._places)
        if size <= self._max_blocks:
            return []
        oldest = list(islice(self._places, max(size - self._max_blocks, size // _BATCH)))
        return [key for name in oldest for key in self._places.pop(name).keys]

    def _behind(self, place: _Place, tokens: bytes, extra: Extra, adapter: str) -> _Place:
        """The place of a block that follows another."""
        step = self._step
        key, salt, mark = place.key, extra.salt, extra.mark
        if place.rest:
            tokens = place.rest + tokens
            salt, mark = place.extra.salt or salt, place.extra.mark + mark
        keys: list[int] = []
        for start in range(0, len(tokens) - step + 1, step):
            # With the mark it is longer than any block of text, and so equals none.
            key = self._next_key(key, tokens[start : start + step] + mark, salt=salt, namespace=adapter)
            keys.append(key)
            salt = None
        rest = tokens[len(keys) * step :]
        return _Place(key, rest, Extra(salt, mark) if rest and (salt or mark) else PLAIN, tuple(keys))

    def _also_in(self, bit: int, names: Sequence[Hash]) -> None:
        for name in names:
            if (place := self._places.get(name)) is not None:
                place.tiers |= bit

    def _bit(self, tier: Tier) -> int:
        number = self._bits.get(tier)
        if number is None:
            number = min(len(self._bits), _MAX_TIERS - 1)
            if len(self._bits) < _MAX_TIERS:
                self._bits[tier] = number
        return 1 << number
