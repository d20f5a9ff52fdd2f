"""The Python files of a run, and how their imports find each other."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from prefold.errors import UsageError
from prefold.lint.source.values import Hole, Value

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_IMPORTS_MODELS = re.compile(
    r"^\s*(?:from|import)\s+(?:openai|anthropic|google\.genai|google\.generativeai|google|vertexai|litellm|langchain\w*|"
    r"langgraph|llama_index|agents|cohere|mistralai|pydantic_ai|boto3|dashscope|zhipuai|ollama|vllm|groq|together|"
    r"instructor|dspy|haystack|autogen\w*|crewai|smolagents|semantic_kernel|volcenginesdk\w*|qianfan|fireworks|xai_sdk)\b",
    re.MULTILINE,
)
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(eq=False)
class Module:
    """One Python file.

    Attributes:
        file: as the user gave it.
        text: its content.
    """

    file: str
    text: str

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Its dotted name, from the outermost folder on; a package is named by its folder."""
        *folders, last = PurePath(self.file).with_suffix("").parts or ("",)
        return tuple(folders) if last == "__init__" else (*folders, last)

    @property
    def is_package(self) -> bool:
        """Whether it is the `__init__.py` of a folder."""
        return PurePath(self.file).stem == "__init__"

    @cached_property
    def offset(self) -> int:
        """Characters before the first that Python reads: 1 where the file starts with a byte order mark."""
        return 1 if self.text.startswith(_BYTE_ORDER_MARK) else 0

    @cached_property
    def imports_models(self) -> bool:
        """Whether it imports a library for language models: names such as `instructions` then mean what they say."""
        return _IMPORTS_MODELS.search(self.text) is not None

    def parse(self) -> ast.Module:
        """Its syntax tree.

        Raises:
            UsageError: if it is not valid Python, with line and column, or nested too deeply to be read.
        """
        try:
            return self._parsed
        except SyntaxError as error:
            where = f"line {error.lineno}, column {error.offset}: " if error.lineno else ""
            raise UsageError(
                f"{self.file} is not valid Python: {where}{error.msg}.", hint="Mend the file, or leave it out."
            ) from None
        except (RecursionError, MemoryError):
            raise UsageError(
                f"{self.file} is nested too deeply to be read.", hint="Leave the file out, it looks generated."
            ) from None
        except ValueError as error:  # null bytes, before Python 3.12
            raise UsageError(
                f"{self.file} is not valid Python: {error}.", hint="Mend the file, or leave it out."
            ) from None

    @cached_property
    def _parsed(self) -> ast.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file's own, such as invalid escape sequences
            return ast.parse(self.text[self.offset :], self.file)

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree, empty where it has none."""
        try:
            return self.parse()
        except UsageError:
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def classes(self) -> Mapping[str, ClassInfo]:
        """Classes at the top of the file, by name."""
        return {node.name: ClassInfo(self, node) for node in self.tree.body if isinstance(node, ast.ClassDef)}


@dataclass(eq=False)
class FunctionInfo:
    """A function, method or lambda.

    Attributes:
        module: where it stands.
        node: its definition.
        parent: the class whose method it is.
        closure: names of the functions around it, as they were at its definition.
    """

    module: Module
    node: FunctionNode
    parent: ClassInfo | None = None
    closure: Mapping[str, Value] | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return "lambda" if isinstance(self.node, ast.Lambda) else self.node.name

    @cached_property
    def decorators(self) -> frozenset[str]:
        """Last parts of the names of its decorators."""
        return frozenset(last_name(node.func if isinstance(node, ast.Call) else node) for node in self.decorator_nodes)

    @property
    def decorator_nodes(self) -> Sequence[ast.expr]:
        """Its decorators."""
        return () if isinstance(self.node, ast.Lambda) else self.node.decorator_list

    @property
    def is_property(self) -> bool:
        """Whether its value is read like an attribute."""
        return bool(self.decorators & {"property", "cached_property"})

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of positional parameters, without `self` of a method."""
        arguments = self.node.args
        names = tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args))
        return names[1:] if self.parent is not None and "staticmethod" not in self.decorators else names

    @cached_property
    def every_parameter(self) -> frozenset[str]:
        """Names of all parameters that have one value each."""
        arguments = self.node.args
        return frozenset(item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))

    @property
    def receiver(self) -> str:
        """The name of `self` or `cls` in a method, empty elsewhere."""
        arguments = self.node.args
        first = (*arguments.posonlyargs, *arguments.args)[:1]
        return first[0].arg if first and self.parent is not None and "staticmethod" not in self.decorators else ""

    def hole(self, name: str) -> Hole:
        """What stands for a parameter."""
        return Hole(self.node, name)


