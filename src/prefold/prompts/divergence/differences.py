"""The first difference of two prompts, and what kind of change it is.

Sections are compared in the order in which the model reads them. Where the difference lies decides what is looked for:
among tools their names, among messages which of them come back later, within one segment its value or its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefold.prompts.causes import NONE
from prefold.prompts.dialects import tool_name
from prefold.prompts.divergence.history import history_cause, summary_in_system, turns_of
from prefold.prompts.divergence.values import within_block, within_segment
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section, Segment
from prefold.prompts.sequences import common_length

_VAGUE_IN_TEXT = ("text_edit", "truncation")
_SERVER_TOOLS = frozenset(
    {"googleSearch", "google_search", "codeExecution", "code_execution", "urlContext", "url_context"}
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
    characters = common_length(first.text, second.text) if same_place else 0
    if index == len(old) - 1 and characters == len(first.text) and first.section is Section.MESSAGES:
        return Difference(index, NONE, None, characters)  # the last text went on
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
    if first.section is not second.section:
        lost = first if first.section is Section.SYSTEM else second
        return summary_in_system(old, new, index) or ("text_edit", lost.path)
    if _is_permutation(old, new, index):
        return "block_order", second.path
    explained: tuple[str, Path | None] | None
    if first.section is Section.SYSTEM:
        explained = summary_in_system(old, new, index)
    elif isinstance(first.content, str) and isinstance(second.content, str) and not first.role:
        explained = _within_one_text(first, second)
    else:
        explained = within_block(first, second) or _left_out(old, new, index) or history_cause(old, new, index)
    return explained or within_segment(first, second)


def _left_out(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path] | None:
    """A block of an earlier message that is not sent any more, such as the model's thoughts, while the others are."""
    before, after = _siblings(old, index), _siblings(new, index)
    is_same_message = old[index].message == new[index].message is not None
    return ("truncation", new[index].path) if is_same_message and before[1:] == after else None


def _within_one_text(first: Segment, second: Segment) -> tuple[str, Path | None] | None:
    """What happened to the turns that a prompt spells out in one text, or to all of it."""
    if (found := within_segment(first, second))[0] not in _VAGUE_IN_TEXT:
        return history_cause([first], [second], 0) or found
    old, new = turns_of(first.text, first.path), turns_of(second.text, second.path)
    index = _common_segments(old, new)
    if 0 < index < min(len(old), len(new)) and (explained := history_cause(old, new, index)):
        return explained
    return history_cause([first], [second], 0)


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


def _is_server_tool(tool: Any) -> bool:
    """Whether a provider runs a tool itself, so that having it is a setting: web search, code execution."""
    if not isinstance(tool, dict):
        return False
    if "type" in tool:
        kind = str(tool["type"])
        return kind not in ("function", "custom") and not {"function", "input_schema"} & tool.keys()
    return tool.keys() <= _SERVER_TOOLS


# --- blocks of one message, and of the system section


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
