"""Chat templates of LangChain: what is filled into their system messages, which may be far from where they are made.

A template is known by its messages, a list whose items are pairs of role and text, or dicts with both; a chain such as
`template | model | parser` counts as its template.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prefold.lint.source.modules import Bound, FunctionInfo
from prefold.lint.source.sinks import SYSTEM_ROLES, Certainty, Sink
from prefold.lint.source.templates import filled
from prefold.lint.source.values import FIXED, UNKNOWN, Form, Value, merge_taints, sequence
from prefold.prompts.placeholders import Style

if TYPE_CHECKING:
    from prefold.lint.source.expressions import Scope

CHAT_STYLES = frozenset({Style.BRACE, Style.JINJA})
"""The placeholders of LangChain."""


def system_message(text: Value) -> Value:
    """The pair of role and text that a maker of system messages stands for."""
    return sequence([Value(form=Form.TEXT, is_fixed=True, text="system"), text])


def has_system_text(value: Value) -> bool:
    """Whether a value is a chat template with a system message whose text is known."""
    return any(True for _ in _system_texts(value))


def fill_system_text(scope: Scope, template: Value, given: Mapping[object, Value], node: ast.expr) -> None:
    """Note what a call puts into the system messages of a chat template.

    Args:
        scope: where the call stands.
        template: the chat template.
        given: by the name of the placeholder: a value, or a function that makes it.
        node: the call.
    """
    sink = Sink("the system message of a chat template", scope.module, node.lineno, Certainty.MESSAGE)
    for text in _system_texts(template):
        assert text.template is not None  # noqa: S101 - the texts have been chosen by it
        scope.analysis.formatted.add(text.template[1])
        scope.reach(filled(text, CHAT_STYLES, lambda name, _: _made(scope, given.get(name, UNKNOWN), node)), sink)


def piped(scope: Scope, node: ast.BinOp, left: Value, right: Value) -> Value:
    """`left | right`: dicts merged, or a chain of LangChain, in which what stands before a template fills it."""
    if has_system_text(left):
        return left
    if has_system_text(right):
        fill_system_text(scope, right, left.entries or {}, node)
        return right
    is_merged = {left.form, right.form} == {Form.DICT}
    return Value(
        merge_taints([left, right]),
        Form.DICT if is_merged else Form.OTHER,
        is_fixed=is_merged and left.is_fixed and right.is_fixed,
    )


def _made(scope: Scope, value: Value, node: ast.expr) -> Value:
    """What a function returns that is called when the template is filled; any other value as it is."""
    if isinstance(value.target, (FunctionInfo, Bound)):
        return scope.analysis.called(value.target, [], {}, scope.module, node.lineno)
    return value


def _system_texts(template: Value) -> Iterator[Value]:
    if template.form is not Form.LIST:
        return
    for message in (template.entries or {}).values():
        parts = message.entries or {}
        role, text = (parts.get(first, parts.get(second, FIXED)) for first, second in ((0, "role"), (1, "content")))
        if role.text in SYSTEM_ROLES and text.text is not None and text.template is not None:
            yield text
