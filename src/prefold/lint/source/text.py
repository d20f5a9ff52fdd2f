"""Where syntax nodes stand in a file, in characters, and the replacements that mend them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from prefold.lint.findings import Replacement
from prefold.lint.source.modules import Module
from prefold.lint.text import tokens_per_character
from prefold.prompts.tokens import counter_for

_LINE_END = re.compile(r"\r\n|\r|\n")
_LONGEST_EXCERPT = 48


class SourceText:
    """The text of a file beside its syntax tree.

    Python counts columns in bytes of UTF-8 and, before 3.12, places what stands inside an f-string wrongly; here
    everything is characters of the text, and right.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._text = module.text

    @cached_property
    def _line_starts(self) -> list[int]:
        return [self._module.offset, *(match.end() for match in _LINE_END.finditer(self._text))]

    def _position(self, line: int, column: int) -> int:
        """The character at a line, counted from 1, and a column in bytes."""
        start = self._line_starts[line - 1]
        end = self._line_starts[line] if line < len(self._line_starts) else len(self._text)
        return start + len(self._text[start:end].encode()[:column].decode(errors="ignore"))

    @cached_property
    def _parents(self) -> Mapping[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self._module.tree) for child in ast.iter_child_nodes(node)}

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that another one stands in; None for the whole file, and for what was made up."""
        return self._parents.get(node)

    def span(self, node: ast.expr) -> tuple[int, int]:
        """First character of an expression, and the one after its last."""
        start, end = self._reported(node)
        if _is_same(self._text[start:end], node):
            return start, end
        outer: ast.AST | None = node
        while outer is not None and not isinstance(outer, ast.JoinedStr):
            outer = self.parent(outer)
        if outer is None:
            return start, end
        return self._inside(outer, node) or self._reported(outer)

    def _reported(self, node: ast.expr) -> tuple[int, int]:
        start = self._position(node.lineno, node.col_offset)
        return start, self._position(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)

    def _inside(self, outer: ast.JoinedStr, node: ast.expr) -> tuple[int, int] | None:
        """The place of an expression inside an f-string, found by its text."""
        start, end = self._reported(outer)
        for item in outer.values:
            if not isinstance(item, ast.FormattedValue):
                continue
            place = next((index for index, inner in enumerate(ast.walk(item.value)) if inner is node), None)
            if place is None:
                continue
            for first, last in _braced(self._text, start, end):
                if not _is_same(self._text[first:last], item.value):
                    continue
                return self._shifted(first, last, place)
        return None

    def _shifted(self, first: int, last: int, place: int) -> tuple[int, int]:
        """Node number `place` of the expression that stands alone between two characters."""
        text = self._text[first:last]
        alone = SourceText(Module("", f"({text})"))
        inner = list(ast.walk(ast.parse(f"({text})", mode="eval").body))[place]
        assert isinstance(inner, ast.expr)  # noqa: S101 - the same tree as the one that `place` was counted in
        start, end = alone._reported(inner)
        return first + start - 1, first + end - 1

    def placeholder(self, node: ast.expr, name: str) -> tuple[int, int]:
        """The place of a placeholder inside a template; the template where it cannot be told."""
        start, end = self.span(node)
        word = re.escape(name)
        pattern = re.compile(rf"\{{[^{{}}]*\b{word}\b[^{{}}]*\}}|%\({word}\)[sdr]|\$\{{?{word}\b\}}?")
        match = pattern.search(self._text, start, end)
        return match.span() if match else (start, end)

    def tokens(self, characters: int) -> int:
        """About how many tokens so many characters are, at the density of the file."""
        return max(1, round(characters * self._density))

    @cached_property
    def _density(self) -> float:
        return tokens_per_character(self._text, counter_for())

    def excerpt(self, start: int, end: int) -> str:
        """Characters of the file on one short line."""
        text = " ".join(self._text[start:end].split())
        return text if len(text) <= _LONGEST_EXCERPT else f"{text[: _LONGEST_EXCERPT - 1]}…"

    def wrapped(self, node: ast.expr, function: str) -> tuple[Replacement, ...]:
        """The replacement that puts a function's call around an expression."""
        start, end = self.span(node)
        if not _is_same(self._text[start:end], node):
            return ()
        return (Replacement(start, end, f"{function}({self._text[start:end]})"),)

    def with_argument(self, node: ast.expr, argument: str) -> tuple[Replacement, ...]:
        """The replacement that adds a keyword argument to a call; none where that could go wrong."""
        start, end = self.span(node)
        if not isinstance(node, ast.Call) or not _is_same(self._text[start:end], node):
            return ()
        name, _, _ = argument.partition("=")
        if any(keyword.arg in {None, name} for keyword in node.keywords) or any(
            isinstance(item, (ast.Starred, ast.GeneratorExp)) for item in node.args
        ):
            return ()
        alone = ast.parse(f"({self._text[start:end]})", mode="eval").body
        assert isinstance(alone, ast.Call)  # noqa: S101 - compared above
        last = (
            (alone.keywords[-1].value if alone.keywords else alone.args[-1]) if alone.args or alone.keywords else None
        )
        if last is None:
            return ()
        place = start + SourceText(Module("", f"({self._text[start:end]})"))._reported(last)[1] - 1
        changed = f"{self._text[start:place]}, {argument}{self._text[place:end]}"
        added = ast.parse(f"f({argument})", mode="eval").body
        assert isinstance(added, ast.Call)  # noqa: S101 - written here
        wanted = ast.Call(node.func, node.args, [*node.keywords, *added.keywords])
        return (Replacement(place, place, f", {argument}"),) if _is_same(changed, wanted) else ()


def _is_same(text: str, node: ast.expr) -> bool:
    """Whether text is the source of an expression."""
    try:
        parsed = ast.parse(f"({text})", mode="eval").body
        return ast.dump(parsed) == ast.dump(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _braced(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Stretches between the braces of an f-string that may be expressions."""
    for opened in re.compile(r"\{").finditer(text, start, end):
        for closed in re.compile(r"[}!:]").finditer(text, opened.end(), end):
            yield opened.end(), closed.start()
            if closed.group() == "}" and "{" not in text[opened.end() : closed.start()]:
                break
