"""What methods return that are known by their name only, because the class of their object is not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prefold.lint.source import catalog
from prefold.lint.source.assignments import assign
from prefold.lint.source.chat_templates import CHAT_STYLES, fill_system_text, has_system_text, system_message
from prefold.lint.source.modules import dotted_name, last_name
from prefold.lint.source.sinks import Certainty, Sink
from prefold.lint.source.templates import filled
from prefold.lint.source.values import (
    SORTED_IN_PLACE,
    UNKNOWN,
    Form,
    Source,
    Value,
    at_granularity,
    concatenate,
    contents,
    daily,
    in_order,
    join,
    merge_taints,
)
from prefold.prompts.placeholders import Style

if TYPE_CHECKING:
    from prefold.lint.source.expressions import Scope

_Reader = Callable[["Scope", "Call"], Value | None]

_STYLES: Mapping[str, frozenset[Style]] = {
    "format": frozenset({Style.BRACE}),
    "format_map": frozenset({Style.BRACE}),
    "substitute": frozenset({Style.DOLLAR}),
    "safe_substitute": frozenset({Style.DOLLAR}),
    "render": frozenset({Style.JINJA}),
    **dict.fromkeys(
        ("format_messages", "format_prompt", "partial", "invoke", "ainvoke", "stream", "astream"), CHAT_STYLES
    ),
}
"""Methods that fill a template, and the placeholders that they fill."""
_TEMPLATE_MAKERS = frozenset(
    {"from_string", "from_template", "PromptTemplate", "ChatPromptTemplate", "from_messages", "dedent", "cleandoc"}
)
_TEMPLATE_CLASSES = frozenset({"string.Template", "jinja2.Template"})
_TEXT_METHODS = catalog.words("strip lstrip rstrip upper lower title casefold expandtabs capitalize encode decode")


@dataclass(frozen=True, slots=True)
class Call:
    """A call with its arguments read.

    Attributes:
        node: it.
        receiver: the object whose method it is, UNKNOWN for a plain function.
        function: what is called.
        arguments: by position.
        keywords: by name, those of a known `**mapping` included.
    """

    node: ast.Call
    receiver: Value
    function: Value
    arguments: list[Value]
    keywords: Mapping[str, Value]

    @property
    def method(self) -> str:
        """The last part of the function's name."""
        return last_name(self.node.func)

    @property
    def is_method(self) -> bool:
        """Whether it is called on an object."""
        return isinstance(self.node.func, ast.Attribute)

    @property
    def object(self) -> ast.expr:
        """The expression of the object whose method it is; the function's own where there is none."""
        return self.node.func.value if isinstance(self.node.func, ast.Attribute) else self.node.func

    @property
    def owner(self) -> str:
        """The last part of the object's name, or of the name of the call that made it."""
        return last_name(self.object.func if isinstance(self.object, ast.Call) else self.object)

    @property
    def given(self) -> list[Value]:
        """All arguments."""
        return [*self.arguments, *self.keywords.values()]

    def first(self) -> Value:
        """The first argument."""
        return self.arguments[0] if self.arguments else UNKNOWN

    def passed_on(self) -> Value:
        """What varies in any argument."""
        return Value(merge_taints(self.given))


def method_value(scope: Scope, call: Call) -> Value:
    """What a method, or a function that nothing else is known of, returns."""
    if call.method in _TEMPLATE_MAKERS or (
        isinstance(call.function.target, str) and call.function.target in _TEMPLATE_CLASSES
    ):
        return _template(scope, call)
    if call.is_method:
        for read in (_source, _METHODS.get(call.method)):
            found = read(scope, call) if read is not None else None
            if found is not None:
                return found
    return _passed_on(call)


def _template(scope: Scope, call: Call) -> Value:
    """What a maker of templates makes: the text, or the messages, that it is given."""
    template = call.first() if call.arguments else UNKNOWN
    for name in ("template", "messages"):
        template = call.keywords.get(name, template)
    template = replace(template, target=None)
    known = call.keywords.get("partial_variables", UNKNOWN).entries or {}
    if known and has_system_text(template):
        fill_system_text(scope, template, known, call.node)
    elif known and template.text is not None and template.template is not None:
        scope.analysis.formatted.add(template.template[1])
        template = filled(template, CHAT_STYLES, lambda name, _: known.get(name))
        scope.reach(template, Sink("the prompt template", scope.module, call.node.lineno, Certainty.NAME, True))
    return system_message(template) if "System" in call.owner else template


