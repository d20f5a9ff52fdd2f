"""A forward pass of our own for the Llama family: Llama, SmolLM, Mistral, Qwen2, Qwen3.

In float32 it does what transformers' does, operation for operation, so that the results are equal to the bit. In lower
precision, where speed counts, the projections of Q, K and V, and those of gate and up, are one matrix product each, and
on CPUs that multiply bfloat16 weights are packed once into the layout that oneDNN wants.

Shapes: `T` tokens, `H` query heads, `N` K/V heads, `D` head size, `W` hidden size, `V` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn import functional

from prefold.engine.kv_pool import KVPool
from prefold.engine.model_config import ModelConfig
from prefold.engine.plan import Batch
from prefold.errors import ModelError, UnsupportedModel

LEAN_ROPE_TYPES = frozenset({"default", "linear", "llama3"})


class Decoder(Protocol):
    """A model that reads its earlier tokens' K and V from the pool."""

    def forward(self, batch: Batch, pool: KVPool) -> torch.Tensor:
        """Run a batch; returns the logits of `batch.samples`, (S, V) float32."""


def is_lean(config: ModelConfig) -> bool:
    """Whether `LeanDecoder` covers this model."""
    return config.is_lean and config.hidden_act == "silu" and config.rope.get("rope_type") in LEAN_ROPE_TYPES


class Projection(Protocol):
    """Takes (T, in) to (T, out)."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""


MakeProjection = Callable[[list["torch.Tensor"], list["torch.Tensor | None"]], Projection]
"""Makes one projection of weights, (out, in) each, that stand side by side in its result, and their biases."""


class Linear:
    """A matrix product with a fixed weight, (T, in) to (T, out)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias
        self._packed: torch.Tensor | None = None
        if (
            weight.device.type == "cpu"
            and weight.dtype == torch.bfloat16
            and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        ):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product, plus the bias where there is one."""
        if self._packed is None:
            return functional.linear(x, self._weight, self._bias)
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return result


class SideBySide:
    """Several matrix products whose results stand beside each other; not one, since that rounds differently."""

    def __init__(self, parts: list[Linear]) -> None:
        self._parts = parts

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The products, concatenated."""
        return torch.cat([part(x) for part in self._parts], dim=-1)


class _Layer:
    """The weights of one decoder layer."""

    def __init__(self, take: _Weights, config: ModelConfig, index: int) -> None:
        prefix = f"model.layers.{index}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        self.input_norm = take.tensor(prefix + "input_layernorm.weight")
        self.output_norm = take.tensor(prefix + "post_attention_layernorm.weight")
        self.qkv = take.linear([attention + name for name in ("q_proj", "k_proj", "v_proj")], bias=config.qkv_bias)
        self.output = take.linear([attention + "o_proj"], bias=config.output_bias)
        self.gate_up = take.linear([mlp + "gate_proj", mlp + "up_proj"], bias=config.mlp_bias)
        self.down = take.linear([mlp + "down_proj"], bias=config.mlp_bias)
        self.q_norm = take.tensor(attention + "q_norm.weight") if config.qk_norm else None
        self.k_norm = take.tensor(attention + "k_norm.weight") if config.qk_norm else None


class _Weights:
    """Takes weights out of a state dict by name, so that nothing is held twice."""

    def __init__(self, state: dict[str, torch.Tensor], make: MakeProjection) -> None:
        self._state = state
        self._make = make

    def tensor(self, name: str) -> torch.Tensor:
        try:
            return self._state.pop(name)
        except KeyError:
            raise ModelError(f"The weights lack {name}", hint="the files do not belong to this config.json") from None

    def linear(self, names: list[str], *, bias: bool) -> Projection:
        weights = [self.tensor(name + ".weight") for name in names]
        return self._make(weights, [self.tensor(name + ".bias") if bias else None for name in names])


