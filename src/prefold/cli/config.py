"""`prefold config`: which values are in force, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click
from click.core import ParameterSource

from prefold.cli.session import Session
from prefold.cli.settings import ROOT_SECTION, Settings, candidates, configurable, is_input, shown_key


@dataclass(frozen=True)
class Effective:
    """The value of one option that is in force.

    Attributes:
        section: the command; empty for options of `prefold` itself.
        key: as in a file.
        value: a TOML value, or None where nothing is set.
        source: where it comes from.
        origin: the flag, variable or file; empty for a default.
    """

    section: str
    key: str
    value: bool | int | float | str | list[str] | None
    source: Literal["flag", "variable", "file", "default"]
    origin: str


@click.group()
def config() -> None:
    """Show the configuration in force.

    Flags come first, then variables such as PREFOLD_SERVE_PORT, prefold.toml or [tool.prefold] in pyproject.toml, the
    user's file, and defaults.
    """


@config.command()
@click.option("--origin", "with_origin", is_flag=True, allow_from_autoenv=False, help="Say where each value is from.")
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON, origins included.")
@click.pass_context
def show(context: click.Context, with_origin: bool, as_json: bool) -> None:
    """Print the value of every option, in the form of a prefold.toml."""
    values = list(_effective_values(context))
    if as_json:
        import json

        click.echo(json.dumps({"schema_version": 1, "settings": [asdict(value) for value in values]}, indent=2))
        return
    section = ROOT_SECTION
    for value in values:
        if value.section != section:
            section = value.section
            click.echo(f"\n[{section}]")
        click.echo(_toml_line(value) + (f"  # {_described_origin(value)}" if with_origin else ""))


@config.command()
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def path(as_json: bool) -> None:
    """Print where configuration files are looked for, the strongest first."""
    import platformdirs

    files = candidates(Path.cwd(), platformdirs.user_config_path("prefold"))
    if as_json:
        import json

        found = [
            {"path": str(file.path), "table": ".".join(file.table), "exists": file.path.exists()} for file in files
        ]
        click.echo(json.dumps({"schema_version": 1, "files": found}, indent=2))
        return
    for file in files:
        click.echo(file.origin if file.path.exists() else f"{file.origin} (absent)")


def _effective_values(context: click.Context) -> Iterator[Effective]:
    from prefold.cli.main import COMMANDS  # which knows this module

    root = context.find_root()
    session = context.find_object(Session)
    if not isinstance(root.command, click.Group) or session is None:
        raise TypeError("`prefold config` runs below `prefold`")
    yield from _values_of(root, ROOT_SECTION, session.settings)
    for name in root.command.list_commands(root):
        command = root.command.get_command(root, name)
        if command is not None and COMMANDS[name].is_configurable:
            placeholders = ["-" for parameter in command.params if is_input(parameter)]
            yield from _values_of(command.make_context(name, placeholders, parent=root), name, session.settings)


def _values_of(context: click.Context, section: str, settings: Settings) -> Iterator[Effective]:
    from_files = settings.sections.get(section, {})
    for key, parameter in configurable(context.command).items():
        name = str(parameter.name)
        value = context.params.get(name)
        if isinstance(value, tuple):
            value = [str(item) for item in value]
        elif value is not None and not isinstance(value, bool | int | float | str):
            value = str(value)
        match context.get_parameter_source(name):
            case ParameterSource.COMMANDLINE:
                yield Effective(section, shown_key(key), value, "flag", f"--{shown_key(key)}")
            case ParameterSource.ENVIRONMENT:
                yield Effective(
                    section, shown_key(key), value, "variable", f"{context.auto_envvar_prefix}_{key}".upper()
                )
            case ParameterSource.DEFAULT_MAP:
                yield Effective(section, shown_key(key), value, "file", from_files[name].origin)
            case _:
                yield Effective(section, shown_key(key), value, "default", "")


def _toml_line(value: Effective) -> str:
    match value.value:
        case None:
            return f"# {value.key} is not set"
        case bool():
            return f"{value.key} = {str(value.value).lower()}"
        case str() | list():
            import json

            # A JSON text, or a list of them, is TOML too, but for DEL, which no option holds.
            return f"{value.key} = {json.dumps(value.value, ensure_ascii=False)}"
        case _:
            return f"{value.key} = {value.value}"


def _described_origin(value: Effective) -> str:
    return value.origin or value.source
