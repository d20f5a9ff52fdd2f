"""What the engine asks of blending: run a prompt with what is known of its chunks, and learn them for the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from prefold.core.keys import Scope
from prefold.core.tokens import WIDTH
from prefold.engine.blend.chunk_store import ChunkStore
from prefold.engine.blend.forward import Reused, blend
from prefold.engine.blend.records import Draft, model_angles, move
from prefold.engine.decoder import Decoder, LeanDecoder
from prefold.engine.kv_pool import KVPool
from prefold.engine.request import BlendUsage
from prefold.engine.slots import Runs

OPENING = 1
"""Tokens before a chunk when it is computed by itself; see `Draft`. More of them, or the beginning of a chat
instead, came out no better on the default model."""

BLEND_MAX = 4096
"""Most tokens, from the first chunk to the prompt's end, that are blended: they run in one step, for which others wait.
As many as four ordinary steps have."""

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
        self._unknown: deque[tuple[bytes, Scope]] = deque()
        self._draft: tuple[bytes, Scope, Draft] | None = None

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

    @property
    def learning(self) -> bool:
        """Whether chunks are yet to be computed."""
        return self._draft is not None or bool(self._unknown)

    def note(self, prompt: bytes, chunks: Sequence[tuple[int, int]], scope: Scope) -> None:
        """Have the chunks that are not known yet computed and kept; `learn` does it."""
        runs = dict.fromkeys(prompt[start * WIDTH : stop * WIDTH] for start, stop in chunks)
        self._unknown += [(run, scope) for run in runs if not self.store.has(run, scope)]

    def learn(self, limit: int) -> None:
        """Compute up to `limit` tokens of the chunks that were noted; one that fails is forgotten."""
        while limit > 0 and self.learning:
            run, scope, draft = self._draft or self._begin(*self._unknown.popleft())
            self._draft = None
            limit -= draft.go_on(limit)
            if draft.left:
                self._draft = run, scope, draft
            else:
                self.store.put(run, scope, draft.record)

    def _begin(self, run: bytes, scope: Scope) -> tuple[bytes, Scope, Draft]:
        tokens = torch.frombuffer(bytearray(run), dtype=torch.int32).to(self._device, torch.int64)
        return run, scope, Draft(self.decoder, tokens, self._opening)

    def clear(self) -> None:
        """Forget all chunks, those too that are yet to be computed."""
        self.store.clear()
        self._unknown.clear()
        self._draft = None
