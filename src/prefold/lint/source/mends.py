"""Fixes: the least change of a program that makes a value steady, where it is sure to leave its meaning as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from prefold.lint.findings import Replacement
from prefold.lint.source.catalog import UNSORTED_JSON
from prefold.lint.source.modules import dotted_name, last_name
from prefold.lint.source.text import SourceText
from prefold.lint.source.values import SORTED, SORTED_IN_PLACE, Source

_ITERATING_CALLS = frozenset(
    {"list", "tuple", "enumerate", "zip", "map", "filter", "iter", "join", "extend", "fromkeys"}
)
"""Calls that go through what they are given from its first item to its last."""
_SCHEMA = re.compile(
    r"schema|propert(?:y|ies)|openapi|swagger"
    r"|(?<![a-z])(?:tool|function|parameter|param|spec|specification|signature|definition|response_format)s?(?![a-z])",
    re.IGNORECASE,
)
"""Names and words of what may hold a JSON schema, whose order of properties means something to a model."""


def mend(source: Source, text: SourceText) -> tuple[Replacement, ...]:
    """The replacements that mend a source; none where they could change or break the program."""
    if source.rule == UNSORTED_JSON and source.mend and not is_about_a_schema(source.node, text):
        return text.with_argument(source.node, source.mend)
    if source.mend == SORTED or (source.mend == SORTED_IN_PLACE and _is_iterated(source.node, text)):
        return text.wrapped(source.node, "sorted")
    return ()


def _is_iterated(node: ast.expr, text: SourceText) -> bool:
    """Whether an expression is gone through where it stands, so that nothing else can need it to be an iterator."""
    parent = text.parent(node)
    if isinstance(parent, (ast.For, ast.comprehension)):
        return parent.iter is node
    return isinstance(parent, ast.Call) and node in parent.args and last_name(parent.func) in _ITERATING_CALLS


def is_about_a_schema(node: ast.expr, text: SourceText) -> bool:
    """Whether an expression is named like a schema, or stands among such names and words."""
    return any(_SCHEMA.search(word) for word in _words_around(node, text))


def _words_around(node: ast.expr, text: SourceText) -> Iterator[str]:
    """Names and texts of the whole expression, of what it is assigned to, and of the function that it is in."""
    whole: ast.AST = node
    while (above := text.parent(whole)) is not None and not isinstance(above, ast.stmt):
        whole = above
    roots = [whole]
    if isinstance(above, ast.Assign):
        roots.extend(above.targets)
    elif isinstance(above, (ast.AnnAssign, ast.AugAssign)):
        roots.append(above.target)
    for root in roots:
        for item in ast.walk(root):
            match item:
                case ast.Name() | ast.Attribute():
                    yield dotted_name(item)
                case ast.Constant(value=str() as constant):
                    yield constant
                case ast.keyword(arg=str() as name):
                    yield name
                case _:
                    pass
    while above is not None and not isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
        above = text.parent(above)
    yield above.name if above is not None else ""
