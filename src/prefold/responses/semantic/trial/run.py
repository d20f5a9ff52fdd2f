"""What `prefold answers bench` measures: how much could be served, and how much of it would be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefold.responses.semantic.decision.decision import DecisionOptions
from prefold.responses.semantic.trial.labelled import read_pairs
from prefold.responses.semantic.trial.pairs import LIMITS, PairTrial, try_pairs
from prefold.responses.semantic.trial.streams import StreamTrial, read_stream, try_stream
from prefold.responses.semantic.types import Embedder, Verifier


def run_pairs(
    source: Path | str,
    embedder: Embedder,
    verifier: Verifier | None = None,
    *,
    fit: Path | str | None = None,
    limits: Sequence[float] = LIMITS,
    seed: int = 0,
) -> PairTrial:
    """Labelled pairs, cross-fitted, or fitted on others: see `try_pairs`.

    Args:
        source: see `read_pairs`.
        embedder: of the vectors.
        verifier: asked about each pair, if given.
        fit: source of the pairs to fit on; None for those that are judged.
        limits: shares of traps that may be served.
        seed: of the folds.

    Raises:
        UsageError: if a file is not of labelled pairs.
        PrefoldError: if embedder or verifier fail.
    """
    others = None if fit is None else read_pairs(fit)
    return try_pairs(read_pairs(source), embedder, verifier, fit=others, limits=limits, seed=seed)


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
