"""What `prefold answers bench` measures: how much could be served, and how much of it would be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefold.responses.semantic.decision import DecisionOptions
from prefold.responses.semantic.trial_pairs import LIMITS, PairTrial, read_pairs, try_pairs
from prefold.responses.semantic.trial_stream import StreamTrial, read_stream, try_stream
from prefold.responses.semantic.types import Embedder, Verifier


def run_pairs(
    path: Path,
    embedder: Embedder,
    verifier: Verifier | None = None,
    *,
    limits: Sequence[float] = LIMITS,
    seed: int = 0,
) -> PairTrial:
    """Labelled pairs, cross-fitted: see `try_pairs`.

    Args:
        path: see `read_pairs`.
        embedder: of the vectors.
        verifier: asked about each pair, if given.
        limits: shares of traps that may be served.
        seed: of the folds.

    Raises:
        UsageError: if the file is not of labelled pairs.
        PrefoldError: if embedder or verifier fail.
    """
    return try_pairs(read_pairs(path), embedder, verifier, limits=limits, seed=seed)


def run_stream(
    path: Path,
    embedder: Embedder,
    *,
    options: DecisionOptions | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    fit_share: float = 0.5,
) -> StreamTrial:
    """A stream of questions with intents: see `try_stream`.

    Args:
        path: see `read_stream`.
        embedder: of the vectors.
        options: of the decision.
        seeds: one order each.
        fit_share: part of the requests, the first ones, in which nothing is served and after which figures begin.

    Raises:
        UsageError: if the file is not a stream.
        PrefoldError: if the embedder fails.
    """
    return try_stream(read_stream(path, embedder), options=options, seeds=seeds, fit_share=fit_share)


__all__ = ["LIMITS", "PairTrial", "StreamTrial", "run_pairs", "run_stream"]
