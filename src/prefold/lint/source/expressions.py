"""What an expression of Python evaluates to, as far as the analysis needs to know."""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prefold.lint.source import catalog
from prefold.lint.source.assignments import bind_target
from prefold.lint.source.calls import call_value
from prefold.lint.source.chat_templates import piped
from prefold.lint.source.modules import ClassInfo, FunctionInfo, Instance, Module, dotted_name, last_name
from prefold.lint.source.sinks import SYSTEM_ROLES, Certainty, Sink, dict_sinks, role_of
from prefold.lint.source.templates import FIRST_LINES, filled, named
from prefold.lint.source.values import (
    EXACT_KEY,
    FIXED,
    SORTED,
    UNKNOWN,
    Form,
    Hole,
    Source,
    Taint,
    Value,
    at_granularity,
    concatenate,
    contents,
    daily,
    join,
    may_be_set,
    may_have_keys,
    merge_taints,
    sequence,
    set_of,
    with_entries,
)
from prefold.prompts.placeholders import Style

if TYPE_CHECKING:
    from prefold.lint.source.dataflow import Analysis

_DEEPEST = 40
"""Expressions inside each other that are followed; hand-written prompts have fewer."""
_STEADY_WITHOUT_NAME = 200
"""Characters assumed for a constant whose text is not in the project."""


class Scope:
    """The body of one function, class or module while it is read.

    Attributes:
        analysis: of the whole project.
        module: where the body stands.
        names: what its variables hold.
        function: whose body it is, None for a module.
        is_stable: whether a system message made here is part of a prefix, or comes after other messages.
        loops: how many loops inside each other the statement stands in.
        system_messages: expressions, as `ast.dump` shows them, that the program has found to be system messages.
        own: parameters that still are the objects of the caller.
        grown: what those have become that were changed in place.
        returns: values that it hands back.
        writes: by attribute: what it assigns on `self`.
    """

    def __init__(
        self, analysis: Analysis, module: Module, names: dict[str, Value], function: FunctionInfo | None = None
    ) -> None:
        self.analysis = analysis
        self.module = module
        self.names = names
        self.function = function
        self.is_stable = True
        self.loops = 0
        self.system_messages: frozenset[str] = frozenset()
        self.own: set[str] = set() if function is None else set(function.every_parameter)
        self.grown: dict[str, Value] = {}
        self.returns: list[Value] = []
        self.writes: dict[str, Value] = {}
        self._depth = 0

    def value(self, node: ast.expr | None) -> Value:
        """What an expression evaluates to."""
        read = None if node is None else _READERS.get(type(node))
        if read is None or self._depth >= _DEEPEST:
            return UNKNOWN
        self._depth += 1
        try:
            return read(self, node)
        finally:
            self._depth -= 1

    def source(self, rule: str, node: ast.expr, *, mend: str = "", is_output: bool = False) -> Taint:
        """Something that varies, made by an expression here."""
        return Taint(Source(rule, self.module, node, mend=mend, is_output=is_output))

    def reach(self, value: Value, sink: Sink) -> None:
        """A value goes into a prompt."""
        self.analysis.reach(value, sink)

    def lookup(self, name: str) -> Value:
        """What a name means: here, in the functions around, in the module, or in Python."""
        if name in self.names:
            return self.names[name]
        if self.function is not None and self.function.closure is not None and name in self.function.closure:
            return self.function.closure[name]
        found = self.analysis.module_names(self.module).get(name)
        return Value(target=f"builtins.{name}") if found is None else found

    def is_global(self, name: str) -> bool:
        """Whether a name that is used in a function is one of the module."""
        around = {} if self.function is None else self.function.closure or {}
        is_local = self.function is None or name in self.names or name in around
        return not is_local and name in self.analysis.module_names(self.module)

    def closure(self) -> Mapping[str, Value]:
        """The names that a function defined here can see, those of the module aside."""
        around = self.function.closure if self.function is not None else None
        return ChainMap(self.names, *([dict(around)] if around else []))

    def elements(self, value: Value, node: ast.expr) -> Value:
        """What iterating over a value yields.

        Args:
            value: the iterable.
            node: the expression that it stands in, for the order of a set.
        """
        if value.form is Form.SET:
            order = self.source(catalog.SET_ORDER, node, mend=SORTED if value.is_strings else "")
            return Value(merge_taints([Value((order,)), value]), is_fixed=value.is_fixed)
        orders = [
            replace(hole, pending=Source(catalog.SET_ORDER, self.module, node))
            for hole in value.holes
            if may_be_set(value, hole)
        ]
        known = UNKNOWN
        if value.entries and value.form is Form.LIST:
            known = join(*value.entries.values())
        return replace(known, taints=merge_taints([value.plain(), Value(tuple(orders))]), is_fixed=value.is_fixed)

    def attribute(self, base: Value, name: str) -> Value:
        """What `base.name` is."""
        analysis = self.analysis
        match base.target:
            case Module() as module:
                return analysis.module_names(module).get(name) or analysis.submodule(module, name)
            case str() as dotted:
                return Value(target=f"{dotted}.{name}", taints=base.taints)
            case ClassInfo() as cls:
                return analysis.member(Instance(cls), name)
            case Instance() as instance:
                found = analysis.member(instance, name)
                if found is not UNKNOWN:
                    return found
            case _:
                pass
        return part_of(base, name)

    def as_text(self, value: Value, node: ast.expr) -> Value:
        """A value turned into text: the order of a set shows then."""
        return self.elements(value, node) if value.form is Form.SET else value


