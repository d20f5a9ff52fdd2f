"""Follows values through the functions and modules of a project, from where they are made to the prompts they enter."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from prefold.lint.source.catalog import SET_ORDER, words
from prefold.lint.source.expressions import Scope, part_of
from prefold.lint.source.modules import Bound, ClassInfo, FunctionInfo, Instance, Module, ModuleIndex, last_name
from prefold.lint.source.sinks import Sink, may_have_prompts
from prefold.lint.source.statements import Body
from prefold.lint.source.templates import unfilled
from prefold.lint.source.values import (
    UNKNOWN,
    Form,
    Hole,
    Resolve,
    Source,
    Step,
    Taint,
    Value,
    fill,
    join,
    mapping,
    substitute,
)

_PLAIN_ANNOTATIONS = words(
    "str int float bool bytes datetime date UUID Path None list List tuple Tuple Sequence Iterable Optional Union"
)
"""Types whose values have no keys, so that no order of keys either."""
_SET_ANNOTATIONS = words("set Set frozenset FrozenSet AbstractSet MutableSet")
_DEEPEST_CALLS = 8
"""Calls inside each other that are followed."""
_CALLS_WORTH_A_READING = 3
"""How many calls further a function must be followed this time to be read again."""
_MOST_DERIVED = 20
"""Derived classes of one class that are looked at."""
_MOST_ARGUMENTS = 40
"""Different arguments of one parameter that are looked at."""


@dataclass(frozen=True, slots=True)
class Hit:
    """Something that varies, and the stable prefix that it goes into."""

    taint: Taint
    sink: Sink


@dataclass(frozen=True, slots=True)
class _Summary:
    """What a function does, in terms of its parameters.

    Attributes:
        value: what it returns.
        writes: the attributes that it sets.
        grown: parameters that it changes in place, and what they become.
        calls_around: inside how many calls it was read, if calls in it were too many calls away to be followed; 0 if it
            has been read in full.
    """

    value: Value = UNKNOWN
    writes: Mapping[str, Value] | None = None
    grown: Mapping[str, Value] = field(default_factory=dict)
    calls_around: int = 0


class Analysis:
    """The data flow of a project.

    Every function is read once. What reaches a prompt from a parameter is kept open until the arguments of all calls
    are known, then followed back to them.

    Attributes:
        formatted: templates that the project fills itself; what they hold is judged by what is filled in.
    """

    def __init__(self, index: ModuleIndex) -> None:
        self.formatted: set[ast.expr] = set()
        self._index = index
        self._names: dict[Module, dict[str, Value]] = {}
        self._summaries: dict[ast.AST, _Summary] = {}
        self._running: dict[ast.AST, Scope] = {}
        self._members: dict[tuple[ast.ClassDef, str], Value] = {}
        self._classes: dict[ast.ClassDef, ClassInfo] = {}
        self._seeded: dict[Module, bool] = {}
        self._reached: list[tuple[Taint, Sink]] = []
        self._unfilled: list[tuple[Taint, Sink]] = []
        self._arguments: dict[Hole, list[Value]] = {}
        self._derived: dict[str, list[ClassInfo]] | None = None
        self._depth = 0
        self._is_cut = False

    def hits(self) -> list[Hit]:
        """Everything that varies in a stable prefix of the project."""
        for module in self._index.modules:
            if may_have_prompts(module):
                self._read_module(module)
        raw = [Hit(taint, sink) for taint, sink in self._unfilled if not self._is_filled_here(taint.origin)]
        return self._follow_back() + raw

    def _is_filled_here(self, origin: Source | Hole) -> bool:
        return isinstance(origin, Source) and origin.node in self.formatted

    def _read_module(self, module: Module) -> None:
        names = self.module_names(module)
        for node in _classes_in(module.tree):
            cls = self.class_of(module, node)
            Body(Scope(self, module, dict(names))).run_class(cls)
            for method in cls.methods.values():
                self.summary(method)
        for value in list(names.values()):
            if isinstance(value.target, FunctionInfo) and value.target.module is module:
                self.summary(value.target)

    def _follow_back(self) -> list[Hit]:
        """Follow what reached a prompt from a parameter to the arguments given for it."""
        hits: list[Hit] = []
        queue = deque((taint, sink, 0) for taint, sink in self._reached)
        seen: set[tuple[object, ...]] = set()
        while queue:
            taint, sink, calls = queue.popleft()
            if isinstance(taint.origin, Source):
                hits.append(Hit(taint, sink))
                continue
            mark = (taint.origin, taint.pending, taint.is_sorted, taint.is_content, sink)
            if mark in seen or calls >= _DEEPEST_CALLS:
                continue
            seen.add(mark)
            values = self._values_of(taint.origin)
            if not values and taint.pending is not None and taint.pending.rule != SET_ORDER:
                hits.append(Hit(replace(taint, origin=taint.pending, pending=None), sink))
            for value in values:
                queue.extend((found, sink, calls + 1) for found in fill(taint, lambda _hole, value=value: value))  # type: ignore[misc]
        return hits

    def _values_of(self, hole: Hole) -> list[Value]:
        """What is given for a parameter, or the part of it that is meant, anywhere in the project."""
        given = self._arguments.get(replace(hole, path=()), [])
        return [self._part(value, hole.path) for value in given]

    def _part(self, value: Value, path: Iterable[str]) -> Value:
        for name in path:
            owner = value.target
            value = self.member(owner, name) if isinstance(owner, Instance) else part_of(value, name)
        return value

    def reach(self, value: Value, sink: Sink) -> None:
        """Note that a value goes into a prompt."""
        self._reached.extend((taint, sink) for taint in value.taints)
        self._unfilled.extend((taint, sink) for taint in unfilled(value))

    def is_seeded(self, module: Module) -> bool:
        """Whether a file gives the random generator of Python a seed."""
        if module not in self._seeded:
            self._seeded[module] = "random.seed(" in module.text
        return self._seeded[module]

    # Modules and names.

    def module_names(self, module: Module) -> dict[str, Value]:
        """The names at the top of a file; those found so far, while it is being read."""
        known = self._names.get(module)
        if known is None:
            known = self._names[module] = {}
            scope = Scope(self, module, known)
            with suppress(RecursionError):  # generated code: what was read until there counts
                Body(scope).run_module(module.tree)
        return known

    def submodule(self, package: Module, name: str) -> Value:
        """A file inside a package."""
        found = self._index.find(package, ".".join((*package.parts, name)))
        return UNKNOWN if found is None else Value(target=found)

    def imported(self, importer: Module, dotted: str, level: int = 0) -> Value:
        """What `import dotted` binds: a file of the project, or a name outside."""
        found = self._index.find(importer, dotted, level)
        return Value(target=found if found is not None else dotted)

    def imported_name(self, importer: Module, dotted: str, level: int, name: str) -> Value:
        """What `from dotted import name` binds."""
        source = self._index.find(importer, dotted, level)
        if source is None:
            inner = self._index.find(importer, f"{dotted}.{name}" if dotted else name, level)
            if inner is not None:
                return Value(target=inner)
            return Value(target=f"{dotted}.{name}", is_fixed=name.isupper())
        found = self.module_names(source).get(name)
        return self.submodule(source, name) if found is None else found

    def class_of(self, module: Module, node: ast.ClassDef) -> ClassInfo:
        """What is known of a class."""
        if node not in self._classes:
            top = module.classes.get(node.name)
            self._classes[node] = top if top is not None and top.node is node else ClassInfo(module, node)
        return self._classes[node]

    def names_of(self, target: object) -> Mapping[str, Value]:
        """What `from module import *` binds."""
        if not isinstance(target, Module):
            return {}
        return {name: value for name, value in self.module_names(target).items() if not name.startswith("_")}

    # Functions.

    def summary(self, function: FunctionInfo) -> _Summary:
        """What a function does. Nothing is known of one that is being read already, or too many calls away."""
        known = self._summaries.get(function.node)
        if known is not None and known.calls_around < self._depth + _CALLS_WORTH_A_READING:
            self._is_cut = self._is_cut or known.calls_around > 0
            return known
        if self._depth >= _DEEPEST_CALLS:
            self._is_cut = True
            return _Summary()
        if function.node in self._running:
            return _Summary(writes=self._running[function.node].writes)
        was_cut, self._is_cut = self._is_cut, False
        self._depth += 1
        scope = Scope(self, function.module, {}, function)
        self._running[function.node] = scope
        try:
            scope.names = self._parameters(function)
            value = Body(scope).run_function(function)
            calls_around = self._depth - 1 if self._is_cut else 0
            self._summaries[function.node] = _Summary(value, scope.writes, scope.grown, calls_around)
        except RecursionError:  # nested beyond what people write: it counts as unknown
            self._summaries[function.node] = _Summary()
        finally:
            del self._running[function.node]
            self._depth -= 1
            self._is_cut = self._is_cut or was_cut
        return self._summaries[function.node]

    def _parameters(self, function: FunctionInfo) -> dict[str, Value]:
        arguments = function.node.args
        outside = Scope(self, function.module, self.module_names(function.module))
        names: dict[str, Value] = {}
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [arguments.kwarg] if arguments.kwarg is not None else []
        for argument in every:
            hole = Value((Taint(function.hole(argument.arg)),))
            names[argument.arg] = self._annotated(hole, argument.annotation, outside)
            injected = self._injected(argument.annotation, outside)
            if injected.taints:
                names[argument.arg] = join(names[argument.arg], injected)
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = [*zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)]
        defaults += [
            (argument, default)
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        ]
        for argument, default in defaults:
            given = outside.value(default)
            if given.taints:
                names[argument.arg] = join(names[argument.arg], given)
        if function.receiver and function.parent is not None:
            names[function.receiver] = Value(target=Instance(function.parent))
        return names

    def _injected(self, annotation: ast.expr | None, scope: Scope) -> Value:
        """What the framework gives for a parameter with the annotation `Annotated[..., Depends(function)]`."""
        match annotation:
            case ast.Subscript(value=owner, slice=ast.Tuple(elts=[_, *extras])) if last_name(owner) == "Annotated":
                values = [scope.value(extra) for extra in extras if isinstance(extra, ast.Call)]
                return join(UNKNOWN, *values)
            case _:
                return UNKNOWN

    def _annotated(self, value: Value, annotation: ast.expr | None, scope: Scope) -> Value:
        """A parameter or field as its annotation describes it."""
        if annotation is None:
            return value
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return value
        names = {last_name(node) for node in ast.walk(annotation) if isinstance(node, (ast.Name, ast.Attribute))}
        if names & _SET_ANNOTATIONS and last_name(getattr(annotation, "value", annotation)) in _SET_ANNOTATIONS:
            return replace(value, form=Form.SET, is_strings="str" in names)
        if names - {"list", "List", "tuple", "Tuple", "Sequence", "Iterable"} and names <= _PLAIN_ANNOTATIONS:
            return replace(value, is_fixed=True)
        if isinstance(annotation, ast.Name):
            target = scope.lookup(annotation.id).target
            if isinstance(target, ClassInfo):
                return replace(value, target=Instance(target))
        return value

    def called(
        self, target: object, arguments: list[Value], keywords: Mapping[str, Value], module: Module, line: int
    ) -> Value:
        """What a call of something in the project returns."""
        if isinstance(target, ClassInfo):
            return self._constructed(target, arguments, keywords, module, line)
        function = target.function if isinstance(target, Bound) else target
        if not isinstance(function, FunctionInfo):
            return UNKNOWN
        given = self._bind(function, arguments, keywords, module, line)
        summary = self.summary(function)
        result = substitute(summary.value, self._resolve(given))
        if isinstance(target, Bound) and target.instance.fields is not None:
            result = substitute(result, self._resolve(target.instance.fields))
        elif isinstance(target, Bound):
            deriving = self._overriding(target.instance.cls, function.name)
            for other in filter(None, (cls.methods.get(function.name) for cls in deriving)):
                given = self._bind(other, arguments, keywords, module, line)
                result = join(result, substitute(self.summary(other).value, self._resolve(given)))
        for wrapper in self._wrappers(function):
            result = join(result, self.summary(wrapper).value.plain())
        return result.through(Step(f"returned by `{function.name}`", module, line))

    def _wrappers(self, function: FunctionInfo) -> Iterator[FunctionInfo]:
        """The functions that decorators of the project put around a function."""
        scope = Scope(self, function.module, self.module_names(function.module))
        for node in function.decorator_nodes:
            decorator = scope.value(node).target
            wrapper = self.summary(decorator).value.target if isinstance(decorator, FunctionInfo) else None
            if isinstance(wrapper, FunctionInfo):
                yield wrapper

    def changed(
        self, target: object, arguments: list[Value], keywords: Mapping[str, Value]
    ) -> dict[int | str | None, Value]:
        """What becomes of the arguments of a call that the function changes in place, by position and by name."""
        function = target.function if isinstance(target, Bound) else target
        if not isinstance(function, FunctionInfo) or not (grown := self.summary(function).grown):
            return {}
        named = {**dict(zip(function.parameters, arguments, strict=False)), **keywords}
        resolve = self._resolve({function.hole(name): value for name, value in named.items()})
        places: dict[str, int | str] = {name: place for place, name in enumerate(function.parameters[: len(arguments)])}
        return {places.get(name, name): substitute(value, resolve) for name, value in grown.items() if name in named}

    def _bind(
        self, function: FunctionInfo, arguments: list[Value], keywords: Mapping[str, Value], module: Module, line: int
    ) -> dict[Hole, Value]:
        names = set(function.parameters) | {argument.arg for argument in function.node.args.kwonlyargs}
        named = dict(zip(function.parameters, arguments, strict=False))
        named.update({name: value for name, value in keywords.items() if name in names})
        if function.node.args.kwarg is not None:
            others = {name: value for name, value in keywords.items() if name not in names}
            named[function.node.args.kwarg.arg] = mapping(others)
        label = function.name if function.parent is None or function.name != "__init__" else function.parent.node.name
        return self._record({function.hole(name): value for name, value in named.items()}, label, module, line)

    def _record(self, given: Mapping[Hole, Value], name: str, module: Module, line: int) -> dict[Hole, Value]:
        """Remember what a call gives for each parameter."""
        bound: dict[Hole, Value] = {}
        for hole, value in given.items():
            bound[hole] = value.through(Step(f"passed as `{hole.name}` to `{name}`", module, line))
            known = self._arguments.setdefault(hole, [])
            if len(known) < _MOST_ARGUMENTS and bound[hole] not in known:
                known.append(bound[hole])
        return bound

    def _resolve(self, given: Mapping[Hole, Value]) -> Resolve:
        def resolve(hole: Hole) -> Value | None:
            whole = given.get(replace(hole, path=()) if hole.path else hole)
            return None if whole is None else self._part(whole, hole.path)

        return resolve

    # Classes.

    def _constructed(
        self, cls: ClassInfo, arguments: list[Value], keywords: Mapping[str, Value], module: Module, line: int
    ) -> Value:
        maker = self._constructor(cls)
        if maker is not None:
            given = self._bind(maker, arguments, keywords, module, line)
            return Value(target=Instance(cls, given))
        fields = [name for owner in reversed(self._lineage(cls)) for name in owner.annotations]
        named = [*zip(fields, arguments, strict=False), *keywords.items()]
        owners = {name: owner for owner in reversed(self._lineage(cls)) for name in owner.annotations}
        given = self._record(
            {Hole(owners[name].node, name): value for name, value in named if name in owners},
            cls.node.name,
            module,
            line,
        )
        return Value(target=Instance(cls, given))

    def _constructor(self, cls: ClassInfo) -> FunctionInfo | None:
        return next((owner.methods["__init__"] for owner in self._lineage(cls) if "__init__" in owner.methods), None)

    def _lineage(self, cls: ClassInfo) -> list[ClassInfo]:
        """A class and its base classes in the project, nearest first."""
        found = [cls]
        for owner in found:
            scope = Scope(self, owner.module, self.module_names(owner.module))
            for base in owner.node.bases:
                target = scope.value(base).target
                if isinstance(target, ClassInfo) and target not in found:
                    found.append(target)
        return found

    def parent(self, cls: ClassInfo) -> Value:
        """What `super()` is in the methods of a class."""
        return next((Value(target=Instance(base, {})) for base in self._lineage(cls)[1:]), UNKNOWN)

    def _overriding(self, cls: ClassInfo, name: str) -> list[ClassInfo]:
        """The classes derived from a class that have a method or an attribute of their own with this name."""
        if self._derived is None:
            self._derived = defaultdict(list)
            for module in filter(may_have_prompts, self._index.modules):
                for other in module.classes.values():
                    for base in other.node.bases:
                        self._derived[last_name(base)].append(other)
        found: list[ClassInfo] = []
        waiting = [cls]
        while waiting and len(found) < _MOST_DERIVED:
            derived = [other for other in self._derived[waiting.pop().node.name] if other not in found]
            found.extend(derived)
            waiting.extend(derived)
        return [other for other in found if name in other.methods or name in other.declared or name in other.writers]

    def member(self, instance: Instance, name: str) -> Value:
        """An attribute or method of an object; of `self`, what derived classes have in its place may be meant too."""
        own = self._own_member(instance, name)
        if instance.fields is not None or isinstance(own.target, Bound):
            return own
        others = [self._attribute(cls, name) for cls in self._overriding(instance.cls, name)]
        found = [value for value in (own, *others) if value is not UNKNOWN]
        return join(*found) if found else UNKNOWN

    def _attribute(self, cls: ClassInfo, name: str) -> Value:
        """An attribute that a class itself has."""
        method = cls.methods.get(name)
        if method is None:
            return self._field(cls, name)
        return self.summary(method).value if method.is_property else UNKNOWN

    def _own_member(self, instance: Instance, name: str) -> Value:
        for cls in self._lineage(instance.cls):
            method = cls.methods.get(name)
            if method is not None and not method.is_property:
                return Value(target=Bound(method, instance))
            value = self._attribute(cls, name)
            if value is not UNKNOWN:
                return substitute(value, self._resolve(instance.fields)) if instance.fields is not None else value
        return UNKNOWN

    def _field(self, cls: ClassInfo, name: str) -> Value:
        """What an attribute of a class holds, in terms of the parameters that set it."""
        key = (cls.node, name)
        if key not in self._members:
            self._members[key] = UNKNOWN  # while it is being found
            values = [self.summary(method).writes or {} for method in cls.writers.get(name, ())]
            found = [writes[name] for writes in values if name in writes]
            if name in cls.declared:
                found.append(self._declared(cls, name))
            value = join(*found) if found else UNKNOWN
            if any(method.node in self._running for method in cls.writers.get(name, ())):
                del self._members[key]  # what is known so far
                return value
            self._members[key] = value
        return self._members[key]

    def _declared(self, cls: ClassInfo, name: str) -> Value:
        """A name in a class body: a constant, or a field with its default."""
        scope = Scope(self, cls.module, dict(self.module_names(cls.module)))
        default = cls.declared[name]
        value = self._default(scope, default)
        if name not in cls.annotations or self._constructor(cls) is not None:
            return value
        hole = self._annotated(Value((Taint(Hole(cls.node, name)),)), cls.annotations[name], scope)
        return join(hole, value) if value.taints else hole

    def _default(self, scope: Scope, node: ast.expr | None) -> Value:
        """The default of a field, which may come from a factory."""
        if not isinstance(node, ast.Call):
            return UNKNOWN if node is None else scope.value(node)
        factory = next(
            (keyword.value for keyword in node.keywords if keyword.arg in {"default_factory", "factory"}), None
        )
        if factory is None:
            return scope.value(node)
        made = ast.copy_location(ast.Call(func=factory, args=[], keywords=[]), factory)
        return scope.value(made)


def _classes_in(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Class definitions at any depth of a file, without looking into expressions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            yield node
        for name in ("body", "orelse", "handlers", "finalbody"):
            below = getattr(node, name, ())
            if isinstance(below, list):
                waiting.extend(reversed(below))
