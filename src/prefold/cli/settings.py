"""Configuration files: where they are, what they may say, and who wins.

A project's own `prefold.toml`, or the table `[tool.prefold]` of its `pyproject.toml`, goes before the user's file. Both
have one section per command, whose keys are that command's options and arguments, and at the top the options of
`prefold` itself. Keys are written with dashes or underscores:

    color = "never"

    [serve]
    port = 9000
    kv-memory = "4GiB"
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from prefold.errors import UsageError

ROOT_SECTION = ""
"""Name of the section for what stands before the first header."""


@dataclass(frozen=True)
class Setting:
    """A value from a file.

    Attributes:
        value: as TOML gives it, of the type that the option takes.
        origin: the file, and the table in it unless that is the whole file.
    """

    value: object
    origin: str


@dataclass(frozen=True)
class Settings:
    """What the files say, checked.

    Attributes:
        sections: by command, `ROOT_SECTION` for `prefold` itself; then by parameter name as click knows it.
    """

    sections: Mapping[str, Mapping[str, Setting]]

    def default_map(self) -> dict[str, Any]:
        """The values in the form that `click.Context.default_map` has."""
        values: dict[str, Any] = {name: setting.value for name, setting in self.sections.get(ROOT_SECTION, {}).items()}
        for section, settings in self.sections.items():
            if section != ROOT_SECTION:
                values[section] = {name: setting.value for name, setting in settings.items()}
        return values


@dataclass(frozen=True)
class ConfigFile:
    """A place where a configuration may be.

    Attributes:
        path: the file.
        table: names of the nested tables that hold it; none for the whole file.
        required: whether it is an error if the file is absent.
    """

    path: Path
    table: tuple[str, ...] = ()
    required: bool = False

    @property
    def origin(self) -> str:
        """How to name it to the user."""
        return f"{self.path} [{'.'.join(self.table)}]" if self.table else str(self.path)

    def read(self) -> Mapping[str, object] | None:
        """Its content; None where there is none.

        Raises:
            UsageError: if the file cannot be read, is not TOML, or a table on the way is none.
        """
        try:
            content: object = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if not self.required:
                return None
            raise UsageError(f"There is no configuration file {self.path}.", hint="Check --config-file.") from None
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be read: {error.strerror}.", hint="Check its access rights."
            ) from None
        except ValueError as error:  # not UTF-8, or not TOML
            raise UsageError(f"{self.path} is not valid TOML: {error}.", hint="See https://toml.io.") from None
        for name in self.table:
            if not isinstance(content, dict) or name not in content:
                return None
            content = content[name]
        if not isinstance(content, dict):
            raise UsageError(f"{self.origin} is not a table.", hint="Write it as a header, in square brackets.")
        return content


class CommaList(click.types.StringParamType):
    """A text that is a list with commas between its items; in a configuration file it may be a list of texts too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, with single commas and without spaces around them."""
        items = value.split(",") if isinstance(value, str) else value
        if not all(isinstance(item, str) for item in items):
            self.fail("Not all items are texts.", param, ctx)
        return ",".join(item.strip() for item in items if item.strip())


COMMA_LIST = CommaList()


def candidates(working_folder: Path, user_folder: Path) -> tuple[ConfigFile, ...]:
    """Where configuration is looked for when no file is named, the strongest first."""
    return (
        ConfigFile(working_folder / "prefold.toml"),
        ConfigFile(working_folder / "pyproject.toml", table=("tool", "prefold")),
        ConfigFile(user_folder / "config.toml"),
    )


def load(files: Iterable[ConfigFile], command_of: Callable[[str], click.Command | None], names: list[str]) -> Settings:
    """Read, check and merge configuration files.

    Args:
        files: the strongest first. Of a `prefold.toml` and a `pyproject.toml` in one folder only the first counts.
        command_of: the command of a section; `prefold` itself for `ROOT_SECTION`; None if there is no such section.
        names: the sections there are, to suggest one where a name is wrong.

    Raises:
        UsageError: naming the file and the key, for an unknown section or key, or a value that the option refuses.
    """
    merged: dict[str, dict[str, Setting]] = {}
    folders: set[Path] = set()
    for file in files:
        if file.path.parent in folders or (content := file.read()) is None:
            continue
        folders.add(file.path.parent)
        for section, keys in _sections(content).items():
            command = command_of(section)
            if command is None:
                raise UsageError(
                    f"{file.origin}: there is no section [{section}].", hint=_near(section, names, "The sections are")
                )
            known = configurable(command)
            for key, value in keys.items():
                parameter = known.get(_normal(key))
                place = f"{file.origin}: {section}.{key}" if section else f"{file.origin}: {key}"
                if parameter is None and section == ROOT_SECTION and key in names:
                    raise UsageError(f"{place} is {_toml_kind(value)}.", hint=f"Write it as a section, [{key}].")
                if parameter is None:
                    hint = _near(key, [shown_key(name) for name in known], "Known here are")
                    raise UsageError(f"{place} is unknown.", hint=hint)
                _check(parameter, value, place, help_of=f"prefold {section}".strip())
                merged.setdefault(section, {}).setdefault(str(parameter.name), Setting(value, file.origin))
    return Settings(merged)


def configurable(command: click.Command) -> dict[str, click.Parameter]:
    """A command's parameters that files and variables can set, by key.

    Left out are those that choose what one call does, which are marked with `allow_from_autoenv=False`, and what a call
    is about: arguments that it cannot do without, or that are lists.
    """
    found: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            if parameter.allow_from_autoenv and not parameter.is_eager:
                found[_normal(max(parameter.opts, key=len))] = parameter
        elif not is_input(parameter):
            found[_normal(str(parameter.name))] = parameter
    return found


def is_input(parameter: click.Parameter) -> bool:
    """Whether a parameter is an argument that says what a call is about."""
    return isinstance(parameter, click.Argument) and (parameter.required or parameter.nargs != 1)


def shown_key(key: str) -> str:
    """A key as it is written in files and messages."""
    return key.replace("_", "-")


def _normal(key: str) -> str:
    return key.lstrip("-").replace("-", "_")


def _sections(content: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """The sections of a file's content, its own keys under `ROOT_SECTION`."""
    own = {key: value for key, value in content.items() if not isinstance(value, dict)}
    return {ROOT_SECTION: own, **{key: value for key, value in content.items() if isinstance(value, dict)}}