def part_of(value: Value, name: str) -> Value:
    """What of a value's variation is in its attribute or entry `name`."""
    if name.startswith(EXACT_KEY):
        return (value.entries or {}).get(name.removeprefix(EXACT_KEY), UNKNOWN)
    if value.entries is not None and (name in value.entries or value.form is Form.DICT):
        return value.entries.get(name, UNKNOWN)
    if not value.taints:
        return UNKNOWN
    if name in catalog.STEADY_ATTRIBUTES:
        return contents(value)
    moved = tuple(_part_of_taint(taint, name) for taint in value.taints if not _is_dropped(taint, name))
    result = Value(moved)
    return daily(result) if name in catalog.DAILY_ATTRIBUTES else result


def _is_dropped(taint: Taint, name: str) -> bool:
    return name in catalog.NAME_ATTRIBUTES and isinstance(taint.origin, Source) and taint.origin.rule == catalog.MACHINE


def _part_of_taint(taint: Taint, name: str) -> Taint:
    if isinstance(taint.origin, Hole) and taint.pending is None and len(taint.origin.path) < 3:
        return replace(taint, origin=replace(taint.origin, path=(*taint.origin.path, name)))
    return taint


def _constant(scope: Scope, node: ast.Constant) -> Value:
    if not isinstance(node.value, str):
        return FIXED
    text = node.value
    template = (scope.module, node) if any(mark in text for mark in "{%$<") else None
    return Value(form=Form.TEXT, is_fixed=True, text=text, static=len(text), template=template)


def _name(scope: Scope, node: ast.Name) -> Value:
    return scope.lookup(node.id)


def _attribute(scope: Scope, node: ast.Attribute) -> Value:
    if isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in scope.names:
        return scope.names[f"{node.value.id}.{node.attr}"]
    base = scope.value(node.value)
    found = scope.attribute(base, node.attr)
    if not found.sources and _is_request_identifier(node, base):
        return Value((scope.source(catalog.IDENTIFIER, node),))
    return found


def _is_request_identifier(node: ast.Attribute, base: Value) -> bool:
    """Whether an attribute is the id that a framework gave to a request or session."""
    if isinstance(base.target, (str, ClassInfo, Module)) and not str(base.target).startswith(
        ("flask.", "builtins.", "starlette.")
    ):
        return False
    owner = last_name(node.value)
    return node.attr in catalog.IDENTIFIER_ATTRIBUTES or (
        node.attr in {"id", "remote_addr"} and owner in {"request", "req"}
    )


def _joined(scope: Scope, node: ast.JoinedStr) -> Value:
    parts: list[Value] = []
    before = 0
    for item in node.values:
        if isinstance(item, ast.FormattedValue):
            part = _formatted(scope, item)
            if before <= FIRST_LINES:
                part = named(part, last_name(item.value), scope.module, node)
        else:
            part = scope.value(item)
        before += part.static
        parts.append(part)
    whole = concatenate(replace(part, template=None) for part in parts)
    return replace(whole, template=None)


def _formatted(scope: Scope, node: ast.FormattedValue) -> Value:
    value = scope.as_text(scope.value(node.value), node.value)
    if isinstance(node.format_spec, ast.JoinedStr):
        pattern = "".join(str(part.value) for part in node.format_spec.values if isinstance(part, ast.Constant))
        value = at_granularity(value, pattern)
    name = last_name(node.value)
    if value.static == 0 and name.isupper() and not value.taints:
        return replace(value, static=_STEADY_WITHOUT_NAME, is_fixed=True)
    return value


