"""`prefold cache`: what lies in the tiers of K/V, checked, pruned and cleared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.engine.tiers.base import Stored
    from prefold.engine.tiers.catalogue import Catalogue, Model

_TIERS = click.argument("tiers", nargs=-1, required=True, metavar="TIER...")
_JSON = click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
_MODEL = click.option(
    "--model",
    default="",
    metavar="FINGERPRINT",
    help="Only blocks whose fingerprint begins so, as `ls` shows it.",
)
_YES = click.option("--yes", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
_SHOWN = 12
"""Digits of a fingerprint in a table."""


@click.group()
def cache() -> None:
    """Look after K/V that is kept on disk or remote.

    It is what `prefold serve --tier` writes. Servers may run meanwhile: what is removed here is a miss there.
    """


@cache.command()
@_TIERS
@_MODEL
@_JSON
def ls(tiers: tuple[str, ...], model: str, as_json: bool) -> None:
    """List the models that each TIER holds blocks of.

    A TIER is a folder, or a URL as --tier takes it, such as redis://HOST:6379/0 or s3://BUCKET/PREFIX.
    """
    from prefold.engine.tiers.catalogue import models

    found = []
    for tier in tiers:
        with _opened(tier) as (place, catalogue):
            found.append((place, models(catalogue, model)))
    if as_json:
        echo_json({"schema_version": 1, "tiers": [_as_json(place, held) for place, held in found]})
        return
    for number, (place, held) in enumerate(found):
        if number:
            click.echo()
        _print_models(place, held)


@cache.command()
@_TIERS
@_MODEL
@_JSON
def du(tiers: tuple[str, ...], model: str, as_json: bool) -> None:
    """Print how much each TIER holds.

    A TIER is a folder, or a URL as --tier takes it.
    """
    from prefold.core.units import format_bytes

    totals = []
    for tier in tiers:
        with _opened(tier) as (place, catalogue):
            sizes = [entry.size for entry in catalogue.entries(model)]
            totals.append((place, len(sizes), sum(sizes)))
    if as_json:
        rows = [{"tier": place, "blocks": blocks, "bytes": size} for place, blocks, size in totals]
        echo_json({"schema_version": 1, "tiers": rows})
        return
    for place, blocks, size in totals:
        click.echo(f"{format_bytes(size):>10}  {blocks:>9,} blocks  {place}")


@cache.command()
@_TIERS
@_MODEL
@click.option("--remove", is_flag=True, allow_from_autoenv=False, help="Remove what is damaged.")
@_JSON
@click.pass_context
def verify(context: click.Context, tiers: tuple[str, ...], model: str, remove: bool, as_json: bool) -> None:
    """Read every block of each TIER and check it; exit with 1 if one is damaged.

    A TIER is a folder, or a URL as --tier takes it. Damage does no harm: a server finds it too, and computes instead.
    Encrypted blocks are checked without their key.
    """
    from prefold.engine.tiers.catalogue import damaged

    results = []
    for tier in tiers:
        with _opened(tier) as (place, catalogue):
            entries = list(catalogue.entries(model))
            with _bar(f"Checking {place}", sum(entry.size for entry in entries)) as progress:
                bad = damaged(catalogue, entries, progress)
            if remove:
                catalogue.remove(bad)
            results.append((place, len(entries), bad))
    if as_json:
        rows = [
            {"tier": place, "blocks": blocks, "damaged": [f"{entry.where}/{entry.key.hex()}" for entry in bad]}
            for place, blocks, bad in results
        ]
        echo_json({"schema_version": 1, "tiers": rows, "removed": remove})
    else:
        for place, blocks, bad in results:
            for entry in bad:
                click.echo(f"damaged: {entry.where}/{entry.key.hex()}")
            click.echo(
                f"{place}: {_blocks(blocks)} read, {len(bad):,} damaged{' and removed' if bad and remove else ''}"
            )
    if any(bad for _, _, bad in results):
        context.exit(ExitCode.FINDINGS)


@cache.command()
@_TIERS
@_MODEL
@click.option("--older-than", metavar="TIME", help="Remove what was not used for so long, such as 12h or 3d.")
@click.option("--to", metavar="SIZE", help="Remove what was not used for longest, until no more than SIZE stay.")
@click.option("--dry-run", is_flag=True, allow_from_autoenv=False, help="Only say what would be removed.")
@_JSON
def prune(
    tiers: tuple[str, ...], model: str, older_than: str | None, to: str | None, dry_run: bool, as_json: bool
) -> None:
    """Remove the least recently used blocks of each TIER.

    A TIER is a folder, or a URL as --tier takes it. Ends of conversations go before their beginnings. In an object
    store the time is that of writing, since it knows no other.
    """
    import time

    from prefold.core.units import parse_bytes
    from prefold.engine.tiers.catalogue import to_prune
    from prefold.engine.tiers.spec import parse_duration
    from prefold.errors import UsageError

    if older_than is None and to is None:
        raise UsageError("Nothing says what to remove.", hint="give --older-than TIME or --to SIZE")
    before = None if older_than is None else time.time() - parse_duration(older_than)
    size = None if to is None else parse_bytes(to)
    removed = []
    for tier in tiers:
        with _opened(tier) as (place, catalogue):
            going = to_prune(catalogue, list(catalogue.entries(model)), before=before, size=size)
            if not dry_run:
                catalogue.remove(going)
            removed.append((place, going))
    _tell_removed(removed, dry_run=dry_run, as_json=as_json)


@cache.command()
@_TIERS
@_MODEL
@_YES
@_JSON
def clear(tiers: tuple[str, ...], model: str, yes: bool, as_json: bool) -> None:
    """Remove all blocks of each TIER, for everybody who uses it.

    A TIER is a folder, or a URL as --tier takes it. Files that are no blocks stay.
    """
    removed = []
    for tier in tiers:
        with _opened(tier) as (place, catalogue):
            going = list(catalogue.entries(model))
            if going and not yes:
                click.confirm(f"Remove {_amount(going)} from {place}?", abort=True, err=True)
            catalogue.remove(going)
            removed.append((place, going))
    _tell_removed(removed, dry_run=False, as_json=as_json)


@contextmanager
def _opened(tier: str) -> Iterator[tuple[str, Catalogue]]:
    """A tier's name and its blocks; whatever its store raises becomes an error that says which tier it was.

    Raises:
        UsageError: if it cannot be read or written, or is none that outlives a server.
    """
    from prefold.errors import PrefoldError, UsageError

    place, opener = _named(tier)
    try:
        catalogue = opener()
        try:
            yield place, catalogue
        finally:
            catalogue.close()
    except (PrefoldError, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - each library raises what it likes
        # Not a library's own text, which may hold an address with its password.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise UsageError(
            f"{place} cannot be used: {reason}.", hint="check that it is there and may be read and written"
        ) from None


def _named(tier: str) -> tuple[str, Callable[[], Catalogue]]:
    """What to call a tier, and what opens it."""
    from prefold.engine.tiers.catalogue import FolderCatalogue, ObjectsCatalogue
    from prefold.engine.tiers.spec import RemoteSpec, parse_folder, parse_tier
    from prefold.errors import UsageError

    if not re.match(r"[a-z0-9+.-]+://|host=", tier, re.IGNORECASE):
        path = parse_folder(tier)
        return str(path), lambda: FolderCatalogue(path)
    spec = parse_tier(tier)
    if not isinstance(spec, RemoteSpec):
        raise UsageError(f"{tier} is memory of a server that runs.", hint="send that server POST /cache/reset")
    return spec.place, lambda: ObjectsCatalogue(spec.objects())


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error until the block ends, where that is a terminal; gives what moves it."""
    import sys

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    hidden = sys.stderr is None or not sys.stderr.isatty()
    with Progress(*columns, console=console(stderr=True), transient=True, redirect_stdout=False, disable=hidden) as bar:
        task = bar.add_task(what, total=total)
        yield lambda size: bar.advance(task, size)


