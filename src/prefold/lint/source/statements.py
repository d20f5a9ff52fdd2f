"""Runs the statements of a body in order, and joins what the branches leave behind."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefold.lint.source.assignments import assign, bind_target
from prefold.lint.source.expressions import Scope
from prefold.lint.source.modules import ClassInfo, FunctionInfo
from prefold.lint.source.sinks import SYSTEM_ROLES, Certainty, Sink, is_prompt_function
from prefold.lint.source.values import UNKNOWN, Form, Value, concatenate, join, merge_taints

_DEEPEST_REPEATED_LOOP = 2
"""Loops inside each other whose bodies are run twice, so that what one round leaves is seen by the next."""
_DEEPEST_BLOCKS = 30


class Body:
    """The statements of one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._blocks = 0

    def run_module(self, tree: ast.Module) -> None:
        """Read a file from top to bottom; functions and classes are known from the start, as they are when called."""
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._define(node)
        self.run(tree.body)

    def run_function(self, function: FunctionInfo) -> Value:
        """Read a function; returns what it hands back."""
        scope = self.scope
        if isinstance(function.node, ast.Lambda):
            return scope.value(function.node.body)
        self.run(function.node.body)
        value = join(*scope.returns) if scope.returns else UNKNOWN
        if is_prompt_function(function.name, function.decorators, function.module):
            sink = Sink(f"the result of `{function.name}`", function.module, function.node.lineno, Certainty.NAME)
            scope.reach(value, sink)
        return value

    def run_class(self, cls: ClassInfo) -> None:
        """Read the assignments of a class body."""
        self.run([item for item in cls.node.body if isinstance(item, (ast.Assign, ast.AnnAssign))])

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Run statements one after the other."""
        if self._blocks >= _DEEPEST_BLOCKS:
            return
        self._blocks += 1
        for statement in statements:
            run = _RUNNERS.get(type(statement))
            if run is not None:
                run(self, statement)
        self._blocks -= 1

    # Names.

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        scope = self.scope
        if isinstance(node, ast.ClassDef):
            scope.names[node.name] = Value(target=scope.analysis.class_of(scope.module, node))
            return
        is_nested = scope.function is not None
        known = scope.names.get(node.name, UNKNOWN).target
        if isinstance(known, FunctionInfo) and known.node is node:
            return
        function = FunctionInfo(scope.module, node, closure=scope.closure() if is_nested else None)
        scope.names[node.name] = Value(target=function)
        if is_nested:
            scope.analysis.summary(function)

    def _import(self, node: ast.Import) -> None:
        scope = self.scope
        for alias in node.names:
            if alias.asname is not None:
                scope.names[alias.asname] = scope.analysis.imported(scope.module, alias.name)
            else:
                root = alias.name.split(".")[0]
                scope.names[root] = scope.analysis.imported(scope.module, root)

    def _import_from(self, node: ast.ImportFrom) -> None:
        scope = self.scope
        for alias in node.names:
            name = alias.asname or alias.name
            if alias.name == "*":
                target = scope.analysis.imported(scope.module, node.module or "", node.level).target
                scope.names.update(scope.analysis.names_of(target))
            else:
                scope.names[name] = scope.analysis.imported_name(
                    scope.module, node.module or "", node.level, alias.name
                )

    # Assignments.

    def _assign(self, node: ast.Assign) -> None:
        value = self.scope.value(node.value)
        for target in node.targets:
            assign(self.scope, target, value)

    def _assign_annotated(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        value = self.scope.value(node.value)
        assign(self.scope, node.target, value)

    def _assign_grown(self, node: ast.AugAssign) -> None:
        old, added = self.scope.value(node.target), self.scope.value(node.value)
        if Form.SET in {old.form, added.form}:
            whole = Value(merge_taints([old, added]), Form.SET, is_strings=old.is_strings and added.is_strings)
        else:
            whole = concatenate([old, added])
            whole = replace(whole, form=old.form, is_fixed=old.is_fixed and added.is_fixed, template=None)
        assign(self.scope, node.target, whole)

    # Control flow.

    def _expression(self, node: ast.Expr) -> None:
        self.scope.value(node.value)

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.scope.returns.append(self.scope.value(node.value))

    def _if(self, node: ast.If) -> None:
        blocks: list[Sequence[ast.stmt]] = []
        checked: list[frozenset[str]] = []
        rest: ast.If | None = node
        while rest is not None:  # a long elif chain is nested in the tree, not on our stack
            self.scope.value(rest.test)
            checked.append(_system_messages(rest.test))
            blocks.append(rest.body)
            following = rest.orelse
            rest = following[0] if len(following) == 1 and isinstance(following[0], ast.If) else None
            if rest is None:
                blocks.append(following)
        self._branches(blocks, checked)

    def _branches(self, blocks: Sequence[Sequence[ast.stmt]], system_messages: Sequence[frozenset[str]] = ()) -> None:
        """Run blocks of which one is taken, and join what they leave.

        Args:
            blocks: each a list of statements.
            system_messages: of the first blocks: what is known to be a system message in them.
        """
        before, known = self.scope.names, self.scope.system_messages
        left: list[dict[str, Value]] = []
        for place, block in enumerate(blocks):
            names = self.scope.names = dict(before)
            self.scope.system_messages = known.union(*system_messages[place : place + 1])
            self.run(block)
            if not (block and isinstance(block[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))):
                left.append(names)
        self.scope.names, self.scope.system_messages = before, known
        for name in {name: None for names in left for name in names}:
            found = [names[name] for names in left if name in names]
            if any(value is not before.get(name) for value in found):
                before[name] = join(*found)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        scope = self.scope
        iterable = scope.value(node.iter)
        bind_target(scope.names, node.target, scope.elements(iterable, node.iter))
        self._repeat([*node.body, *node.orelse])

    def _while(self, node: ast.While) -> None:
        self.scope.value(node.test)
        self._repeat([*node.body, *node.orelse])

    def _repeat(self, block: Sequence[ast.stmt]) -> None:
        self.scope.loops += 1
        for _ in range(2 if self.scope.loops <= _DEEPEST_REPEATED_LOOP else 1):
            self._branches([block, []])
        self.scope.loops -= 1

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = self.scope.value(item.context_expr)
            if item.optional_vars is not None:
                assign(self.scope, item.optional_vars, value)
        self.run(node.body)

    def _try(self, node: ast.Try) -> None:
        self.run(node.body)
        self._branches([node.orelse, *(handler.body for handler in node.handlers)])
        self.run(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        self.scope.value(node.subject)
        self._branches([*(case.body for case in node.cases), []])


def _system_messages(test: ast.expr) -> frozenset[str]:
    """The expressions that are system messages where a condition holds, such as `m` in `m["role"] == "system"`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return frozenset().union(*map(_system_messages, test.values))
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.In))):
        return frozenset()
    roles = {item.value for item in ast.walk(test.comparators[0]) if isinstance(item, ast.Constant)}
    owner = _owner_of_role(test.left)
    return frozenset({ast.dump(owner)}) if owner is not None and roles and roles <= SYSTEM_ROLES else frozenset()


def _owner_of_role(node: ast.expr) -> ast.expr | None:
    """`m` of `m["role"]`, `m.get("role")` and `m.role`."""
    match node:
        case ast.Subscript(value=owner, slice=ast.Constant(value="role")):
            return owner
        case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[ast.Constant(value="role"), *_]):
            return owner
        case ast.Attribute(value=owner, attr="role" | "type"):
            return owner
        case _:
            return None


_RUNNERS: Mapping[type[ast.stmt], Callable[[Body, Any], None]] = {
    ast.FunctionDef: Body._define,
    ast.AsyncFunctionDef: Body._define,
    ast.ClassDef: Body._define,
    ast.Import: Body._import,
    ast.ImportFrom: Body._import_from,
    ast.Assign: Body._assign,
    ast.AnnAssign: Body._assign_annotated,
    ast.AugAssign: Body._assign_grown,
    ast.Expr: Body._expression,
    ast.Return: Body._return,
    ast.If: Body._if,
    ast.For: Body._for,
    ast.AsyncFor: Body._for,
    ast.While: Body._while,
    ast.With: Body._with,
    ast.AsyncWith: Body._with,
    ast.Try: Body._try,
    ast.TryStar: Body._try,
    ast.Match: Body._match,
}
