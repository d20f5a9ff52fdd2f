"""`prefold fingerprint`: stable prefixes under names in a lock file, and what changed since they were accepted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefold.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prefold.prompts.fingerprints.changes import Change
    from prefold.prompts.fingerprints.lock import Entry, LockFile
    from prefold.prompts.prompt import Prompt

    Function = TypeVar("Function", bound=Callable[..., Any])

_STANDARD_INPUT = "-"
_PARTS = ("prefix", "system", "tools", "whole")


def _lock_option(function: Function) -> Function:
    return click.option(
        "--lock",
        type=click.Path(path_type=Path, dir_okay=False),
        default="prefold.lock.json",
        show_default=True,
        envvar="PREFOLD_FINGERPRINT_LOCK",
        help="The lock file.",
    )(function)


def _json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")(function)


def _from_option(function: Function) -> Function:
    return click.option(
        "--from",
        "source",
        metavar="FILE",
        allow_from_autoenv=False,
        help="Read the one NAME from this file, or from standard input (-), instead of the file it was added from.",
    )(function)


@click.group()
def fingerprint() -> None:
    """Keep stable prefixes in a lock file, and check them.

    Tests do the same with the pytest fixture prefix_lock.
    """


@fingerprint.command()
@click.argument("name")
@click.argument("source", metavar="FILE")
@click.option(
    "--part",
    type=click.Choice(_PARTS),
    default="prefix",
    show_default=True,
    allow_from_autoenv=False,
    help="What stays: prefix is tools, system and messages up to the last answer; whole is everything.",
)
@click.option("--dialect", allow_from_autoenv=False, help="Form of the body, such as anthropic.  [default: by content]")
@_lock_option
@_json_option
def add(name: str, source: str, part: str, dialect: str | None, lock: Path, as_json: bool) -> None:
    """Add the prefix in FILE to the lock file as NAME.

    FILE is a JSON request body or a plain text, or - for standard input. It is read again by `check`.
    """
    from prefold.errors import UsageError
    from prefold.prompts.fingerprints.fingerprint import Part, read_prefix
    from prefold.prompts.fingerprints.lock import Entry, LockFile
    from prefold.prompts.prompt import Dialect

    file = LockFile(lock)
    prefix = read_prefix(_read(source), Part(part), Dialect.named(dialect) if dialect else None)
    entry = Entry.of(name, prefix, Part(part), _recorded(source, lock))
    known = file.read().entries.get(name)
    if known and known.fingerprint != entry.fingerprint:
        raise UsageError(
            f"{lock} already has another prefix {name!r}.",
            hint="See `prefold fingerprint check`, and accept the change with `prefold fingerprint update`.",
        )
    file.accept([entry])
    _print_accepted([entry], {}, as_json=as_json)


@fingerprint.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@_from_option
@_lock_option
@_json_option
def check(names: tuple[str, ...], source: str | None, lock: Path, as_json: bool) -> None:
    """Check that the prefixes NAME, or all that have a file, are what they were when they were accepted.

    Exit code 1 if one changed.
    """
    from prefold.prompts.fingerprints.changes import change_since
    from prefold.prompts.fingerprints.lock import LockFile

    file = LockFile(lock)
    known = _existing(file)
    chosen = _named(known, names, file) if names else [entry for entry in known.values() if entry.source]
    prefixes = _current(file, chosen, source)
    changes = {entry.name: change_since(entry, prefixes[entry.name]) for entry in chosen}
    if as_json:
        results = [_check_as_json(entry, changes[entry.name]) for entry in chosen]
        click.echo(json.dumps({"schema_version": 1, "prefixes": results}, ensure_ascii=False))
    else:
        _print_check(chosen, changes)
    if not names and (tested := len(known) - len(chosen)):
        click.echo(f"{tested} more have no file: tests build and check them.", err=True)
    if any(changes.values()):
        raise click.exceptions.Exit(ExitCode.FINDINGS)


@fingerprint.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_from_option
@_lock_option
@_json_option
def update(names: tuple[str, ...], source: str | None, lock: Path, as_json: bool) -> None:
    """Accept the prefixes NAME as they are now."""
    from prefold.prompts.fingerprints.lock import Entry, LockFile

    file = LockFile(lock)
    known = _existing(file)
    chosen = _named(known, names, file)
    prefixes = _current(file, chosen, source)
    entries = [
        Entry.of(old.name, prefixes[old.name], old.part, _recorded(source, lock) if source else old.source)
        for old in chosen
    ]
    file.accept(entries)
    _print_accepted(entries, known, as_json=as_json)


@fingerprint.command("list")
@_lock_option
@_json_option
def list_(lock: Path, as_json: bool) -> None:
    """List the prefixes in the lock file."""
    from prefold.prompts.fingerprints.lock import LockFile

    entries = _existing(LockFile(lock)).values()
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "prefixes": [_as_json(entry) for entry in entries]}))
        return
    from rich.table import Table

    from prefold.cli.session import console
    from prefold.prompts.fingerprints.fingerprint import shortened

    table = Table("name", "fingerprint", "part", "dialect", "file", box=None, pad_edge=False)
    table.add_column("tokens (estimate)", justify="right")
    for entry in entries:
        cells = (entry.name, shortened(entry.fingerprint), entry.part, entry.prefix.dialect, entry.source or "-")
        table.add_row(*cells, f"{entry.tokens:,}")
    console().print(table, markup=False)


@fingerprint.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_lock_option
def remove(names: tuple[str, ...], lock: Path) -> None:
    """Take the prefixes NAME out of the lock file."""
    from prefold.prompts.fingerprints.lock import LockFile

    file = LockFile(lock)
    _named(_existing(file), names, file)
    file.remove(names)


def _existing(file: LockFile) -> Mapping[str, Entry]:
    """The entries of a lock file, which must be there."""
    from prefold.errors import UsageError

    if not file.path.exists():
        raise UsageError(
            f"There is no lock file {file.path}.", hint="Make one with `prefold fingerprint add NAME FILE`."
        )
    return file.read().entries


def _named(known: Mapping[str, Entry], names: Sequence[str], file: LockFile) -> list[Entry]:
    from prefold.errors import UsageError

    for name in names:
        if name not in known:
            raise UsageError(f"{file.path} has no prefix {name!r}.", hint=f"It has {', '.join(known) or 'none'}.")
    return [known[name] for name in dict.fromkeys(names)]


def _current(file: LockFile, entries: Sequence[Entry], source: str | None) -> dict[str, Prompt]:
    """What the prefixes are now, by name."""
    from prefold.errors import UsageError
    from prefold.prompts.fingerprints.fingerprint import read_prefix

    if source is not None and len(entries) != 1:
        raise UsageError(f"--from {source} is for one prefix, and here are {len(entries)}.", hint="Name one.")
    found = {}
    for entry in entries:
        place = source or file.source_of(entry)
        if place is None:
            raise UsageError(
                f"The prefix {entry.name!r} has no file: a test builds it, or it came from standard input.",
                hint="Name its file with --from, or run the test with `pytest --prefold-update` to accept it.",
            )
        found[entry.name] = read_prefix(_read(str(place)), entry.part, entry.prefix.dialect)
    return found


def _read(source: str) -> bytes:
    from prefold.errors import UsageError

    if source == _STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}.", hint="Check the path.") from None


def _recorded(source: str, lock: Path) -> str | None:
    """A source as the lock file keeps it: relative to its own folder, so that it holds in every clone."""
    if source == _STANDARD_INPUT:
        return None
    return Path(os.path.relpath(Path(source).resolve(), lock.resolve().parent)).as_posix()


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "fingerprint": entry.fingerprint,
        "part": entry.part,
        "dialect": entry.prefix.dialect,
        "tokens": entry.tokens,
        "source": entry.source,
    }


def _check_as_json(entry: Entry, change: Change | None) -> dict[str, Any]:
    return {**_as_json(entry), "change": change.as_json() if change else None}


def _print_check(entries: Sequence[Entry], changes: Mapping[str, Change | None]) -> None:
    from prefold.prompts.fingerprints.fingerprint import shortened

    for entry in entries:
        change = changes[entry.name]
        if change is None:
            click.echo(f"{entry.name}: unchanged, {shortened(entry.fingerprint)}")
            continue
        click.echo(f"{entry.name}: changed")
        for line in change.lines():
            click.echo(f"  {line}")
        click.echo(f"If this is meant: prefold fingerprint update {entry.name}", err=True)


def _print_accepted(entries: Sequence[Entry], known: Mapping[str, Entry], *, as_json: bool) -> None:
    from prefold.prompts.fingerprints.fingerprint import shortened
    from prefold.prompts.fingerprints.suspects import passing_values

    if as_json:
        click.echo(json.dumps({"schema_version": 1, "prefixes": [_as_json(entry) for entry in entries]}))
    for entry in entries:
        if not as_json:
            old = known.get(entry.name)
            before = f"{shortened(old.fingerprint)} -> " if old and old.fingerprint != entry.fingerprint else ""
            click.echo(f"{entry.name}: {before}{shortened(entry.fingerprint)}, about {entry.tokens:,} tokens")
        for value in passing_values(entry.prefix):
            if value.is_live:
                click.echo(f"warning: {entry.name}: {value} may not stay", err=True)