def _print_models(place: str, held: Sequence[Model]) -> None:
    import time

    from rich.table import Table

    from prefold.core.units import format_bytes

    if not held:
        click.echo(f"{place}: empty")
        return
    click.echo(f"{place}: {format_bytes(sum(model.bytes for model in held))}")
    table = Table("fingerprint", "model", "blocks", "size", "last used", box=None, pad_edge=False)
    for column in (2, 3):
        table.columns[column].justify = "right"
    for model in held:
        about = f"{model.about or '?'}{' (encrypted)' if model.sealed else ''}"
        used = "?" if model.used is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(model.used))
        table.add_row(model.where[:_SHOWN], about, f"{model.blocks:,}", format_bytes(model.bytes), used)
    console().print(table)


def _as_json(place: str, held: Sequence[Model]) -> dict[str, Any]:
    rows = [
        {
            "fingerprint": model.where,
            "about": model.about,
            "encrypted": model.sealed,
            "blocks": model.blocks,
            "bytes": model.bytes,
            "last_used": model.used,
        }
        for model in held
    ]
    return {"tier": place, "models": rows}


def _tell_removed(removed: Sequence[tuple[str, Sequence[Stored]]], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        rows = [
            {"tier": place, "blocks": len(gone), "bytes": sum(entry.size for entry in gone)} for place, gone in removed
        ]
        echo_json({"schema_version": 1, "tiers": rows, "removed": not dry_run})
        return
    for place, gone in removed:
        click.echo(f"{place}: {_amount(gone)} {'would be removed' if dry_run else 'removed'}")


def _amount(entries: Sequence[Stored]) -> str:
    from prefold.core.units import format_bytes

    return f"{_blocks(len(entries))} ({format_bytes(sum(entry.size for entry in entries))})"


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count:,} blocks"
