"""What the data-flow analysis knows about a value: where what varies in it was made, and how it is laid out.

The analysis is an abstract interpretation. The value of a parameter is not known while its function is read, so it is a
`Hole`; at a call the hole is filled with the argument, and whatever the function did with it is repeated on that
(`substitute`). Each function is therefore read once, however often it is called.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from prefold.lint.source.catalog import ORDER_RULES, SET_ORDER, TEMPLATE, UNSORTED_JSON, granularity

if TYPE_CHECKING:
    from prefold.lint.source.modules import Module

_MOST_TAINTS = 12
"""Of one value; more would say the same again."""
_MOST_ENTRIES = 64
"""Items of a list that are told apart."""
_DEEPEST_ENTRIES = 6
"""Lists and dicts inside each other whose items are told apart."""
_LONGEST_FLOW = 6
"""Steps of a flow that are kept."""

SORTED = "sorted(...)"
"""Mends what `sorted` can be put around, wherever it stands."""
SORTED_IN_PLACE = "sorted(...), where it is iterated"
"""Mends an iterator, of which a list may not take the place."""

EXACT_KEY = "**"
"""Starts a step of a path that leads nowhere unless the mapping is known to have the key."""


class Form(Enum):
    """How a value holds what it holds."""

    OTHER = auto()
    TEXT = auto()
    LIST = auto()
    DICT = auto()
    SET = auto()


@dataclass(frozen=True, slots=True)
class Source:
    """An expression whose value varies from request to request, or from process to process.

    Attributes:
        rule: the rule that is broken if it reaches a stable prefix.
        module: where it stands.
        node: the expression.
        name: of a placeholder in a template; empty for any other expression.
        mend: what makes it steady: `SORTED`, `SORTED_IN_PLACE`, or an argument to add; empty if nothing is known to.
        is_output: whether it is the output of a command, or the open stream of one.
    """

    rule: str
    module: Module
    node: ast.expr
    name: str = ""
    mend: str = ""
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class Hole:
    """A parameter, whose value the callers know.

    Attributes:
        owner: the function, or the class whose constructor is generated.
        name: of the parameter.
        path: attributes and keys that lead from it to the part that is meant.
    """

    owner: ast.AST
    name: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One station on the way of a value.

    Attributes:
        words: such as "flows through `header`".
        module: where.
        line: counted from 1.
    """

    words: str
    module: Module
    line: int


@dataclass(frozen=True, slots=True)
class Taint:
    """Something that varies inside a value.

    Attributes:
        origin: where it comes from.
        flow: the way it took.
        static_after: characters of fixed text that follow it in the same text.
        is_daily: whether it changes with the day only.
        is_sorted: of a hole: an order that varies has been mended since.
        is_content: of a hole: only what it names or holds was used, not itself (a file's text, a length).
        is_part: of a hole: the value has the parameter in it, and is not the parameter itself.
        pending: of a hole: what is found if the argument turns out to be a set (PF303), a dict whose order is not
            fixed (PF305), or unknown (PF308).
    """

    origin: Source | Hole
    flow: tuple[Step, ...] = ()
    static_after: int = 0
    is_daily: bool = False
    is_sorted: bool = False
    is_content: bool = False
    is_part: bool = False
    pending: Source | None = None

    @property
    def key(self) -> tuple[Source | Hole, Source | None]:
        """What makes two taints the same."""
        return self.origin, self.pending

    @property
    def is_order(self) -> bool:
        """Whether sorting mends it."""
        return isinstance(self.origin, Source) and self.origin.rule in ORDER_RULES


@dataclass(frozen=True, slots=True)
class Value:
    """What is known about a value.

    Attributes:
        taints: what varies in it.
        form: how it holds what it holds.
        is_fixed: whether the order of its keys is the same in every run.
        is_strings: of a set: whether its elements are strings, which can be sorted.
        is_flat: of a list: whether none of its items is known to have keys.
        text: it, where it is a constant string.
        static: characters of fixed text in it.
        entries: its items, where they are known: by key, or by index in a list.
        depth: how many lists and dicts with known items are inside each other in it.
        target: what calling it or asking for an attribute means: a dotted name outside the project, or something in it.
        template: of text with placeholders: the constant.
    """

    taints: tuple[Taint, ...] = ()
    form: Form = Form.OTHER
    is_fixed: bool = False
    is_strings: bool = False
    is_flat: bool = False
    text: str | None = None
    static: int = 0
    entries: Mapping[object, Value] | None = None
    depth: int = 0
    target: object = None
    template: tuple[Module, ast.expr] | None = field(default=None, compare=False)

    @property
    def sources(self) -> tuple[Taint, ...]:
        """Taints whose origin is known."""
        return tuple(taint for taint in self.taints if isinstance(taint.origin, Source))

    @property
    def holes(self) -> tuple[Taint, ...]:
        """Parameters whose values are in it as they are."""
        return tuple(taint for taint in self.taints if isinstance(taint.origin, Hole) and taint.pending is None)

    def through(self, step: Step) -> Value:
        """It, one step further on its way."""
        if not self.taints:
            return self
        return replace(self, taints=tuple(_further(taint, step) for taint in self.taints))

    def plain(self) -> Value:
        """What varies in it, and nothing of its form."""
        return Value(as_parts(self.taints))


