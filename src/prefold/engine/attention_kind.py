"""Which models an exact prefix cache can serve, judged from their `config.json`.

The K and V of a prefix can be reused only if they depend on the prefix alone and every later token may still attend to
all of them. Sliding windows, linear attention, state-space layers and length-dependent rotation break one or the other.
"""

from __future__ import annotations

from typing import Any

# Fields that only models with other layers than full attention have, and what they tell.
_TELLTALE_FIELDS = {
    "attention_chunk_size": "chunked attention",
    "attention_types": "local attention",
    "attention_window": "windowed attention",
    "attn_layer_indices": "state-space layers",
    "attn_type_list": "linear attention",
    "block_types": "recurrent layers",
    "conv_L_cache": "convolution layers",
    "cross_attention_layers": "cross-attention layers",
    "full_attention_interval": "linear attention",
    "hybrid_layer_ids": "state-space layers",
    "hybrid_override_pattern": "state-space layers",
    "index_topk": "sparse attention",
    "keep_window_size": "windowed attention",
    "layers_block_type": "state-space layers",
    "sliding_window_size": "sliding-window attention",
    "ssm_cfg": "state-space layers",
}
_TELLTALE_PREFIXES = {
    "linear_attn_": "linear attention",
    "linear_conv_": "linear attention",
    "linear_num_": "linear attention",
    "mamba_": "state-space layers",
    "ssm_": "state-space layers",
}
RECURRENT_TYPES = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"})
"""Families without any attention."""

# Qwen families carry a window that is off unless `use_sliding_window` says otherwise.
_WINDOW_OFF_BY_DEFAULT = ("qwen2", "qwen3", "smollm3")
# What transformers takes as the window of a family whose config.json does not mention one.
_IMPLIED_WINDOW = {"mistral": 4096, "gemma2": 4096, "gemma3_text": 4096, "cohere2": 4096, "gpt_oss": 128}
# Mistral applies its window to all layers and pays no heed to `layer_types`.
_IGNORES_LAYER_TYPES = frozenset({"mistral"})


def why_not_full_attention(
    config: dict[str, Any],
    text_config: dict[str, Any],
    *,
    layers: int,
    context_length: int,
    rope: dict[str, Any],
) -> str:
    """Why a prefix's K/V could not be reused exactly, as part of a sentence, or an empty string where they can.

    Args:
        config: the whole `config.json`.
        text_config: the language model's part of it; the same dictionary for most models.
        layers: number of decoder layers.
        context_length: most positions the model serves, in tokens.
        rope: rotary parameters in today's spelling.
    """
    return (
        _why_not_a_decoder(config)
        or _why_telltale(text_config)
        or _why_layer_types(text_config, layers=layers, context_length=context_length)
        or _why_rotation(rope, context_length)
    )


def _why_not_a_decoder(config: dict[str, Any]) -> str:
    if config.get("is_encoder_decoder") is True:
        return "it is an encoder-decoder, whose decoder attends to an encoded input"
    if isinstance(config.get("text_config"), dict):
        return "it reads images or sound beside text (text_config), which token ids alone do not identify"
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        names = [str(name) for name in architectures]
        if not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
            return f"its architecture {names[0]} is not a causal language model"
    return ""


def _why_telltale(config: dict[str, Any]) -> str:
    for field, value in config.items():
        kind = _TELLTALE_FIELDS.get(field) or next(
            (kind for prefix, kind in _TELLTALE_PREFIXES.items() if field.startswith(prefix)), ""
        )
        if kind and value not in (None, [], False):
            return f"some layers are not full attention but {kind} (field {field})"
    return ""


def _why_layer_types(config: dict[str, Any], *, layers: int, context_length: int) -> str:
    model_type = config["model_type"]
    window = config.get("sliding_window", _IMPLIED_WINDOW.get(model_type))
    enabled = config.get("use_sliding_window", not model_type.startswith(_WINDOW_OFF_BY_DEFAULT))
    # A window as long as the context never cuts anything off.
    window_bites = bool(enabled) and isinstance(window, int) and window < context_length

    layer_types = config.get("layer_types")
    if isinstance(layer_types, list) and model_type not in _IGNORES_LAYER_TYPES:
        harmless = {"full_attention", "attention"} | (set() if window_bites else {"sliding_attention"})
        partial = [index for index, kind in enumerate(layer_types) if kind not in harmless]
        if partial:
            kinds = ", ".join(sorted({str(layer_types[index]) for index in partial}))
            return f"{_ranges(partial)} of {layers} use {kinds}"
        return ""
    if window_bites:
        first = config.get("max_window_layers", 0) if model_type.startswith(_WINDOW_OFF_BY_DEFAULT) else 0
        windowed = list(range(first, layers))
        if windowed:
            return (
                f"{_ranges(windowed)} of {layers} attend to a sliding window of {window} tokens, "
                f"shorter than the context of {context_length}"
            )
    return ""


def _why_rotation(rope: dict[str, Any], context_length: int) -> str:
    """Rotations whose frequencies change with the length of the whole text make K depend on what follows."""
    # Some models rotate each kind of layer its own way, under the kind's name.
    for parameters in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if parameters.get("rope_type") == "dynamic":
            return "its rotary frequencies change with the length of the text (rope_type dynamic)"
        trained_length = parameters.get("original_max_position_embeddings", 0)
        if parameters.get("rope_type") == "longrope" and trained_length < context_length:
            return f"its rotary frequencies change beyond {trained_length} tokens (rope_type longrope)"
    return ""


def _ranges(layers: list[int]) -> str:
    """Layer numbers as text, runs shortened: `layers 0-4, 6-10`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ("layer " if len(layers) == 1 else "layers ") + ", ".join(words)
