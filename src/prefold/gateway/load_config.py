"""Reads the file that a gateway is told by, and says what is wrong with it.

Messages never show a value that is not one of a few words: it could be a secret at the wrong place.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from prefold.errors import UsageError
from prefold.gateway.config import GatewayConfig, Secret
from prefold.gateway.config_checks import checked, near
from prefold.gateway.meaning_checks import check_meaning

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_AT = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_NO_CHOICE = re.compile(r"Invalid enum value (.*)")


def load_config(path: Path, environ: Mapping[str, str]) -> GatewayConfig:
    """The configuration in a file, checked.

    Args:
        path: of a TOML file.
        environ: where secrets are.

    Raises:
        UsageError: naming the file, the key at fault and what is allowed there.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint="Check its path and rights.") from None
    except ValueError as error:  # not UTF-8, or not TOML
        raise UsageError(f"{path} is not valid TOML: {error}.", hint="See https://toml.io.") from None
    try:
        config = checked(_converted(_with_underscores(content, "")), environ)
        check_meaning(config, environ)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None
    return config


def _with_underscores(value: Any, place: str) -> Any:
    """A value whose keys are written as the fields are."""
    if isinstance(value, list):
        return [_with_underscores(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    written: dict[str, Any] = {}
    for key, item in value.items():
        name = key.replace("-", "_")
        where = f"{place}.{name}".lstrip(".")
        if name in written:
            raise UsageError(f"{where} is there twice, with a dash and with an underscore.", hint="Remove one.")
        written[name] = _with_underscores(item, where)
    return written


def _converted(content: Mapping[str, Any]) -> GatewayConfig:
    try:
        return msgspec.convert(content, GatewayConfig)
    except msgspec.ValidationError as error:
        raise _fault(str(error)) from None


def _fault(complaint: str) -> UsageError:
    """What msgspec complains about, in the words of this project."""
    match = _AT.fullmatch(complaint)
    what, path = (match["what"], match["path"] or "") if match else (complaint, "")
    place = path.lstrip(".")
    if unknown := _UNKNOWN.fullmatch(what):
        return UsageError(f"{_joined(place, unknown[1])} is unknown.", hint=_near_field(unknown[1], _type_at(path)))
    if missing := _MISSING.fullmatch(what):
        place = _joined(place, missing[1])
        return UsageError(f"{place} is missing.", hint=f"Write {_described(_type_at(f'{path}.{missing[1]}'))}.")
    wrong = f"is {chosen[1]}" if (chosen := _NO_CHOICE.fullmatch(what)) else "has a value that is not allowed"
    return UsageError(f"{place} {wrong}.", hint=f"Write {_described(_type_at(path))}.")


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _near_field(name: str, type_: inspect.Type) -> str:
    fields = [field.name for table in _alternatives(type_) for field in _fields(table)]
    return near(name, fields, "Known here are")


def _type_at(path: str) -> inspect.Type:
    """The type of the value at a path such as `.replica[0].kind`."""
    found: inspect.Type = inspect.type_info(GatewayConfig)
    for name, _index in _STEP.findall(path):
        for type_ in _alternatives(found):
            if name:
                field = next((field for field in _fields(type_) if field.name == name), None)
                if field is not None:
                    found = field.type
            elif isinstance(type_, inspect.VarTupleType):
                found = type_.item_type
    return found


def _fields(type_: inspect.Type) -> tuple[inspect.Field, ...]:
    return type_.fields if isinstance(type_, inspect.StructType) else ()


def _alternatives(type_: inspect.Type) -> tuple[inspect.Type, ...]:
    """The types that a value may have; null cannot be written in TOML."""
    types = type_.types if isinstance(type_, inspect.UnionType) else (type_,)
    return tuple(each for each in types if not isinstance(each, inspect.NoneType))


def _described(type_: inspect.Type) -> str:
    """What may be written for a type."""
    match type_:
        case inspect.IntType():
            words = f"a whole number{_bounds(type_)}"
        case inspect.FloatType():
            words = f"a number{_bounds(type_)}"
        case inspect.BoolType():
            words = "true or false"
        case inspect.LiteralType() | inspect.EnumType():
            words = _choices(type_)
        case inspect.StructType():
            words = '{ env = "NAME" } or { file = "PATH" }' if type_.cls is Secret else "a table"
        case inspect.VarTupleType(item_type=inspect.StructType()):
            words = "it in double brackets, [[...]]"
        case inspect.VarTupleType(item_type=item):
            words = f"a list of items, each {_described(item)}"
        case inspect.UnionType():
            words = " or ".join(map(_described, _alternatives(type_)))
        case _:
            words = "a text in quotes"
    return words


def _choices(type_: inspect.LiteralType | inspect.EnumType) -> str:
    values = type_.values if isinstance(type_, inspect.LiteralType) else [choice.value for choice in type_.cls]
    *others, last = [f'"{value}"' for value in values]
    return f"{', '.join(others)} or {last}" if others else last


def _bounds(type_: inspect.IntType | inspect.FloatType) -> str:
    above, least, most = type_.gt, type_.ge, type_.le
    if least is not None and most is not None:
        return f" from {least} to {most}"
    parts = []
    if above is not None:
        parts.append(f"above {above}")
    if least is not None:
        parts.append(f"of {least} or more")
    if most is not None:
        parts.append(f"up to {most}")
    return f" {' and '.join(parts)}" if parts else ""
