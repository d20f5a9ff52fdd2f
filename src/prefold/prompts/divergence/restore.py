"""Sending again what was sent: the later request with what differs as the earlier one had it, and all its new words."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from prefold.prompts.dialects import SYSTEM_ROLES, unmarked
from prefold.prompts.divergence.differences import Difference
from prefold.prompts.edits import message_field
from prefold.prompts.prompt import Dialect, Prompt, Section, Stability
from prefold.prompts.sequences import common_length

_TOOL_FIELDS: Mapping[Dialect, tuple[str, ...]] = {Dialect.BEDROCK: ("toolConfig",)}
_SYSTEM_FIELDS: Mapping[Dialect, tuple[str, ...]] = {
    Dialect.ANTHROPIC: ("system",),
    Dialect.BEDROCK: ("system",),
    Dialect.RESPONSES: ("instructions",),
    Dialect.GEMINI: ("systemInstruction", "system_instruction"),
}
_OF_WHOLE_MESSAGES = ("truncation", "summary", "moved_block")
_UNIT = re.compile(r"[^\n.!?。！？]*[\n.!?。！？]+[^\S\n]*|[^\n.!?。！？]+")  # a line or a sentence
_MOST_UNITS = 2_000  # that differ: comparing them takes quadratic time


def restored(before: Prompt, after: Prompt, difference: Difference) -> Prompt | None:
    """The later request with the part that differs as it was sent before; None where that would take new words away."""
    first, second = before.segments[difference.index], after.segments[difference.index]
    if Section.TOOLS in (first.section, second.section):
        return after.with_value(_with_fields(before, after, _TOOL_FIELDS.get(after.dialect, ("tools", "functions"))))
    if Section.SYSTEM in (first.section, second.section):
        return _with_system(before, after)
    is_block = bool(second.role) and isinstance(second.path.steps[-1], int)
    if difference.cause == "block_order" and second.stability is Stability.REQUEST and is_block:
        return _with_blocks(before, after, difference)
    is_of_messages = difference.cause in _OF_WHOLE_MESSAGES and bool(first.role)
    if second.stability is Stability.REQUEST and not is_of_messages:
        if second.text_path is None or first.text_path is None:
            return None
        text = restored_text(first.text, second.text)
        return None if text is None else after.replaced({second.text_path: text})
    return _with_history(before, after, difference)


def restored_text(before: str, after: str) -> str | None:
    """A text with its lines and sentences as another had them, and its own new ones at the end; None for no change."""
    old, new = _UNIT.findall(before), _UNIT.findall(after)
    start = common_length(old, new)
    end = min(common_length(old[:start:-1], new[:start:-1]), min(len(old), len(new)) - start)
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    if len(middle_old) + len(middle_new) > _MOST_UNITS:
        return None
    matcher = difflib.SequenceMatcher(None, middle_old, middle_new, autojunk=False)
    written = old[:start]
    is_mended = False
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        is_at_end = not end and old_end == len(middle_old)
        # What comes in behind the first difference, or in the place of the end, is what the later request has to say.
        keeps_new = (tag == "insert" and is_mended) or (tag in ("insert", "replace") and is_at_end)
        written += middle_new[new_start:new_end] if keeps_new else middle_old[old_start:old_end]
        is_mended = is_mended or tag != "equal"
    text = "".join([*written, *new[len(new) - end :]])
    return None if text == after else text


def _with_fields(before: Prompt, after: Prompt, fields: Iterable[str]) -> Any:
    value = after.value
    for name in fields:
        kept = {key: item for key, item in value.items() if key != name}
        value = {**value, name: before.value[name]} if name in before.value else kept
    return value


def _with_system(before: Prompt, after: Prompt) -> Prompt:
    value = _with_fields(before, after, _SYSTEM_FIELDS.get(after.dialect, ()))
    name = message_field(after.dialect)
    sent, present = before.value.get(name), value.get(name)
    if isinstance(sent, list) and isinstance(present, list):
        leading, others = (list(takewhile(_is_systems, messages)) for messages in (sent, present))
        if leading or others:
            value = {**value, name: [*leading, *present[len(others) :]]}
    return after.with_value(value)


def _is_systems(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in SYSTEM_ROLES


def _with_history(before: Prompt, after: Prompt, difference: Difference) -> Prompt | None:
    """The later request with the messages that were sent before, and those that are new behind them.

    Markers stay where the later request has them; those of the earlier one moved on.
    """
    name = message_field(after.dialect)
    sent, present = before.value.get(name), after.value.get(name)
    if not isinstance(sent, list) or not isinstance(present, list):
        return None
    known, words = [_words(message) for message in sent], [_words(message) for message in present]
    same = common_length(known, words)
    if difference.cause in ("truncation", "summary"):
        new = present[_end_of_tail(known, words) :]
    elif difference.cause == "moved_block" and known[same : same + 1] and known[same] in words[same:]:
        new = present[same:]  # the block is a message of its own, there and here
    else:
        newest = _newest_turn(after, present)
        kept = [sent[i] if i < min(len(sent), newest) else message for i, message in enumerate(present)]
        return after.with_value({**after.value, name: _marked_as(kept, present, words)})
    return after.with_value({**after.value, name: [*_marked_as(sent, present, words), *new]})


def _with_blocks(before: Prompt, after: Prompt, difference: Difference) -> Prompt | None:
    """The later request with the blocks of a message in their earlier order, and the new ones behind them."""
    place = after.segments[difference.index].path.parent
    sent, present = before.segments[difference.index].path.parent.find(before.value), place.find(after.value)
    if not isinstance(sent, list) or not isinstance(present, list):
        return None
    rank = {_words(block): position for position, block in enumerate(sent)}
    return after.replaced({place: sorted(present, key=lambda block: rank.get(_words(block), len(sent)))})


def _newest_turn(prompt: Prompt, messages: Sequence[Any]) -> int:
    """Position of the first message behind the last answer."""
    paths = (segment.message for segment in prompt.segments if segment.stability is Stability.REQUEST)
    return min((int(path.steps[1]) for path in paths if path is not None), default=len(messages))


def _marked_as(messages: Sequence[Any], present: Sequence[Any], words: Sequence[str]) -> list[Any]:
    """Messages with the markers that the later request has at their place, and no others."""
    return [
        present[index] if index < len(present) and words[index] == _words(message) else unmarked_message(message)
        for index, message in enumerate(messages)
    ]


def _end_of_tail(known: Sequence[str], words: Sequence[str]) -> int:
    """Position behind the last of the messages that were sent before.

    Messages may be equal, so of those that equal the last one sent the one is taken that has the most of the others in
    front of it; where they are in their old place, that is the last one sent.
    """
    best, found = 0, None
    for index in (index for index, message in enumerate(words) if known and message == known[-1]):
        if index == len(known) - 1:
            return len(known)
        length = common_length(known[::-1], words[index::-1])
        if length > best:
            best, found = length, index + 1
    return found if found is not None else max(0, len(words) - 1)


def _words(message: Any) -> str:
    """A message without its markers, as JSON: the order of keys and 2.0 for 2 are differences."""
    return json.dumps(unmarked_message(message))


def unmarked_message(message: Any) -> Any:
    """A message without cache markers, its own and those of its blocks."""
    kept = unmarked(message)
    if not isinstance(kept, dict) or not isinstance(content := kept.get("content"), list):
        return kept
    return {**kept, "content": [block for block in map(unmarked, content) if block != {}]}
