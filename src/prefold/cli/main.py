"""The command `prefold`.

Subcommands are imported when they are run, and import what is heavy when they do their work, so that `prefold --help`
and shell completion answer at once.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from prefold import __version__
from prefold.cli.exit_codes import ExitCode
from prefold.cli.extras import missing_extra
from prefold.cli.session import COLORS, Color, Session, default_cache_folder
from prefold.errors import PrefoldError

if TYPE_CHECKING:
    from prefold.cli.settings import Settings

_COMPLETION_VARIABLE = "_PREFOLD_COMPLETE"


@dataclass(frozen=True)
class LazyCommand:
    """A subcommand that has not been imported.

    Attributes:
        module: where it is; the command object there has the subcommand's name.
        help: its line in `prefold --help`.
        is_configurable: whether configuration files have a section for it.
    """

    module: str
    help: str
    is_configurable: bool = True


COMMANDS: Mapping[str, LazyCommand] = MappingProxyType(
    {
        "demo": LazyCommand("prefold.cli.demo", "Play three scenes with the prefix cache off and on."),
        "serve": LazyCommand("prefold.cli.serve", "Serve MODEL over HTTP."),
        "tenant-key": LazyCommand(
            "prefold.cli.tenant_key",
            "Make an API key for tenant NAME of the gateway.",
            is_configurable=False,
        ),
        "cache": LazyCommand(
            "prefold.cli.cache", "Look after K/V that is kept on disk or remote.", is_configurable=False
        ),
        "size": LazyCommand("prefold.cli.size", "Print the K/V bytes of MODEL per token and per context."),
        "bench": LazyCommand(
            "prefold.cli.bench",
            "Measure what an option costs and brings, on this machine.",
            is_configurable=False,
        ),
        "diff": LazyCommand("prefold.cli.diff", "Say where request B stops matching request A."),
        "lint": LazyCommand("prefold.cli.lint", "Find what would change a stable prefix."),
        "explain": LazyCommand(
            "prefold.cli.explain", "Explain a lint rule or a cause of breaks.", is_configurable=False
        ),
        "fingerprint": LazyCommand(
            "prefold.cli.fingerprint",
            "Keep stable prefixes in a lock file, and check them.",
            is_configurable=False,
        ),
        "canonicalize": LazyCommand("prefold.cli.canonicalize", "Print BODY in canonical form, and what was changed."),
        "order": LazyCommand("prefold.cli.order", "Find what varies in prompts, and a better order."),
        "breakpoints": LazyCommand(
            "prefold.cli.breakpoints", "Plan the cache markers of BODY, and say whether caching pays."
        ),
        "render": LazyCommand("prefold.cli.render", "Show request BODY as the model reads it."),
        "report": LazyCommand("prefold.cli.report", "Show where the tokens of LOG are recomputed, and why."),
        "simulate": LazyCommand("prefold.cli.simulate", "Send the requests of LOG to simulated caches."),
        "doctor": LazyCommand("prefold.cli.doctor", "Say why the hit rate fell."),
        "watch-log": LazyCommand("prefold.cli.watch_log", "Follow LOG, and print breaks and alerts when they happen."),
        "anonymise": LazyCommand("prefold.cli.anonymise", "Write a trace of LOG that can be shared."),
        "answers": LazyCommand(
            "prefold.cli.answers", "Prove, explain and administer answers by meaning.", is_configurable=False
        ),
        "providers": LazyCommand(
            "prefold.cli.providers",
            "List the cache rules of providers and engines, or explain one.",
            is_configurable=False,
        ),
        "config": LazyCommand("prefold.cli.config", "Show the configuration in force.", is_configurable=False),
    }
)

_INTRODUCTION = """\
prefold reads every prompt prefix once.

  With a laptop and two minutes   prefold demo
  To build an application on it   prefold serve    then http://127.0.0.1:8000/v1 speaks OpenAI's API
  To see why a prefix is lost     prefold diff A.json B.json    and before it is: prefold lint
  To see what a log costs, why    prefold report LOG -o report.html
  To plan a machine's memory      prefold size MODEL --memory 80GiB

