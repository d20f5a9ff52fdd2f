"""A forward pass that computes some tokens and takes K and V of the others as they were kept.

Shapes: `T` tokens to go through, of which `R` are reused; `N` K/V heads, `D` head size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from prefold.engine.blend.look import attention_of
from prefold.engine.blend.rows import items_of
from prefold.engine.decoder import LeanDecoder
from prefold.engine.kv_pool import KVPool
from prefold.engine.plan import Batch
from prefold.engine.slots import Runs, cut

CHECK_LAYER = 1
"""The layer at which tokens are chosen. All tokens go through those before it: in layer 0 they know nothing of each
other yet, so 1 is the first at which fresh and kept K and V can differ."""

QUESTION_MAX = 32
"""Most tokens, the last ones, that are asked where they look."""

OPENING_MAX = 64
"""Tokens at the beginning of the prompt that they see beside the chunks: most attention rests on the very first."""


@dataclass(frozen=True, slots=True, eq=False)
class Reused:
    """What is known of some tokens.

    Attributes:
        places: (R,) int64, ascending: which of the `T` tokens.
        record: (R, layers, 2, N, D), keys turned to the tokens' positions.
    """

    places: torch.Tensor
    record: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Blended:
    """What came out.

    Attributes:
        logits: (1, V) float32, of the last token.
        recomputed: how many of the `R` reused tokens were computed after all.
    """

    logits: torch.Tensor
    recomputed: int


@torch.inference_mode()
def blend(
    decoder: LeanDecoder,
    pool: KVPool,
    tokens: torch.Tensor,
    slots: Runs,
    begin: int,
    reused: Reused,
    share: float,
) -> Blended:
    """Run the rest of a prompt whose first tokens are in the pool.

    Args:
        decoder: the model.
        pool: holds K and V of the positions before `begin`, exact ones; is given those of the rest.
        tokens: (T,) int64, from position `begin` on.
        slots: of all positions, 0 up to the last.
        begin: position of the first token.
        reused: tokens whose K and V are known from elsewhere; never the last one.
        share: of the `R` reused tokens, how many are computed after all, 0 to 1.
    """
    device, size = tokens.device, len(tokens)
    positions = torch.arange(begin, begin + size, device=device)
    own = cut(slots, begin, begin + size)
    write = torch.cat([torch.arange(start, stop, device=device) for start, stop in own])
    plan = pool.prepare(items_of(range(begin, begin + size), slots))
    if not len(reused.places):
        last = torch.tensor([size - 1], device=device)
        return Blended(decoder.forward(Batch(tokens, positions, write, last, plan), pool), 0)
    weights = _weights(decoder, pool, tokens, slots, begin, reused)
    _store(pool, write, reused)
    hidden = decoder.embed(tokens)
    rotation = decoder.rotation(positions)
    recomputed = min(len(reused.places), math.ceil(share * len(reused.places)))
    for layer in range(decoder.config.layers):
        q, k, v = decoder.project(layer, hidden, rotation)
        if layer == CHECK_LAYER:
            chosen = _choose(v, reused, layer, recomputed, weights)
            hidden, q, k, v, write = hidden[chosen], q[chosen], k[chosen], v[chosen], write[chosen]
            rotation = decoder.rotation(positions[chosen])
            plan = pool.prepare(items_of(positions[chosen].tolist(), slots))
        attended = pool.attend(layer, q, k, v, write, plan, decoder.scale)
        hidden = decoder.finish(layer, hidden, attended)
    return Blended(decoder.logits(hidden[-1:]), recomputed)


def _choose(v: torch.Tensor, reused: Reused, layer: int, wanted: int, weight: torch.Tensor) -> torch.Tensor:
    """Which tokens go on: all that are not reused, and those whose fresh values are farthest from the kept ones.

    Args:
        v: (T, N, D), fresh.
        reused: the kept ones.
        layer: of `v`.
        wanted: how many of the reused tokens go on.
        weight: (R,), how much each of them matters.

    Returns:
        Indices into the `T` tokens, ascending.
    """
    apart = (v[reused.places].float() - reused.record[:, layer, 1].float()).pow(2).sum((1, 2)).sqrt()
    goes_on = torch.ones(len(v), dtype=torch.bool, device=v.device)
    goes_on[reused.places] = False
    goes_on[reused.places[(apart * weight).topk(wanted).indices]] = True
    return goes_on.nonzero().squeeze(1)


def _weights(
    decoder: LeanDecoder, pool: KVPool, tokens: torch.Tensor, slots: Runs, begin: int, reused: Reused
) -> torch.Tensor:
    """(R,) how much the prompt's last tokens look at each reused one."""
    size, config = len(tokens), decoder.config
    rows = min(QUESTION_MAX, size - 1 - int(reused.places[-1]))
    seen = cut(slots, 0, min(begin, OPENING_MAX))
    numbers = pool.dump(seen).view(getattr(torch, pool.format))
    opening = numbers.view(-1, config.layers, 2, config.kv_heads, config.head_dim).to(reused.record)
    positions = torch.arange(begin + size - rows, begin + size, device=tokens.device)
    return attention_of(decoder, tokens[-rows:], positions, opening, reused.record)


def _store(pool: KVPool, write: torch.Tensor, reused: Reused) -> None:
    """Put the kept K and V into the reused tokens' slots, in all layers; the layers that run overwrite their own."""
    slots = write[reused.places].tolist()
    runs: list[tuple[int, int]] = []
    for slot in slots:
        if runs and runs[-1][1] == slot:
            runs[-1] = (runs[-1][0], slot + 1)
        else:
            runs.append((slot, slot + 1))
    numbers = reused.record.to(getattr(torch, pool.format)).contiguous()
    pool.load(tuple(runs), numbers.view(len(slots), -1).view(torch.uint8))
