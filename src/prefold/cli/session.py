"""What every command inherits from the options of `prefold` itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from prefold.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from prefold.cli.settings import Settings

Color = Literal["auto", "always", "never"]
COLORS: tuple[Color, ...] = ("auto", "always", "never")


@dataclass(frozen=True)
class Session:
    """The options before the command.

    Attributes:
        cache_folder: where converted models are kept.
        color: when output is coloured.
        settings: what the configuration files say.
    """

    cache_folder: Path
    color: Color
    settings: Settings


def default_cache_folder() -> Path:
    """The user's cache folder by the conventions of the system."""
    import platformdirs

    return platformdirs.user_cache_path("prefold")


def current_cache_folder() -> Path:
    """The cache folder of the command that runs."""
    session = _current()
    return session.cache_folder if session else default_cache_folder()


def echo_json(value: Mapping[str, object]) -> None:
    """Print a value as JSON, in its own letters where they can be written."""
    import json

    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can show
        text = json.dumps(value)
    click.echo(text)


def console(*, stderr: bool = False) -> Console:
    """Where the command that runs prints: data to standard output, talk to standard error."""
    import errno
    import os
    import sys

    from rich.console import Console

    class Pipe(Console):
        """A console that ends as all commands do where nobody reads any more; rich's own exits with 1: findings."""

        def on_broken_pipe(self) -> None:
            """End the command."""
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    session = _current()
    stream = sys.stderr if stderr else sys.stdout
    if stream is None:  # the shell's `>&-`
        if not stderr:
            raise UsageError("Standard output is closed.", hint="Write to a file, or to /dev/null.")
        stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the command runs
    colored = wants_color(session.color if session else "auto", os.environ, is_terminal=stream.isatty())
    # rich reads the same variables, in another order of precedence: leave it nothing to decide.
    return Pipe(
        file=stream,
        force_terminal=True if colored else None,
        no_color=not colored,
        color_system="auto" if colored else None,
        highlight=False,
    )


def wants_color(color: Color, environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether to colour output: the option decides, then NO_COLOR, then FORCE_COLOR, then the terminal.

    Variables that are set but empty count as not set (https://no-color.org, https://force-color.org).
    """
    if color != "auto":
        return color == "always"
    if environment.get("NO_COLOR"):
        return False
    return bool(environment.get("FORCE_COLOR")) or is_terminal


def _current() -> Session | None:
    """The session, or None where a command is used without its group."""
    context = click.get_current_context(silent=True)
    return context.find_object(Session) if context else None
