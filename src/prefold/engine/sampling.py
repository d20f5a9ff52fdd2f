"""Choosing the next token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from prefold.engine.request import SamplingOptions, TokenInfo, TokenLogprob

MIN_TEMPERATURE = 1e-6
"""Temperatures between 0 and this one sample as this one does, which is all but greedy."""


def choose(
    logits: torch.Tensor, options: Sequence[SamplingOptions], generators: Sequence[torch.Generator | None]
) -> list[int | None]:
    """One token for each row; None where the model gave no finite numbers.

    Args:
        logits: (S, V) float32
        options: for each row.
        generators: for each row, on the CPU, None where nothing is drawn; advanced once for each token that is drawn,
            so that a seed gives the same answer in whatever company the request runs.
    """
    highest, likeliest = torch.max(logits, dim=-1)  # NaN counts as highest
    finite: list[bool] = torch.isfinite(highest).tolist()
    tokens: list[int | None] = likeliest.tolist()
    for row, (option, generator) in enumerate(zip(options, generators, strict=True)):
        if not finite[row]:
            tokens[row] = None
        elif generator is not None:
            tokens[row] = _draw(logits[row].cpu(), option, generator)
    return tokens


def _draw(logits: torch.Tensor, options: SamplingOptions, generator: torch.Generator) -> int:
    """Sample from one row, (V,) float32."""
    # The highest becomes 0 and the divisor is kept away from 0: nothing overflows but what has no chance anyway.
    scaled = (logits - logits.max()) / max(options.temperature, MIN_TEMPERATURE)
    ids: torch.Tensor | None = None
    if 0 < options.top_k < scaled.numel():
        scaled, ids = torch.topk(scaled, options.top_k)
    probabilities = torch.softmax(scaled, dim=-1)
    if options.top_p < 1:
        ordered, order = torch.sort(probabilities, descending=True, stable=True)
        # The token that reaches top_p is still in; the likeliest always is.
        outside = torch.cumsum(ordered, dim=-1) - ordered >= options.top_p
        probabilities = ordered.masked_fill(outside, 0.0)
        ids = order if ids is None else ids[order]
    drawn = int(torch.multinomial(probabilities, 1, generator=generator).item())
    return drawn if ids is None else int(ids[drawn].item())


def describe(logits: torch.Tensor, token: int, likeliest: int) -> TokenInfo:
    """Log-probabilities of a chosen token and of the likeliest ones, before temperature and cuts.

    Args:
        logits: (V,) float32
        token: the chosen one.
        likeliest: how many others to list.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    values, ids = torch.topk(logprobs, likeliest)
    return TokenInfo(
        TokenLogprob(token, float(logprobs[token])),
        tuple(TokenLogprob(i, v) for i, v in zip(ids.tolist(), values.tolist(), strict=True)),
    )
