"""Mending a break in a copy of both requests, so that the gain can be measured instead of promised.

Two kinds of repair: what changes from request to request is moved behind what does not, in both; and what was sent
before is sent again as it was, in the later one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from prefold.prompts.breakpoints.markers import can_carry, form_for, lifetime_of, with_markers
from prefold.prompts.canonical.canonicalize import Step, canonicalize
from prefold.prompts.causes import CAUSES, NONE
from prefold.prompts.dialects import tool_name
from prefold.prompts.divergence.differences import Difference
from prefold.prompts.divergence.restore import restored, unmarked_message
from prefold.prompts.divergence.reuse import Reuse
from prefold.prompts.divergence.settings import SettingChange
from prefold.prompts.divergence.text_difference import changing_value
from prefold.prompts.edits import message_field, with_text_behind, without_element
from prefold.prompts.ordering.opening import split_question
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section, Segment, Stability
from prefold.prompts.sequences import common_length
from prefold.providers.rules import CacheRules

# Not after a short word, which may be an abbreviation.
_SENTENCE_END = re.compile(r"(?<=[\w)\]\"'%]{3})[.!?]+\s+|[。！？]+\s*|\n")
_MARKUP = re.compile(r"<\|[a-z_]+\|>|\[INST\]|<start_of_turn>|<\uff5c")
_MOST_VALUES = 16  # values of one segment that are moved


@dataclass(frozen=True, slots=True)
class Repair:
    """What mends a break.

    Attributes:
        description: one sentence: what to do.
        prompts: both requests with it; None where the requests cannot show it.
    """

    description: str
    prompts: tuple[Prompt, Prompt] | None = None


def repair(
    before: Prompt,
    after: Prompt,
    cause: str,
    difference: Difference | None,
    change: SettingChange | None,
    found: Reuse,
    rules: CacheRules | None,
) -> Repair:
    """Mend the cause of a break in copies of both requests."""
    advice = CAUSES[cause].fix
    if cause in (NONE, "too_short", "evicted"):
        return Repair("" if cause == NONE else advice)
    if change is not None:
        return Repair(f"{advice.rstrip('.')}: {change.path}.", (before, _with_setting(after, change)))
    if difference is None or difference.cause == NONE:
        return _with_breakpoints(before, after, cause, found, rules)
    return Repair(advice, _mended(before, after, difference))


def _mended(before: Prompt, after: Prompt, difference: Difference) -> tuple[Prompt, Prompt] | None:
    """Both requests with what mends the difference; None where they cannot show it."""
    match difference.cause:
        case "clock" | "identifier" if _can_move(after, difference):
            return _moved_out(before, after, difference)
        case "tool_order":
            steps = (Step.TOOL_ORDER,)
            return canonicalize(before, steps).prompt, canonicalize(after, steps).prompt
        case "tool_set" if united := _with_all_tools(before, after):
            return united
        case _:
            sent = restored(before, after, difference)
            return None if sent is None else (before, sent)


def _can_move(after: Prompt, difference: Difference) -> bool:
    """Whether a value can go elsewhere: not out of a tool, and not out of history, which is sent again as it was."""
    segment = after.segments[difference.index]
    is_history = segment.section is Section.MESSAGES and segment.stability is not Stability.REQUEST
    return segment.section is not Section.TOOLS and not is_history


# --- settings and markers


def _with_setting(prompt: Prompt, change: SettingChange) -> Prompt:
    path, value = change.path, change.before
    if value is None:
        holder = path.parent.get(prompt.value)
        return prompt.replaced({path.parent: {key: item for key, item in holder.items() if key != path.steps[-1]}})
    while len(path.steps) > 1 and not isinstance(path.parent.find(prompt.value), dict):
        path, value = path.parent, {path.steps[-1]: value}  # the object around it is absent, too
    return prompt.replaced({path: value})


def _with_breakpoints(before: Prompt, after: Prompt, cause: str, found: Reuse, rules: CacheRules | None) -> Repair:
    advice = CAUSES[cause].fix
    form = form_for(after.dialect, rules) if rules is not None else None
    if rules is None or form is None:
        return Repair(advice)
    default = rules.ttls[0] if rules.ttls else 0

    def marked(prompt: Prompt, extra: Segment | None, ttl: int | None) -> Prompt:
        marked_already = (segment for segment in prompt.segments if segment.marker is not None)
        lifetimes = ((each.path, lifetime_of(each.marker, default)) for each in marked_already)
        wanted = {path: ttl or lifetime for path, lifetime in lifetimes}
        if extra is not None:
            wanted.setdefault(extra.path, ttl or default)
        kept = extra.path if extra is not None else None
        others = [path for path in wanted if path != kept]  # in order, the newest last
        for path in others[: max(0, len(wanted) - rules.max_breakpoints)]:
            del wanted[path]
        return with_markers(prompt, form, wanted, default)

    if cause == "expired":
        longest = max(rules.ttls, default=0)
        return Repair(advice, (marked(before, None, longest), marked(after, None, longest)))
    places = [
        segment for segment in after.segments[: found.needed_at] if can_carry(segment, form, after.dialect, rules)
    ]
    if not places:
        return Repair(advice)
    ttl = max((lifetime_of(s.marker, default) for s in before.segments if s.marker is not None), default=default)
    sentence = f"{advice.rstrip('.')}: {places[-1].path}."
    if cause == "lookback":
        return Repair(sentence, (before, marked(after, places[-1], None)))
    at_same_place = before.segments[after.segments.index(places[-1])]
    longest_ttl = ttl if ttl > default else None
    return Repair(sentence, (marked(before, at_same_place, longest_ttl), marked(after, places[-1], longest_ttl)))


# --- moving what changes behind what does not


def _moved_out(before: Prompt, after: Prompt, difference: Difference) -> tuple[Prompt, Prompt] | None:
    """Both requests with the changing sentences of a text behind their newest question; None if that cannot be done."""
    first, second = before.segments[difference.index], after.segments[difference.index]
    if first.text_path is None or second.text_path is None:
        return None
    texts = (first.text, second.text)
    moved: tuple[list[str], list[str]] = ([], [])
    for _ in range(_MOST_VALUES):
        position = common_length(*texts)
        if texts[0] == texts[1] or changing_value(*texts, position) is None:
            break
        cuts = [_unit_at(text, position) for text in texts]
        for units, text, (start, end) in zip(moved, texts, cuts, strict=True):
            units.append(text[start:end].strip())
        texts = tuple(text[:start] + text[end:] for text, (start, end) in zip(texts, cuts, strict=True))  # type: ignore[assignment]
    ends = ["\n".join(unit for unit in units if unit) for units in moved]
    sent_before = _with_moved(before, first, texts[0], ends[0])
    sent_after = _with_moved(after, second, texts[1], ends[1])
    if sent_before is None or sent_after is None:
        return None
    return sent_before, _with_sent(before, sent_before, sent_after)


def _unit_at(text: str, position: int) -> tuple[int, int]:
    """The line that holds a place in a text, or the sentence of it where it holds more than that."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position) + 1 or len(text)
    for found in _SENTENCE_END.finditer(text, start, end):
        if found.end() > position:
            return start, found.end()
        start = found.end()
    return start, end


