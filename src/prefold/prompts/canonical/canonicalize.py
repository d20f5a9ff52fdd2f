"""Requests that mean the same, made the same.

Two clients, or two runs of one client, write the same request in different bytes: tools in another order, keys in
another order, `1e5` and `100000.0`, CRLF and LF. Each step here takes one such freedom away. Those in `DEFAULT_STEPS`
keep the meaning; every other step changes what the model reads in a way that only the application can judge, so it is
done where it is asked for by name.

Canonicalising twice is canonicalising once, with any steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from prefold.errors import InvalidRequest
from prefold.prompts.canonical.documents import document_id, is_document, with_ordered_blocks, with_ordered_elements
from prefold.prompts.canonical.moments import Granularity, with_moments
from prefold.prompts.canonical.places import (
    answer_schemas,
    argument_texts,
    descriptions,
    document_lists,
    result_texts,
    tool_lists,
)
from prefold.prompts.canonical.sorting import NAME_MAPS, KeyOrder, sorted_between_markers, with_markers_of
from prefold.prompts.canonical.spelling import (
    compact_json,
    composed,
    float_respellings,
    is_plain_json,
    lower_case_uuids,
    respelled,
    unescaped_json,
    with_line_feeds,
    without_trailing_space,
)
from prefold.prompts.dialects import FUNCTION_LISTS, tool_name
from prefold.prompts.json_text import JsonText
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section


class Step(StrEnum):
    """One way in which equal requests differ, taken away."""

    TOOL_ORDER = "tool_order"
    """Tools by name, those without a name by type, then by what is in them. Cache markers stay at their place."""
    KEY_ORDER = "key_order"
    """Sorted keys in tool definitions, schemas of answers and structured content; not in `properties` and the like."""
    NUMBERS = "numbers"
    """The shortest spelling of each float outside of texts: `100000.0` for `1e5`. Integers stay as they are."""
    JSON_WHITESPACE = "json_whitespace"
    """No white space between the parts of the body."""
    JSON_ESCAPES = "json_escapes"
    """Letters as themselves and not as escapes, where JSON lets them: `é` for `\\u00e9`."""
    LINE_ENDS = "line_ends"
    """CRLF and CR as LF in the system's texts and in descriptions of tools and of schemas."""
    UNICODE = "unicode"
    """Unicode's form NFC in the same places."""

    TRAILING_SPACE = "trailing_space"
    """No spaces and tabs before line ends in the same places. In Markdown two spaces break a line."""
    SCHEMA_PROPERTY_ORDER = "schema_property_order"
    """Also sorts maps of names in schemas, and `required`. Structured output follows their order."""
    WHOLE_NUMBERS = "whole_numbers"
    """Floats that are whole numbers as integers: `10` for `10.0`. A typed reader tells them apart."""
    EMBEDDED_JSON = "embedded_json"
    """JSON in the texts of tool results and call arguments: compact, with sorted keys and one spelling of floats."""
    DATETIMES = "datetimes"
    """Dates with a time of day in one format, as coarse as the granularity says, where texts are changed."""
    UUIDS = "uuids"
    """UUIDs in lower case, where texts are changed."""
    DOCUMENT_ORDER = "document_order"
    """Documents that stand next to each other in messages by id, or by popularity. Their numbers change with it."""


DEFAULT_STEPS = frozenset(
    {
        Step.TOOL_ORDER,
        Step.KEY_ORDER,
        Step.NUMBERS,
        Step.JSON_WHITESPACE,
        Step.JSON_ESCAPES,
        Step.LINE_ENDS,
        Step.UNICODE,
    }
)
"""The steps that keep the meaning."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a step changed.

    Attributes:
        path: where, in the request as it was given; the root where it is the body as a whole.
        step: the step.
        before: the names, keys or words concerned, cut to some 60 characters.
        after: the same afterwards.
        description: one phrase for people.
    """

    path: Path
    step: Step
    before: str
    after: str
    description: str

    def as_json(self) -> dict[str, str]:
        """The change as `--json` prints it."""
        return {
            "path": str(self.path),
            "step": self.step.value,
            "before": self.before,
            "after": self.after,
            "description": self.description,
        }


