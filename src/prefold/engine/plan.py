"""A step as the model sees it: packed tokens, where their K and V go, and which keys each of them attends to.

Attention is planned as items. An item is a set of query rows and one run of keys; an item over the tokens of a chunk
itself is causal, one over what lies before them is not. Rows whose sequences share a tree node become one item, so
that its K and V are read once for all of them. Each row may be in several items; the partial results are merged by
their log-sum-exp, which is exact (Milakov and Gimelshein, 2018).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch

from prefold.engine.scheduler import Chunk
from prefold.engine.slots import Runs, cut, join, length

SHARED_MIN = 256
"""Keys times queries from which on a shared run of keys is worth an item of its own: below, merging costs more."""

ALONE_MIN = 1024
"""Keys from which on a run that does not adjoin the others is cheaper to merge than to gather."""

PADDED_MAX = 512
"""Single rows with at most this many keys are padded to a common length and attend in one call, where a call of its own
would cost each of them more than gathering its keys."""


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """Queries and their keys.

    Attributes:
        rows: which rows of the batch, a slice or int64 indices; R of them.
        keys: which slots. A slice or (L,) int64: all rows attend to these. (R, L) int64: each row to its own.
        causal: row `i` sees only the first `i + 1` keys; then `L` is `R`.
        first: the rows have no result yet; otherwise this one is merged into theirs.
        mask: (R, 1, 1, L) float32, with (R, L) keys: 0 for a key, -inf for padding.
    """

    rows: slice | torch.Tensor
    keys: slice | torch.Tensor
    causal: bool
    first: bool
    mask: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One forward pass over `T` tokens.

    Attributes:
        tokens: (T,) int64.
        positions: (T,) int64.
        write: (T,) int64, the slot for each token's K and V; the scratch slot for those that need none.
        samples: (S,) int64, the rows whose logits are wanted.
        items: attention, in order.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    write: torch.Tensor
    samples: torch.Tensor
    items: tuple[Item, ...]


def build(chunks: list[Chunk], scratch: int, device: torch.device) -> Batch:
    """Turn chunks into tensors.

    Args:
        chunks: from `Scheduler.schedule`.
        scratch: the slot to which K and V go that nobody will read.
        device: where the model is.
    """
    planner = _Planner(device)
    samples: list[int] = []
    positions: list[torch.Tensor] = []
    writes: list[torch.Tensor] = []
    row = 0
    for chunk in chunks:
        size = chunk.stop - chunk.start
        positions.append(torch.arange(chunk.start, chunk.stop))
        unwritten = min(max(chunk.write_from - chunk.start, 0), size)
        if unwritten:
            writes.append(torch.full((unwritten,), scratch))
        places = chunk.sequence.slots(chunk.start + unwritten, chunk.stop)
        writes += [torch.arange(start, stop) for start, stop in places]
        planner.add(chunk, row)
        row += size
        if chunk.sample:
            samples.append(row - 1)
    tokens = torch.frombuffer(bytearray(b"".join(chunk.token_bytes() for chunk in chunks)), dtype=torch.int32)
    return Batch(
        tokens.to(device, torch.int64),
        torch.cat(positions).to(device),
        torch.cat(writes).to(device),
        torch.tensor(samples, dtype=torch.int64, device=device),
        planner.items(),
    )


Rows = tuple[int, int]
"""Rows of a batch, `(start, stop)`."""


class _Planner:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pieces: dict[tuple[int, int], tuple[Runs, list[Rows]]] = {}
        self._chunks: list[tuple[Rows, int, Chunk]] = []

    def add(self, chunk: Chunk, row: int) -> None:
        """Note the keys of a chunk whose first row is `row`."""
        rows = (row, row + chunk.stop - chunk.start)
        shared = 0  # keys before this position belong to nodes that others hold too; below them nobody else holds any
        for node in chunk.sequence.nodes():
            if node.start >= chunk.start or node.pins == 1:
                break
            shared = min(node.stop, chunk.start)
            piece = (id(node), shared - node.start)
            self._pieces.setdefault(piece, (cut(node.value.runs, 0, piece[1]), []))[1].append(rows)
        self._chunks.append((rows, shared, chunk))

    def items(self) -> tuple[Item, ...]:
        """All items; those that give a row its first result come before those that are merged into it."""
        # Nodes with the same users follow each other on their path, and are attended to as one.
        by_users: defaultdict[Runs, list[Runs]] = defaultdict(list)
        for runs, users in self._pieces.values():
            by_users[tuple(users)].append(runs)
        own: list[Item] = []
        single: list[tuple[int, Runs]] = []
        merged: list[Item] = []
        loose: defaultdict[Rows, list[Runs]] = defaultdict(list)
        for group, parts in by_users.items():
            shared_keys = join(*parts)
            if len(group) > 1 and length(shared_keys) * length(group) >= SHARED_MIN:
                merged.append(Item(self._index(join(group)), self._index(shared_keys), causal=False, first=False))
            else:
                for rows in group:
                    loose[rows] += parts
        for rows, shared, chunk in self._chunks:
            before = join(*loose[rows], chunk.sequence.slots(shared, chunk.start))
            apart: list[Runs] = []
            if len(before) > 1:
                apart = [(run,) for run in before if run[1] - run[0] >= ALONE_MIN]
                before = tuple(run for run in before if run[1] - run[0] < ALONE_MIN)
            itself = chunk.sequence.slots(chunk.start, chunk.stop)
            if chunk.stop - chunk.start == 1:
                single.append((rows[0], join(before, itself)))  # the newest token sees all of it: no mask
            else:
                own.append(Item(slice(*rows), self._index(itself), causal=True, first=True))
                if before:
                    apart.append(before)
            merged += [Item(slice(*rows), self._index(runs), causal=False, first=False) for runs in apart]
        return (*self._single_rows(single), *own, *merged)

    def _single_rows(self, single: list[tuple[int, Runs]]) -> list[Item]:
        """Items for single rows, those with few keys padded together by length."""
        items: list[Item] = []
        buckets: defaultdict[int, list[tuple[int, Runs]]] = defaultdict(list)
        for row, runs in single:
            if length(runs) <= PADDED_MAX and self._device.type == "cpu":
                buckets[max(64, 1 << (length(runs) - 1).bit_length())].append((row, runs))
            else:
                items.append(Item(slice(row, row + 1), self._index(runs), causal=False, first=True))
        for bucket in buckets.values():
            longest = max(length(runs) for _, runs in bucket)
            keys = torch.empty((len(bucket), longest), dtype=torch.int64)
            mask = torch.zeros((len(bucket), 1, 1, longest))
            for place, (_, runs) in enumerate(bucket):
                size = length(runs)
                keys[place, :size] = _slots(runs)
                # Padding repeats a real key: even at weight 0, whatever lies in an unused slot could be NaN.
                keys[place, size:] = runs[0][0]
                mask[place, :, :, size:] = -torch.inf
            rows = self._index(join(tuple((row, row + 1) for row, _ in bucket)))
            items.append(Item(rows, keys, causal=False, first=True, mask=mask))
        return items

    def _index(self, runs: Runs) -> slice | torch.Tensor:
        if len(runs) == 1:
            return slice(*runs[0])
        return _slots(runs).to(self._device)


def _slots(runs: Runs) -> torch.Tensor:
    """Single slots, (L,) int64."""
    return torch.cat([torch.arange(start, stop) for start, stop in runs])
