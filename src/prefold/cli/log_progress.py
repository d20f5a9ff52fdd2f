"""Reading a log under a bar that shows how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

from prefold.cli.session import console

if TYPE_CHECKING:
    from prefold.analysis.logs.checks import Notes, Progress
    from prefold.analysis.logs.log import Log

_SHOWN = 10
_TREATMENTS = {
    "clock_backwards": "Records earlier than the one before them: {}.",
    "duplicate": "Records that repeat a request id, which count once: {}.",
    "usage_contradicts_text": "Records whose usage cannot be, which is left out: {}.",
    "absurd_count": "Token counts that are negative or absurd, which are left out: {}.",
    "mixed_formats": "Records in another format than their file's first: {}.",
    "no_records": "Files without a record: {}.",
}


@contextmanager
def reading(sources: Sequence[str], *, lenient: bool = False, log_format: str | None = None) -> Iterator[Log]:
    """Open a log that shows its progress on standard error, where that is a terminal, until the block ends.

    Args:
        sources: as for `open_log`.
        lenient: as for `open_log`.
        log_format: as for `open_log`.

    Raises:
        UsageError: as `open_log`.
    """
    from prefold.analysis.logs.log import open_log

    # Colours may be forced upon what is no terminal: the stream itself knows.
    shown = _bar() if sys.stderr is not None and sys.stderr.isatty() else nullcontext()
    with shown as show, closing(open_log(sources, log_format=log_format, lenient=lenient, on_progress=show)) as log:
        yield log


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """Show a bar until the block ends; gives what moves it."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    bar = Bar(
        *columns,
        console=console(stderr=True),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,  # data stays on standard output
    )
    with bar:
        task = bar.add_task("Reading", total=None, rate="")

        def show(progress: Progress) -> None:
            rate = f"{progress.rate:,.0f} requests/s"
            what = "Finishing" if progress.done == progress.total else "Reading"
            bar.update(task, description=what, completed=progress.done, total=progress.total, rate=rate, refresh=True)

        yield show


def tell_notes(notes: Notes) -> None:
    """Say on standard error what was wrong with a log that has been read: lines left out, and what was mended."""
    if notes.skipped:
        places = ", ".join(str(place) for place in notes.skipped_places[:_SHOWN])
        more = " and more" if notes.skipped > _SHOWN else ""
        lines = "line was" if notes.skipped == 1 else "lines were"
        say(f"{notes.skipped:,} {lines} left out: {places}{more}.")
    for problem, sentence in _TREATMENTS.items():
        if number := notes.problems[problem]:
            say(sentence.format(f"{number:,}"))


def say(text: str) -> None:
    """Print on standard error what a user should know."""
    console(stderr=True).print(text, markup=False, soft_wrap=True)
