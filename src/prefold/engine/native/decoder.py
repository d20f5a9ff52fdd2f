"""The Llama family in the kernel: the whole loop over the layers is one call."""

from __future__ import annotations

import ctypes

import torch

from prefold.engine.decoder import LeanDecoder, Projection, is_lean, rotary_tables
from prefold.engine.kv_pool import KVPool
from prefold.engine.model_config import ModelConfig
from prefold.engine.native.library import BatchView, Kernel, LayerView, LinearView, ModelView, Packed
from prefold.engine.native.pool import NativePool, fits
from prefold.engine.plan import Batch


class NativeDecoder(LeanDecoder):
    """`LeanDecoder` with its weights in the kernel's layout.

    On a `NativePool` a step is one call of the kernel, which holds the hidden state in float32 throughout. On any other
    pool, and layer by layer, it does what `LeanDecoder` does.

    Args:
        kernel: what computes.
        config: the model's shape; `covers(config)` holds.
        state: its weights, bfloat16 or float32, on the CPU. Emptied.
    """

    def __init__(self, kernel: Kernel, config: ModelConfig, state: dict[str, torch.Tensor]) -> None:
        self._kernel = kernel
        super().__init__(config, state)
        self._buffer = kernel.buffer()
        self._held: list[torch.Tensor] = []
        half = config.head_dim // 2
        cosine, sine = (
            self._hold(table[:, :half]) for table in rotary_tables(config, torch.float32, torch.device("cpu"))
        )
        views = (LayerView * config.layers)()
        for view, layer in zip(views, self._layers, strict=True):
            view.qkv, view.output = _view(layer.qkv), _view(layer.output)
            view.gate_up, view.down = _view(layer.gate_up), _view(layer.down)
            view.input_norm, view.output_norm = self._hold(layer.input_norm), self._hold(layer.output_norm)
            if layer.q_norm is not None and layer.k_norm is not None:
                view.q_norm, view.k_norm = self._hold(layer.q_norm), self._hold(layer.k_norm)
        self._embedding = self._embedding.contiguous()
        self._model = ModelView(
            config.layers,
            config.hidden_size,
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.intermediate_size,
            config.norm_eps,
            self.scale,
            self._embedding.data_ptr(),
            cosine,
            sine,
            self._hold(self._norm),
            _view(self._head),
            ctypes.cast(views, ctypes.POINTER(LayerView)),
        )

    def forward(self, batch: Batch, pool: KVPool) -> torch.Tensor:
        """See `Decoder`."""
        if not isinstance(pool, NativePool) or pool.dtype != self._embedding.dtype:
            return super().forward(batch, pool)
        logits = torch.empty((len(batch.samples), self.config.vocab_size))
        view = BatchView(
            len(batch.tokens),
            batch.tokens.data_ptr(),
            batch.positions.data_ptr(),
            batch.write.data_ptr(),
            len(batch.samples),
            batch.samples.data_ptr(),
        )
        self._kernel.forward(
            self._buffer,
            self._model,
            pool.pages,
            view,
            batch.attention.view,
            logits,
            bfloat16=pool.dtype == torch.bfloat16,
        )
        return logits

    def _linear(self, weights: list[torch.Tensor], biases: list[torch.Tensor | None]) -> Projection:
        return Packed(self._kernel, weights, biases)

    def _hold(self, tensor: torch.Tensor) -> int:
        """Address of a float32 copy that lives as long as this object."""
        self._held.append(tensor.float().contiguous())
        return self._held[-1].data_ptr()


def _view(projection: Projection) -> LinearView:
    assert isinstance(projection, Packed)  # noqa: S101 - `_linear` made it
    return projection.view


def covers(config: ModelConfig) -> bool:
    """Whether `NativeDecoder` runs this model."""
    widths = (config.hidden_size, config.intermediate_size)
    return is_lean(config) and fits(config.head_dim) and all(width % 16 == 0 for width in widths)