def _passed_on(call: Call) -> Value:
    """The variation of the object, and of the arguments where the method is known to put them into its result."""
    method, receiver = call.method, call.receiver
    parts = [receiver.plain()] if call.is_method else []
    if _passes_arguments(call):
        parts.extend(value.plain() for value in call.given)
    is_text = method in _TEXT_METHODS
    is_set = receiver.form is Form.SET and method != "pop"
    return Value(
        merge_taints(parts),
        form=Form.TEXT if is_text else Form.SET if is_set else Form.OTHER,
        is_fixed=method in catalog.FIXED_ORDER_METHODS or (receiver.is_fixed and call.is_method),
        text=receiver.text if is_text else None,
        static=receiver.static if is_text else 0,
        template=receiver.template if is_text else None,
    )


def _passes_arguments(call: Call) -> bool:
    if call.method in catalog.PASSING_METHODS:
        return True
    target = call.function.target
    if isinstance(target, str):
        return catalog.passes_on(target)
    return not call.is_method and catalog.PASSING_NAME.match(call.method) is not None


# What varies, whatever the object is.


def _source(scope: Scope, call: Call) -> Value | None:
    """A method whose result varies."""
    method, node = call.method, call.node
    if method in catalog.DIRECTORY_METHODS or (method == "glob" and not isinstance(call.function.target, str)):
        order = Value((scope.source(catalog.FILE_ORDER, node, mend=SORTED_IN_PLACE),))
        return Value(merge_taints([order, contents(call.receiver)]), Form.LIST)
    if _is_query(call) or _is_sql(call):
        rows = Value((scope.source(catalog.QUERY_ORDER, node),))
        if method == "execute":  # `cursor.execute(...)`, then `cursor.fetchall()`
            assign(scope, call.object, rows, is_growth=True)
        return rows
    is_retriever = method in catalog.RETRIEVER_METHODS and catalog.RETRIEVER_NAME.search(call.owner) is not None
    if is_retriever or method in catalog.RETRIEVAL_METHODS:
        return Value((scope.source(catalog.SCORE_ORDER, node),), Form.LIST)
    if method == "get" and _is_identifier(call):
        return Value((scope.source(catalog.IDENTIFIER, node),))
    return None


def _is_sql(call: Call) -> bool:
    """Whether a method runs SQL text that gives its rows no order; what is not known of the text is left out."""
    if call.method not in catalog.SQL_METHODS or not call.node.args:
        return False
    text = call.first().text
    if text is None:
        constants = [item.value for item in ast.walk(call.node.args[0]) if isinstance(item, ast.Constant)]
        text = " ? ".join(value for value in constants if isinstance(value, str))
    return catalog.is_unordered_select(text)


def _is_query(call: Call) -> bool:
    """Whether a method of an object-relational mapper makes a query."""
    if call.method == "query":
        return call.owner in {"session", "db", "db_session", "Session"}
    if call.method == "find":
        databases = ("db.", "self.db.", "mongo.", "collection.", "self.collection.")
        return dotted_name(call.node.func).startswith(databases)
    return call.owner == "objects" and call.method in {"all", "filter", "exclude", "values", "values_list", "iterator"}


def _is_identifier(call: Call) -> bool:
    """Whether `get` reads a request id: from a context variable of that name, or from headers."""
    name = call.owner.lower().removeprefix("_")
    for suffix in ("_var", "_ctx", "_context", "_contextvar"):
        name = name.removesuffix(suffix)
    header = call.first().text if call.owner == "headers" else None
    if header is not None:
        return catalog.IDENTIFIER_HEADERS.search(header) is not None
    return name in catalog.IDENTIFIER_ATTRIBUTES


def key_is_score(node: ast.Call, value: Value) -> bool:
    """Whether a sort is by a score.

    Args:
        node: the sort.
        value: what is sorted; in the pairs of document and score that a search returns, a number leads to the score.
    """
    key = next((keyword.value for keyword in node.keywords if keyword.arg == "key"), None)
    if key is None:
        return False
    has_scores = any(
        isinstance(taint.origin, Source) and taint.origin.rule == catalog.SCORE_ORDER for taint in value.taints
    )
    for item in ast.walk(key):
        if has_scores and isinstance(item, ast.Constant) and isinstance(item.value, int):
            return True
        name = item.attr if isinstance(item, ast.Attribute) else getattr(item, "value", None)
        if isinstance(name, str) and catalog.SCORE_NAME.search(name):
            return True
    return False


# Methods by name; None where the object is not what the name suggests.