def _binary(scope: Scope, node: ast.BinOp) -> Value:
    operands: list[ast.expr] = []
    rest: ast.expr = node
    while isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Add):  # long sums lean to the left
        operands.append(rest.right)
        rest = rest.left
    if operands:
        return _sum(scope, [rest, *reversed(operands)])
    left, right = scope.value(node.left), scope.value(node.right)
    if isinstance(node.op, ast.Mod) and left.text is not None:
        return _percent(scope, left, node.right, right)
    if isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)) and Form.SET in {left.form, right.form}:
        return Value(merge_taints([left, right]), Form.SET, is_strings=left.is_strings and right.is_strings)
    if isinstance(node.op, ast.BitOr):
        return piped(scope, node, left, right)
    return Value(merge_taints([left, right]))


def _sum(scope: Scope, nodes: list[ast.expr]) -> Value:
    stable = scope.is_stable
    parts = []
    for node in nodes:
        parts.append(scope.value(node))
        if not _is_system_only(node) and not isinstance(node, (ast.Constant, ast.JoinedStr)):
            # `history + [{"role": "system", ...}]`: what is added after other messages is no prefix.
            scope.is_stable = scope.is_stable and not _may_be_messages(node, parts[-1])
    scope.is_stable = stable
    if all(part.form is Form.LIST and part.entries is not None for part in parts):
        items = [entry for part in parts for entry in (part.entries or {}).values()]
        return sequence(items)
    whole = concatenate(parts)
    is_list = any(part.form is Form.LIST for part in parts)
    return replace(
        whole, form=Form.LIST if is_list else Form.TEXT, is_fixed=not is_list or all(part.is_fixed for part in parts)
    )


def _may_be_messages(node: ast.expr, value: Value) -> bool:
    return value.form in {Form.LIST, Form.OTHER} and value.text is None and "system" not in last_name(node).lower()


def _is_system_only(node: ast.expr) -> bool:
    return isinstance(node, ast.List) and all(role_of(item) in {*SYSTEM_ROLES, ""} for item in node.elts)


def _percent(scope: Scope, template: Value, node: ast.expr, right: Value) -> Value:
    if right.form is Form.DICT:
        return filled(template, frozenset({Style.PERCENT}), lambda name, _: part_of(right, name))
    values = [scope.value(item) for item in node.elts] if isinstance(node, ast.Tuple) else [right]
    return filled(
        template, frozenset({Style.POSITION}), lambda _, place: values[place] if place < len(values) else None
    )


def _display(scope: Scope, node: ast.List | ast.Tuple) -> Value:
    """A list or tuple; in a list of messages, a system message after the conversation is no part of the prefix."""
    stable = scope.is_stable
    items: list[Value] = []
    is_open = False
    for item in node.elts:
        if isinstance(item, ast.Starred):
            inner = scope.value(item.value)
            items.append(scope.elements(inner, item.value))
            is_open = True
            scope.is_stable = scope.is_stable and "system" in last_name(item.value).lower()
            continue
        items.append(scope.value(item))
        role = role_of(item)
        if isinstance(node, ast.List) and role and role not in SYSTEM_ROLES and len(role) < 12:
            scope.is_stable = False
    scope.is_stable = stable
    _message_sinks(scope, node, items)
    whole = sequence(items)
    return replace(whole, entries=None) if is_open else whole


def _message_sinks(scope: Scope, node: ast.List | ast.Tuple, items: list[Value]) -> None:
    if isinstance(node, ast.Tuple):
        if scope.is_stable and scope.module.imports_models and role_of(node) in SYSTEM_ROLES:
            scope.reach(items[1], Sink("the system message", scope.module, node.lineno, Certainty.MESSAGE))
    elif node.elts and role_of(node.elts[0]) == "user" and items[0].entries and "content" in items[0].entries:
        sink = Sink("the first message", scope.module, node.elts[0].lineno, Certainty.MESSAGE, is_first_message=True)
        scope.reach(items[0].entries["content"], sink)


def _dict(scope: Scope, node: ast.Dict) -> Value:
    entries: dict[object, Value] = {}
    others: list[Value] = []
    is_fixed = True
    for key, item in zip(node.keys, node.values, strict=True):
        value = scope.value(item)
        if isinstance(key, ast.Constant):
            entries[key.value] = value
        elif key is None and value.entries is not None:
            entries.update(value.entries)
        else:
            others.extend([value, scope.value(key)] if key is not None else [value])
            is_fixed = is_fixed and (key is not None or value.is_fixed)
    result = with_entries(Value(merge_taints([*entries.values(), *others]), Form.DICT, is_fixed), entries)
    for part, sink in dict_sinks(node, scope.module, result, is_stable=scope.is_stable):
        scope.reach(part, sink)
    return result


def _set(scope: Scope, node: ast.Set) -> Value:
    values = [scope.value(item) for item in node.elts]
    return set_of(
        values,
        is_small_numbers=all(isinstance(item, ast.Constant) and isinstance(item.value, int) for item in node.elts),
    )