def _check(parameter: click.Parameter, value: object, place: str, *, help_of: str) -> None:
    expected, kinds = _expected(parameter)
    # In Python a bool is an int, in TOML it is not.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise UsageError(f"{place} is {_toml_kind(value)}.", hint=f"Write {expected}.")
    try:
        parameter.type_cast_value(click.Context(click.Command(help_of)), value)
    except click.BadParameter as error:
        raise UsageError(f"{place}: {error.message}", hint=f"See `{help_of} --help`.") from None


def _expected(parameter: click.Parameter) -> tuple[str, tuple[type, ...]]:
    """What a parameter takes, in words and as types."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "true or false", (bool,)
    if isinstance(parameter.type, CommaList):
        return "a text in quotes or a list of them", (str, list)
    if isinstance(parameter, click.Option) and parameter.multiple:
        return "a list of texts in quotes", (list,)
    if isinstance(parameter.type, type(click.INT) | click.IntRange):
        return "an unquoted whole number", (int,)
    if isinstance(parameter.type, type(click.FLOAT) | click.FloatRange):
        return "an unquoted number", (int, float)
    return "a text in quotes", (str,)


def _toml_kind(value: object) -> str:
    match value:
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f'the text "{value}"'
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"the date or time {value}"


def _near(name: str, known: list[str], introduction: str) -> str:
    matches = difflib.get_close_matches(shown_key(_normal(name)), known, n=2)
    if matches:
        return f"Did you mean {' or '.join(matches)}?"
    return f"{introduction} {', '.join(known)}."