prefold --help lists all commands, prefold COMMAND --help explains one."""


class LazyGroup(click.Group):
    """A group whose commands are those of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names, in the order in which they are shown."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """Import a command."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        command: click.Command = getattr(importlib.import_module(lazy.module), cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


def _read_settings(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Settings | None:
    """Read the configuration files, so that the options after this one find their defaults there."""
    if context.resilient_parsing:  # of shell completion, which must not fail
        return None
    import platformdirs

    from prefold.cli.settings import ROOT_SECTION, ConfigFile, candidates, load

    sections = [name for name, lazy in COMMANDS.items() if lazy.is_configurable]

    def command_of(section: str) -> click.Command | None:
        if section == ROOT_SECTION:
            return prefold
        return prefold.get_command(context, section) if section in sections else None

    if path is not None:
        files: Sequence[ConfigFile] = [ConfigFile(path, required=True)]
    else:
        files = candidates(Path.cwd(), platformdirs.user_config_path("prefold"))
    settings = load(files, command_of, sections)
    context.default_map = settings.default_map()
    return settings


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"auto_envvar_prefix": "PREFOLD", "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--config-file",
    "settings",
    envvar="PREFOLD_CONFIG_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_read_settings,
    is_eager=True,
    help="Read this file instead of prefold.toml, pyproject.toml and the user's own file.",
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=default_cache_folder,
    help="Where converted models are kept.  [default: the user's cache folder]",
)
@click.option(
    "--color",
    type=click.Choice(COLORS),
    default="auto",
    show_default=True,
    help="Colour output; auto follows NO_COLOR, FORCE_COLOR and the terminal.",
)
@click.version_option(__version__, prog_name="prefold", message="%(prog)s %(version)s", allow_from_autoenv=False)
@click.pass_context
def prefold(context: click.Context, settings: Settings, cache_dir: Path, color: Color) -> None:
    """Read every prompt prefix once: a real model with an exact prefix cache.

    Options can also be set in prefold.toml and by variables such as PREFOLD_SERVE_PORT; see `prefold config show`.
    """
    if context.invoked_subcommand is None:
        click.echo(_INTRODUCTION)
    else:
        context.obj = Session(cache_dir.expanduser(), color, settings)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code and prints what went wrong to standard error."""
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except PrefoldError as error:
        return _fail(error.message, error.hint)
    except click.ClickException as error:
        misused = error.ctx if isinstance(error, click.UsageError) else None
        return _fail(error.format_message(), f"See `{misused.command_path if misused else 'prefold'} --help`.")
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        return _fail(missing.message, missing.hint)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Stopped.", err=True)
        return ExitCode.INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # Nobody takes our output any more. Give the interpreter somewhere to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.BROKEN_PIPE
        if error.errno == errno.ENOSPC:
            code = _fail("The output cannot be written: no space is left.", "Make room, or write somewhere else.")
    return code


def _invoke(arguments: Sequence[str]) -> int:
    try:
        with prefold.make_context("prefold", list(arguments)) as context:
            prefold.invoke(context)
    except click.exceptions.Exit as exit_:  # of --help, and of commands that have findings
        return exit_.exit_code
    return ExitCode.CLEAN


def main() -> None:
    """Entry point of the console script."""
    if instruction := os.environ.get(_COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(prefold, {}, "prefold", _COMPLETION_VARIABLE, instruction))
    try:
        code = run(sys.argv[1:])
    except Exception:  # noqa: BLE001 - the edge of the process: Python would exit with 1, which means findings
        traceback.print_exc()
        code = _fail("This is a fault of prefold.", "Please report it with the lines above.")
    sys.exit(code)


def _fail(message: str, hint: str) -> int:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    return ExitCode.ERROR
