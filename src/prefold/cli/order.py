"""`prefold order`: what varies in prompts, and the order that keeps their prefix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.prompts.ordering.proposal import Proposal
    from prefold.prompts.tokens import TokenCounter


@click.command()
@click.argument("requests", metavar="LOG|BODY|-")
@click.option(
    "--patched", is_flag=True, allow_from_autoenv=False, help="Print the last request in the proposed order instead."
)
@click.option("--dialect", metavar="NAME", help="Form of the bodies.  [default: recognised by content]")
@click.option(
    "--tokenizer", metavar="NAME|PATH", help="What counts tokens.  [default: the model's own, or an estimate]"
)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def order(requests: str, patched: bool, dialect: str | None, tokenizer: str | None, as_json: bool) -> None:
    """Find what varies in prompts, and a better order.

    How often each part varies, and the cacheable share before and after.

    LOG is a file of JSON Lines, oldest first: request bodies, or records that hold one as request, body or input, with
    a timestamp and a session where there are any. BODY is one request, or a template, or a line of a log as
    FILE:NUMBER. The exit code is 1 if there is a better order.
    """
    from prefold.cli.inputs import shown
    from prefold.errors import UsageError
    from prefold.prompts.logged import RequestLog
    from prefold.prompts.ordering.proposal import propose
    from prefold.prompts.ordering.variation import analyse
    from prefold.prompts.prompt import Dialect
    from prefold.prompts.tokens import counter_for

    if patched and as_json:
        raise UsageError("--patched and --json exclude each other.", hint="The patched request is JSON already.")
    with _opened(requests) as stream:
        log = RequestLog(stream, shown(requests), Dialect.named(dialect) if dialect else None)
        variation = analyse(log)
        proposal = propose(variation, log)
        if patched:
            for last in log:
                latest = last.prompt
            rendered = proposal.apply(latest).render()
            click.echo(rendered, nl=not rendered.endswith(b"\n"))
            return
    counter = counter_for(variation.families[0].example.model if variation.families else "", tokenizer)
    if as_json:
        echo_json(_report(proposal, counter))
    else:
        _print_tables(proposal, counter)
    if proposal.sections:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


@contextmanager
def _opened(requests: str) -> Iterator[TextIO]:
    """The file as text that can be read more than once; standard input is kept in a temporary file for that."""
    import io
    import shutil
    import tempfile
    from pathlib import Path

    from prefold.cli.inputs import STANDARD_INPUT, read_request
    from prefold.errors import UsageError

    if requests == STANDARD_INPUT:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(click.open_file("-", "rb"), copy)
            with io.TextIOWrapper(copy, encoding="utf-8", newline="") as stream:
                yield stream
        return
    path = Path(requests)
    if not path.exists():
        with io.TextIOWrapper(io.BytesIO(read_request(requests)), encoding="utf-8", newline="") as stream:
            yield stream
        return
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            yield stream
    except OSError as error:
        raise UsageError(
            f"{requests} cannot be read: {error.strerror}.", hint="Give a log, a request body, or - for standard input."
        ) from None


def _report(proposal: Proposal, counter: TokenCounter) -> dict[str, Any]:
    """The answer as `--json` prints it."""
    variation = proposal.variation
    return {
        "schema_version": 1,
        "requests": variation.requests,
        "requests_outside": variation.outside,
        "share_before": round(proposal.share_before, 4),
        "share_after": round(proposal.share_after, 4),
        "tokens": counter.name,
        "families": [
            {
                "requests": family.requests,
                "spans": [span.as_json() for span in proposal.spans(family, counter)],
            }
            for family in variation.families
        ],
    }


def _print_tables(proposal: Proposal, counter: TokenCounter) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    variation = proposal.variation
    data = console()
    if not any(family.example.segments for family in variation.families):
        data.print("There is nothing to order.")
        return
    for family in variation.families:
        spans = proposal.spans(family, counter)
        if not spans:
            continue
        plural = "s" if family.requests > 1 else ""
        table = Table(title=f"Spans of {family.requests:,} request{plural}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("span", overflow="ellipsis", no_wrap=True, max_width=24)
        longest = max(len(span.path) for span in spans)
        table.add_column("path", overflow="fold", min_width=min(longest, 16))
        table.add_column("varies", no_wrap=True)
        for header in ("tokens", "now at", "then at"):
            table.add_column(header, justify="right", no_wrap=True)
        for span in spans:
            numbers = (f"{number:,}" for number in (span.tokens, span.now_at, span.proposed_at))
            style = "bold" if span.goes_to else None
            table.add_row(escape(span.text), escape(span.path), _VARIES[span.varies], *numbers, style=style)
        data.print(table)
        for span in spans:
            if span.goes_to:
                data.print(f"{span.path}: {span.text!r} goes {span.goes_to}.", markup=False, soft_wrap=True)
    if variation.outside:
        data.print(f"{variation.outside:,} requests are like no others and are in no table.")
    data.print(f"Cacheable share of input: {proposal.share_before:.1%} -> {proposal.share_after:.1%}")
    if not counter.is_exact:
        data.print("Token counts are an estimate.")


_VARIES = {"static": "never", "daily": "daily", "session": "per session", "request": "per request"}
