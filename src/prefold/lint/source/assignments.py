"""Gives variables, attributes and entries the values that a program assigns to them."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from prefold.lint.source.sinks import Certainty, Sink, is_prompt_variable, key_sink
from prefold.lint.source.values import UNKNOWN, Step, Value, join, merge_taints, with_entries

if TYPE_CHECKING:
    from prefold.lint.source.expressions import Scope


def assign(scope: Scope, target: ast.expr, value: Value, *, is_growth: bool = False) -> None:
    """Give a variable, an attribute of `self`, or an entry a value.

    Args:
        scope: where.
        target: what is assigned to.
        value: what it gets.
        is_growth: whether the object stays the same and has changed, as by `list.append`.
    """
    if isinstance(target, (ast.Tuple, ast.List)):
        bind_target(scope.names, target, value)
        for place, item in enumerate(target.elts):
            if isinstance(item, ast.Attribute):
                assign(scope, item, value.entries[place] if value.entries and place in value.entries else value.plain())
    elif isinstance(target, ast.Subscript):
        _assign_entry(scope, target, value)
    elif isinstance(target, (ast.Name, ast.Attribute)):
        name = target.id if isinstance(target, ast.Name) else target.attr
        if value.taints and not is_growth:
            value = value.through(Step(f"flows through `{name}`", scope.module, target.lineno))
        if is_prompt_variable(name, scope.module):
            scope.reach(value, Sink(f"`{name}`", scope.module, target.lineno, Certainty.NAME))
        if isinstance(target, ast.Name):
            _note_growth(scope, name, value, is_growth=is_growth)
        elif _is_system_message(scope, target.value):
            _reach(scope, value, key_sink(name, UNKNOWN, scope.module, target.lineno, is_system_message=True))
        _store(scope, target, name, value)


def _reach(scope: Scope, value: Value, sink: Sink | None) -> None:
    if sink is not None:
        scope.reach(value, sink)


def _note_growth(scope: Scope, name: str, value: Value, *, is_growth: bool) -> None:
    """Remember what becomes of an object of the caller, until its parameter names another one, or of the module."""
    if not is_growth:
        scope.own.discard(name)
    elif name in scope.own:
        known = scope.grown.get(name)
        scope.grown[name] = value if known is None else join(known, value)
    elif scope.is_global(name):
        names = scope.analysis.module_names(scope.module)
        names[name] = join(names[name], value)


def _store(scope: Scope, target: ast.Name | ast.Attribute, name: str, value: Value) -> None:
    if isinstance(target, ast.Name):
        scope.names[name] = value
    elif isinstance(target.value, ast.Name):
        owner = target.value.id
        scope.names[f"{owner}.{name}"] = value
        if scope.function is not None and owner == scope.function.receiver:
            known = scope.writes.get(name)
            scope.writes[name] = value if known is None else join(known, value)


def _assign_entry(scope: Scope, target: ast.Subscript, value: Value) -> None:
    container = scope.value(target.value)
    index = scope.value(target.slice)
    key = target.slice.value if isinstance(target.slice, ast.Constant) else None
    is_system_message = _is_system_message(scope, target.value)
    sink = key_sink(key, container, scope.module, target.lineno, is_system_message=is_system_message)
    if not _is_later_message(target.value):
        _reach(scope, value, sink)
    if container.target is not None:
        return
    entries = container.entries if key is not None else None
    changed = Value(
        merge_taints([container, value, index]),
        container.form,
        is_fixed=container.is_fixed and (key is not None or scope.loops == 0 or not index.holes),
    )
    changed = with_entries(changed, None if entries is None else {**entries, key: value})
    if isinstance(target.value, (ast.Name, ast.Attribute)):
        assign(scope, target.value, changed, is_growth=True)


def _is_system_message(scope: Scope, node: ast.expr) -> bool:
    """Whether the program has asked an object for its role, and knows it to be a system message."""
    return bool(scope.system_messages) and ast.dump(node) in scope.system_messages


def _is_later_message(node: ast.expr) -> bool:
    """Whether an expression is an item of a list that is not its first, such as `messages[-1]`."""
    if not isinstance(node, ast.Subscript):
        return False
    index = node.slice
    return isinstance(index, ast.UnaryOp) or (isinstance(index, ast.Constant) and index.value not in {0, "system"})


def bind_target(names: dict[str, Value], target: ast.expr, value: Value) -> None:
    """Give the names of a loop or an unpacking their values."""
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, ast.Starred):
        bind_target(names, target.value, value.plain())
    elif isinstance(target, (ast.Tuple, ast.List)):
        for place, item in enumerate(target.elts):
            known = value.entries.get(place) if value.entries is not None else None
            bind_target(names, item, known or replace(value.plain(), is_fixed=value.is_fixed))
