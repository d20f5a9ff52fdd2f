"""The K and V of a chunk by itself, and how its keys are turned to where it stands next.

Shapes: `C` tokens of a chunk, `N` K/V heads, `D` head size.
"""

from __future__ import annotations

import torch

from prefold.engine.attention import attention
from prefold.engine.decoder import LeanDecoder, rotary_angles, rotate_half


class Draft:
    """The record of a chunk in the making; the chunk stands alone behind a fixed opening.

    Models pour attention into the first tokens of a text, whatever they are, and give these K and V like no others
    (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2024). A chunk at the very beginning would
    get them, and would carry them into the middle of a prompt.

    Args:
        decoder: the model.
        tokens: (C,) int64, the chunk.
        opening: (O,) int64, what stands before it; its own K and V are not kept.

    Attributes:
        left: tokens that are yet to be computed, the opening's among them.
    """

    def __init__(self, decoder: LeanDecoder, tokens: torch.Tensor, opening: torch.Tensor) -> None:
        self._decoder = decoder
        self._tokens = torch.cat((opening, tokens))
        self._begin = len(opening)
        config = decoder.config
        shape = (len(self._tokens), config.layers, 2, config.kv_heads, config.head_dim)
        self._record = decoder.embed(self._tokens[:1]).new_empty(shape)
        self.left = len(self._tokens)

    @property
    def record(self) -> torch.Tensor:
        """(C, layers, 2, N, D) in the model's dtype: K, rotated to positions `O` and on, and V; once none is left."""
        return self._record[self._begin :].clone()  # without room for the opening

    @torch.inference_mode()
    def go_on(self, limit: int) -> int:
        """Compute the next tokens, up to `limit`; returns how many."""
        decoder = self._decoder
        start = len(self._tokens) - self.left
        stop = min(start + limit, len(self._tokens))
        hidden = decoder.embed(self._tokens[start:stop])
        rotation = decoder.rotation(torch.arange(start, stop, device=hidden.device))
        for layer in range(decoder.config.layers):
            q, k, v = decoder.project(layer, hidden, rotation)
            self._record[start:stop, layer, 0], self._record[start:stop, layer, 1] = k, v
            attended, lse = attention(q, k, v, causal=True, scale=decoder.scale)
            if start:
                keys, values = self._record[:start, layer].unbind(1)
                before, before_lse = attention(q, keys, values, causal=False, scale=decoder.scale)
                attended = torch.lerp(before.float(), attended.float(), (lse - before_lse).sigmoid().unsqueeze(-1))
            hidden = decoder.finish(layer, hidden, attended.to(q.dtype))
        self.left = len(self._tokens) - stop
        return stop - start


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