@dataclass(frozen=True, slots=True)
class Note:
    """What a step left as it is because it cannot tell what it means.

    Attributes:
        path: where.
        step: the step.
        text: the words concerned.
        reason: why; what can stand behind "because".
    """

    path: Path
    step: Step
    text: str
    reason: str

    def as_json(self) -> dict[str, str]:
        """The note as `--json` prints it."""
        return {"path": str(self.path), "step": self.step.value, "text": self.text, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Canonical:
    """A prompt in canonical form.

    Attributes:
        prompt: the prompt; the one that was given where nothing changed.
        changes: all that changed, step by step.
        notes: what could not be told.
    """

    prompt: Prompt
    changes: tuple[Change, ...]
    notes: tuple[Note, ...] = ()


def canonicalize(
    prompt: Prompt,
    steps: Collection[Step] = DEFAULT_STEPS,
    *,
    granularity: Granularity = Granularity.DAY,
    in_messages: bool = False,
    popularity: Mapping[str, int] | None = None,
) -> Canonical:
    """A prompt in canonical form, and what was changed.

    Args:
        prompt: the prompt.
        steps: what to do.
        granularity: for `Step.DATETIMES`, the finest part of a date-time that stays.
        in_messages: change the texts of messages and tool results too, not only those of the system and of tools.
        popularity: for `Step.DOCUMENT_ORDER`, how often each document id is used; None for the order of ids.

    Raises:
        InvalidRequest: if a part of the body has not the form of its dialect, or is nested too deeply.
    """
    chosen = frozenset(steps)
    try:
        draft = _with_numbers(prompt, chosen)
        _change_texts(draft, _text_steps(chosen, granularity), in_messages=in_messages)
        notes = _notes(draft, granularity, in_messages=in_messages) if Step.DATETIMES in chosen else ()
        if Step.EMBEDDED_JSON in chosen:
            _change_embedded_json(draft, chosen)
        _sort_keys(draft, chosen)
        draft.settle()
        if Step.TOOL_ORDER in chosen:
            _sort_tools(draft)
        if Step.DOCUMENT_ORDER in chosen:
            _sort_documents(draft, popularity)
        return Canonical(_with_plain_json(prompt, draft, chosen), tuple(draft.changes), tuple(notes))
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply.", hint="No provider accepts such a body.") from None


@dataclass(slots=True)
class _Draft:
    """A prompt that is being changed.

    Attributes:
        prompt: the prompt as it was given, or as it was settled last.
        is_plain: whether its body is what any writer of JSON makes of the value, so that no bytes need to be kept.
        value: what is to become its body.
        changes: what was changed so far.
    """

    prompt: Prompt
    is_plain: bool
    value: Any
    changes: list[Change] = field(default_factory=list)

    def put(self, path: Path, new: Any) -> None:
        self.value = path.set(self.value, new)

    def put_text(self, path: Path, new: str, step: Step, description: str) -> None:
        before, after = _difference(path.get(self.value), new)
        self.changes.append(Change(path, step, before, after, description))
        self.put(path, new)

    def put_sorted(self, path: Path, items: list[Any], step: Step, name_of: Callable[[Any], str]) -> None:
        """Put a list's items into another order; markers stay at their places."""
        old = path.get(self.value)
        if all(moved is item for moved, item in zip(items, old, strict=True)):
            return
        before, after = (_listed(map(name_of, order)) for order in (old, items))
        self.changes.append(Change(path, step, before, after, "another order"))
        self.put(path, items)
        self.settle()
        self.put(path, with_markers_of(items, old))
        self.settle()

    def settle(self) -> None:
        """Make the value the prompt's body, so that all that is moved afterwards keeps its bytes."""
        if self.value is not self.prompt.value and not self.is_plain:
            self.prompt = self.prompt.with_value(self.value)

    def finished(self) -> Prompt:
        """The prompt with the value as its body."""
        self.settle()
        if self.value is self.prompt.value:
            return self.prompt
        return Prompt(self.prompt.dialect, JsonText.of(self.value))


def _with_numbers(prompt: Prompt, chosen: frozenset[Step]) -> _Draft:
    if prompt.document is None:
        return _Draft(prompt, is_plain=False, value=prompt.value)
    source = prompt.document.source
    is_plain = is_plain_json(source, prompt.value)
    whole = Step.WHOLE_NUMBERS in chosen
    found = []
    changes = []
    for new in [] if is_plain and not whole and "-0.0" not in source else float_respellings(source, whole=whole):
        step = Step.WHOLE_NUMBERS if new.after.lstrip("-").isdecimal() else Step.NUMBERS
        if step in chosen:
            found.append(new)
            changes.append(Change(new.path, step, new.before, new.after, "another spelling of the same number"))
    if found:  # the value is read anew: minus zero is zero now, and a whole number an integer
        prompt = Prompt(prompt.dialect, JsonText.parse(respelled(source, found)))
    return _Draft(prompt, is_plain, prompt.value, changes)


def _with_plain_json(given: Prompt, draft: _Draft, chosen: frozenset[Step]) -> Prompt:
    prompt = draft.finished()
    if given.document is None or prompt.document is None or draft.is_plain:
        return prompt
    source = prompt.document.source
    for step, change, description in _JSON_STEPS:
        if step in chosen:
            before, after = given.document.source, change(given.document.source)
            if before != after:
                sizes = f"{len(before)} characters", f"{len(after)} characters"
                draft.changes.append(Change(Path(), step, *sizes, description))
            source = change(source)
    return prompt if source == prompt.document.source else Prompt(given.dialect, JsonText(source, prompt.value))


_JSON_STEPS = (
    (Step.JSON_WHITESPACE, compact_json, "no white space between its parts"),
    (Step.JSON_ESCAPES, unescaped_json, "no escapes but those that it needs"),
)


# Texts

_TextStep = Callable[[str], str]

_DESCRIPTIONS: Mapping[Step, str] = MappingProxyType(
    {
        Step.LINE_ENDS: "line ends as LF",
        Step.UNICODE: "Unicode form NFC",
        Step.UUIDS: "UUIDs in lower case",
        Step.DATETIMES: "date-times in one format",
        Step.TRAILING_SPACE: "no space before line ends",
    }
)


def _text_steps(chosen: frozenset[Step], granularity: Granularity) -> dict[Step, _TextStep]:
    """The chosen steps on texts, in the order in which one leaves nothing to do for those before it."""
    steps: dict[Step, _TextStep] = {
        Step.LINE_ENDS: with_line_feeds,
        Step.UNICODE: composed,
        Step.UUIDS: lower_case_uuids,
        Step.DATETIMES: lambda text: with_moments(text, granularity).text,
        Step.TRAILING_SPACE: without_trailing_space,
    }
    return {step: change for step, change in steps.items() if step in chosen}


def _change_texts(draft: _Draft, steps: Mapping[Step, _TextStep], *, in_messages: bool) -> None:
    if not steps:
        return
    for path in _text_places(draft.prompt, in_messages=in_messages):
        text = path.get(draft.value)
        for step, change in steps.items():
            if (new := change(text)) != text:
                draft.put_text(path, new, step, _DESCRIPTIONS[step])
                text = new


def _notes(draft: _Draft, granularity: Granularity, *, in_messages: bool) -> list[Note]:
    return [
        Note(path, Step.DATETIMES, _cut(doubt.text), doubt.reason)
        for path in _text_places(draft.prompt, in_messages=in_messages)
        for doubt in with_moments(path.get(draft.value), granularity).doubts
    ]


def _text_places(prompt: Prompt, *, in_messages: bool) -> Iterator[Path]:
    for root in (*tool_lists(prompt), *answer_schemas(prompt)):
        yield from descriptions(root.get(prompt.value), root)
    for segment in prompt.segments:
        if segment.section is Section.SYSTEM or (in_messages and segment.section is Section.MESSAGES):
            if segment.text_path is not None:
                yield segment.text_path
            else:
                yield from result_texts(prompt, segment)


def _change_embedded_json(draft: _Draft, chosen: frozenset[Step]) -> None:
    for segment in draft.prompt.segments:
        if segment.text_path is not None:
            places = [segment.text_path] if segment.role in ("tool", "function") else []
        else:
            places = [*result_texts(draft.prompt, segment), *argument_texts(segment)]
        for path in places:
            text = path.get(draft.value)
            if (new := _canonical_json_text(text, chosen)) != text:
                draft.put_text(path, new, Step.EMBEDDED_JSON, "the same JSON, compact and sorted")


def _canonical_json_text(text: str, chosen: frozenset[Step]) -> str:
    """A text that is a JSON object or list in canonical form; any other as it is."""
    if text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return text
    order = KeyOrder(fields=True, properties=Step.SCHEMA_PROPERTY_ORDER in chosen)
    try:
        document = JsonText.parse(text.strip(" \t\r\n"))
        source = unescaped_json(document.with_value(order.apply(document.value)).source)
    except (InvalidRequest, RecursionError):
        return text
    return compact_json(respelled(source, float_respellings(source, whole=Step.WHOLE_NUMBERS in chosen)))


# Keys


def _sort_keys(draft: _Draft, chosen: frozenset[Step]) -> None:
    order = KeyOrder(fields=Step.KEY_ORDER in chosen, properties=Step.SCHEMA_PROPERTY_ORDER in chosen)
    if not order.fields and not order.properties:
        return
    structured = (
        segment.path
        for segment in draft.prompt.segments
        if segment.section is not Section.TOOLS and isinstance(segment.content, dict | list)
    )
    for path in (*tool_lists(draft.prompt), *answer_schemas(draft.prompt), *structured):
        old = path.get(draft.value)
        new = order.apply(old)
        if new is not old:
            draft.changes += _moved_keys(old, new, path, is_name_map=False)
            draft.put(path, new)


def _moved_keys(old: Any, new: Any, path: Path, *, is_name_map: bool) -> Iterator[Change]:
    """What differs between a value and the same value with sorted keys."""
    if old is new:
        return
    if isinstance(old, dict):
        if list(old) != list(new):
            step = Step.SCHEMA_PROPERTY_ORDER if is_name_map else Step.KEY_ORDER
            yield Change(path, step, _listed(old), _listed(new), "keys in order")
        for key, item in old.items():
            inner = not is_name_map and key in NAME_MAPS
            yield from _moved_keys(item, new[key], path / key, is_name_map=inner)
    elif all(isinstance(item, str) for item in old):  # names in `required`: all other lists keep their order
        yield Change(path, Step.SCHEMA_PROPERTY_ORDER, _listed(old), _listed(new), "names in order")
    else:
        for index, item in enumerate(old):
            yield from _moved_keys(item, new[index], path / index, is_name_map=False)


# Order of tools and documents


def _sort_tools(draft: _Draft) -> None:
    for path in tool_lists(draft.prompt):
        for index, tool in enumerate(path.get(draft.value)):
            for name in FUNCTION_LISTS:
                if isinstance(tool, dict) and isinstance(tool.get(name), list):
                    _sort_tool_list(draft, path / index / name)
        _sort_tool_list(draft, path)


def _sort_tool_list(draft: _Draft, path: Path) -> None:
    tools = path.get(draft.value)
    if all(isinstance(tool, dict) for tool in tools):
        draft.put_sorted(path, sorted_between_markers(tools, _tool_rank), Step.TOOL_ORDER, tool_name)


def _tool_rank(tool: dict[str, Any]) -> tuple[bool, str]:
    """Deferred tools first: they are not in the prompt, so none may take the place of one that carries a marker."""
    return not tool.get("defer_loading"), tool_name(tool)


def _sort_documents(draft: _Draft, popularity: Mapping[str, int] | None) -> None:
    for segment in draft.prompt.segments:
        if segment.section is Section.TOOLS:
            continue
        for path in [segment.text_path] if segment.text_path is not None else result_texts(draft.prompt, segment):
            text = path.get(draft.value)
            if (new := with_ordered_elements(text, popularity)) != text:
                draft.put_text(path, new, Step.DOCUMENT_ORDER, "documents in order")
    draft.settle()
    for path in document_lists(draft.prompt):
        blocks = with_ordered_blocks(path.get(draft.value), popularity)
        draft.put_sorted(path, blocks, Step.DOCUMENT_ORDER, _block_name)


def _block_name(block: Any) -> str:
    return document_id(block) if is_document(block) else "…"


# Words of a report

_EXCERPT = 60
"""Characters of a value that a change shows."""


def _listed(names: Iterable[Any]) -> str:
    return _cut(", ".join(str(name) for name in names))


def _cut(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1]}…"


def _difference(before: str, after: str) -> tuple[str, str]:
    """Two texts around the first character in which they differ."""
    first = next((index for index, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), None)
    start = max(0, (min(len(before), len(after)) if first is None else first) - _EXCERPT // 3)
    return _cut(before[start : start + 2 * _EXCERPT]), _cut(after[start : start + 2 * _EXCERPT])
