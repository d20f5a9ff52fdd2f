"""What happened to the messages of a conversation: left out, summarised, moved, or another conversation altogether."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from prefold.prompts.causes import NONE
from prefold.prompts.divergence.text_difference import are_alike, masked, shared_rest
from prefold.prompts.divergence.values import within_segment
from prefold.prompts.ordering.opening import split_question
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Section, Segment, Stability
from prefold.prompts.sequences import common_length

_SHARED_REST = 128  # bytes behind a difference in the newest message that are worth having kept
_SHARED_BY_A_VALUE = 48  # the same behind a value of which it is known that it should stand elsewhere
_VALUES = ("clock", "identifier")
_VAGUE = ("text_edit", "truncation", "block_order")
_LONGEST_QUESTION = 300  # characters at the end of one text that are taken for the question
_MOST_SUMMARIES = 3  # messages that a summary takes
_SHORTEST_REMINDER = 16  # characters
_SUMMARY_WORDS = re.compile(
    r"summar|compact(?:ed|ion)|so far|earlier (?:conversation|messages|turns)|previous (?:conversation|messages|turns)"
    r"|previously discussed|condensed|recap|摘要|总结|概要|概括|之前的对话|此前的对话|前情",
    re.IGNORECASE,
)
# How a prompt that is one text marks who speaks: the tags of chat templates, or a name at the beginning of a line.
_SPEAKER = re.compile(
    r"<\|im_start\|>\s*(?P<chatml>\w+)|<\|start_header_id\|>\s*(?P<llama>\w+)|<\|(?P<tag>user|assistant|system)\|>"
    r"|<start_of_turn>(?P<gemma>\w+)|(?P<instruct>\[INST\])"
    r"|^(?P<name>User|Human|Customer|Assistant|AI|Agent|Bot|System|用户|客户|助手|客服|系统)\s*[:：]",
    re.MULTILINE,
)
_END_OF_TURN = re.compile(r"\s*(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|</s>)?\s*\Z")


def history_cause(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path | None] | None:
    """What happened to whole messages at the first difference of two requests; None if they were not touched as such.

    Args:
        old: segments of the earlier request.
        new: those of the later one.
        index: the first that differs, a part of a message in both.
    """
    start = index
    while start and not old[start].begins_message:
        start -= 1
    before, after = list(_messages(old[start:])), list(_messages(new[start:]))
    keys_before, keys_after = _keys(before), _keys(after)
    place = new[index].message or new[index].path
    says_summary = any(_SUMMARY_WORDS.search(segment.text[:2000]) for segment in after[0])
    is_other_text = not are_alike(old[index].text, new[index].text)
    # One message may have changed while those behind it are where they were.
    is_edit = len(before) > 1 and keys_before[1:] == keys_after[1 : len(before)]
    if not is_edit:
        if (stand_ins := _stand_ins(keys_before, keys_after)) is not None:
            return ("summary" if stand_ins else "truncation"), place
        if moved := _moved(old, new, index):
            return moved
    if says_summary and is_other_text and len(before) > 2:
        return "summary", place
    return (NONE, None) if _is_new_question(old, new, index) else None


def turns_of(text: str, path: Path) -> list[Segment]:
    """A prompt that is one text as its opening and the turns that it spells out, but for the one to be written."""
    found = list(_SPEAKER.finditer(text))
    starts = [turn.start() for turn in found]
    segments = [Segment(path, Section.SYSTEM, "system", "", text[: starts[0]] if starts else text)]
    for turn, end in zip(found, [*starts[1:], len(text)], strict=False):
        words = _END_OF_TURN.sub("", text[turn.start() : end])
        if words != turn.group() or end < len(text):
            segments.append(Segment(path, Section.MESSAGES, turn.group(), words, words, stability=Stability.SESSION))
    if len(segments) > 1:
        segments[-1] = replace(segments[-1], stability=Stability.REQUEST)
    return segments


def summary_in_system(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path] | None:
    """A summary that was put into the system section, while messages were left out.

    Words of a summary that both texts hold are the prompt's own, whatever else changed in it.
    """
    first, second = old[index], new[index]
    if second.section is not Section.SYSTEM:
        return None
    words_before = _SUMMARY_WORDS.findall(first.text) if first.section is Section.SYSTEM else []
    if len(_SUMMARY_WORDS.findall(second.text)) <= len(words_before):
        return None
    sides = ([segment for segment in side if segment.section is Section.MESSAGES] for side in (old, new))
    firsts = [_keys([message]) for side in sides for message in _first(_messages(side))]
    return ("summary", second.path) if len(firsts) < 2 or firsts[0] != firsts[1] else None


def _first(messages: Iterator[tuple[Segment, ...]]) -> list[tuple[Segment, ...]]:
    found = next(messages, None)
    return [] if found is None else [found]


def _messages(segments: Sequence[Segment]) -> Iterator[tuple[Segment, ...]]:
    """Segments by message."""
    message: list[Segment] = []
    for segment in segments:
        if segment.begins_message and message:
            yield tuple(message)
            message = []
        message.append(segment)
    if message:
        yield tuple(message)


def _keys(messages: Sequence[tuple[Segment, ...]]) -> list[int]:
    return [hash(tuple((segment.role, segment.text) for segment in message)) for message in messages]


def _stand_ins(before: list[int], after: list[int]) -> int | None:
    """How many messages stand in for those that were dropped, if the later request goes on with the end of the earlier.

    That is the longest such end; None if there is none.
    """
    best, found = 0, None
    for count in range(_MOST_SUMMARIES + 1):
        length = _longest_end(before, after[count:])
        if length > best and len(before) - length > count:
            best, found = length, count
    return found


def _longest_end(first: list[int], second: list[int]) -> int:
    """Length of the longest end of a list, not all of it, with which another begins: Knuth-Morris-Pratt, linear."""
    pattern = second[: len(first) - 1]
    if not pattern:
        return 0
    border = [0] * len(pattern)
    for index in range(1, len(pattern)):
        length = border[index - 1]
        while length and pattern[index] != pattern[length]:
            length = border[length - 1]
        border[index] = length + (pattern[index] == pattern[length])
    length = 0
    for item in first[1:]:
        while length and (length == len(pattern) or item != pattern[length]):
            length = border[length - 1]
        length += item == pattern[length]
    return length


def _is_new_question(old: Sequence[Segment], new: Sequence[Segment], index: int) -> bool:
    """Whether nothing behind the difference could have been kept: another question, or another conversation."""
    first, second = old[index], new[index]
    later = {segment.text for segment in old[index + 1 :] if segment.text}
    if any(segment.text in later for segment in new[index + 1 :] if segment.stability is not Stability.REQUEST):
        return False
    if second.stability is Stability.REQUEST and first.stability is Stability.REQUEST:
        texts = (first.text, second.text)
        cause, _ = within_segment(first, second)
        if not first.role and cause in _VALUES:  # one text for everything: its last paragraph is the question
            texts = _without_question(first.text), _without_question(second.text)
        rest = shared_rest(*texts, common_length(first.text, second.text))
        return rest < (_SHARED_REST if cause in _VAGUE else _SHARED_BY_A_VALUE)
    return not are_alike(first.text, second.text) and masked(first.text) != masked(second.text)


def _without_question(text: str) -> str:
    """A prompt that is one text without its last paragraph or line, if that is short enough to be a question."""
    paragraphs, line = split_question(text)[0], text.rstrip().rfind("\n") + 1
    return next((text[:end] for end in (len(paragraphs), line) if len(text) - end <= _LONGEST_QUESTION), text)


def _moved(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[str, Path] | None:
    """A block, or the end of a text, that stood in the earlier request at the difference and comes later now."""
    first, second = old[index], new[index]
    later = [segment for segment in new[index + 1 :] if segment.role == first.role]
    if moved := [segment for segment in later if first.text and segment.text == first.text]:
        # Within a message it is one of several that come in another order, such as documents.
        is_order = second.message is not None and any(segment.message == second.message for segment in moved)
        return ("block_order", second.path) if is_order else ("moved_block", first.path)
    prefix = common_length(first.text, second.text)
    tail = first.text[prefix:].strip()
    if (
        prefix == len(second.text.rstrip())
        and len(tail) >= _SHORTEST_REMINDER
        and second.stability is not Stability.REQUEST
    ):
        pattern = masked(tail)  # a reminder that holds the time is the same reminder
        if any(pattern in masked(segment.text[-len(tail) - 200 :]) for segment in later):
            return "moved_block", second.path
    if first.begins_message == second.begins_message and first.role == second.role:
        return None
    pattern = masked(first.text)
    if len(pattern) >= _SHORTEST_REMINDER and any(masked(segment.text) == pattern for segment in later):
        return "moved_block", first.path
    return None
