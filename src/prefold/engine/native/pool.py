"""The K/V pool in the kernel's own layout."""

from __future__ import annotations

from array import array

import torch

from prefold.engine.native.library import Kernel, Pages, PlanView, zeros
from prefold.engine.plan import Item
from prefold.engine.quantised.numbers import Form, packed_bytes
from prefold.engine.slots import Runs, length

PAGE = 16
"""Slots of a page."""

APART_ROWS = 16
"""Rows of one sequence from which on sharing a run's keys with other sequences gains nothing: the keys are in the cache
for all of these rows anyway, and what is shared must be added up."""

_LARGE = 2 << 20


class Plan:
    """Items as the kernel takes them: int32, see `attention.h`.

    Attributes:
        view: for the kernel; valid as long as this object.
    """

    def __init__(self, items: tuple[Item, ...]) -> None:
        by_rows: dict[Runs, list[Item]] = {}
        for item in items:
            for rows in _parts(item):
                by_rows.setdefault(rows, []).append(item)
        places, runs, groups = array("i"), array("i"), array("i")
        for where, group in by_rows.items():
            begin = (len(places), len(runs) // 3)
            for start, stop in where:
                places.extend(range(start, stop))
            for item in group:
                offset = 0 if item.causal else -1
                for start, stop in item.keys:
                    runs.extend((start, stop, offset))
                    if item.causal:
                        offset += stop - start
            groups.extend((begin[0], len(places), begin[1], len(runs) // 3))
        self._held = (places, runs, groups)
        self.view = PlanView(_address(groups), len(by_rows), _address(places), _address(runs))


def _parts(item: Item) -> list[Runs]:
    """The rows of an item, those that are many to themselves."""
    if item.causal or len(item.rows) == 1:
        return [item.rows]
    few = tuple(run for run in item.rows if run[1] - run[0] < APART_ROWS)
    return [*((run,) for run in item.rows if run[1] - run[0] >= APART_ROWS), *([few] if few else [])]


def _address(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]


class NativePool:
    """See `KVPool`. Keys and values stand in pages of 16 slots, in the order in which the kernel multiplies them.

    Args:
        kernel: what attends.
        layers, slots, kv_heads, head_dim: the shape; `fits` holds.
        dtype: of what is computed, bfloat16 or float32.
        form: of what is stored, `Int8` or `Int4`; as it is computed where None.
    """

    def __init__(
        self,
        kernel: Kernel,
        layers: int,
        slots: int,
        kv_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype,
        form: Form | None = None,
    ) -> None:
        pages = slots // PAGE + 1  # there is one slot more than `slots`
        vector = packed_bytes(head_dim, form) if form else head_dim * dtype.itemsize
        count = layers * pages * kv_heads * PAGE * vector
        self._keys, self._values = zeros(count, torch.uint8), zeros(count, torch.uint8)
        memory = self._keys.data_ptr(), self._values.data_ptr()
        self.pages = Pages(layers, pages, kv_heads, head_dim, form.bits if form else 0, *memory)
        self.dtype = dtype
        self.capacity = slots
        self.bytes_per_token = 2 * layers * kv_heads * vector
        # Records are those of `TorchPool` or `QuantisedPool`.
        self.format = form.format if form else str(dtype).removeprefix("torch.")
        self._kernel = kernel
        self._buffer = kernel.buffer()

    def prepare(self, items: tuple[Item, ...]) -> Plan:
        """See `KVPool`."""
        return Plan(items)

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        write: torch.Tensor,
        plan: Plan,
        scale: float,
    ) -> torch.Tensor:
        """See `KVPool`."""
        queries, keys, values = (x.to(self.dtype) for x in (q, k, v))
        out = self._kernel.attend(self._buffer, self.pages, plan.view, layer, scale, queries, keys, values, write)
        return out.to(q.dtype)

    def dump(self, runs: Runs) -> torch.Tensor:
        """See `KVPool`; a record is (layers, 2, N, D)."""
        size = length(runs) * self.bytes_per_token
        # Much memory comes fresh from the operating system, and in small pages would take longer than the copy.
        records = zeros(size, torch.uint8) if size >= _LARGE else torch.empty(size, dtype=torch.uint8)
        records = records.view(-1, self.bytes_per_token)
        self._copy(runs, records, out=True)
        return records

    def load(self, runs: Runs, records: torch.Tensor) -> None:
        """See `KVPool`."""
        self._copy(runs, records.contiguous(), out=False)

    def _copy(self, runs: Runs, records: torch.Tensor, *, out: bool) -> None:
        if runs:
            slots = torch.cat([torch.arange(start, stop) for start, stop in runs])
            self._kernel.copy(self.pages, slots, records, out=out, bfloat16=self.dtype == torch.bfloat16)


def fits(head_dim: int) -> bool:
    """Whether the layout takes heads of this size."""
    return head_dim % PAGE == 0 and head_dim <= 1024  # MAX_SIZE in pool.h
