"""What the commands of `prefold answers` share: which store, and what is missing where its packages are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefold.cli.session import current_cache_folder
from prefold.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries

    Function = TypeVar("Function", bound=Callable[..., Any])

_Result = TypeVar("_Result")

_OURS = "prefold"


def store_option(function: Function) -> Function:
    """Adds --store."""
    return click.option(
        "--store",
        type=click.Path(path_type=Path),
        metavar="PATH",
        envvar="PREFOLD_ANSWERS_STORE",
        help="The file with answers by meaning, or its folder.  [default: the gateway's]",
    )(function)


def json_option(function: Function) -> Function:
    """Adds --json."""
    return click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")(function)


def max_wrong_option(function: Function) -> Function:
    """Adds --max-wrong."""
    return click.option(
        "--max-wrong",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        default=0.005,
        show_default=True,
        help="Share of served answers that may be wrong.",
    )(function)


def existing_store(store: Path | None) -> Path:
    """The file of a store.

    Raises:
        UsageError: if there is none.
    """
    from prefold.responses.semantic.open_cache import ENTRIES_NAME, entries_file

    path = entries_file(store if store is not None else current_cache_folder() / ENTRIES_NAME)
    if not path.is_file():
        raise UsageError(
            f"There are no answers by meaning at {path}.",
            hint="Name the file with --store; the gateway makes it with the first question that it sees.",
        )
    return path


def with_entries(store: Path | None, use: Callable[[SqliteEntries], Awaitable[_Result]]) -> _Result:
    """What a function makes of a store.

    Raises:
        UsageError: if there is none.
        StoreFailed: if it cannot be read or changed.
    """
    import asyncio
    import time

    with answers_extra():
        from prefold.responses.semantic.entries.records import EntriesOptions
        from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries

        path = existing_store(store)

        async def run() -> _Result:
            entries = SqliteEntries(path, EntriesOptions(), time.time)
            try:
                return await use(entries)
            finally:
                await entries.close()

        return asyncio.run(run())


@contextmanager
def answers_extra() -> Iterator[None]:
    """Tells an absent package of the extra from a fault.

    Raises:
        MissingExtra: if a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", _OURS):
            raise
        raise MissingExtra(
            f"This needs the package {package}, which is not installed.", hint="pip install 'prefold[answers]'"
        ) from None