class LeanDecoder:
    """The Llama family without a framework around it.

    Args:
        config: the model's shape; `is_lean(config)` holds.
        state: its weights by their Hugging Face names, in the dtype and on the device to run with. Emptied.

    Raises:
        ModelError: if weights are missing or do not have the shape that the config states.
    """

    def __init__(self, config: ModelConfig, state: dict[str, torch.Tensor]) -> None:
        if not is_lean(config):
            raise UnsupportedModel(f"{config.model_type} is not of the Llama family", hint="use the transformers path")
        self.config = config
        take = _Weights(state, self._linear)
        self._embedding = take.tensor("model.embed_tokens.weight")
        if self._embedding.shape != (config.vocab_size, config.hidden_size):
            raise ModelError(
                f"The embedding has shape {tuple(self._embedding.shape)}, config.json says "
                f"{(config.vocab_size, config.hidden_size)}",
                hint="the weights do not belong to this config.json",
            )
        self._layers = [_Layer(take, config, index) for index in range(config.layers)]
        self._norm = take.tensor("model.norm.weight")
        head = self._embedding if config.tied_embeddings else take.tensor("lm_head.weight")
        self._head = self._linear([head], [None])
        self._cos, self._sin = rotary_tables(config, self._embedding.dtype, self._embedding.device)

    @torch.inference_mode()
    def forward(self, batch: Batch, pool: KVPool) -> torch.Tensor:
        """See `Decoder`."""
        hidden = self.embed(batch.tokens)
        rotation = self.rotation(batch.positions)
        for layer in range(self.config.layers):
            q, k, v = self.project(layer, hidden, rotation)
            attended = pool.attend(layer, q, k, v, batch.write, batch.attention, self.scale)
            hidden = self.finish(layer, hidden, attended)
        return self.logits(hidden[batch.samples])

    @property
    def scale(self) -> float:
        """Factor on the products of queries and keys."""
        return float(self.config.head_dim**-0.5)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """What layer 0 takes: (T,) to (T, W)."""
        return functional.embedding(tokens, self._embedding)

    def rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine for `project`, each (T, 1, D)."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)

    def project(
        self, index: int, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A layer up to its attention: (T, W) to Q (T, H, D), K and V (T, N, D), Q and K rotated."""
        layer, heads, kv_heads = self._layers[index], self.config.heads, self.config.kv_heads
        qkv = layer.qkv(self._rms_norm(hidden, layer.input_norm)).view(-1, heads + 2 * kv_heads, self.config.head_dim)
        qk, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = qk[:, :heads], qk[:, heads:]
            qk = torch.cat((self._rms_norm(q, layer.q_norm), self._rms_norm(k, layer.k_norm)), dim=1)
        cos, sin = rotation
        qk = qk * cos + rotate_half(qk) * sin
        return qk[:, :heads], qk[:, heads:], v

    def finish(self, index: int, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """A layer from its attention on: (T, W) and (T, H, D) to what the next one takes, (T, W)."""
        layer = self._layers[index]
        hidden = hidden + layer.output(attended.reshape(len(attended), -1))
        gate, up = layer.gate_up(self._rms_norm(hidden, layer.output_norm)).chunk(2, dim=-1)
        return hidden + layer.down(functional.silu(gate) * up)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the last layer gave, (S, W), to (S, V) float32."""
        return self._head(self._rms_norm(hidden, self._norm)).float()

    def _linear(self, weights: list[torch.Tensor], biases: list[torch.Tensor | None]) -> Projection:
        """Products side by side: in the form in which this decoder computes them."""
        if len(weights) == 1:
            return Linear(weights[0], biases[0])
        if weights[0].dtype == torch.float32:
            return SideBySide([Linear(*pair) for pair in zip(weights, biases, strict=True)])
        given = [bias for bias in biases if bias is not None]
        return Linear(torch.cat(weights), torch.cat(given) if given else None)

    def _rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.norm_eps)
        return weight * wide.to(x.dtype)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """The halves of the last dimension exchanged, the first one negated: the quarter turn of rotary embedding."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotary_tables(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every position the model was made for, each (positions, D).

    Raises:
        UnsupportedModel: see `rotary_angles`.
    """
    angles = rotary_angles(config, torch.arange(config.context_length))
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rotary_angles(config: ModelConfig, positions: torch.Tensor) -> torch.Tensor:
    """By how much each dimension of a head is turned at these positions, (positions, D) float32, in radians.

    Raises:
        UnsupportedModel: for a rotary type other than `LEAN_ROPE_TYPES`.
    """
    rope, kind = config.rope, config.rope.get("rope_type")
    # The arithmetic is in float32 and in this order because transformers' is.
    inverse = 1.0 / (rope["rope_theta"] ** (torch.arange(0, config.head_dim, 2, dtype=torch.float) / config.head_dim))
    if kind == "linear":
        inverse /= rope["factor"]
    elif kind == "llama3":
        inverse = _llama3_frequencies(inverse, rope)
    elif kind != "default":
        raise UnsupportedModel(f"Rotary embedding {kind!r}", hint=f"covered: {', '.join(sorted(LEAN_ROPE_TYPES))}")
    angles = positions.float()[:, None] * inverse
    return torch.cat((angles, angles), dim=-1)


def _llama3_frequencies(inverse: torch.Tensor, rope: dict[str, float]) -> torch.Tensor:
    """Llama 3.1's scaling: long wavelengths by `factor`, short ones not, a smooth passage between."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    wavelength = 2 * math.pi / inverse
    scaled = torch.where(wavelength > original / low, inverse / factor, inverse)
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * scaled / factor + smooth * scaled
    is_between = ~(wavelength < original / high) & ~(wavelength > original / low)
    return torch.where(is_between, between, scaled)
