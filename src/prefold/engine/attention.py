"""The K/V pool on torch's own kernels, for any device; the reference for every other pool.

Shapes: `T` tokens of a batch, `H` query heads, `N` K/V heads with `G = H / N` query heads each, `D` head size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import torch

from prefold.engine.plan import Item
from prefold.engine.slots import Runs, length

PADDED_MAX = 512
"""Single rows with at most this many keys are padded to a common length and attend in one call, where a call of its own
would cost each of them more than gathering its keys."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """An item of a plan, or several single rows at once, as torch indexes tensors.

    Attributes:
        rows: which rows of the batch, a slice or int64 indices; R of them.
        keys: which slots. A slice or (L,) int64: all rows attend to these. (R, L) int64: each row to its own.
        causal, first: as in `Item`.
        mask: (R, 1, 1, L) float32, with (R, L) keys: 0 for a key, -inf for padding.
    """

    rows: slice | torch.Tensor
    keys: slice | torch.Tensor
    causal: bool
    first: bool
    mask: torch.Tensor | None = None


class TorchPool:
    """See `KVPool`; K and V are stored as they are.

    Attributes:
        k, v: (layers, slots + 1, N, D)
    """

    def __init__(
        self, layers: int, slots: int, kv_heads: int, head_dim: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (layers, slots + 1, kv_heads, head_dim)
        # Not cleared: the operating system hands out pages as they are first written.
        self.k = torch.empty(shape, dtype=dtype, device=device)
        self.v = torch.empty(shape, dtype=dtype, device=device)
        self.capacity = slots
        self.bytes_per_token = 2 * layers * kv_heads * head_dim * dtype.itemsize
        self.format = str(dtype).removeprefix("torch.")

    def prepare(self, items: tuple[Item, ...]) -> tuple[_Part, ...]:
        """See `KVPool`."""
        parts: list[_Part] = []
        buckets: defaultdict[int, list[Item]] = defaultdict(list)
        for item in items:
            keys = length(item.keys)
            if item.first and not item.causal and length(item.rows) == 1 and keys <= PADDED_MAX and self._on_cpu:
                buckets[max(64, 1 << (keys - 1).bit_length())].append(item)
            else:
                parts.append(_Part(self._index(item.rows), self._index(item.keys), item.causal, item.first))
        return (*(self._padded(bucket) for bucket in buckets.values()), *parts)

    def _padded(self, items: list[Item]) -> _Part:
        """Single rows, each with keys of its own, as one part."""
        longest = max(length(item.keys) for item in items)
        keys = torch.empty((len(items), longest), dtype=torch.int64)
        mask = torch.zeros((len(items), 1, 1, longest))
        for place, item in enumerate(items):
            size = length(item.keys)
            keys[place, :size] = _indices(item.keys)
            # Padding repeats a real key: even at weight 0, whatever lies in an unused slot could be NaN.
            keys[place, size:] = item.keys[0][0]
            mask[place, :, :, size:] = -torch.inf
        rows = torch.tensor([item.rows[0][0] for item in items])
        return _Part(rows, keys, causal=False, first=True, mask=mask)

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        write: torch.Tensor,
        plan: tuple[_Part, ...],
        scale: float,
    ) -> torch.Tensor:
        """See `KVPool`."""
        self.store(layer, write, k, v)
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        for part in plan:
            picked = q[part.rows], *self.fetch(layer, part.keys, q.dtype)
            if part.mask is not None:
                result, result_lse = padded_attention(*picked, part.mask, scale=scale)
            else:
                result, result_lse = attention(*picked, causal=part.causal, scale=scale)
            if len(plan) == 1:
                return result
            if part.first:
                out[part.rows] = result
                lse[part.rows] = result_lse
            else:
                before = lse[part.rows]
                total = torch.logaddexp(before, result_lse)
                old, new = torch.exp(before - total).unsqueeze(-1), torch.exp(result_lse - total).unsqueeze(-1)
                out[part.rows] = (out[part.rows] * old + result * new).to(out.dtype)
                lse[part.rows] = total
        return out

    def store(self, layer: int, write: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Put K and V, each (T, N, D), into the slots `write`, (T,) int64."""
        self.k[layer].index_copy_(0, write, k.to(self.k.dtype))
        self.v[layer].index_copy_(0, write, v.to(self.v.dtype))

    def fetch(self, layer: int, keys: slice | torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of some slots, (L, N, D) or, for (R, L) slots, (R, L, N, D), in numbers of `dtype`."""
        return self.k[layer][keys].to(dtype), self.v[layer][keys].to(dtype)

    def dump(self, runs: Runs) -> torch.Tensor:
        """See `KVPool`; a record is (layers, 2, N, D)."""
        layers, _, kv_heads, size = self.k.shape
        records = torch.empty((length(runs), layers, 2, kv_heads, size), dtype=self.k.dtype)
        at = 0
        for start, stop in runs:
            for half, source in enumerate((self.k, self.v)):
                records[at : at + stop - start, :, half] = source[:, start:stop].transpose(0, 1)
            at += stop - start
        return records.flatten(1).view(torch.uint8)

    def load(self, runs: Runs, records: torch.Tensor) -> None:
        """See `KVPool`."""
        layers, _, kv_heads, size = self.k.shape
        numbers = records.view(self.k.dtype).view(len(records), layers, 2, kv_heads, size)
        at = 0
        for start, stop in runs:
            for half, target in enumerate((self.k, self.v)):
                target[:, start:stop] = numbers[at : at + stop - start, :, half].transpose(0, 1)
            at += stop - start

    @property
    def _on_cpu(self) -> bool:
        return self.k.device.type == "cpu"

    def _index(self, runs: Runs) -> slice | torch.Tensor:
        return slice(*runs[0]) if len(runs) == 1 else _indices(runs).to(self.k.device)


def _indices(runs: Runs) -> torch.Tensor:
    """Single slots or rows, (L,) int64."""
    return torch.cat([torch.arange(start, stop) for start, stop in runs])


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Grouped-query attention with the log-sum-exp of each row.

    Args:
        q: (T, H, D)
        k: (L, N, D)
        v: (L, N, D)
        causal: row `i` sees keys `0..i`; then `T == L`.
        scale: factor on the products.

    Returns:
        Output (T, H, D) in the dtype of `q`, and log-sum-exp (T, H) in float32, natural logarithm.
    """
    rows, heads, size = q.shape
    length, kv_heads, _ = k.shape
    groups = heads // kv_heads
    grouped = q.view(rows, kv_heads, groups, size)
    k, v = k.transpose(0, 1), v.transpose(0, 1)  # (N, L, D)
    if causal or q.device.type != "cpu":
        # (N, G, T, D); K and V are repeated over the group by a stride of 0, not copied.
        queries = grouped.permute(1, 2, 0, 3)
        k, v = (x.unsqueeze(1).expand(kv_heads, groups, length, size) for x in (k, v))
        out, lse = _attention(queries, k, v, causal=causal, scale=scale)
        return out.permute(2, 0, 1, 3).reshape(rows, heads, size), lse.permute(2, 0, 1).reshape(rows, heads)
    # Without a mask the group is just more rows, so that each key is read once for all of them.
    queries = grouped.permute(1, 2, 0, 3).reshape(1, kv_heads, groups * rows, size)
    out, lse = _attention(queries, k.unsqueeze(0), v.unsqueeze(0), causal=False, scale=scale)
    out = out.view(kv_heads, groups, rows, size).permute(2, 0, 1, 3)
    return out.reshape(rows, heads, size), lse.view(kv_heads, groups, rows).permute(2, 0, 1).reshape(rows, heads)


def padded_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, *, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of single rows, each with keys of its own, padded to a common number; CPU only.

    Args:
        q: (R, H, D)
        k: (R, L, N, D)
        v: (R, L, N, D)
        mask: (R, 1, 1, L) float32, added to the scores.
        scale: factor on the products.

    Returns:
        (R, H, D) in the dtype of `q`, and log-sum-exp (R, H) in float32.
    """
    rows, heads, size = q.shape
    kv_heads = k.shape[2]
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q.view(rows, kv_heads, heads // kv_heads, size),
        k.transpose(1, 2),
        v.transpose(1, 2),
        0.0,
        False,
        attn_mask=mask.expand(rows, 1, heads // kv_heads, k.shape[1]),
        scale=scale,
    )
    return out.reshape(rows, heads, size), lse.reshape(rows, heads)


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Torch's flash kernel for the device, or plain arithmetic.

    Args:
        q: (B, H, T, D)
        k: (B, H, L, D)
        v: (B, H, L, D)
        causal: see `attention`.
        scale: see `attention`.

    Returns:
        (B, H, T, D) and (B, H, T).
    """
    if q.device.type == "cpu":
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
        return out, lse
    if q.device.type == "cuda" and q.dtype in (torch.bfloat16, torch.float16):
        result = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
        return result[0], result[1]
    return reference_attention(q, k, v, causal=causal, scale=scale)


def reference_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention as textbooks write it, in float32; for devices and dtypes without a kernel, and for tests."""
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2)) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    lse = torch.logsumexp(scores, dim=-1)
    return torch.matmul(torch.exp(scores - lse.unsqueeze(-1)), v.float()).to(q.dtype), lse
