"""What functions outside the project return: built-in ones, those of the standard library, and well-known others."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from prefold.lint.source import catalog
from prefold.lint.source.assignments import assign
from prefold.lint.source.methods import Call, key_is_score, method_value, shown_by_pattern
from prefold.lint.source.modules import Bound, FunctionInfo
from prefold.lint.source.values import (
    FIXED,
    UNKNOWN,
    Form,
    Source,
    Taint,
    Value,
    contents,
    daily,
    in_order,
    merge_taints,
    set_of,
    with_entries,
)

if TYPE_CHECKING:
    from prefold.lint.source.expressions import Scope

_Reader = Callable[["Scope", Call], Value]

_SORTABLE_LISTINGS = frozenset({"os.listdir", "glob.glob", "glob.iglob"})
_CLOCKS_OF_AN_ARGUMENT = frozenset({"time.localtime", "time.gmtime", "email.utils.formatdate", "arrow.get"})
"""Clocks that show a moment instead where one is given."""
_CLOCK_TEXTS: Mapping[str, int] = {"time.strftime": 1, "time.ctime": 0, "time.asctime": 0}
"""Clocks as text, and the position of the moment that they show instead of the present one."""


def function_value(scope: Scope, call: Call, name: str) -> Value:
    """What a function outside the project returns.

    Args:
        scope: where it is called.
        call: the call.
        name: its dotted name.
    """
    read = _FUNCTIONS.get(name)
    if read is not None:
        return read(scope, call)
    rule = catalog.call_rule(name)
    if rule is not None:
        return _varying(scope, call, name, rule)
    if name in catalog.CONTENT_CALLS:
        return replace(contents(call.passed_on()), is_fixed=name in catalog.FIXED_ORDER_CALLS)
    if name in catalog.FIXED_ORDER_CALLS:
        return Value(call.first().taints, is_fixed=True)
    return method_value(scope, call)


def _varying(scope: Scope, call: Call, name: str, rule: str) -> Value:
    """A function whose result varies."""
    if name in _CLOCKS_OF_AN_ARGUMENT and call.arguments:
        return call.passed_on()
    if len(call.arguments) > _CLOCK_TEXTS.get(name, len(call.arguments)):
        return shown_by_pattern(call, call.passed_on())
    is_seeded = name.startswith("random.") and scope.analysis.is_seeded(scope.module)
    if is_seeded or (name == "builtins.hash" and call.first() == FIXED):  # only text is hashed with a seed
        return UNKNOWN
    taint = scope.source(rule, call.node, sortable=name in _SORTABLE_LISTINGS)
    value = Value((taint,), Form.LIST if rule == catalog.FILE_ORDER else Form.OTHER, is_fixed=True)
    if name in catalog.DAILY_CLOCKS:
        return daily(value)
    return shown_by_pattern(call, value) if name == "time.strftime" else value


def _generator(_scope: Scope, call: Call) -> Value:
    """A random generator: with a seed it is steady, without one its methods are like those of its module."""
    if call.arguments and not call.first().taints:
        return FIXED
    name = call.function.target
    return Value(target=catalog.GENERATORS[name] if isinstance(name, str) else None)


def _shuffled(scope: Scope, call: Call) -> Value:
    if call.node.args and not scope.analysis.is_seeded(scope.module):
        order = scope.source(catalog.IDENTIFIER, call.node)
        assign(scope, call.node.args[0], Value((order,), Form.LIST), is_growth=True)
    return UNKNOWN


def _environment(scope: Scope, call: Call) -> Value:
    is_machine = call.first().text in catalog.MACHINE_VARIABLES
    return Value((scope.source(catalog.MACHINE, call.node),)) if is_machine else UNKNOWN


def _home(scope: Scope, call: Call) -> Value:
    return Value((scope.source(catalog.MACHINE, call.node),))


def _json_text(scope: Scope, call: Call) -> Value:
    data = call.first()
    if _sorts_keys(call):
        return Value((in_order(data) if data.form is Form.DICT else data).taints, Form.TEXT, is_fixed=True)
    if data.is_fixed:
        return Value(data.taints, Form.TEXT, is_fixed=True)
    source = Source(catalog.UNSORTED_JSON, scope.module, call.node)
    guesses = tuple(replace(hole, pending=source) for hole in data.holes) or (Taint(source),)
    return Value(merge_taints([data, Value(guesses)]), Form.TEXT, is_fixed=True)


def _sorts_keys(call: Call) -> bool:
    """Whether a serialiser is told to sort keys; what is not known to be false is taken for true."""
    for keyword in call.node.keywords:
        if keyword.arg in {"sort_keys", "option"}:
            is_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
            return not is_off and (keyword.arg == "sort_keys" or "SORT_KEYS" in ast.dump(keyword.value))
    return False


def _sorted(scope: Scope, call: Call) -> Value:
    if key_is_score(call.node):
        order = Value((scope.source(catalog.SCORE_ORDER, call.node),))
        return Value(merge_taints([order, in_order(call.first())]), Form.LIST)
    return replace(in_order(call.first()), form=Form.LIST, is_fixed=True, entries=None)


def _set(_scope: Scope, call: Call) -> Value:
    inner = list((call.first().entries or {}).values())
    return set_of(inner or call.arguments)


def _dict(_scope: Scope, call: Call) -> Value:
    entries: dict[object, Value] = {**(call.first().entries or {})}
    entries.update(call.keywords)
    is_fixed = all(value.is_fixed for value in call.arguments)
    return with_entries(Value(merge_taints(call.given), Form.DICT, is_fixed), entries)


def _text(scope: Scope, call: Call) -> Value:
    """`str` and `repr`."""
    if not call.node.args:
        return FIXED
    value = scope.as_text(call.first(), call.node.args[0])
    return replace(value, form=Form.TEXT, is_fixed=value.text is not None, entries=None, target=None)


def _listed(scope: Scope, call: Call) -> Value:
    """`list`, `tuple` and `reversed`, where the order of a set shows."""
    if not call.node.args:
        return Value(form=Form.LIST, is_fixed=True, entries={})
    first = call.first()
    value = scope.elements(first, call.node.args[0])
    entries = first.entries if first.form is Form.LIST else None
    return Value(value.taints, Form.LIST, first.is_fixed, entries=entries, static=first.static)


def _iterated(scope: Scope, call: Call) -> Value:
    """`zip`, `enumerate`, `filter` and others that go through what they are given."""
    values = [scope.elements(value, node) for value, node in zip(call.arguments, call.node.args, strict=True)]
    return Value(merge_taints(values), Form.LIST, all(value.is_fixed for value in call.arguments))


def _mapped(scope: Scope, call: Call) -> Value:
    values = [scope.elements(value, node) for value, node in zip(call.arguments, call.node.args, strict=True)][1:]
    target = call.first().target
    if not isinstance(target, (FunctionInfo, Bound)):
        return Value(merge_taints(values), Form.LIST, all(value.is_fixed for value in values))
    mapped = scope.analysis.called(target, values, {}, scope.module, call.node.lineno)
    orders = [Value(tuple(taint for taint in value.taints if taint.is_order)) for value in values]
    return Value(merge_taints([mapped, *orders]), Form.LIST, mapped.is_fixed)


def _reduced(_scope: Scope, call: Call) -> Value:
    """`min`, `max` and `sum`: the order of what they are given does not matter."""
    return in_order(call.passed_on())


def _counted(_scope: Scope, call: Call) -> Value:
    """`len`, `any` and others that tell little of what they are given."""
    return replace(in_order(contents(call.passed_on())), is_fixed=True)


def _formatted(_scope: Scope, call: Call) -> Value:
    return shown_by_pattern(call, call.first().plain())


def _selected(scope: Scope, call: Call) -> Value:
    return Value((scope.source(catalog.QUERY_ORDER, call.node),))


def _first(_scope: Scope, call: Call) -> Value:
    """Wrappers that hand on their first argument."""
    return call.first()


def _all(read: _Reader, names: Iterable[str]) -> dict[str, _Reader]:
    return dict.fromkeys(names, read)


_FUNCTIONS: Mapping[str, _Reader] = {
    **_all(_generator, catalog.GENERATORS),
    **_all(_json_text, catalog.JSON_DUMPS),
    **_all(_text, ("builtins.str", "builtins.repr")),
    **_all(_listed, ("builtins.list", "builtins.tuple", "builtins.reversed")),
    **_all(_set, ("builtins.set", "builtins.frozenset")),
    **_all(_iterated, (f"builtins.{name}" for name in ("zip", "enumerate", "filter", "iter", "next"))),
    **_all(_reduced, (f"builtins.{name}" for name in ("min", "max", "sum"))),
    **_all(_counted, (f"builtins.{name}" for name in ("len", "any", "all", "bool", "isinstance"))),
    **_all(_selected, ("sqlalchemy.select", "sqlmodel.select", "sqlalchemy.future.select")),
    **_all(_first, ("sqlalchemy.text", "sqlmodel.text", "functools.partial", "typing.cast")),
    **_all(_environment, ("os.getenv", "os.environ.get")),
    "builtins.dict": _dict,
    "builtins.format": _formatted,
    "builtins.map": _mapped,
    "builtins.sorted": _sorted,
    "os.path.expanduser": _home,
    "random.shuffle": _shuffled,
}
