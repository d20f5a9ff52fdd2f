"""Text with placeholders: `str.format`, f-strings, `%`, `string.Template` and Jinja."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from prefold.lint.source.catalog import TEMPLATE
from prefold.lint.source.modules import Module
from prefold.lint.source.values import Form, Source, Taint, Value, concatenate, merge_taints
from prefold.prompts.placeholders import Style, find_placeholders, stability_of_name

FIRST_LINES = 300
"""Characters of fixed text before a placeholder that still stands in the first lines."""


def filled(template: Value, styles: frozenset[Style], value_of: Callable[[str, int], Value | None]) -> Value:
    """A template with values in its placeholders.

    Args:
        template: whose text is known.
        styles: which placeholders count.
        value_of: the value for a name or, where that is empty, for the number of the placeholder; None if not known.
    """
    text = template.text or ""
    parts: list[Value] = []
    end = 0
    count = 0
    for place in find_placeholders(text):
        if place.style not in styles:
            continue
        parts.append(Value(form=Form.TEXT, static=place.start - end))
        name = last_part(place.name)
        value = value_of(name, int(name) if name.isdigit() else count) or Value()
        if template.template is not None and sum(part.static for part in parts) <= FIRST_LINES:
            value = named(value, place.name, *template.template)
        parts.append(value.plain())
        end = place.end
        count += 1
    parts.append(Value(form=Form.TEXT, static=len(text) - end))
    return replace(concatenate(parts), text=None)


def last_part(name: str) -> str:
    """`c` of `a.b.c`."""
    return name.rpartition(".")[-1]


def named(value: Value, name: str, module: Module, node: ast.expr) -> Value:
    """The value of a placeholder; where nothing is known about it, its name tells whether it varies."""
    if stability_of_name(name) is None or value.sources or (value.is_fixed and not value.holes):
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
        for place in find_placeholders(value.text)
        if place.start <= FIRST_LINES and stability_of_name(place.name) is not None
    ]
