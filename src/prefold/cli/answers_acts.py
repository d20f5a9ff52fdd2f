"""`prefold answers list`, `show` and the acts of an administrator on entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefold.cli.answers_options import answers_extra, existing_store, json_option, store_option, with_entries
from prefold.cli.session import console, echo_json
from prefold.errors import UsageError

if TYPE_CHECKING:
    from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
    from prefold.responses.semantic.entries.sqlite_listing import Listed, SqliteListing

_Result = TypeVar("_Result")

_LETTERS = 60
"""Of a text in the list."""


def _entry_argument(function: Any) -> Any:
    return click.argument("entry", metavar="ID")(function)


@click.command("list")
@click.option("--after", type=click.IntRange(0), default=0, allow_from_autoenv=False, help="Begin after this number.")
@click.option("--count", type=click.IntRange(1), default=50, show_default=True, help="List so many.")
@store_option
@json_option
def browse(*, after: int, count: int, store: Path | None, as_json: bool) -> None:
    """List entries, oldest first."""
    found = _read(store, lambda listing: listing.page(after, count))
    if as_json:
        echo_json({"schema_version": 1, "entries": [_as_json(entry) for entry in found]})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for number in range(5):
        table.add_column(no_wrap=number < 2)
    for entry in found:
        texts = [_cut(text) for text in (*entry.wordings[:1], entry.answer.text)]
        table.add_row(str(entry.number), entry.id, *map(Text, texts), ", ".join(_marks(entry)))
    console().print(table)
    if len(found) == count:
        click.echo(f"There may be more: --after {found[-1].number}", err=True)


@click.command()
@_entry_argument
@store_option
@json_option
def show(*, entry: str, store: Path | None, as_json: bool) -> None:
    """Show all of the entry ID: its wordings, its answer, and who may see it.

    ID is what the header x-prefold-entry of an answer says, or what `prefold answers list` shows.
    """
    found = _read(store, lambda listing: listing.entry(entry))
    if found is None:
        raise _unknown(entry)
    if as_json:
        echo_json({"schema_version": 1, **_as_json(found)})
        return
    for name, value in (
        ("Question", found.wordings[0] if found.wordings else ""),
        *(("Wording", wording) for wording in found.wordings[1:]),
        ("Answer", found.answer.text),
        ("Model", found.answer.model),
        ("Created", _time(found.created)),
        ("Expires", _time(found.expires)),
        ("Is", ", ".join(_marks(found))),
        ("Rejected", f"for {found.rejections:,} other texts"),
        ("Tags", ", ".join(found.tags)),
    ):
        if value:
            console().print(f"{name:9} {value}", markup=False, soft_wrap=True)


def _read(store: Path | None, use: Callable[[SqliteListing], Awaitable[_Result]]) -> _Result:
    import asyncio

    with answers_extra():
        from prefold.responses.semantic.entries.sqlite_listing import SqliteListing

        path = existing_store(store)

        async def run() -> _Result:
            listing = SqliteListing(path)
            try:
                return await use(listing)
            finally:
                await listing.close()

        return asyncio.run(run())


def _as_json(entry: Listed) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(entry)


def _marks(entry: Listed) -> list[str]:
    names = [name for name in ("vetted", "shared", "quarantined") if getattr(entry, name)]
    return [f"seen by {entry.principals}", *names]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 1]}…"


def _unknown(entry: str) -> UsageError:
    return UsageError(f"There is no entry {entry!r}.", hint="`prefold answers list` shows those that there are.")


@click.command()
@_entry_argument
@store_option
@json_option
def vet(*, entry: str, store: Path | None, as_json: bool) -> None:
    """Free the entry ID for all who share its context, and lift its quarantine.

    Without that an answer is served only after two independent ones got it, or a judge agreed.
    """
    _act(store, entry, lambda entries: entries.vet(entry), "vetted", as_json=as_json)


@click.command()
@_entry_argument
@store_option
@json_option
def share(*, entry: str, store: Path | None, as_json: bool) -> None:
    """Free the entry ID for all tenants.

    It must have been asked for with shared entries switched on. What others are given is the answer, and what it is
    compared with is the question that it was given to first: look at both before.
    """
    _act(store, entry, lambda entries: entries.share(entry), "shared with all tenants", as_json=as_json)


@click.command()
@_entry_argument
@click.option("--note", default="", allow_from_autoenv=False, help="What is wrong, for the audit.")
@store_option
@json_option
def wrong(*, entry: str, note: str, store: Path | None, as_json: bool) -> None:
    """Serve the entry ID no more, from now on.

    It is kept, so that its answer does not come back by being asked for again; `vet` frees it.
    """
    _act(store, entry, lambda entries: entries.quarantine(entry, note), "quarantined", as_json=as_json)


@click.command()
@_entry_argument
@store_option
@json_option
def delete(*, entry: str, store: Path | None, as_json: bool) -> None:
    """Delete the entry ID with its texts, vectors, wordings and rejections."""
    _act(store, entry, lambda entries: entries.delete(entry), "deleted", as_json=as_json)


def _act(
    store: Path | None,
    entry: str,
    act: Callable[[SqliteEntries], Awaitable[bool]],
    done: str,
    *,
    as_json: bool,
) -> None:
    """Do something to one entry, and say so.

    Raises:
        UsageError: if there is none of this id.
    """
    if not with_entries(store, act):
        raise _unknown(entry)
    if as_json:
        echo_json({"schema_version": 1, "act": done.partition(" ")[0], "entries": 1})
    else:
        click.echo(f"1 entry {done}.")


@click.command()
@click.argument("tag")
@store_option
@json_option
def invalidate(*, tag: str, store: Path | None, as_json: bool) -> None:
    """Delete all entries with TAG."""
    found = with_entries(store, lambda entries: entries.invalidate(tag))
    if as_json:
        echo_json({"schema_version": 1, "act": "invalidated", "entries": found})
    else:
        click.echo(f"{found:,} {'entry' if found == 1 else 'entries'} with the tag {tag} deleted.")


@click.command()
@store_option
@json_option
def audit(*, store: Path | None, as_json: bool) -> None:
    """List what administrators did to entries."""
    lines = with_entries(store, lambda entries: entries.audit())
    if as_json:
        from dataclasses import asdict

        echo_json({"schema_version": 1, "acts": [asdict(line) for line in lines]})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for line in lines:
        table.add_row(_time(line.at), line.act, Text(line.subject), f"{line.entries:,}", Text(line.note))
    console().print(table)


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "never"
