"""`prefold answers bench`: how much could be served on labelled data, and how much of it would be wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.answers_options import answers_extra, json_option, max_wrong_option
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from rich.table import Table

    from prefold.responses.semantic.types import Embedder


@click.command()
@click.option(
    "--pairs",
    metavar="FILE",
    allow_from_autoenv=False,
    help="Labelled pairs: lines with a, b and y; or fow-cache, or fow-cache:conversations, where it is installed.",
)
@click.option(
    "--stream",
    metavar="FILE",
    allow_from_autoenv=False,
    help="A stream of questions: lines with text and intent, and context where they have one.",
)
@click.option("--fit", metavar="FILE", allow_from_autoenv=False, help="Pairs to choose thresholds on, not --pairs.")
@click.option("--embedder", default="minilm", show_default=True, help="What makes vectors of questions.")
@click.option("--verifier", metavar="FOLDER", help="A cross-encoder or NLI model in ONNX that looks at each pair.")
@click.option("--scorer", metavar="NAME", help="Show only this one of the scorers of pairs.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of folds, or of the first of the orders.")
@click.option("--orders", type=click.IntRange(1), default=3, show_default=True, help="Orders that a stream is run in.")
@max_wrong_option
@json_option
def bench(
    *,
    pairs: str | None,
    stream: str | None,
    fit: str | None,
    embedder: str,
    verifier: str | None,
    scorer: str | None,
    seed: int,
    orders: int,
    max_wrong: float,
    as_json: bool,
) -> None:
    """Measure answers by meaning on labelled pairs or on a stream of questions.

    Whatever is fitted, thresholds too, comes from one part of the file, and the figures from the other. Each figure
    has its Wilson interval.
    """
    from prefold.errors import UsageError

    if (pairs is None) == (stream is None):
        raise UsageError("Give either --pairs or --stream.", hint="See `prefold answers bench --help`.")
    if fit is not None and pairs is None:
        raise UsageError("--fit goes with --pairs.", hint="A stream is fitted on its own first part.")
    shown: Callable[[Mapping[str, Any]], None]
    if pairs is not None:
        result = _pairs(pairs, fit, embedder, verifier, scorer, seed)
        shown = _show_pairs
    else:
        result, shown = _stream(str(stream), embedder, max_wrong, range(seed, seed + orders))
    if as_json:
        echo_json({"schema_version": 1, "source": pairs or stream, "embedder": embedder, **result})
    else:
        shown(result)


def _pairs(
    source: str, fit: str | None, embedder: str, verifier: str | None, scorer: str | None, seed: int
) -> dict[str, Any]:
    with answers_extra():
        from prefold.responses.semantic.embedders.verifiers import make_verifier
        from prefold.responses.semantic.trial.run import run_pairs

        with _watched(embedder, source) as watched:
            trial = run_pairs(source, watched, make_verifier(verifier) if verifier else None, fit=fit, seed=seed)
    result = trial.as_json()
    if scorer is not None:
        from prefold.errors import UsageError

        known = sorted({point["scorer"] for point in result["operating_points"]})
        if scorer not in known:
            raise UsageError(f"There is no scorer {scorer!r}.", hint=f"Name one of: {', '.join(known)}.")
        result["operating_points"] = [point for point in result["operating_points"] if point["scorer"] == scorer]
    return result


def _stream(
    source: str, embedder: str, max_wrong: float, seeds: Sequence[int]
) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], None]]:
    from pathlib import Path

    with answers_extra():
        from prefold.responses.semantic.decision.decision import DecisionOptions
        from prefold.responses.semantic.trial.contexts import has_contexts, read_contexts, try_contexts
        from prefold.responses.semantic.trial.run import run_stream

        path = Path(source)
        if has_contexts(path):
            return try_contexts(read_contexts(path)).as_json(), _show_contexts
        with _watched(embedder, path.name) as watched:
            trial = run_stream(path, watched, options=DecisionOptions(max_wrong=max_wrong), seeds=seeds)
    return trial.as_json(), _show_stream


@contextmanager
def _watched(embedder: str, what: str) -> Iterator[Embedder]:
    """An embedder that shows on standard error how far it is, where that is a terminal."""
    from prefold.responses.semantic.embedders import make_embedder

    made = make_embedder(embedder, os.environ)
    with console(stderr=True).status(f"{what} ...") as status:
        yield _Watched(made, lambda count: status.update(f"{what}: {count:,} texts embedded ..."))


class _Watched:
    """An embedder that tells how many texts it has embedded, and is otherwise the one given."""

    def __init__(self, embedder: Embedder, tell: Callable[[int], object]) -> None:
        self._embedder = embedder
        self._tell = tell
        self._count = 0
        self.fingerprint = embedder.fingerprint
        self.size = embedder.size
        if hasattr(embedder, "embed_tokens"):  # whether it is there decides what is measured
            self.embed_tokens = self._embed_tokens

    def embed(self, texts: list[str]) -> Any:
        """See `Embedder`."""
        self._add(len(texts))
        return self._embedder.embed(texts)

    def _embed_tokens(self, text: str) -> Any:
        self._add(1)
        return self._embedder.embed_tokens(text)  # type: ignore[attr-defined] # looked for above

    def _add(self, texts: int) -> None:
        self._count += texts
        self._tell(self._count)


def _show_pairs(result: Mapping[str, Any]) -> None:
    table = _table("scorer", "limit of traps", "should-hits served", "traps served")
    for point in result["operating_points"]:
        table.add_row(
            point["scorer"],
            f"{point['trap_limit']:.1%}",
            _rate(point["should_hit_served"], point["interval"]) if point["should_hits"] else "-",
            _rate(point["traps_served"], point["traps_interval"]),
        )
    out = console()
    out.print(f"{result['pairs']:,} pairs; {_fitted(result)}.", markup=False, soft_wrap=True)
    out.print(table)


def _fitted(result: Mapping[str, Any]) -> str:
    if not result["folds"]:
        return "whatever is fitted was fitted on the other file"
    return f"whatever is fitted for one was fitted on the {result['folds'] - 1} of {result['folds']} folds without it"


def _show_stream(result: Mapping[str, Any]) -> None:
    table = _table("requests", "of them", "hits", "wrong, of requests", "wrong, of hits")
    parts = [("held out, all orders", result), ("whole, all orders", result["whole"])]
    parts += [(f"held out, order {run['seed']}", run["held_out"]) for run in result["runs"]]
    for name, part in parts:
        _add_figures(table, name, part)
    out = console()
    out.print(
        f"At most {result['max_wrong']:.2%} of what is served may be wrong. Held out: after the first "
        f"{result['fit_share']:.0%} of an order, of which nothing is served. Whole: from nothing, served once proven.",
        markup=False,
        soft_wrap=True,
    )
    out.print(table)


def _show_contexts(result: Mapping[str, Any]) -> None:
    table = _table("key", "requests", "hits", "wrong, of requests", "wrong, of hits")
    _add_figures(table, "all but the last turn is exact", result)
    _add_figures(table, "the last turn alone", result["last_turn_alone"])
    out = console()
    out.print("Whatever was asked in the same words is served, without any decision.", markup=False, soft_wrap=True)
    out.print(table)


def _table(*columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    return table


def _add_figures(table: Table, name: str, part: Mapping[str, Any]) -> None:
    table.add_row(
        name,
        f"{part['requests']:,}",
        _rate(part["hit_rate"], part["hit_interval"]),
        _rate(part["wrong_rate"], part["wrong_interval"]),
        _rate(part["wrong_of_served"], part["wrong_of_served_interval"]),
    )


def _rate(value: float, interval: Sequence[float]) -> str:
    low, high = interval
    return f"{value:.1%} ({low:.1%}..{high:.1%})" if value >= 0.1 else f"{value:.2%} ({low:.2%}..{high:.2%})"
