"""`prefold canonicalize`: requests that mean the same, made the same."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.outputs import write_file
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.prompts.canonical.canonicalize import Canonical, Change, Note, Step
    from prefold.prompts.prompt import Prompt

_SAFE = "safe"
_STEPS = (
    *("tool_order", "key_order", "numbers", "json_whitespace", "json_escapes", "line_ends", "unicode"),
    *("trailing_space", "schema_property_order", "whole_numbers", "embedded_json", "datetimes", "uuids"),
    "document_order",
)
_GRANULARITIES = ("day", "hour", "minute", "second")
_MOST_ROWS = 40


@click.command()
@click.argument("body", metavar="BODY|-")
@click.option(
    "--step",
    "steps",
    multiple=True,
    type=click.Choice((_SAFE, *_STEPS)),
    default=(_SAFE,),
    show_default=True,
    allow_from_autoenv=False,
    help="What to do, repeatedly; safe stands for all steps that keep the meaning: the first seven.",
)
@click.option(
    "--granularity",
    type=click.Choice(_GRANULARITIES),
    default="day",
    show_default=True,
    help="For the step datetimes: the finest part of a date-time that stays.",
)
@click.option("--messages", is_flag=True, help="Change the texts of messages and tool results too.")
@click.option("--dialect", metavar="NAME", help="Form of the request.  [default: recognised by content]")
@click.option("--write", is_flag=True, allow_from_autoenv=False, help="Write the result over BODY.")
@click.option(
    "--check", is_flag=True, allow_from_autoenv=False, help="Print no result; exit with 1 if there is a change to make."
)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print the changes as JSON.")
def canonicalize(
    body: str,
    steps: tuple[str, ...],
    granularity: str,
    messages: bool,
    dialect: str | None,
    write: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Print BODY in canonical form, and what was changed.

    BODY is a request, a file with one in each line (.jsonl), or - for standard input; a record of a log is changed in
    the body that it holds. FILE:NUMBER is the body in one line of a log. The result goes to standard output, the list
    of changes to standard error. Steps that change what the model reads are done only where they are asked for:
    prefold canonicalize BODY --step safe --step datetimes.
    """
    from functools import partial

    from prefold.cli.inputs import STANDARD_INPUT, read_request
    from prefold.errors import UsageError
    from prefold.prompts.canonical import canonicalize as canonical
    from prefold.prompts.canonical.moments import Granularity

    if write and check:
        raise UsageError("--write and --check exclude each other.", hint="Check first, then write.")
    if write and body == STANDARD_INPUT:
        raise UsageError("Standard input is no file to write to.", hint="Leave --write out, or name a file.")
    content = read_request(body)
    is_line = body != STANDARD_INPUT and not os.path.lexists(body)
    if write and is_line:
        raise UsageError(f"{body} is no file to write to.", hint="Leave --write out, or name the whole file.")
    transform = partial(
        canonical.canonicalize,
        steps=_chosen(steps),
        granularity=Granularity(granularity),
        in_messages=messages,
    )
    result = _transformed(content, body, transform, dialect, keeps_records=not is_line)
    if write and result.content != content:
        write_file(Path(body), result.content)
    if as_json:
        echo_json(_report(result, prints_body=not (write or check)))
    else:
        _print_changes(result)
        if not (write or check):
            click.echo(result.content, nl=not result.content.endswith(b"\n"))
    if check and result.changes:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


F = TypeVar("F", "Change", "Note")


@dataclass(frozen=True)
class _Located(Generic[F]):
    """A change or a note, and the line that the request is on, counted from 1; None where the file is one request."""

    line: int | None
    found: F

    def as_json(self) -> dict[str, Any]:
        return {"line": self.line, **self.found.as_json()}


@dataclass(frozen=True)
class _Result:
    """A file in canonical form."""

    content: bytes
    changes: tuple[_Located[Change], ...]
    notes: tuple[_Located[Note], ...]


def _chosen(steps: tuple[str, ...]) -> frozenset[Step]:
    from prefold.prompts.canonical.canonicalize import DEFAULT_STEPS, Step

    named = {Step(step) for step in steps if step != _SAFE}
    return DEFAULT_STEPS | named if _SAFE in steps else frozenset(named)


def _transformed(
    content: bytes, name: str, transform: Callable[[Prompt], Canonical], dialect: str | None, *, keeps_records: bool
) -> _Result:
    from prefold.cli.inputs import shown
    from prefold.prompts.logged import holds_lines, in_line, parse_line, parse_logged, with_body

    is_lines = holds_lines(name, io.BytesIO(content))
    written: list[bytes] = []
    changes: list[_Located[Change]] = []
    notes: list[_Located[Note]] = []
    for number, line in enumerate(content.split(b"\n") if is_lines else [content], 1):
        request = line.rstrip(b" \t\r\n")  # how a file or a line ends is no part of the request
        if is_lines and not request:
            written.append(line)
            continue
        with in_line(number, shown(name)) if is_lines else nullcontext():
            logged = parse_line(request, dialect) if is_lines else parse_logged(request, dialect)
            found = transform(logged.prompt)
        body = found.prompt.render()
        written.append((with_body(request, body) if keeps_records else body) + line[len(request) :])
        place = number if is_lines else None
        changes += (_Located(place, change) for change in found.changes)
        notes += (_Located(place, note) for note in found.notes)
    return _Result(b"\n".join(written), tuple(changes), tuple(notes))


def _report(result: _Result, *, prints_body: bool) -> dict[str, Any]:
    """The answer as `--json` prints it."""
    return {
        "schema_version": 1,
        "changes": [located.as_json() for located in result.changes],
        "notes": [located.as_json() for located in result.notes],
        "body": result.content.decode(errors="surrogatepass") if prints_body else None,
    }


def _print_changes(result: _Result) -> None:
    from rich.table import Table
    from rich.text import Text

    from prefold.prompts.invisible import visible

    talk = console(stderr=True)
    for note in result.notes[:_MOST_ROWS]:
        place = f"line {note.line}, {note.found.path}" if note.line else str(note.found.path)
        words = f"{place}: {visible(note.found.text)} stays as it is, because {note.found.reason}."
        talk.print(words, markup=False, soft_wrap=True)
    if not result.changes:
        talk.print("Nothing to change.")
        return
    has_lines = result.changes[0].line is not None
    table = Table(title=f"{len(result.changes)} changes" if len(result.changes) > 1 else "1 change")
    for name in (*(("line",) if has_lines else ()), "path", "step", "before", "after"):
        table.add_column(name, justify="right" if name == "line" else "left", overflow="fold")
    for located in result.changes[:_MOST_ROWS]:
        change = located.found
        shown = (
            str(change.path) or "the whole body",
            change.step.value,
            visible(change.before),
            visible(change.after),
        )
        table.add_row(*(Text(cell) for cell in (*((str(located.line),) if has_lines else ()), *shown)))
    talk.print(table)
    if (more := len(result.changes) - _MOST_ROWS) > 0:
        talk.print(f"and {more} more; --json lists all.")
