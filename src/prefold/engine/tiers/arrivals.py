"""K/V on its way from tiers into memory, and who waits for it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from prefold.engine.slots import SlotPool, cut
from prefold.engine.tiers.mover import Load, Source


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks of a prompt that come with a load.

    Attributes:
        load: which.
        at: number of the first one in the load.
        block: number of the first one in the prompt.
        blocks: how many.
    """

    load: Load
    at: int
    block: int
    blocks: int

    @property
    def end(self) -> int:
        """Number of the block behind the last one, in the prompt."""
        return self.block + self.blocks

    @property
    def come(self) -> int:
        """How many of its blocks have come."""
        return max(min(self.blocks, len(self.load.origin) - self.at), 0)


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records of consecutive tokens, in memory.

    Attributes:
        start, stop: their positions in the prompt.
        records: (stop - start, bytes a token) uint8.
    """

    start: int
    stop: int
    records: torch.Tensor


class Arrivals:
    """A staging area of so many blocks, and the loads that it is filled by. For the engine's thread only.

    A load stays until all who wait for it are done with it; who needs the same blocks meanwhile waits for the same one.

    Args:
        blocks: room.
        block_tokens: tokens of a block.
        token_bytes: of a token's record.

    Attributes:
        memory: what loads are read into; it takes memory as it is first used.
    """

    def __init__(self, blocks: int, block_tokens: int, token_bytes: int) -> None:
        self._size = block_tokens
        self._width = token_bytes
        self._map = mmap.mmap(-1, blocks * block_tokens * token_bytes)
        self.memory = memoryview(self._map)
        self._places = SlotPool(blocks)
        self._coming: set[Load] = set()
        self._staged: dict[bytes, tuple[Load, int]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no load is there or on its way."""
        return not self._coming and not self._staged and self._places.free_slots == self._places.capacity

    @property
    def backlog(self) -> int:
        """Blocks that have yet to come."""
        return sum(len(load.keys) - len(load.origin) for load in self._coming)

    def room_for(self, blocks: int) -> int:
        """How many of so many blocks a load could bring now; 0 where a later one could bring far more."""
        room = min(blocks, self._places.free_slots)
        return room if room >= min(blocks, self._places.capacity // 2) else 0

    def join(self, keys: Sequence[bytes], at: int) -> list[Piece]:
        """Wait for those of a prompt's blocks from `at` on that are there or on their way already."""
        pieces = []
        while at < len(keys) and (staged := self._staged.get(keys[at])) is not None:
            load, first = staged
            blocks = 1
            while at + blocks < len(keys) and self._staged.get(keys[at + blocks]) == (load, first + blocks):
                blocks += 1
            load.users += 1
            pieces.append(Piece(load, first, at, blocks))
            at += blocks
        return pieces

    def start(self, keys: Sequence[bytes], at: int, sources: tuple[Source, ...]) -> Piece:
        """A load of a prompt's blocks, for which there is room, with one who waits for it.

        Args:
            keys: of the blocks.
            at: number of the first one in the prompt.
            sources: where they are.
        """
        found = all(source.blocks is not None for source in sources)
        load = Load(tuple(keys), sources, self._places.allocate(len(keys)), users=1, found=found)
        self._staged.update((key, (load, number)) for number, key in enumerate(keys))
        self._coming.add(load)
        return Piece(load, 0, at, len(keys))

    def finished(self, load: Load) -> None:
        """Nothing more comes with a load."""
        self._coming.discard(load)
        self._unstage(load, len(load.origin))
        if not load.users:
            self._places.free(load.places)

    def leave(self, pieces: Sequence[Piece]) -> None:
        """One who waited for these is done with them."""
        for piece in pieces:
            load = piece.load
            load.users -= 1
            if not load.users:
                load.wanted = False
                self._unstage(load, 0)
                if load not in self._coming:
                    self._places.free(load.places)

    def records(self, piece: Piece, blocks: int, begin: int) -> Iterator[Arrived]:
        """The first so many blocks of a piece, which have come, from position `begin` of the prompt on."""
        at = piece.block * self._size
        for start, stop in cut(piece.load.places, piece.at, piece.at + blocks):
            end = at + (stop - start) * self._size
            low = max(begin, at)
            if low < end:
                offset = (start * self._size + low - at) * self._width
                records = torch.frombuffer(self._map, dtype=torch.uint8, count=(end - low) * self._width, offset=offset)
                yield Arrived(low, end, records.view(-1, self._width))
            at = end

    def _unstage(self, load: Load, keep: int) -> None:
        """Nobody new may wait for a load's blocks behind its first ones."""
        for key in load.keys[keep:]:
            if key in self._staged and self._staged[key][0] is load:
                del self._staged[key]