def _subscript(scope: Scope, node: ast.Subscript) -> Value:
    base = scope.value(node.value)
    if isinstance(node.slice, ast.Slice):
        upper = node.slice.upper
        is_day = isinstance(upper, ast.Constant) and upper.value == 10 and node.slice.lower is None
        return (
            daily(base.plain())
            if is_day and base.form is not Form.LIST
            else replace(base, entries=None, text=None, template=None)
        )
    index = scope.value(node.slice)
    if base.target == "os.environ" and index.text in catalog.MACHINE_VARIABLES:
        return Value((scope.source(catalog.MACHINE, node),))
    if index.text is not None and last_name(node.value) == "headers" and catalog.IDENTIFIER_HEADERS.search(index.text):
        return Value((scope.source(catalog.IDENTIFIER, node),))
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if base.entries is not None and key in base.entries:
        return base.entries[key]
    chosen = Value(
        tuple(taint for taint in index.sources if isinstance(taint.origin, Source) and _chooses(taint.origin))
    )
    part = part_of(base, index.text) if index.text is not None else base.plain()
    if base.entries and key is None:
        part = join(*base.entries.values())
    return replace(part, taints=merge_taints([part, chosen]), is_fixed=base.is_fixed)


def _chooses(source: Source) -> bool:
    """Whether an index varies so that the item does: a clock or a die, not the key of a look-up."""
    is_uuid = isinstance(source.node, ast.Call) and "uuid" in dotted_name(source.node.func)
    return source.rule == catalog.CLOCK or (
        source.rule == catalog.IDENTIFIER and isinstance(source.node, ast.Call) and not is_uuid
    )


def _either(scope: Scope, node: ast.IfExp) -> Value:
    scope.value(node.test)
    return join(scope.value(node.body), scope.value(node.orelse))


def _any_of(scope: Scope, node: ast.BoolOp) -> Value:
    return join(*(scope.value(item) for item in node.values))


def _ignored(scope: Scope, node: ast.Compare | ast.UnaryOp) -> Value:
    """A comparison or negation: read for the calls in it; what it tells of a clock is little."""
    for item in [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, *node.comparators]:
        scope.value(item)
    return FIXED


def _inner(scope: Scope, node: ast.Await | ast.Starred | ast.YieldFrom) -> Value:
    value = scope.value(node.value)
    if isinstance(node, ast.YieldFrom):
        scope.returns.append(value)
    return value


def _yield(scope: Scope, node: ast.Yield) -> Value:
    scope.returns.append(scope.value(node.value).plain())
    return UNKNOWN


def _walrus(scope: Scope, node: ast.NamedExpr) -> Value:
    value = scope.value(node.value)
    scope.names[node.target.id] = value
    return value


def _comprehension(scope: Scope, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    outside = scope.names
    scope.names = dict(outside)
    try:
        orders: list[Value] = []
        is_fixed = True
        for generator in node.generators:
            iterable = scope.value(generator.iter)
            item = scope.elements(iterable, generator.iter)
            bind_target(scope.names, generator.target, item)
            for condition in generator.ifs:
                scope.value(condition)
            orders.append(Value(tuple(taint for taint in item.taints if taint.is_order or taint.pending is not None)))
            is_fixed = is_fixed and iterable.is_fixed
        if isinstance(node, ast.DictComp):
            parts = [scope.value(node.key), scope.value(node.value)]
            return Value(merge_taints([*parts, *orders]), Form.DICT, is_fixed)
        element = scope.value(node.elt)
        if isinstance(node, ast.SetComp):
            return set_of([element])
        is_flat = not may_have_keys(element)
        return Value(merge_taints([element, *orders]), Form.LIST, element.is_fixed, is_flat=is_flat)
    finally:
        scope.names = outside


def _lambda(scope: Scope, node: ast.Lambda) -> Value:
    return Value(target=FunctionInfo(scope.module, node, closure=scope.closure()))


_READERS: Mapping[type[ast.expr], Callable[[Scope, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.JoinedStr: _joined,
    ast.BinOp: _binary,
    ast.List: _display,
    ast.Tuple: _display,
    ast.Dict: _dict,
    ast.Set: _set,
    ast.Subscript: _subscript,
    ast.IfExp: _either,
    ast.BoolOp: _any_of,
    ast.Compare: _ignored,
    ast.UnaryOp: _ignored,
    ast.Await: _inner,
    ast.Starred: _inner,
    ast.YieldFrom: _inner,
    ast.Yield: _yield,
    ast.NamedExpr: _walrus,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Lambda: _lambda,
    ast.Call: call_value,
}
