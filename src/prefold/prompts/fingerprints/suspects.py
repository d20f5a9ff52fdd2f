"""The usual reasons why a stable prefix changes, each tested on two states of one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prefold.prompts.liveness import is_live
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section, Segment
from prefold.prompts.volatile import find_volatile

_MOST_SHOWN = 3
"""Values listed of one suspect."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One of the usual reasons.

    Attributes:
        name: such as `clock or id`.
        evidence: what was found; empty if it is innocent.
    """

    name: str
    evidence: str


def suspects(before: Prompt, after: Prompt) -> tuple[Suspect, ...]:
    """All of the usual reasons, tested on a prefix before and after it changed."""
    return (
        Suspect("clock or id", _new_passing_values(before, after)),
        Suspect("tools not sorted", _other_tool_order(before, after)),
        Suspect("JSON parameters", _other_json_spelling(before, after)),
        Suspect("template version", _other_version(before, after)),
    )


@dataclass(frozen=True, slots=True)
class PassingValue:
    """A date, an id or the like in a prefix.

    Attributes:
        text: the value.
        kind: as in `volatile.Kind`.
        path: the segment that it stands in.
        char: where it begins in the segment's text.
        is_live: whether it looks as if it will be another one next time.
    """

    text: str
    kind: str
    path: Path
    char: int
    is_live: bool

    def __str__(self) -> str:
        return f"{self.text} ({self.kind}) in {self.path}, character {self.char}"


def passing_values(prefix: Prompt) -> Iterator[PassingValue]:
    """Everything in a prefix that has the form of something that does not stay."""
    for segment in prefix.segments:
        text = segment.text
        for found in find_volatile(text):
            value = text[found.start : found.end]
            yield PassingValue(value, found.kind, segment.path, found.start, is_live(text, found))


def _new_passing_values(before: Prompt, after: Prompt) -> str:
    known = {value.text for value in passing_values(before)}
    new = [str(value) for value in passing_values(after) if value.text not in known]
    more = f" and {len(new) - _MOST_SHOWN} more" if len(new) > _MOST_SHOWN else ""
    return "; ".join(new[:_MOST_SHOWN]) + more


def _other_tool_order(before: Prompt, after: Prompt) -> str:
    old, new = (
        dict.fromkeys(segment.text for segment in prompt.segments if segment.section is Section.TOOLS)
        for prompt in (before, after)
    )
    if [text for text in old if text in new] == [text for text in new if text in old]:
        return ""
    return f"{len(old.keys() & new.keys())} tools are the same, in another order; sort them by name"


def _other_json_spelling(before: Prompt, after: Prompt) -> str:
    for old, new in zip(before.segments, after.segments, strict=False):
        if old.text == new.text:
            continue
        for one, other in zip(_json_in(old), _json_in(new), strict=False):
            if one.source != other.source and (difference := _spelling(one.value, other.value)):
                return (
                    f"{new.path} holds the same JSON value with {difference}; write it with the same parameters each "
                    "time, such as json.dumps(value, sort_keys=True)"
                )
    return ""


@dataclass(frozen=True, slots=True)
class _Json:
    """A JSON object and how it is written."""

    value: Any
    source: str


def _spelling(old: Any, new: Any) -> str:
    """What is different in how two JSON values are written; empty if they are not the same value."""
    if json.dumps(old) == json.dumps(new):
        return "other spacing or escapes"
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return "another order of keys"
    return "numbers written otherwise, such as 10 and 10.0" if old == new else ""


def _json_in(segment: Segment) -> Iterator[_Json]:
    """The JSON objects in a segment, the outermost only."""
    text = segment.text
    if not isinstance(segment.content, str):
        yield _Json(segment.content, text)
        return
    decode = json.JSONDecoder().raw_decode
    position = text.find("{")
    while position >= 0:
        try:
            value, end = decode(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            yield _Json(value, text[position:end])
        position = text.find("{", end)


_VERSION = re.compile(
    r"(?:\b(?:version|template|revision|rev|prompt)\W{0,3}v?|\bv|版本\W{0,3}v?)[0-9]\w*(?:\.\w+)*", re.IGNORECASE
)


def _other_version(before: Prompt, after: Prompt) -> str:
    old, new = (
        [found.group() for segment in prompt.segments for found in _VERSION.finditer(segment.text)]
        for prompt in (before, after)
    )
    gone, come = list((Counter(old) - Counter(new)).keys()), list((Counter(new) - Counter(old)).keys())
    return f"{gone[0]!r} was replaced by {come[0]!r}" if gone and come else ""
