"""Text with placeholders: `str.format`, f-strings, `%`, `string.Template` and Jinja."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from prefold.lint.source.catalog import TEMPLATE, VOLATILE_NAME
from prefold.lint.source.modules import Module
from prefold.lint.source.values import Form, Source, Taint, Value, concatenate, merge_taints

FIRST_LINES = 300
"""Characters of fixed text before a placeholder that still stands in the first lines."""

_PLACEHOLDER = re.compile(
    r"\{\{\s*(?P<jinja>\w+(?:\.\w+)*)[^{}]*\}\}|(?<!\{)\{(?P<brace>\w*)[^{}\n]*\}(?!\})"
    r"|%\((?P<percent>\w+)\)[sdr]|%(?P<position>[sdr])|\$\{?(?P<dollar>[a-z_]\w*)\}?"
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One placeholder of a template: characters `start` to `end` of its text, to be filled with `name`."""

    start: int
    end: int
    name: str
    style: str


def placeholders(text: str) -> Iterator[Placeholder]:
    """The placeholders of a template, in order."""
    for match in _PLACEHOLDER.finditer(text):
        style = match.lastgroup or "brace"
        name = match[style]
        yield Placeholder(match.start(), match.end(), name.rsplit(".", 1)[-1], style)


def filled(template: Value, style: frozenset[str], value_of: Callable[[str, int], Value | None]) -> Value:
    """A template with values in its placeholders.

    Args:
        template: whose text is known.
        style: which placeholders count: "brace", "percent", "position", "dollar", "jinja".
        value_of: the value for a name or, where that is empty, for the number of the placeholder; None if not known.
    """
    text = template.text or ""
    parts: list[Value] = []
    end = 0
    count = 0
    for place in placeholders(text):
        if place.style not in style:
            continue
        parts.append(Value(form=Form.TEXT, static=place.start - end))
        name = "" if place.style == "position" else place.name
        value = value_of(name, int(name) if name.isdigit() else count) or Value()
        if template.template is not None and sum(part.static for part in parts) <= FIRST_LINES:
            value = named(value, name, *template.template)
        parts.append(value.plain())
        end = place.end
        count += 1
    parts.append(Value(form=Form.TEXT, static=len(text) - end))
    return replace(concatenate(parts), text=None)


def named(value: Value, name: str, module: Module, node: ast.expr) -> Value:
    """The value of a placeholder; where nothing is known about it, its name tells whether it varies."""
    if not VOLATILE_NAME.search(name) or value.sources or (value.is_fixed and not value.holes):
        return value
    source = Source(TEMPLATE, module, node, name)
    guesses = [replace(hole, pending=source) for hole in value.holes] or [Taint(source)]
    return replace(value, taints=merge_taints([value, Value(tuple(guesses))]))


def unfilled(value: Value) -> list[Taint]:
    """What is found in a template that goes into a prompt as it is, to be filled later by a library."""
    if value.text is None or value.template is None:
        return []
    return [
        Taint(Source(TEMPLATE, *value.template, place.name), static_after=len(value.text) - place.end)
        for place in placeholders(value.text)
        if place.start <= FIRST_LINES and VOLATILE_NAME.search(place.name)
    ]
