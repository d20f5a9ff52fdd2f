"""K/V pool and attention over it.

Shapes: `T` tokens of a batch, `H` query heads, `N` K/V heads with `G = H / N` query heads each, `D` head size.
"""

from __future__ import annotations

import math

import torch

from prefold.engine.plan import Batch


class KVPool:
    """K and V of every layer for `slots` tokens, and one scratch slot behind them.

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
        self.scratch = slots

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch, scale: float
    ) -> torch.Tensor:
        """Store the batch's K and V, then attend.

        Args:
            layer: which layer.
            q: (T, H, D)
            k: (T, N, D), rotated to its positions.
            v: (T, N, D)
            batch: where K and V go, and which keys each row sees.
            scale: factor on the products of queries and keys.

        Returns:
            (T, H, D) in the dtype of `q`.
        """
        keys, values = self.k[layer], self.v[layer]
        keys.index_copy_(0, batch.write, k)
        values.index_copy_(0, batch.write, v)
        single = len(batch.items) == 1
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        for item in batch.items:
            picked = q[item.rows], keys[item.keys], values[item.keys]
            if item.mask is not None:
                part, part_lse = padded_attention(*picked, item.mask, scale=scale)
            else:
                part, part_lse = attention(*picked, causal=item.causal, scale=scale)
            if single:
                return part
            if item.first:
                out[item.rows] = part
                lse[item.rows] = part_lse
            else:
                before = lse[item.rows]
                total = torch.logaddexp(before, part_lse)
                old, new = torch.exp(before - total).unsqueeze(-1), torch.exp(part_lse - total).unsqueeze(-1)
                out[item.rows] = (out[item.rows] * old + part * new).to(out.dtype)
                lse[item.rows] = total
        return out


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
