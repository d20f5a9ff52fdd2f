"""A prompt put in another order: tools among themselves, lines of system text, and what goes behind the user's words.

Only whole lines and sentences move, with the heading or the tags around them, and no message changes its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from prefold.prompts.dialects import MARKERS, tool_name
from prefold.prompts.edits import element_of, with_text_behind, without_element
from prefold.prompts.ordering.opening import Unit, is_one_text, split_question
from prefold.prompts.ordering.variation import Family
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section, Segment, Stability

# Text that holds the control tokens of a chat template, or a template's own statements, has a structure that moving a
# line would break.
_STRUCTURED = re.compile(r"\{%|<\|[a-z_]+\|>|\[INST\]|<start_of_turn>|<\uff5c")
_OPENING_TAG = re.compile(r"<([A-Za-z_][\w.-]*)(?:\s[^<>\n]*)?>")


def reordered(prompt: Prompt, family: Family, sections: frozenset[Section]) -> Prompt:
    """A prompt with its most stable parts first; itself if nothing has to move.

    Args:
        prompt: a request of the family.
        family: says how often each part varies.
        sections: what is put in order: tools, system.
    """
    value = prompt.value
    if Section.TOOLS in sections:
        value = _with_tools(prompt, value, family)
    if Section.SYSTEM in sections:
        value = _with_opening(prompt, value, family)
    return prompt if value is prompt.value else prompt.with_value(value)


def _with_tools(prompt: Prompt, value: Any, family: Family) -> Any:
    """The body with its tools in order, each list of them on its own. Cache markers stay at their position."""
    tools = [segment for segment in prompt.segments if segment.section is Section.TOOLS]
    for parent, group in groupby(tools, key=lambda segment: segment.path.parent):
        items = parent.get(value)
        listed = [tool for tool in group if tool.path.get(value) is tool.content]
        wanted = sorted(listed, key=lambda tool: _tool_rank(tool, family))
        if wanted == listed:
            continue
        changed = list(items)
        for place, tool in zip(listed, wanted, strict=True):
            changed[int(place.path.steps[-1])] = _with_markers_of(tool.content, place.content)
        value = parent.set(value, changed)
    return value


def _tool_rank(tool: Segment, family: Family) -> tuple[int, str]:
    name = tool_name(tool.content)
    stability = family.tools.get(name, Stability.SESSION)
    return stability.rank, "" if family.is_tool_order_fixed else name


def _with_markers_of(content: Any, place: Any) -> Any:
    """A block with the cache markers of another in place of its own."""
    if not isinstance(content, Mapping):
        return content
    wanted = {key: place[key] for key in MARKERS if isinstance(place, Mapping) and key in place}
    if {key: content[key] for key in MARKERS if key in content} == wanted:
        return content
    return {**{key: item for key, item in content.items() if key not in MARKERS}, **wanted}


@dataclass(frozen=True, slots=True)
class OpeningMoves:
    """What moves in an opening.

    Attributes:
        units: the opening, each unit with the stability by which it is placed.
        leaving: places of the units that go behind the newest user message.
        late: places of the units that go to the end of the opening, in their new order.
    """

    units: tuple[Unit, ...]
    leaving: tuple[int, ...] = ()
    late: tuple[int, ...] = ()


def opening_moves(prompt: Prompt, family: Family) -> OpeningMoves:
    """What has to move in the opening of a prompt for its most stable parts to come first."""
    units = _placed_units(prompt, family)
    leaving = [place for place, unit in enumerate(units) if unit.moves and unit.stability is Stability.REQUEST]
    if is_one_text(prompt) or with_text_behind(prompt.value, prompt.dialect, "") is prompt.value:
        leaving = []
    staying = sorted({*range(len(units))} - {*leaving})
    late: list[int] = []
    ranks = {place: units[place].stability.rank for place in staying if units[place].moves}
    if any(ranks.get(one, 0) > ranks.get(other, 0) for one, other in pairwise(staying)):
        late = sorted(ranks, key=lambda place: ranks[place])
    return OpeningMoves(tuple(units), tuple(leaving), tuple(late))


def _with_opening(prompt: Prompt, value: Any, family: Family) -> Any:
    """The body with its opening in order; what each request changes goes behind the newest user message."""
    moves = opening_moves(prompt, family)
    units, leaving, late = moves.units, moves.leaving, moves.late
    if not leaving and not late:
        return value
    texts = _texts_without({*leaving, *late}, units)
    if late and is_one_text(prompt):
        return _with_late_in_one_text(value, texts, units[-1].segment, _joined(late, units))
    changed = value
    if leaving:
        changed = with_text_behind(changed, prompt.dialect, _joined(leaving, units))
    if late:
        changed = _with_late(changed, texts, units[-1].segment, _joined(late, units))
    for path in reversed(texts):  # from the last to the first, so that no place shifts before its turn
        if texts[path]:
            changed = path.set(changed, texts[path])
        elif (without := without_element(changed, path)) is not None:
            changed = without
        else:
            return value  # nothing would be left of it
    return changed


def _placed_units(prompt: Prompt, family: Family) -> list[Unit]:
    """The opening with the stability by which each unit is placed; empty if it has an order of its own to keep."""
    units = family.units(prompt)
    if units is None or any(_STRUCTURED.search(text) for text in {unit.segment.text for unit in units}):
        return []
    by_segment = groupby(units, key=lambda unit: unit.segment.path)
    return [unit for _, group in by_segment for unit in _with_frames(list(group))]


def _with_frames(units: list[Unit]) -> list[Unit]:
    """Give the tags around a span that varies, and the heading before it, the span's own stability."""
    end = 0
    while end < len(units):
        start = end
        while end < len(units) and units[end].moves:
            end += 1
        if start == end:
            end += 1
            continue
        low, high = start, end
        while low and high < len(units) and _is_tagged(units[low - 1].text, units[high].text):
            low, high = low - 1, high + 1
        if low and _is_heading(units[low - 1].text) and _ends_there(units[low - 1].text, units, high):
            low -= 1
        if (low, high) != (start, end):
            stability = max((unit.stability for unit in units[start:end]), key=lambda found: found.rank)
            units[low:high] = [replace(unit, stability=stability) for unit in units[low:high]]
        end = max(end, high)
    return units


