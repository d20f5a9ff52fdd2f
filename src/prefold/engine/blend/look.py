"""Which tokens of the chunks does the question look at?

What a prompt's last tokens attend to is what the answer depends on. They are few, so they can go through the model
ahead of all others, over the chunks' K and V as they were kept; where they look then, an error would show.

Shapes: `Q` tokens of the question, `P` tokens before the chunks, `R` reused tokens, `H` query heads, `N` K/V heads with
`G = H / N` query heads each, `D` head size.
"""

from __future__ import annotations

import torch

from prefold.engine.decoder import LeanDecoder


@torch.inference_mode()
def attention_of(
    decoder: LeanDecoder, tokens: torch.Tensor, positions: torch.Tensor, opening: torch.Tensor, record: torch.Tensor
) -> torch.Tensor:
    """Attention that a prompt's last tokens pay to each reused token, in the middle half of the layers.

    Lower layers look at neighbours and at the form of the text, the highest ones at what comes next; in between lies
    what an answer is looked up by.

    Args:
        decoder: the model.
        tokens: (Q,) int64, the last ones of the prompt.
        positions: (Q,) int64
        opening: (P, layers, 2, N, D), K and V of what they see beside the chunks.
        record: (R, layers, 2, N, D), those of the reused tokens, keys turned to their positions.

    Returns:
        (R,) float32, summed over tokens, heads and layers.
    """
    config = decoder.config
    first, last = config.layers // 4, max(1, config.layers * 3 // 4)
    rows, kv_heads, size = len(tokens), config.kv_heads, config.head_dim
    later = torch.ones(rows, rows, dtype=torch.bool, device=tokens.device).triu(1).repeat(config.heads // kv_heads, 1)
    begin, end = len(opening), len(opening) + len(record)
    total = torch.zeros(len(record), device=tokens.device)
    hidden, rotation = decoder.embed(tokens), decoder.rotation(positions)
    for layer in range(last):
        q, k, v = decoder.project(layer, hidden, rotation)
        keys = torch.cat((opening[:, layer, 0], record[:, layer, 0], k)).transpose(0, 1)  # (N, P + R + Q, D)
        values = torch.cat((opening[:, layer, 1], record[:, layer, 1], v)).transpose(0, 1)
        grouped = q.reshape(rows, kv_heads, -1, size).permute(1, 2, 0, 3).reshape(kv_heads, -1, size)  # (N, G * Q, D)
        scores = (grouped @ keys.transpose(1, 2)).float() * decoder.scale
        scores[:, :, end:].masked_fill_(later, -torch.inf)
        weights = scores.softmax(-1)
        if layer >= first:
            total += weights[:, :, begin:end].sum((0, 1))
        attended = (weights.to(values.dtype) @ values).view(kv_heads, -1, rows, size).permute(2, 0, 1, 3)
        hidden = decoder.finish(layer, hidden, attended.reshape(rows, config.heads, size))
    return total
