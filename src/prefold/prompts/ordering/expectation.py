"""How often a text is likely to vary, judged by what it holds: for a template, or where a log is too short to tell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType

from prefold.prompts.liveness import find_live
from prefold.prompts.placeholders import find_placeholders, stability_of_name
from prefold.prompts.prompt import Stability
from prefold.prompts.volatile import Kind, Volatile, find_volatile

_CONTENT = (
    (
        Stability.REQUEST,
        re.compile(r"query|question|context|documents?|docs|chunks?|passages?|history|results?"),
    ),
    (Stability.SESSION, re.compile(r"persona|locale|language|cwd|workspace|profile")),
)
"""Words in the name of a placeholder for content, which no clock and no id would have."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CONVERSATION_LABEL = re.compile(
    r"(?i)(?:session|conversation|thread|chat|user|customer|account|tenant|member)s?"
    r"(?:[ _-]?(?:id|identifier|uuid|key|number|no))?[^\w\n]{0,6}\Z"
    r"|(?:会话|用户|客户|账号|账户)(?:编号|标识|号|[ ]?ID)?[^\w\n]{0,6}\Z"
)
_BY_KIND = MappingProxyType(
    {
        Kind.DATE: Stability.DAILY,
        Kind.TIME: Stability.REQUEST,
        Kind.EPOCH: Stability.REQUEST,
        Kind.NONCE: Stability.REQUEST,
        Kind.USER_PATH: Stability.SESSION,
        Kind.ADDRESS: Stability.SESSION,
    }
)
"""How often a value of a kind varies; the others go by what they are called."""


def expected_stability(text: str, start: int = 0) -> Stability:
    """How often a line or sentence is likely to vary: by the least stable value or placeholder in it.

    Args:
        text: the line, with what comes before it, which can make a value an example.
        start: where the line begins.
    """
    expected = [value_stability(text, volatile) for volatile in find_live(text) if volatile.start >= start]
    expected += [_of_name(place.name) for place in find_placeholders(text[start:]) if place.name]
    return max(expected, key=lambda stability: stability.rank, default=Stability.STATIC)


def only_dates_differ(samples: Iterable[str]) -> bool:
    """Whether there are several texts and they are the same but for dates without a time."""
    differing = set(samples)
    masked: set[str] = set()
    for text in differing:
        parts: list[str] = []
        end = 0
        for volatile in find_volatile(text):
            if volatile.kind is Kind.DATE:
                parts.append(text[end : volatile.start])
                end = volatile.end
        masked.add("\0".join([*parts, text[end:]]))
    return len(differing) > 1 == len(masked)


def value_stability(text: str, volatile: Volatile) -> Stability:
    """How often a value in a text changes, if it is live: by its kind, or by what it is called."""
    if volatile.kind in _BY_KIND:
        return _BY_KIND[volatile.kind]
    before = text[max(0, volatile.start - 60) : volatile.start]
    return Stability.SESSION if _CONVERSATION_LABEL.search(before) else Stability.REQUEST


def _of_name(name: str) -> Stability:
    if known := stability_of_name(name):
        return known
    words = {word.lower() for word in _WORD.findall(name)}
    for stability, pattern in _CONTENT:
        if any(pattern.fullmatch(word) for word in words):
            return stability
    return Stability.STATIC