def _is_tagged(before: str, after: str) -> bool:
    opening = _OPENING_TAG.fullmatch(before.strip())
    return opening is not None and after.strip() == f"</{opening[1]}>"


def _is_heading(text: str) -> bool:
    line = text.strip()
    return line.startswith("#") or line.endswith((":", "："))


def _ends_there(heading: str, units: Sequence[Unit], end: int) -> bool:
    """Whether what a heading heads ends before a unit."""
    if end == len(units):
        return True
    after = units[end].text.strip()
    if level := _level(heading):
        return 0 < _level(after) <= level
    return units[end - 1].text.count("\n") > 1 or _is_heading(after)


def _level(heading: str) -> int:
    """Level of a heading in Markdown; 0 if it is none."""
    line = heading.strip()
    return len(line) - len(line.lstrip("#"))


def _texts_without(removed: set[int], units: Sequence[Unit]) -> dict[Path, str]:
    """For each text that something is taken from, in order: what is left of it."""
    texts: dict[Path, str] = {}
    numbered = enumerate(units)
    for path, group in groupby(numbered, key=lambda item: item[1].segment.text_path):
        members = list(group)
        if path is not None and any(place in removed for place, _ in members):
            left = _left_of(members, removed)
            texts[path] = left.rstrip() if members[-1][0] in removed else left
    return texts


def _left_of(members: Sequence[tuple[int, Unit]], removed: set[int]) -> str:
    """What is left of a text. A line keeps its end: the next one may be a heading or an item of a list."""
    left: list[str] = []
    for place, unit in members:
        if place not in removed:
            left.append(unit.text)
        elif left and not left[-1].endswith("\n") and unit.text.endswith("\n"):
            left[-1] = left[-1].rstrip() + unit.text[len(unit.text.rstrip()) :]
    return "".join(left)


def _joined(moved: Sequence[int], units: Sequence[Unit]) -> str:
    """Units on lines of their own; what stood together stays together."""
    parts: list[str] = []
    for index, place in enumerate(moved):
        before = moved[index - 1]
        if index and place == before + 1 and units[place].segment is units[before].segment:
            parts[-1] += units[place].text
        else:
            parts.append(units[place].text)
    return "\n".join(part.strip("\n").rstrip() for part in parts)


def _with_late_in_one_text(value: Any, texts: Mapping[Path, str], segment: Segment, late: str) -> Any:
    """The body of a prompt that is one text, with what varies before its last paragraph."""
    head, question = split_question(segment.text)
    [(path, left)] = texts.items()
    space = head[len(head.rstrip()) :]
    return path.set(value, "\n".join(filter(None, [left.rstrip(), late])) + space + question)


def _with_late(value: Any, texts: dict[Path, str], last: Segment, late: str) -> Any:
    """The body with a text at the end of its system text: in a block of its own where there are blocks."""
    path = last.text_path or last.path
    left = texts.get(path, last.text)
    block = element_of(path)
    is_message = block is not None and isinstance(block.get(value), Mapping) and "content" in block.get(value)
    if not left:
        texts[path] = late
    elif block is None or is_message:
        texts[path] = f"{left.rstrip()}\n{late}"
    else:
        shape = block.get(value)
        new: Any = late
        if isinstance(shape, Mapping):
            new = {**{key: item for key, item in shape.items() if key not in MARKERS}, "text": late}
        value = block.parent.set(value, [*block.parent.get(value), new])
    return value
