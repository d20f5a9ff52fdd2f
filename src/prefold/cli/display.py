"""Progress on standard error: bars on a terminal, a line for each stage elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from rich.console import Console

    from prefold.demo.play import Mode
    from prefold.demo.scenes import Scene

_REFRESHES_PER_SECOND = 4  # the processor is needed elsewhere


class LoadingDisplay:
    """Shows a model being fetched and loaded; an `engine.progress.Progress`, to be used as a context manager.

    Args:
        console: where to show it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_bar()

    def __call__(self, stage: str, done: int, total: int, /) -> None:
        """See `Progress`."""
        if stage != self._stage:
            self._end_bar()
            self._stage = stage
            if total and _is_live(self._console):
                columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
                self._bar = Progress(*columns, console=self._console, refresh_per_second=_REFRESHES_PER_SECOND)
                self._task = self._bar.add_task(stage, total=total)
                self._bar.start()
            else:
                self._console.print(f"{stage} ...", soft_wrap=True, markup=False)
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def scene_display(scene: Scene, console: Console) -> Iterator[Callable[[Mode], None]]:
    """Show a scene of the demo being played; yields what to call after each answer."""
    if not _is_live(console):
        console.print(f"{scene.name}: {scene.requests} requests with the cache off, then on ...", soft_wrap=True)
        yield lambda _mode: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=_REFRESHES_PER_SECOND) as progress:
        off = progress.add_task(f"{scene.title}, cache off", total=scene.requests)
        on = progress.add_task(f"{scene.title}, cache on", total=scene.requests)
        yield lambda mode: progress.advance(off if mode == "off" else on)


def _is_live(console: Console) -> bool:
    """Whether lines can be redrawn; `console.is_terminal` also says so where only colours are wanted."""
    return console.file.isatty()