def _with_moved(prompt: Prompt, segment: Segment, left: str, moved: str) -> Prompt | None:
    """A request with the rest of a text in its place, and what was taken from it behind the newest question."""
    path = segment.text_path
    if path is None or not moved:
        return prompt
    if segment.section is Section.MESSAGES and not segment.role:
        head, question = split_question(left)
        # A text with the tags of a chat template ends inside the answer.
        return None if _MARKUP.search(left) else prompt.replaced({path: f"{head}{moved}\n{question}"})
    value = with_text_behind(prompt.value, prompt.dialect, moved)
    if value is prompt.value:
        return None
    if segment.section is Section.MESSAGES:  # the newest question itself, which has the text at its end now
        words = path.get(value)
        value = path.set(value, left + words[len(segment.text) :] if left else words.lstrip())
    else:
        value = path.set(value, left) if left.strip() else without_element(value, path)
    return None if value is None else prompt.with_value(value)


def _with_sent(before: Prompt, sent_before: Prompt, sent_after: Prompt) -> Prompt:
    """The later request with the words that were put behind the earlier question still there, as they were sent."""
    name = message_field(before.dialect)
    if before.document is None or not isinstance(sent_after.value.get(name), list):
        return sent_after
    sent, present = sent_before.value[name], list(sent_after.value[name])
    originals = before.value[name][max(0, len(before.value[name]) - len(sent)) :]  # an emptied first one was taken out
    if len(present) <= len(sent):
        return sent_after
    for index, message in enumerate(sent):
        if index >= len(originals):
            present.insert(index, message)
        elif message is not originals[index] and unmarked_message(present[index]) == unmarked_message(originals[index]):
            present[index] = unmarked_message(message)
    return sent_after.with_value({**sent_after.value, name: present})


# --- sending again what was sent


def _with_all_tools(before: Prompt, after: Prompt) -> tuple[Prompt, Prompt] | None:
    """Both requests with the tools of both; None where they are not in one list."""
    if not isinstance(before.value, dict) or not isinstance(after.value, dict):
        return None
    parents = {s.path.parent for prompt in (before, after) for s in prompt.segments if s.section is Section.TOOLS}
    if len(parents) != 1:
        return None
    (place,) = parents
    lists = [_list_at(prompt, place) for prompt in (before, after)]
    if lists[0] is None or lists[1] is None:
        return None
    names = {tool_name(tool) for tool in lists[0]}
    united = [*lists[0], *(tool for tool in lists[1] if tool_name(tool) not in names)]
    return before.replaced({place: united}), after.replaced({place: united})


def _list_at(prompt: Prompt, place: Path) -> list[Any] | None:
    try:
        found = place.get(prompt.value)
    except LookupError:
        return [] if len(place.steps) == 1 else None
    return found if isinstance(found, list) else None
