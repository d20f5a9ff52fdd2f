"""The first difference of two prompts, and what kind of change it is.

Sections are compared in the order in which the model reads them. Where the difference lies decides what is looked for:
among tools their names, among messages which of them come back later, within one segment its value or its text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefold.prompts.causes import NONE
from prefold.prompts.divergence.text_difference import are_alike, common_prefix, masked, shared_rest, text_cause
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section, Segment, Stability

_SHARED_REST = 128  # characters behind a difference in the newest message that are worth having kept
_SHARED_BY_A_VALUE = 32  # the same behind a value of which it is known that it should stand elsewhere
_VAGUE = ("text_edit", "truncation", "block_order")
_STUB = 200  # characters of a placeholder that stands for content taken out
_SUMMARY_WORDS = re.compile(
    r"summar|compact(?:ed|ion)|so far|earlier (?:conversation|messages|turns)|previous (?:conversation|messages|turns)"
    r"|previously discussed|condensed|recap|摘要|总结|概要|概括|之前的对话|此前的对话|前情",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two prompts first differ.

    Attributes:
        index: number of leading segments that are the same; the position of the first that is not.
        cause: one of the names in `causes.CAUSES`; `none` where nothing that could be kept is lost.
        path: where, in the later request, or in the earlier one for something that is not there any more; None where
            nothing is lost.
        characters: length of the text that the two differing segments share at their start.
    """

    index: int
    cause: str
    path: Path | None
    characters: int = 0


def first_difference(before: Prompt, after: Prompt) -> Difference | None:
    """The first difference of two prompts in their segments; None where the later one extends or repeats the earlier.

    Raises:
        InvalidRequest: as `Prompt.segments`.
    """
    old, new = before.segments, after.segments
    index = _common_segments(old, new)
    if index == len(old) or index == len(new):
        return None
    first, second = old[index], new[index]
    same_place = (first.section, first.role, first.begins_message) == (
        second.section,
        second.role,
        second.begins_message,
    )
    characters = common_prefix(first.text, second.text) if same_place else 0
    if index == len(old) - 1 and characters == len(first.text) and first.section is Section.MESSAGES:
        return None  # the last text went on
    cause, path = _explain(old, new, index)
    return Difference(index, cause, path, characters)


def _common_segments(old: Sequence[Segment], new: Sequence[Segment]) -> int:
    for index, (first, second) in enumerate(zip(old, new, strict=False)):
        if not _same(first, second):
            return index
    return min(len(old), len(new))


def _same(first: Segment, second: Segment) -> bool:
    return (
        first.text == second.text
        and first.role == second.role
        and first.section is second.section
        and first.begins_message == second.begins_message
    )


def _explain(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path | None]:
    first, second = old[index], new[index]
    if Section.TOOLS in (first.section, second.section):
        return _among_tools(old, new, index)
    if changed := _within_block(first, second):
        return changed
    if first.section is Section.MESSAGES and second.section is Section.MESSAGES:
        if explained := _among_messages(old, new, index):
            return explained
    elif first.section is not second.section or first.role != second.role:
        lost = first if first.section is Section.SYSTEM else second
        return _summarised_system(old, new, index) or ("text_edit", lost.path)
    return _among_blocks(old, new, index) or within_segment(first, second)


# --- tools


def _among_tools(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path]:
    first, second = old[index], new[index]
    before = [segment for segment in old if segment.section is Section.TOOLS]
    after = [segment for segment in new if segment.section is Section.TOOLS]
    names_before, names_after = ([tool_name(segment.content) for segment in tools] for tools in (before, after))
    changed = second if second.section is Section.TOOLS else first
    if first.section is second.section and names_before[index] == names_after[index]:
        return within_segment(first, second)
    if first.section is second.section and Counter(names_before) == Counter(names_after):
        return "tool_order", changed.path
    if first.section is second.section and names_before[index] in names_after and names_after[index] in names_before:
        return "tool_order", changed.path
    if first.section is second.section and names_after[index] in names_before:
        changed = first  # what stood here was taken out; the one that follows moved up
    return ("parameter" if _is_server_tool(changed.content) else "tool_set"), changed.path


def tool_name(tool: Any) -> str:
    """The name of a tool definition in any dialect; its type for a provider's own tools."""
    if not isinstance(tool, dict):
        return str(tool)
    for inner in (tool, tool.get("function"), tool.get("toolSpec")):
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            return str(inner["name"])
    return str(tool.get("type") or next(iter(tool), ""))


def _is_server_tool(tool: Any) -> bool:
    """Whether a provider runs a tool itself, so that having it is a setting: web search, code execution."""
    if not isinstance(tool, dict):
        return False
    if "type" in tool:
        kind = str(tool["type"])
        return kind not in ("function", "custom") and not {"function", "input_schema"} & tool.keys()
    return tool.keys() <= {
        "googleSearch",
        "google_search",
        "codeExecution",
        "code_execution",
        "urlContext",
        "url_context",
    }


