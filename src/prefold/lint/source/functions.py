"""What functions outside the project return: built-in ones, those of the standard library, and well-known others."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from prefold.lint.source import catalog
from prefold.lint.source.assignments import assign
from prefold.lint.source.methods import Call, key_is_score, method_value, shown_by_pattern
from prefold.lint.source.modules import Bound, FunctionInfo, last_name
from prefold.lint.source.values import (
    FIXED,
    SORTED,
    SORTED_IN_PLACE,
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

_MEND_OF_LISTING: Mapping[str, str] = {"os.listdir": SORTED, "glob.glob": SORTED, "glob.iglob": SORTED_IN_PLACE}
_SORTING_ARGUMENTS = frozenset({"sort_keys", "item_sort_key", "option"})
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
    taint = scope.source(rule, call.node, mend=_MEND_OF_LISTING.get(name, ""))
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
    if _sorts_keys(scope, call):
        return Value((in_order(data) if data.form is Form.DICT else data).taints, Form.TEXT, is_fixed=True)
    if data.is_fixed or data.is_flat:
        return Value(data.taints, Form.TEXT, is_fixed=True)
    source = Source(catalog.UNSORTED_JSON, scope.module, call.node, mend=_sorting_argument(call, data))
    guesses = tuple(replace(hole, pending=source) for hole in data.holes) or (Taint(source),)
    return Value(merge_taints([data, Value(guesses)]), Form.TEXT, is_fixed=True)


def _sorts_keys(scope: Scope, call: Call) -> bool:
    """Whether a serialiser is told to sort keys; what is not known to be false is taken for true."""
    if len(call.node.args) > 2 and call.function.target == "orjson.dumps":
        return _option_sorts(call.node.args[2])
    for keyword in call.node.keywords:
        if keyword.arg is None:
            entries = scope.value(keyword.value).entries
            if entries is None or not _SORTING_ARGUMENTS.isdisjoint(entries):
                return True
        elif keyword.arg == "option":
            return _option_sorts(keyword.value)
        elif keyword.arg in _SORTING_ARGUMENTS:
            return not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
    return False


def _option_sorts(node: ast.expr) -> bool:
    """Whether the options of orjson sort keys; what is not written out counts as if they did."""
    names = [last_name(item) for item in ast.walk(node) if isinstance(item, (ast.Name, ast.Attribute))]
    options = [name for name in names if name.startswith("OPT_")]
    return "OPT_SORT_KEYS" in options or (bool(names) and not options)


def _sorting_argument(call: Call, data: Value) -> str:
    """The argument with which a serialiser sorts keys; empty where that is not known or changes what the text means."""
    if len(call.node.args) != 1 or _has_properties(data):
        return ""
    if call.function.target != "orjson.dumps":
        return "sort_keys=True"
    func = call.node.func
    return f"option={ast.unparse(func.value)}.OPT_SORT_KEYS" if isinstance(func, ast.Attribute) else ""


def _has_properties(value: Value) -> bool:
    """Whether there is a schema in it, whose order of properties means something."""
    entries = value.entries or {}
    return "properties" in entries or any(_has_properties(entry) for entry in entries.values())


def _sorted(scope: Scope, call: Call) -> Value:
    if key_is_score(call.node, call.first()):
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
    is_list = first.form is Form.LIST
    return Value(
        value.taints,
        Form.LIST,
        first.is_fixed,
        is_flat=first.is_flat or not is_list,
        entries=first.entries if is_list else None,
        static=first.static,
    )


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


def _command_output(scope: Scope, call: Call) -> Value:
    """What a command prints; of one that is not known, no more than what varies in its arguments."""
    if not catalog.is_live_command(_command(call)):
        return contents(call.passed_on())
    return Value((scope.source(catalog.MACHINE, call.node, is_output=True),))


def _command(call: Call) -> list[str]:
    """A command and its arguments; empty texts for those that are not known."""
    first = call.first()
    items = list((first.entries or {}).values()) if first.form is Form.LIST else call.arguments
    if items and items[0].text is None:  # an f-string, whose first word is the program
        constants = (item.value for item in ast.walk(call.node) if isinstance(item, ast.Constant))
        return next((text.split() for text in constants if isinstance(text, str)), [])
    return [word for item in items for word in (item.text or "").split()]


def _partial(scope: Scope, call: Call) -> Value:
    """A function with some of its arguments; a serialiser that was told to sort keys is none that matters."""
    is_json = call.function.target == "functools.partial" and call.first().target in catalog.JSON_DUMPS
    return UNKNOWN if is_json and _sorts_keys(scope, call) else call.first()


def _cast(_scope: Scope, call: Call) -> Value:
    return call.arguments[1] if len(call.arguments) > 1 else UNKNOWN


def _dependency(scope: Scope, call: Call) -> Value:
    """`Depends(function)` of FastAPI: the framework calls the function for each request."""
    return scope.analysis.called(call.first().target, [], {}, scope.module, call.node.lineno)


def _parent(scope: Scope, _call: Call) -> Value:
    """`super()`."""
    function = scope.function
    return scope.analysis.parent(function.parent) if function is not None and function.parent is not None else UNKNOWN


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
    **_all(_first, ("sqlalchemy.text", "sqlmodel.text")),
    **_all(_command_output, catalog.COMMAND_CALLS),
    **_all(_dependency, ("fastapi.Depends", "fastapi.params.Depends", "fastapi.Security")),
    **_all(_environment, ("os.getenv", "os.environ.get")),
    **_all(_dict, ("builtins.dict", "types.SimpleNamespace", "argparse.Namespace")),
    "builtins.format": _formatted,
    "builtins.map": _mapped,
    "builtins.sorted": _sorted,
    "builtins.super": _parent,
    "functools.partial": _partial,
    "typing.cast": _cast,
    "os.path.expanduser": _home,
    "random.shuffle": _shuffled,
}
