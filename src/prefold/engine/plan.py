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

from prefold.core.tokens import count
from prefold.engine.scheduler import Chunk
from prefold.engine.slots import Runs, cut, join, length

SHARED_MIN = 256
"""Keys times queries from which on a shared run of keys is worth an item of its own: below, merging costs more."""

ALONE_MIN = 1024
"""Keys from which on a run that does not adjoin the others is cheaper to merge than to gather."""


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """Queries and the keys that they all attend to.

    Attributes:
        rows: which rows of the batch, a slice or int64 indices.
        keys: which slots, a slice or int64 indices.
        causal: row `i` sees only the first `i + 1` keys; then there are as many keys as rows.
        first: the rows have no result yet; otherwise this one is merged into theirs.
    """

    rows: slice | torch.Tensor
    keys: slice | torch.Tensor
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
    write: Runs = ()
    row = 0
    writes: list[torch.Tensor] = []
    for chunk in chunks:
        size = chunk.stop - chunk.start
        positions.append(torch.arange(chunk.start, chunk.stop))
        unwritten = min(max(chunk.write_from - chunk.start, 0), size)
        if unwritten:
            writes.append(torch.full((unwritten,), scratch))
        write = chunk.sequence.slots(chunk.start + unwritten, chunk.stop)
        writes += [torch.arange(start, stop) for start, stop in write]
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


class _Planner:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._own: list[Item] = []
        self._pieces: dict[tuple[int, int], tuple[Runs, list[tuple[int, int]]]] = {}
        self._private: list[tuple[int, int, list[tuple[int, int]], Chunk]] = []

    def add(self, chunk: Chunk, row: int) -> None:
        """Note the keys of a chunk whose first row is `row`."""
        rows = (row, row + chunk.stop - chunk.start)
        keys = []
        for start, stop, span in chunk.sequence.spans():
            if start < chunk.start:
                key = (id(span), min(stop, chunk.start) - start)
                runs, users = self._pieces.setdefault(key, (cut(span.runs, 0, key[1]), []))
                users.append(rows)
                keys.append(key)
        self._private.append((*rows, keys, chunk))

    def items(self) -> tuple[Item, ...]:
        """All items; those that give a row its first result come before those that are merged into it."""
        later: list[Item] = []
        queries = {key: sum(stop - start for start, stop in users) for key, (_, users) in self._pieces.items()}
        common = {
            key
            for key, (runs, users) in self._pieces.items()
            if len(users) > 1 and length(runs) * queries[key] >= SHARED_MIN
        }
        for start, stop, keys, chunk in self._private:
            groups: list[Runs] = [()]
            for key in keys:
                if key not in common:
                    runs = self._pieces[key][0]
                    joined = join(groups[-1], runs)
                    if len(joined) > 1 and length(runs) >= ALONE_MIN:
                        groups.append(runs)
                    else:
                        groups[-1] = joined
            rows = slice(start, stop)
            if stop - start == 1:
                # The newest token sees itself and everything before it: no mask.
                last = join(groups[-1], self._tail(chunk), chunk.sequence.slots(chunk.start, chunk.stop))
                self._own.append(Item(rows, self._index(last), causal=False, first=True))
                groups.pop()
            else:
                self._own.append(
                    Item(rows, self._index(chunk.sequence.slots(chunk.start, chunk.stop)), causal=True, first=True)
                )
            later += [Item(rows, self._index(runs), causal=False, first=False) for runs in groups if runs]
        for key, (runs, users) in self._pieces.items():
            if key in common:
                later.append(
                    Item(self._index(join(*((user,) for user in users))), self._index(runs), causal=False, first=False)
                )
        return (*self._own, *later)

    def _tail(self, chunk: Chunk) -> Runs:
        """Slots of what was generated before this chunk."""
        offset = count(chunk.sequence.run)
        return cut(chunk.sequence.tail, 0, chunk.start - offset) if chunk.start > offset else ()

    def _index(self, runs: Runs) -> slice | torch.Tensor:
        if len(runs) == 1:
            return slice(*runs[0])
        return torch.cat([torch.arange(start, stop) for start, stop in runs]).to(self._device)