# --- messages


def _messages_of(segments: Sequence[Segment], start: int) -> list[tuple[Segment, ...]]:
    """Segments from a position on, by message."""
    messages: list[list[Segment]] = []
    for segment in segments[start:]:
        if segment.begins_message or not messages:
            messages.append([])
        messages[-1].append(segment)
    return [tuple(message) for message in messages]


def _among_messages(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path | None] | None:
    """What happened to whole messages: left out, summarised, moved, or a new question in a new conversation."""
    start = index
    while start and not old[start].begins_message:
        start -= 1
    before, after = _messages_of(old, start), _messages_of(new, start)
    keys_before, keys_after = _keys(before), _keys(after)
    place = new[index].message or new[index].path

    # The longest tail of the earlier messages that the later request goes on with, after `kept` other messages.
    for dropped in range(1, len(before)):
        tail = keys_before[dropped:]
        for replaced in range(min(dropped, 3) + 1):
            if keys_after[replaced : replaced + len(tail)] == tail:
                if not replaced:
                    return "truncation", place
                inserted = "\n".join(segment.text for message in after[:replaced] for segment in message)
                if _SUMMARY_WORDS.search(inserted) or dropped > replaced:
                    return "summary", place
    if explained := _moved(old, new, index):
        return explained
    if (
        any(_SUMMARY_WORDS.search(segment.text[:2000]) for segment in after[0])
        and len(before) > 2
        and not are_alike(old[index].text, new[index].text)
    ):
        return "summary", place
    if _is_new_question(old, new, index):
        return NONE, None
    return None


def _keys(messages: Sequence[tuple[Segment, ...]]) -> list[int]:
    return [hash(tuple((segment.role, segment.text) for segment in message)) for message in messages]


def _is_new_question(old: Sequence[Segment], new: Sequence[Segment], index: int) -> bool:
    """Whether nothing behind the difference could have been kept: another question, or another conversation."""
    first, second = old[index], new[index]
    later = {segment.text for segment in old[index + 1 :] if segment.text}
    if any(segment.text in later for segment in new[index + 1 :] if segment.stability is not Stability.REQUEST):
        return False
    if second.stability is Stability.REQUEST and first.stability is Stability.REQUEST:
        rest = shared_rest(first.text, second.text, common_prefix(first.text, second.text))
        return rest < (_SHARED_REST if within_segment(first, second)[0] in _VAGUE else _SHARED_BY_A_VALUE)
    return not are_alike(first.text, second.text) and masked(first.text) != masked(second.text)


def _moved(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path] | None:
    """A block, or the end of a text, that stood in the earlier request at the difference and comes later now."""
    first, second = old[index], new[index]
    later = new[index + 1 :]
    if any(segment.text == first.text and segment.role == first.role for segment in later) and first.text:
        return None if _is_permutation(old, new, index) else ("moved_block", first.path)
    prefix = common_prefix(first.text, second.text)
    tail = first.text[prefix:].strip()
    if prefix == len(second.text.rstrip()) and len(tail) >= 16 and second.stability is not Stability.REQUEST:
        pattern = masked(tail)
        if any(pattern in masked(segment.text[-len(tail) - 200 :]) for segment in later):
            return "moved_block", second.path
    if first.begins_message == second.begins_message and first.role == second.role:
        return None
    pattern = masked(first.text)  # a reminder that holds the time is the same reminder
    if len(pattern) >= 16 and any(masked(segment.text) == pattern for segment in later if segment.role == first.role):
        return "moved_block", first.path
    return None


# --- blocks of one message, and of the system section


def _among_blocks(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path] | None:
    if _is_permutation(old, new, index):
        return "block_order", new[index].path
    return _summarised_system(old, new, index)


def _is_permutation(old: Sequence[Segment], new: Sequence[Segment], index: int) -> bool:
    before, after = _siblings(old, index), _siblings(new, index)
    return len(before) > 1 and before != after and Counter(before) == Counter(after)


def _siblings(segments: Sequence[Segment], index: int) -> list[str]:
    """Texts of the blocks of a message from one of them on, or of the whole rest of the system section."""
    texts = [segments[index].text]
    for segment in segments[index + 1 :]:
        if segment.section is not segments[index].section or segment.message != segments[index].message:
            break
        texts.append(segment.text)
    return texts


