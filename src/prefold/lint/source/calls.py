"""Reads calls: their arguments, what they put into prompts, and which of the other modules knows their result."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from prefold.lint.source.assignments import assign
from prefold.lint.source.functions import function_value
from prefold.lint.source.methods import Call, method_value
from prefold.lint.source.modules import Bound, ClassInfo, FunctionInfo, dotted_name, last_name
from prefold.lint.source.sinks import PROMPT_KEYWORDS, SYSTEM_ROLES, call_sinks
from prefold.lint.source.values import (
    EXACT_KEY,
    UNKNOWN,
    Form,
    Taint,
    Value,
    concatenate,
    merge_taints,
    sequence,
    set_of,
    with_entries,
)

if TYPE_CHECKING:
    from prefold.lint.source.expressions import Scope

_GROWING_METHODS = frozenset(
    {"append", "extend", "insert", "add", "update", "appendleft", "write", "setdefault", "writelines"}
)


def call_value(scope: Scope, node: ast.Call) -> Value:
    """What a call evaluates to; what it puts into prompts is noted on the way."""
    call = _read(scope, node)
    for value, sink in call_sinks(node, scope.module, call.arguments, call.keywords):
        scope.reach(value, sink)
    if call.method in _GROWING_METHODS and isinstance(node.func, ast.Attribute) and call.receiver.target is None:
        added = call.given if call.method == "update" else call.arguments[-1:]
        assign(scope, node.func.value, _grown(call.receiver, added, call.method), is_growth=True)
    match call.function.target:
        case FunctionInfo() | Bound() | ClassInfo() as target:
            result = scope.analysis.called(target, call.arguments, call.keywords, scope.module, node.lineno)
            _note_changes(scope, call, target)
            return result
        case str() as name:
            return function_value(scope, call, name)
        case _:
            return method_value(scope, call)


def _note_changes(scope: Scope, call: Call, target: FunctionInfo | Bound | ClassInfo) -> None:
    """Give the caller's variables what a function has put into the lists and dicts that they name."""
    if any(isinstance(node, ast.Starred) for node in call.node.args):
        return
    changed = scope.analysis.changed(target, call.arguments, call.keywords)
    nodes: dict[int | str | None, ast.expr] = dict(enumerate(call.node.args))
    nodes.update({keyword.arg: keyword.value for keyword in call.node.keywords})
    for place, value in changed.items():
        node = nodes.get(place)
        if isinstance(node, (ast.Name, ast.Attribute)):
            old = scope.value(node)
            assign(scope, node, replace(value, form=old.form, is_fixed=old.is_fixed), is_growth=True)


def _read(scope: Scope, node: ast.Call) -> Call:
    receiver = UNKNOWN
    if isinstance(node.func, ast.Attribute):
        receiver = scope.value(node.func.value)
        function = scope.names.get(dotted_name(node.func)) or scope.attribute(receiver, node.func.attr)
    else:
        function = scope.value(node.func)
    stable = scope.is_stable
    if last_name(node.func) in {"append", "extend"} and _has_messages(receiver):
        scope.is_stable = False
    arguments: list[Value] = []
    for item in node.args:
        value = scope.value(item)
        arguments.append(scope.elements(value, item.value) if isinstance(item, ast.Starred) else value)
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = scope.value(keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif value.entries is not None:
            keywords.update({key: entry for key, entry in value.entries.items() if isinstance(key, str)})
        else:
            keywords.update(_passed_through(scope, keyword.value))
    scope.is_stable = stable
    return Call(node, receiver, function, arguments, keywords)


def _passed_through(scope: Scope, node: ast.expr) -> dict[str, Value]:
    """The parts of a prompt that `**options` of the function around may hold: its callers know."""
    function = scope.function
    if function is None or not isinstance(node, ast.Name):
        return {}
    parameter = function.node.args.kwarg
    if parameter is None or parameter.arg != node.id:
        return {}
    return {
        name: Value((Taint(replace(function.hole(node.id), path=(f"{EXACT_KEY}{name}",))),))
        for name in sorted(PROMPT_KEYWORDS)
    }


def _has_messages(receiver: Value) -> bool:
    """Whether a list holds other messages than system ones, so that what is added comes after the prefix."""
    if receiver.form is not Form.LIST:
        return False
    if receiver.entries is None:
        return True
    roles = [item.entries["role"].text for item in receiver.entries.values() if item.entries and "role" in item.entries]
    return not SYSTEM_ROLES.issuperset(roles) or len(roles) < len(receiver.entries)


def _grown(receiver: Value, added: list[Value], method: str) -> Value:
    """A container after `list.append` and its like."""
    if receiver.form is Form.SET or method == "add":
        new = set_of(added)
        return Value(merge_taints([receiver, new]), Form.SET, is_strings=receiver.is_strings and new.is_strings)
    entries = receiver.entries
    if receiver.form is Form.LIST and entries is not None and method in {"append", "insert"}:
        items = list(entries.values())
        return sequence([*items, *added] if method == "append" else [*added, *items])
    if method == "update" and entries is not None and added and added[0].entries:
        grown = replace(receiver, taints=merge_taints([receiver, *added]))
        return with_entries(grown, {**entries, **added[0].entries})
    is_fixed = receiver.is_fixed and all(value.is_fixed for value in added)
    return replace(
        concatenate([receiver, *added]), form=receiver.form, is_fixed=is_fixed, text=None, template=None, entries=None
    )
