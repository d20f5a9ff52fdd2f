"""`prefold canonicalize`: requests that mean the same, made the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.outputs import write_file
from prefold.cli.session import console

if TYPE_CHECKING:
    from prefold.prompts.canonical.canonicalize import Canonical, Change, Step
    from prefold.prompts.prompt import Prompt

_SAFE = "safe"
_STEPS = (
    *("tool_order", "key_order", "numbers", "json_whitespace", "line_ends", "unicode", "trailing_space"),
    *("schema_property_order", "whole_numbers", "embedded_json", "datetimes", "uuids", "document_order"),
)
_GRANULARITIES = ("day", "hour", "minute", "second")
_LINE_SUFFIXES = (".jsonl", ".ndjson")
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

    BODY is a request, a file with one in each line (.jsonl), or - for standard input. The result goes to standard
    output, the list of changes to standard error. Steps that change what the model reads are done only where they are
    asked for: prefold canonicalize BODY --step safe --step datetimes.
    """
    from functools import partial

    from prefold.cli.inputs import STANDARD_INPUT, read_bytes
    from prefold.errors import UsageError
    from prefold.prompts.canonical import canonicalize as canonical
    from prefold.prompts.canonical.spelling import Granularity

    if write and check:
        raise UsageError("--write and --check exclude each other.", hint="Check first, then write.")
    if write and body == STANDARD_INPUT:
        raise UsageError("Standard input is no file to write to.", hint="Leave --write out, or name a file.")
    content = read_bytes(body)
    transform = partial(
        canonical.canonicalize,
        steps=_chosen(steps),
        granularity=Granularity(granularity),
        in_messages=messages,
    )
    result = _transformed(content, transform, dialect, is_lines=_holds_lines(body, content))
    if write and result.content != content:
        write_file(Path(body), result.content)
    if as_json:
        _print_json(result, prints_body=not (write or check))
    else:
        _print_changes(result)
        if not (write or check):
            click.echo(result.content, nl=not result.content.endswith(b"\n"))
    if check and result.changes:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


@dataclass(frozen=True)
class _Located:
    """A change, and the line that the request is on, counted from 1; None where the file is one request."""

    line: int | None
    change: Change


@dataclass(frozen=True)
class _Result:
    """A file in canonical form."""

    content: bytes
    changes: tuple[_Located, ...]


def _chosen(steps: tuple[str, ...]) -> frozenset[Step]:
    from prefold.prompts.canonical.canonicalize import DEFAULT_STEPS, Step

    named = {Step(step) for step in steps if step != _SAFE}
    return DEFAULT_STEPS | named if _SAFE in steps else frozenset(named)


def _holds_lines(name: str, content: bytes) -> bool:
    """Whether each line is a request: by the file's name, else because the first of several lines is a whole one."""
    if name.endswith(_LINE_SUFFIXES):
        return bool(content.strip())
    first, _, rest = content.lstrip().partition(b"\n")
    if not first.startswith(b"{") or not rest.strip():
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _transformed(
    content: bytes, transform: Callable[[Prompt], Canonical], dialect: str | None, *, is_lines: bool
) -> _Result:
    from prefold.errors import InvalidRequest
    from prefold.prompts.prompt import Prompt

    written: list[bytes] = []
    changes: list[_Located] = []
    for number, line in enumerate(content.split(b"\n") if is_lines else [content], 1):
        request = line.rstrip(b" \t\r\n")  # how a file or a line ends is no part of the request
        if is_lines and not request:
            written.append(line)
            continue
        try:
            found = transform(Prompt.parse(request, dialect))
        except InvalidRequest as error:
            if is_lines:
                raise InvalidRequest(f"Line {number}: {error.message}", hint=error.hint, param=error.param) from None
            raise
        written.append(found.prompt.render() + line[len(request) :])
        changes += (_Located(number if is_lines else None, change) for change in found.changes)
    return _Result(b"\n".join(written), tuple(changes))


def _print_json(result: _Result, *, prints_body: bool) -> None:
    report: dict[str, Any] = {
        "schema_version": 1,
        "changes": [{"line": located.line, **located.change.as_json()} for located in result.changes],
        "body": result.content.decode(errors="surrogatepass") if prints_body else None,
    }
    click.echo(json.dumps(report))


def _print_changes(result: _Result) -> None:
    from rich.table import Table
    from rich.text import Text

    talk = console(stderr=True)
    if not result.changes:
        talk.print("Nothing to change.")
        return
    has_lines = result.changes[0].line is not None
    table = Table(title=f"{len(result.changes)} changes" if len(result.changes) > 1 else "1 change")
    for name in (*(("line",) if has_lines else ()), "path", "step", "before", "after"):
        table.add_column(name, justify="right" if name == "line" else "left", overflow="fold")
    for located in result.changes[:_MOST_ROWS]:
        change = located.change
        shown = (
            str(change.path) or "the whole body",
            change.step.value,
            _visible(change.before),
            _visible(change.after),
        )
        table.add_row(*(Text(cell) for cell in (*((str(located.line),) if has_lines else ()), *shown)))
    talk.print(table)
    if (more := len(result.changes) - _MOST_ROWS) > 0:
        talk.print(f"and {more} more; --json lists all.")


def _visible(text: str) -> str:
    """A text on one line, with what does not show written as an escape."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