def _summarised_system(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path] | None:
    """A summary that was put into the system section, while messages were left out."""
    first, second = old[index], new[index]
    if second.section is not Section.SYSTEM:
        return None
    added = (
        second.text if first.section is not Section.SYSTEM else second.text[common_prefix(first.text, second.text) :]
    )
    first_messages = [_messages_of([s for s in side if s.section is Section.MESSAGES], 0)[:1] for side in (old, new)]
    if _SUMMARY_WORDS.search(added[:2000]) and _keys(first_messages[0]) != _keys(first_messages[1]):
        return "summary", second.path
    return None


# --- one segment


def within_segment(before: Segment, after: Segment) -> tuple[str, Path]:
    """The cause of the difference of two segments in the same place, and the path to it."""
    if before.role != after.role or type(before.content) is not type(after.content) or before.text == after.text:
        return "text_edit", after.path  # the words of somebody else, or in another message
    if isinstance(before.content, str):
        return string_cause(before.content, after.content), after.path
    cause, path = value_cause(before.content, after.content, after.path)
    return cause, path if cause == "key_order" else after.path


def _within_block(before: Segment, after: Segment) -> tuple[str, Path] | None:
    """What happened to a block that is still there: citations were switched, or a placeholder took its content."""
    if not isinstance(before.content, dict) or not isinstance(after.content, dict) or before.role != after.role:
        return None
    if not same_json(before.content.get("citations"), after.content.get("citations")):
        return "parameter", after.path / "citations"
    for name in ("tool_use_id", "call_id"):
        is_result = before.content.get(name) is not None and before.content.get(name) == after.content.get(name)
        if is_result and len(after.text) <= _STUB and len(before.text) > 2 * len(after.text):
            return "truncation", after.path
    return None


def value_cause(before: Any, after: Any, path: Path) -> tuple[str, Path]:
    """The cause of the first difference of two JSON values that differ, and the path of what differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        return _object_cause(before, after, path)
    if isinstance(before, list) and isinstance(after, list):
        return _list_cause(before, after, path)
    if isinstance(before, str) and isinstance(after, str):
        return string_cause(before, after), path
    if _is_number(before) and _is_number(after) and before == after:
        return "number_format", path
    return "text_edit", path


def _object_cause(before: dict[str, Any], after: dict[str, Any], path: Path) -> tuple[str, Path]:
    has_same_keys = before.keys() == after.keys()
    if has_same_keys and list(before) != list(after) and _same_value(before, after):
        return "key_order", path
    for key, value in before.items():
        if key in after and not same_json(value, after[key]):
            return value_cause(value, after[key], path / key)
    return ("key_order" if has_same_keys else "text_edit"), path


def _list_cause(before: list[Any], after: list[Any], path: Path) -> tuple[str, Path]:
    for index, (first, second) in enumerate(zip(before, after, strict=False)):
        if not same_json(first, second):
            if len(before) == len(after) and _sorted_json(before) == _sorted_json(after):
                return "block_order", path
            return value_cause(first, second, path / index)
    return "text_edit", path


def string_cause(before: str, after: str) -> str:
    """The cause of the first difference of two texts that differ; texts that hold JSON are compared as values too."""
    first, second = _embedded(before), _embedded(after)
    if first is not None and second is not None:
        if same_json(first, second):
            return "whitespace"
        return value_cause(first, second, Path())[0]
    return _embedded_key_order(before, after) or text_cause(before, after)


def _embedded(text: str) -> Any:
    """The object or list that a text is, as JSON; None for any other text."""
    if text[:1].strip() and text[0] not in "{[":
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _embedded_key_order(before: str, after: str) -> str | None:
    """Whether the texts first differ inside a JSON value that is written into both."""
    position = common_prefix(before, after)
    decoder = json.JSONDecoder()
    start = position
    for _ in range(8):  # the innermost value that holds the difference, then those around it
        start = max(before.rfind("{", 0, start), before.rfind("[", 0, start))
        if start < 0 or position - start > 20_000:
            return None
        try:
            first, end = decoder.raw_decode(before, start)
            second, _ = decoder.raw_decode(after, start)
        except (ValueError, RecursionError):
            continue
        if end <= position or not isinstance(first, dict | list):
            continue
        if same_json(first, second):
            return "whitespace"
        if _same_value(first, second):
            return value_cause(first, second, Path())[0]
    return None


def same_json(first: Any, second: Any) -> bool:
    """Whether two values are written alike: equal, with keys in the same order and numbers of the same kind."""
    return first is second or json.dumps(first) == json.dumps(second)


def _same_value(first: Any, second: Any) -> bool:
    """Whether two values are equal, whatever the order of keys and whether a number is 10 or 10.0."""
    return bool(first == second) and isinstance(first, bool) == isinstance(second, bool)


def _sorted_json(values: list[Any]) -> list[str]:
    return sorted(json.dumps(value, sort_keys=True) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