def _filled(scope: Scope, call: Call) -> Value | None:
    """Filling a template whose text is known."""
    if has_system_text(call.receiver):
        given: dict[object, Value] = dict(call.first().entries or {})
        given.update(call.keywords)
        fill_system_text(scope, call.receiver, given, call.node)
        return call.receiver if call.method == "partial" else None
    if call.receiver.text is None or call.receiver.template is None:
        return None
    scope.analysis.formatted.add(call.receiver.template[1])
    return filled(call.receiver, _STYLES[call.method], lambda name, place: _argument(scope, call, name, place))


def _argument(scope: Scope, call: Call, name: str, place: int) -> Value | None:
    """What a template method puts in for a placeholder."""
    if name in call.keywords:
        node = next((keyword.value for keyword in call.node.keywords if keyword.arg == name), None)
        return call.keywords[name] if node is None else scope.as_text(call.keywords[name], node)
    for mapping in call.arguments:
        if mapping.entries is not None and name in mapping.entries:
            return mapping.entries[name]
    if place < len(call.arguments) and (not name or name.isdigit()):
        return scope.as_text(call.arguments[place], call.node.args[place])
    return None


def _joined(scope: Scope, call: Call) -> Value | None:
    if len(call.node.args) != 1:
        return None
    items = call.first()
    if items.form is Form.LIST and items.entries is not None:
        return concatenate(items.entries.values())
    whole = scope.elements(items, call.node.args[0])
    return Value(merge_taints([call.receiver, whole]), Form.TEXT, is_fixed=True, static=items.static)


def _replaced(scope: Scope, call: Call) -> Value | None:
    """`text.replace(marker, value)` and `moment.replace(hour=0, ...)`."""
    receiver = call.receiver
    hour = next((keyword.value for keyword in call.node.keywords if keyword.arg == "hour"), None)
    if isinstance(hour, ast.Constant):
        return daily(receiver.plain())
    if len(call.arguments) != 2 or receiver.text is None or receiver.template is None:
        return None
    scope.analysis.formatted.add(receiver.template[1])
    return concatenate([call.arguments[1].plain(), replace(receiver, text=None)])


def shown_by_pattern(call: Call, value: Value) -> Value:
    """A moment as text, by the pattern among the arguments."""
    pattern = next((argument.text for argument in call.arguments if argument.text and "%" in argument.text), None)
    return value if pattern is None else at_granularity(value, pattern)


def _shown(_scope: Scope, call: Call) -> Value:
    return shown_by_pattern(call, call.receiver.plain())


def _day(_scope: Scope, call: Call) -> Value:
    return daily(call.receiver.plain())


def _content(_scope: Scope, call: Call) -> Value:
    return replace(contents(call.receiver), is_fixed=call.method in catalog.FIXED_ORDER_METHODS)


def _ordered(_scope: Scope, call: Call) -> Value:
    return in_order(call.receiver)


def _sorted_in_place(scope: Scope, call: Call) -> Value:
    if key_is_score(call.node, call.receiver):
        order = Value((scope.source(catalog.SCORE_ORDER, call.node),), Form.LIST)
        assign(scope, call.object, order, is_growth=True)
        return UNKNOWN
    mended = replace(in_order(call.receiver), is_fixed=True)
    assign(scope, call.object, mended, is_growth=True)
    return mended


def _single(_scope: Scope, call: Call) -> Value | None:
    """One row of a query: the order of rows does not matter to it."""
    if not any(taint.is_order for taint in call.receiver.taints):
        return _entry(_scope, call)
    return Value(tuple(taint for taint in call.receiver.taints if not taint.is_order))


def _entry(_scope: Scope, call: Call) -> Value | None:
    """`mapping.get(key)` and its like."""
    entries = call.receiver.entries
    if not entries or call.method not in {"get", "pop", "setdefault"}:
        return None
    key = call.first().text
    return entries[key] if key in entries else join(*entries.values())


def _view(_scope: Scope, call: Call) -> Value:
    return replace(call.receiver, form=Form.LIST, entries=None)


def _same(_scope: Scope, call: Call) -> Value:
    return call.receiver


def _all(read: _Reader, names: Iterable[str]) -> dict[str, _Reader]:
    return dict.fromkeys(names, read)


_METHODS: Mapping[str, _Reader] = {
    **_all(_content, catalog.CONTENT_METHODS),
    **_all(_day, catalog.DAILY_METHODS),
    **_all(_ordered, catalog.QUERY_METHODS),
    **_all(_single, catalog.SINGLE_ROW_METHODS),
    **_all(_filled, _STYLES),
    "copy": _same,
    "deepcopy": _same,
    "items": _view,
    "join": _joined,
    "keys": _view,
    "pop": _entry,
    "replace": _replaced,
    "setdefault": _entry,
    "sort": _sorted_in_place,
    "strftime": _shown,
    "values": _view,
}