@dataclass(eq=False)
class ClassInfo:
    """A class at the top of a file."""

    module: Module
    node: ast.ClassDef

    @cached_property
    def methods(self) -> Mapping[str, FunctionInfo]:
        """By name."""
        return {
            item.name: FunctionInfo(self.module, item, self)
            for item in self.node.body
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
        }

    @cached_property
    def declared(self) -> Mapping[str, ast.expr | None]:
        """Names that the class body assigns or annotates, with the value or default, in order."""
        names: dict[str, ast.expr | None] = {}
        for item in self.node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                names[item.target.id] = item.value
            elif isinstance(item, ast.Assign):
                names.update({target.id: item.value for target in item.targets if isinstance(target, ast.Name)})
        return names

    @cached_property
    def annotations(self) -> Mapping[str, ast.expr]:
        """Annotations of the names in the class body."""
        return {
            item.target.id: item.annotation
            for item in self.node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }

    @cached_property
    def writers(self) -> Mapping[str, tuple[FunctionInfo, ...]]:
        """By attribute: the methods that assign it on `self`."""
        found: dict[str, list[FunctionInfo]] = {}
        for method in self.methods.values():
            names = {
                node.attr
                for node in ast.walk(method.node)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == method.receiver
            }
            for name in sorted(names):
                found.setdefault(name, []).append(method)
        return {name: tuple(methods) for name, methods in found.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """An object of a class of the project.

    Attributes:
        cls: its class.
        fields: the arguments of its constructor; None for `self`, whose constructor's caller is not known.
    """

    cls: ClassInfo
    fields: Mapping[Hole, Value] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A method together with its object."""

    function: FunctionInfo
    instance: Instance


class ModuleIndex:
    """Finds the files that imports name."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = tuple(modules)
        self._by_last: dict[str, list[Module]] = {}
        for module in self.modules:
            if module.parts:
                self._by_last.setdefault(module.parts[-1], []).append(module)

    def find(self, importer: Module, dotted: str, level: int = 0) -> Module | None:
        """The file that `import dotted` means in a file; the nearest where several could be meant.

        Args:
            importer: the file with the import.
            dotted: the name, without the dots of a relative import.
            level: how many those are.
        """
        wanted = tuple(dotted.split(".")) if dotted else ()
        if level:
            folder = importer.parts if importer.is_package else importer.parts[:-1]
            wanted = (*folder[: len(folder) - (level - 1)], *wanted)
        if not wanted:
            return None
        candidates = [
            module
            for module in self._by_last.get(wanted[-1], ())
            if (module.parts == wanted if level else module.parts[-len(wanted) :] == wanted) and module is not importer
        ]
        return max(candidates, key=lambda module: _shared(module.parts, importer.parts), default=None)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Folders that two files have in common, the nearer relative first."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count * 1000 - len(one)


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, empty for another expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted_name(node: ast.expr) -> str:
    """`a.b.c` of a dotted name; calls and indices in between are left out."""
    names: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, (ast.Call, ast.Subscript)):
            node = node.func if isinstance(node, ast.Call) else node.value
        else:
            break
    if isinstance(node, ast.Name):
        names.append(node.id)
    return ".".join(reversed(names))
