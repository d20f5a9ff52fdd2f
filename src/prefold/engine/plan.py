"""A step as the model sees it: packed tokens, where their K and V go, and which keys each of them attends to.

Attention is planned as items. An item is a set of query rows and one run of keys; an item over the tokens of a chunk
itself is causal, one over what lies before them is not. Rows whose sequences share a tree node become one item, so
that its K and V are read once for all of them. Each row may be in several items; the partial results are merged by
their log-sum-exp, which is exact (Milakov and Gimelshein, 2018). Items are plain numbers: what a pool makes of them is
its own affair.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from prefold.engine.scheduler import Chunk
from prefold.engine.slots import Runs, cut, join, length

if TYPE_CHECKING:
    from prefold.engine.kv_pool import KVPool

SHARED_MIN = 256
"""Keys times queries from which on a shared run of keys is worth an item of its own: below, merging costs more."""

ALONE_MIN = 1024
"""Keys from which on a run that does not adjoin the others is cheaper to merge than to gather."""


@dataclass(frozen=True, slots=True)
class Item:
    """Queries and their keys.

    Attributes:
        rows: which rows of the batch; `R` of them.
        keys: which slots; `L` of them.
        causal: row `i` sees only the first `i + 1` keys; then `L` is `R`. Otherwise all rows see all keys.
        first: the rows have no result yet; otherwise this one is merged into theirs.
    """

    rows: Runs
    keys: Runs
    causal: bool
    first: bool


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One forward pass over `T` tokens.

    Attributes:
        tokens: (T,) int64.
        positions: (T,) int64.
        write: (T,) int64, the slot for each token's K and V; the scratch slot for those that need none.
        samples: (S,) int64, the rows whose logits are wanted.
        attention: the items, as the pool prepared them.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    write: torch.Tensor
    samples: torch.Tensor
    attention: Any


def build(chunks: list[Chunk], pool: KVPool, device: torch.device) -> Batch:
    """Turn chunks into tensors.

    Args:
        chunks: from `Scheduler.schedule`.
        pool: where K and V go.
        device: where the model is.
    """
    planner = _Planner()
    # Arrays, not a tensor for each chunk: a step of many answers has as many chunks, of one token each.
    samples, positions, writes = array("q"), array("q"), array("q")
    row = 0
    for chunk in chunks:
        size = chunk.stop - chunk.start
        positions.extend(range(chunk.start, chunk.stop))
        unwritten = min(max(chunk.write_from - chunk.start, 0), size)
        writes.extend([pool.capacity] * unwritten)
        for start, stop in chunk.sequence.slots(chunk.start + unwritten, chunk.stop):
            writes.extend(range(start, stop))
        planner.add(chunk, row)
        row += size
        if chunk.sample:
            samples.append(row - 1)
    tokens = torch.frombuffer(bytearray(b"".join(chunk.token_bytes() for chunk in chunks)), dtype=torch.int32)
    return Batch(
        tokens.to(device, torch.int64),
        _tensor(positions, device),
        _tensor(writes, device),
        _tensor(samples, device),
        pool.prepare(planner.items()),
    )


def _tensor(numbers: array[int], device: torch.device) -> torch.Tensor:
    """The same numbers, int64."""
    if not numbers:
        return torch.empty(0, dtype=torch.int64, device=device)
    return torch.frombuffer(numbers, dtype=torch.int64).to(device)


Rows = tuple[int, int]
"""Rows of a batch, `(start, stop)`."""


class _Planner:
    def __init__(self) -> None:
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
        merged: list[Item] = []
        loose: defaultdict[Rows, list[Runs]] = defaultdict(list)
        for group, parts in by_users.items():
            shared_keys = join(*parts)
            if len(group) > 1 and length(shared_keys) * length(group) >= SHARED_MIN:
                merged.append(Item(join(group), shared_keys, causal=False, first=False))
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
                own.append(Item((rows,), join(before, itself), causal=False, first=True))  # the newest token sees all
            else:
                own.append(Item((rows,), itself, causal=True, first=True))
                if before:
                    apart.append(before)
            merged += [Item((rows,), runs, causal=False, first=False) for runs in apart]
        return (*own, *merged)
