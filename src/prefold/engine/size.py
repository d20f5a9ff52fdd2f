"""How much memory the keys and values of a model's tokens take."""

from __future__ import annotations

from dataclasses import dataclass

from prefold.engine.model_config import ModelConfig
from prefold.errors import UsageError

GROUP = 32
"""Channels that share a float16 scale where numbers are kept in 8 or 4 bits; see `engine.quantised`."""

_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "int4": 4}
_SCALE_BITS = {"fp8": 16, "int8": 16, "int4": 16}
_ALIASES = {
    "fp32": "float32",
    "f32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "float8": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


def canonical_dtype(name: str) -> str:
    """The full name of a K/V dtype given in any of its usual spellings, such as `bf16`.

    Raises:
        UsageError: if it is none that prefold knows.
    """
    canonical = _ALIASES.get(name.lower(), name.lower())
    if canonical not in _BITS:
        raise UsageError(f"{name!r} is not a dtype for K/V.", hint=f"Use one of {', '.join(_BITS)}.")
    return canonical


@dataclass(frozen=True)
class KVShape:
    """What one token leaves in a model's K/V cache.

    Args:
        attention: `MHA`, `GQA`, `MQA` or `MLA`; `MHA or GQA` where the number of query heads is not known.
        layers: number of layers that keep K/V.
        numbers_per_layer: numbers kept per token and layer, K and V together.
    """

    attention: str
    layers: int
    numbers_per_layer: int

    @classmethod
    def of_heads(cls, layers: int, kv_heads: int, head_dim: int, *, heads: int | None = None) -> KVShape:
        """Ordinary attention: a K and a V of `head_dim` numbers per K/V head.

        Args:
            layers: decoder layers.
            kv_heads: K/V heads per layer.
            head_dim: width of a head.
            heads: query heads per layer, which only decide what the attention is called.
        """
        attention = "MQA" if kv_heads == 1 else "MHA or GQA" if heads is None else "MHA" if kv_heads == heads else "GQA"
        return cls(attention, layers, 2 * kv_heads * head_dim)

    @classmethod
    def of_latent(cls, layers: int, kv_lora_rank: int, rope_head_dim: int) -> KVShape:
        """Latent attention (DeepSeek-V2): one vector for all heads, from which K and V are rebuilt.

        An engine that caches the rebuilt heads instead, as transformers does, keeps many times more.
        """
        return cls("MLA", layers, kv_lora_rank + rope_head_dim)

    @classmethod
    def of_model(cls, config: ModelConfig) -> KVShape:
        """The shape of a model; where `config.partial_attention` says some layers keep less, an upper bound."""
        if config.mla:
            return cls.of_latent(config.layers, config.mla.kv_lora_rank, config.mla.qk_rope_head_dim)
        return cls.of_heads(config.layers, config.kv_heads, config.head_dim, heads=config.heads)

    def bytes_per_token(self, dtype: str) -> int:
        """Bytes of K/V per token, scales of 8- and 4-bit numbers included.

        Raises:
            UsageError: if the dtype is unknown.
        """
        name = canonical_dtype(dtype)
        groups = -(-self.numbers_per_layer // GROUP)
        bits = self.layers * (self.numbers_per_layer * _BITS[name] + groups * _SCALE_BITS.get(name, 0))
        return -(-bits // 8)

    def bytes_for(self, tokens: int, dtype: str) -> int:
        """Bytes of K/V of a context of `tokens` tokens.

        Raises:
            UsageError: if the dtype is unknown.
        """
        return tokens * self.bytes_per_token(dtype)

    def requests_in(self, memory: int, tokens: int, dtype: str) -> int:
        """How many requests of `tokens` tokens, none sharing anything, fit `memory` bytes at once.

        Raises:
            UsageError: if the dtype is unknown.
        """
        return memory // self.bytes_for(tokens, dtype)