UNKNOWN = Value()
FIXED = Value(is_fixed=True)


def _further(taint: Taint, step: Step) -> Taint:
    if len(taint.flow) >= _LONGEST_FLOW or (taint.flow and taint.flow[-1].words == step.words):
        return taint
    return replace(taint, flow=(*taint.flow, step))


def as_parts(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Taints of something that only has in it what they were found in."""
    return tuple(
        replace(taint, is_part=True) if isinstance(taint.origin, Hole) and not taint.is_part else taint
        for taint in taints
    )


def merge_taints(values: Iterable[Value]) -> tuple[Taint, ...]:
    """What varies in any of the values; of equal ones the first, with the most text after it."""
    merged: dict[tuple[Source | Hole, Source | None], Taint] = {}
    for value in values:
        for taint in value.taints:
            known = merged.get(taint.key)
            if known is None:
                if len(merged) < _MOST_TAINTS:
                    merged[taint.key] = taint
            elif known.static_after < taint.static_after:
                merged[taint.key] = replace(known, static_after=taint.static_after)
    return tuple(merged.values())


def with_entries(value: Value, entries: Mapping[Any, Value] | None) -> Value:
    """A value with other items, as far as they are few and flat enough to be told apart."""
    if entries is None or len(entries) > _MOST_ENTRIES:
        return replace(value, entries=None, depth=0)
    depth = 1 + max((entry.depth for entry in entries.values()), default=0)
    return replace(value, entries=entries if depth <= _DEEPEST_ENTRIES else None, depth=min(depth, _DEEPEST_ENTRIES))


def join(*values: Value) -> Value:
    """A value that is one of the given ones."""
    first, *others = values
    for other in others:
        first = first if first == other else _join_two(first, other)
    return first


def _join_two(one: Value, other: Value) -> Value:
    if _is_nothing(one) or _is_nothing(other):
        return other if _is_nothing(one) else one
    entries = None
    if one.entries is not None and other.entries is not None:
        mine, theirs = one.entries, other.entries
        entries = {
            key: join(mine[key], theirs[key]) if key in mine and key in theirs else value
            for key, value in {**mine, **theirs}.items()
        }
    whole = Value(
        taints=merge_taints((one, other)),
        form=one.form if one.form is other.form else Form.OTHER,
        is_fixed=one.is_fixed and other.is_fixed,
        is_strings=one.is_strings and other.is_strings,
        is_flat=one.is_flat and other.is_flat,
        text=one.text if one.text == other.text else None,
        static=max(one.static, other.static),
        target=one.target or other.target,
        template=one.template or other.template,
    )
    return with_entries(whole, entries)


def _is_nothing(value: Value) -> bool:
    """Whether it is a placeholder such as None or an empty text, which says nothing beside a real value."""
    return value.is_fixed and not value.taints and not value.text and value.target is None and value.form is Form.OTHER


def concatenate(parts: Iterable[Value]) -> Value:
    """The text that the parts make one after the other."""
    parts = list(parts)
    after = sum(part.static for part in parts)
    total = after
    placed: list[Value] = []
    for part in parts:
        after -= part.static
        moved = (replace(taint, static_after=taint.static_after + after) for taint in part.taints)
        placed.append(Value(as_parts(moved)))
    texts = [part.text for part in parts]
    known = "".join(text for text in texts if text is not None) if None not in texts else None
    template = next((part.template for part in parts if part.template), None)
    return Value(merge_taints(placed), Form.TEXT, is_fixed=True, text=known, static=total, template=template)


def daily(value: Value) -> Value:
    """It, cut down to the day."""
    return replace(value, taints=tuple(replace(taint, is_daily=True) for taint in value.taints))


def in_order(value: Value) -> Value:
    """It after sorting."""
    kept = tuple(
        replace(taint, is_sorted=isinstance(taint.origin, Hole))
        for taint in value.taints
        if not taint.is_order and (taint.pending is None or taint.pending.rule != SET_ORDER)
    )
    return replace(value, taints=kept, form=Form.LIST if value.form is Form.SET else value.form)


def contents(value: Value) -> Value:
    """What lies behind it, such as the text of a file it names: not its own value, but the order of several.

    What lies behind the stream of a command is the command's output, which varies as the stream does.
    """
    kept = (
        replace(taint, is_content=True) if isinstance(taint.origin, Hole) else taint
        for taint in value.taints
        if isinstance(taint.origin, Hole) or taint.is_order or taint.origin.is_output
    )
    return Value(tuple(kept))


def sequence(items: list[Value]) -> Value:
    """A list of known items."""
    whole = concatenate(items)
    is_fixed = all(item.is_fixed for item in items)
    is_flat = not any(may_have_keys(item) for item in items)
    return with_entries(
        Value(whole.taints, Form.LIST, is_fixed, is_flat=is_flat, static=whole.static), dict(enumerate(items))
    )


def may_have_keys(value: Value) -> bool:
    """Whether something is known to have keys, or items with keys, whose order is not fixed."""
    return not value.is_fixed and (value.form is Form.DICT or (value.form is Form.LIST and not value.is_flat))


def mapping(items: Mapping[str, Value]) -> Value:
    """A dict of known items."""
    whole = Value(merge_taints(items.values()), Form.DICT, is_fixed=all(item.is_fixed for item in items.values()))
    return with_entries(whole, items)


def set_of(values: Iterable[Value], *, is_small_numbers: bool = False) -> Value:
    """A set: the order in which its elements were found is gone."""
    values = list(values)
    taints = tuple(taint for taint in merge_taints(values) if not taint.is_order and taint.pending is None)
    form = Form.LIST if is_small_numbers else Form.SET
    return Value(taints, form, is_strings=bool(values) and all(value.form is Form.TEXT for value in values))


def at_granularity(value: Value, pattern: str) -> Value:
    """A clock shown by a `strftime` pattern."""
    shown = granularity(pattern) if "%" in pattern else "time"
    if shown == "time":
        return value
    return daily(value) if shown == "day" else contents(value)


Resolve = Callable[[Hole], Value | None]
"""The argument for a parameter, or the part of it that a path leads to; None where the call does not say."""


def substitute(value: Value, resolve: Resolve) -> Value:
    """The value with its holes filled."""
    if not value.taints and value.entries is None:
        return value
    if len(value.taints) == 1 and isinstance(value.taints[0].origin, Hole):
        [taint] = value.taints
        if taint == Taint(taint.origin, taint.flow):  # the parameter itself, handed back as it came
            given = resolve(value.taints[0].origin)
            if given is not None:
                return given
    entries = value.entries
    if entries is not None:
        entries = {key: substitute(entry, resolve) for key, entry in entries.items()}
    filled = tuple(new for taint in value.taints for new in fill(taint, resolve))
    return with_entries(replace(value, taints=merge_taints([Value(filled)])), entries)


def fill(taint: Taint, resolve: Resolve) -> list[Taint]:
    """What becomes of a taint when the arguments are known."""
    given = resolve(taint.origin) if isinstance(taint.origin, Hole) else None
    if given is None:
        return [taint]
    if taint.pending is not None:
        return _fill_pending(taint, taint.pending, given)
    if taint.is_sorted:
        given = in_order(given)
    if taint.is_content:
        given = contents(given)
    return [
        replace(
            part,
            flow=(*part.flow, *taint.flow)[:_LONGEST_FLOW],
            static_after=part.static_after + taint.static_after,
            is_daily=part.is_daily or taint.is_daily,
        )
        for part in given.taints
    ]


def _fill_pending(taint: Taint, pending: Source, given: Value) -> list[Taint]:
    if pending.rule == UNSORTED_JSON and given.is_fixed:
        return []
    is_order = pending.rule == SET_ORDER
    holes = [
        replace(hole, flow=taint.flow, static_after=taint.static_after, pending=pending)
        for hole in given.holes
        if not is_order or may_be_set(given, hole)
    ]
    found = {
        SET_ORDER: given.form is Form.SET,
        UNSORTED_JSON: not holes,
        TEMPLATE: not given.is_fixed and not given.taints and given.text is None,
    }[pending.rule]
    return [Taint(pending, taint.flow, taint.static_after)] if found else holes


def may_be_set(value: Value, hole: Taint) -> bool:
    """Whether a value is a set if the parameter in it is one."""
    return value.form is Form.OTHER and not hole.is_part and not hole.is_sorted
