"""The K and V of a chunk by itself, and how its keys are turned to where it stands next.

Shapes: `C` tokens of a chunk, `N` K/V heads, `D` head size.
"""

from __future__ import annotations

import torch

from prefold.engine.attention import attention
from prefold.engine.decoder import LeanDecoder, rotary_angles, rotate_half


@torch.inference_mode()
def compute_record(decoder: LeanDecoder, tokens: torch.Tensor, opening: torch.Tensor) -> torch.Tensor:
    """K and V of a chunk that stands alone behind a fixed opening.

    Models pour attention into the first tokens of a text, whatever they are, and give these K and V like no others
    (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2024). A chunk at the very beginning would
    get them, and would carry them into the middle of a prompt.

    Args:
        decoder: the model.
        tokens: (C,) int64, the chunk.
        opening: (O,) int64, what stands before it; its own K and V are not kept.

    Returns:
        (C, layers, 2, N, D) in the model's dtype: K, rotated to positions `O` and on, and V.
    """
    config, begin = decoder.config, len(opening)
    hidden = decoder.embed(torch.cat((opening, tokens)))
    rotation = decoder.rotation(torch.arange(len(hidden), device=tokens.device))
    record = hidden.new_empty((len(tokens), config.layers, 2, config.kv_heads, config.head_dim))
    for layer in range(config.layers):
        q, k, v = decoder.project(layer, hidden, rotation)
        record[:, layer, 0], record[:, layer, 1] = k[begin:], v[begin:]
        attended, _ = attention(q, k, v, causal=True, scale=decoder.scale)
        hidden = decoder.finish(layer, hidden, attended)
    return record


def move(record: torch.Tensor, angles: torch.Tensor, old: int, new: int, out: torch.Tensor) -> None:
    """Copy a record for another place in a text, its keys turned.

    Rotary embedding turns a key by an angle that grows with its position, so a key is brought from one position to
    another by the difference of the two. Values do not depend on positions. The arithmetic is in float32 and the
    angles are the model's own, so that the result is what the model would have computed, but for one rounding.

    Args:
        record: (C, layers, 2, N, D)
        angles: (positions, D), from `rotary_angles`.
        old: position of the first token in the record.
        new: position of it in the result.
        out: (C, layers, 2, N, D), the result.
    """
    size = len(record)
    turn = angles[new : new + size].double() - angles[old : old + size].double()
    cos, sin = (part.float()[:, None, None].to(record.device) for part in (turn.cos(), turn.sin()))
    keys = record[:, :, 0].float()
    out[:, :, 0] = keys * cos + rotate_half(keys) * sin
    out[:, :, 1] = record[:, :, 1]


def model_angles(decoder: LeanDecoder) -> torch.Tensor:
    """The angles of every position the model was made for, (positions, D) float32."""
    return rotary_angles(decoder.config, torch.arange(decoder.config.context_length))
