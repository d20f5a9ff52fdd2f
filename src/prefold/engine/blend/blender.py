"""What the engine asks of blending: run a prompt with what is known of its chunks, and learn them for the next one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from prefold.core.keys import Scope
from prefold.core.tokens import WIDTH
from prefold.engine.blend.chunk_store import ChunkStore
from prefold.engine.blend.forward import Reused, blend
from prefold.engine.blend.records import compute_record, model_angles, move
from prefold.engine.decoder import Decoder, LeanDecoder
from prefold.engine.kv_pool import KVPool
from prefold.engine.request import BlendUsage
from prefold.engine.slots import Runs

OPENING = 1
"""Tokens before a chunk when it is computed by itself; see `compute_record`. More of them, or the beginning of a chat
instead, came out no better on the default model."""

_FORMATS = frozenset({"bfloat16", "float32"})
"""Forms of K and V that can be turned."""


def refusal(decoder: Decoder, pool: KVPool) -> str:
    """Why there can be no blending with this model and pool; empty where there can."""
    if not isinstance(decoder, LeanDecoder):
        return "this model runs by transformers, which does not let it run layer by layer"
    if pool.format not in _FORMATS:
        return f"keys that are kept as {pool.format} cannot be turned"
    return ""


class Blender:
    """Blending for one model.

    Args:
        decoder: the model.
        pool: its K/V pool.
        share: of the reused tokens that is computed after all, 0 to 1.
        budget: bytes for the K and V of chunks.
        device: where the model is.
    """

    def __init__(self, decoder: LeanDecoder, pool: KVPool, share: float, budget: int, device: torch.device) -> None:
        self.store = ChunkStore(budget)
        self.decoder = decoder
        self._pool = pool
        self._share = share
        self._device = device
        self._angles = model_angles(decoder)
        config = decoder.config
        first = config.bos_token_id if config.bos_token_id is not None else next(iter(config.eos_token_ids), 0)
        self._opening = torch.full((OPENING,), first, device=device)

    def run(
        self, prompt: bytes, chunks: Sequence[tuple[int, int]], scope: Scope, begin: int, slots: Runs
    ) -> tuple[torch.Tensor, BlendUsage]:
        """Compute a prompt from position `begin` on, reusing the chunks that are known.

        Args:
            prompt: all tokens, those before `begin` too; their K and V are in the pool.
            chunks: where the chunks stand, `start..stop` each, ascending.
            scope: whose chunks may be used.
            begin: at most the first chunk's start, or the token behind it.
            slots: of all tokens.

        Returns:
            Logits of the last token, (1, V), and what was reused.
        """
        tokens = torch.frombuffer(bytearray(prompt), dtype=torch.int32).to(self._device, torch.int64)
        last = len(tokens) - 1  # always computed: its logits are wanted
        places, found = [torch.empty(0, dtype=torch.int64)], []
        for start, stop in chunks:
            record = self.store.get(prompt[start * WIDTH : stop * WIDTH], scope)
            low, high = max(start, begin), min(stop, last)
            if record is None or low >= high:
                continue
            found.append((record[low - start : high - start], low, low - start))
            places.append(torch.arange(low - begin, high - begin))
        where = torch.cat(places).to(self._device)
        kept = torch.empty(0)
        if found:
            kept = found[0][0].new_empty((len(where), *found[0][0].shape[1:]))
            for (record, position, skipped), out in zip(
                found, torch.split(kept, [len(one[0]) for one in found]), strict=True
            ):
                move(record, self._angles, len(self._opening) + skipped, position, out)
        reused = Reused(where, kept)
        blended = blend(self.decoder, self._pool, tokens[begin:], slots, begin, reused, self._share)
        usage = BlendUsage(len(chunks), len(found), len(where) - blended.recomputed, blended.recomputed)
        return blended.logits, usage

    def learn(self, prompt: bytes, chunks: Sequence[tuple[int, int]], scope: Scope) -> None:
        """Compute and keep the chunks that are not known yet."""
        for start, stop in chunks:
            run = prompt[start * WIDTH : stop * WIDTH]
            if not self.store.has(run, scope):
                tokens = torch.frombuffer(bytearray(run), dtype=torch.int32).to(self._device, torch.int64)
                self.store.put(run, scope, compute_record(self.decoder, tokens, self._opening))
