"""Any other full-attention decoder, through transformers' attention interface.

The model stays as transformers wrote it; only its attention is replaced by one that keeps K and V in our pool. The
batch travels as a keyword argument through the model's layers, so two engines in one process know nothing of each
other. Since nobody can read every model, each one is checked when it is loaded: the logits of a short prompt, run in
two chunks, must agree with those of the model's own attention, or it is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.masking_utils import AttentionMaskInterface

from prefold.engine.attention import TorchPool
from prefold.engine.kv_pool import KVPool
from prefold.engine.model_config import ModelConfig
from prefold.engine.plan import Batch, Item
from prefold.errors import ModelError, UnsupportedModel

_NAME = "prefold"

_CHANGES_ATTENTION = ("softcap", "s_aux", "position_bias", "sinks", "head_mask", "sliding_window")
"""Arguments with which models ask for more than softmax over scaled products."""

_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.02}
"""Relative error of the logits, as a vector, that rounding can explain."""


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - causality is in the plan
    scaling: float | None = None,
    prefold: tuple[Batch, KVPool] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in each layer; query (1, H, T, D), key and value (1, N, T, D)."""
    if prefold is None:
        raise UnsupportedModel(
            f"{type(module).__name__} does not pass keyword arguments on to its attention",
            hint="update transformers, or choose a model of the Llama family",
        )
    for name in _CHANGES_ATTENTION:
        if kwargs.get(name) is not None:
            raise UnsupportedModel(
                f"{type(module).__name__} uses {name}, which changes what attention computes",
                hint="choose a model with plain softmax attention",
            )
    batch, pool = prefold
    q, k, v = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))  # (T, heads, D)
    layer: int = module.layer_idx  # type: ignore[assignment]  # every attention module in transformers has it
    scale = scaling if scaling is not None else q.shape[-1] ** -0.5
    out = pool.attend(layer, q, k, v, batch.write, batch.attention, scale)
    return out.unsqueeze(0), None


class TransformersDecoder:
    """A transformers model whose attention is ours.

    Args:
        folder: Hugging Face layout.
        config: the model's shape.
        dtype: of weights and K/V.
        device: where to run.

    Raises:
        ModelError: if transformers cannot load it.
        UnsupportedModel: if its logits would not be those of its own attention.
    """

    def __init__(self, folder: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        config.require_full_attention()
        AttentionInterface.register(_NAME, _attend)
        AttentionMaskInterface.register(_NAME, lambda *_, **__: None)
        try:
            self._model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, attn_implementation="eager", local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"transformers cannot load {folder}: {reason}", hint="check the files") from error
        self._model.to(device).eval()
        if device.type == "cpu":
            for weight in self._model.parameters():
                weight.data = weight.data.clone()  # a mapped file's until now: see `load_weights`
        self._check(config, dtype, device)

    @torch.inference_mode()
    def forward(self, batch: Batch, pool: KVPool) -> torch.Tensor:
        """See `decoder.Decoder`."""
        logits: torch.Tensor = self._model(
            input_ids=batch.tokens.unsqueeze(0),
            position_ids=batch.positions.unsqueeze(0),
            use_cache=False,
            logits_to_keep=batch.samples,
            prefold=(batch, pool),
        ).logits.squeeze(0)
        if len(logits) != len(batch.samples):  # a model that does not know logits_to_keep
            logits = logits[batch.samples]
        return logits.float()

    @torch.inference_mode()
    def _check(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        length, cut = 24, 16
        tokens = torch.arange(1, length + 1, device=device) * 7 % config.vocab_size
        expected = self._model(tokens.unsqueeze(0), use_cache=False).logits[0, [cut - 1, length - 1]].float()
        self._model.set_attn_implementation(_NAME)
        pool = TorchPool(config.layers, length, config.kv_heads, config.head_dim, dtype=dtype, device=device)
        rows = []
        for start, stop in ((0, cut), (cut, length)):
            size = stop - start
            items = [Item(((0, size),), ((start, stop),), causal=True, first=True)]
            if start:
                items.append(Item(((0, size),), ((0, start),), causal=False, first=False))
            place = torch.arange(start, stop, device=device)
            last = torch.tensor([size - 1], device=device)
            try:
                rows.append(
                    self.forward(Batch(tokens[start:stop], place, place, last, pool.prepare(tuple(items))), pool)
                )
            except (RuntimeError, TypeError, ValueError, AttributeError) as error:
                reason = str(error).splitlines()[0]
                raise UnsupportedModel(
                    f"{config.model_type} does not run with a K/V pool: {reason}",
                    hint="choose a model of the Llama family",
                ) from error
        deviation = (torch.linalg.norm(torch.cat(rows) - expected) / torch.linalg.norm(expected)).item()
        if not deviation <= _TOLERANCE[dtype]:  # also true for NaN
            raise UnsupportedModel(
                f"{config.model_type} gives other logits with a K/V pool than without (relative error {deviation:.2g})",
                hint="its attention is not plain softmax attention; choose another model",
            )
