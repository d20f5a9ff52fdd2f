"""`prefold answers report`: whether answers by meaning are proven, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefold.cli.answers_options import answers_extra, json_option, max_wrong_option, store_option, with_entries
from prefold.cli.exit_codes import ExitCode
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.responses.semantic.decision.shares import Share
    from prefold.responses.semantic.report import Report

_POOL_LETTERS = 12


@click.command()
@store_option
@max_wrong_option
@json_option
def report(*, store: Path | None, max_wrong: float, as_json: bool) -> None:
    """Say whether answers by meaning are proven on this traffic.

    Shows how many questions would have been answered, how many of those judged would have been wrong, and how many
    right answers are missing until anything is served. Exit status 1 if nothing may be served yet, so that a pipeline
    can wait for it.
    """
    with answers_extra():
        from prefold.responses.semantic.decision.decision import DecisionOptions
        from prefold.responses.semantic.report import read_report

    options = DecisionOptions(max_wrong=max_wrong)
    made = with_entries(store, lambda entries: read_report(entries, options))
    if as_json:
        echo_json(made.as_json())
    else:
        _show(made)
    if not made.passes:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


def _show(report: Report) -> None:
    out = console()
    out.print(f"Questions seen        {report.would_be.of:,}", markup=False)
    out.print(f"Would have been hits  {_share(report.would_be)}", markup=False)
    out.print(f"Were hits             {report.hits:,}", markup=False)
    if report.pools:
        out.print()
        _show_pools(report)
    if report.misses:
        out.print()
        _show_misses(report)
    out.print()
    out.print(_conclusion(report), markup=False, soft_wrap=True)


def _show_pools(report: Report) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("pool", "model"):
        table.add_column(column)
    for column in ("judged", "from", "wrong", "bound", "missing"):
        table.add_column(column, justify="right")
    for pool in report.pools:
        missing = "proven" if pool.passes else f"{pool.missing:,}"
        table.add_row(
            pool.pool[:_POOL_LETTERS] or "all",
            "all",
            f"{pool.wrong.of:,} of {pool.samples:,}",
            f"{pool.threshold:g}",
            _share(pool.wrong),
            f"{pool.bound:.2%}",
            missing,
        )
        for route, wrong in pool.routes.items() if len(pool.routes) > 1 else ():
            table.add_row("", route, f"{wrong.of:,}", "", _share(wrong), "", "")
    console().print(table)


def _show_misses(report: Report) -> None:
    from rich.table import Table

    from prefold.cli.answers_words import WORDS
    from prefold.responses.semantic.types import Reason

    console().print("Misses")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    table.add_column()
    for reason, count in report.misses.items():
        table.add_row(f"{count:,}", reason, WORDS[Reason(reason)])
    console().print(table)


def _share(share: Share) -> str:
    low, high = share.interval
    return f"{share.count:,}, {share.value:.2%} ({low:.2%} to {high:.2%})"


def _conclusion(report: Report) -> str:
    if not report.passes:
        if any(pool.bound < report.max_wrong for pool in report.pools):
            return (
                "Not passed: it is proven for answers that were found more probable than any is by what is known now. "
                "None of the latest right ones would be served."
            )
        return (
            f"Not passed: {report.missing:,} more right answers in a row must be judged before anything is served at a "
            f"limit of {report.max_wrong:.2%} wrong."
        )
    proven = sum(pool.passes for pool in report.pools)
    whom = (
        "" if len(report.pools) == 1 else f" for {proven:,} of {len(report.pools):,} pools; the others are not served"
    )
    return (
        f"Passed{whom}. At most {report.max_wrong:.2%} of what is served is wrong, "
        f"but for a probability of {report.alpha:.0%}."
    )
