"""A K/V pool in 8 or 4 bits, on torch's own kernels.

What is attended to is always what is stored, in the step that computes a token as in every later one. So a hit changes
nothing: the same K and V are read whether they were computed in this step or long ago.
"""

from __future__ import annotations

from typing import Any

import torch

from prefold.engine.attention import TorchPool
from prefold.engine.quantised.numbers import Form, dequantise, hadamard, packed_bytes, quantise, turn


class QuantisedPool(TorchPool):
    """See `KVPool`; K and V are stored turned and packed, as `numbers` describes, B bytes a head.

    Args:
        layers, slots, kv_heads, head_dim: the shape.
        form: of the numbers, one that `form_for` gave for this head size and device.
        device: where they are.

    Attributes:
        k, v: (layers, slots + 1, N, B) uint8
    """

    def __init__(
        self, layers: int, slots: int, kv_heads: int, head_dim: int, *, form: Form, device: torch.device
    ) -> None:
        super().__init__(layers, slots, kv_heads, packed_bytes(head_dim, form), dtype=torch.uint8, device=device)
        self.format = form.format
        self._form = form
        self._matrix = hadamard(device)

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        write: torch.Tensor,
        plan: Any,
        scale: float,
    ) -> torch.Tensor:
        """See `KVPool`."""
        turned = super().attend(layer, turn(q, self._matrix).to(q.dtype), k, v, write, plan, scale)
        return turn(turned, self._matrix).to(q.dtype)

    def store(self, layer: int, write: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """See `TorchPool`."""
        both = quantise(turn(torch.stack((k, v)), self._matrix), self._form)  # (2, T, N, B)
        super().store(layer, write, both[0], both[1])

    def fetch(self, layer: int, keys: slice | torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """See `TorchPool`; still turned."""
        k, v = super().fetch(layer, keys, torch.uint8)
        return dequantise(k, self._form, dtype), dequantise(v, self._form, dtype)
