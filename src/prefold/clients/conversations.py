"""Which earlier request a request continues.

A provider's cache knows nothing of conversations, but a warning must. Another question to the same assistant shares the
assistant's prefix and breaks nothing, and another assistant shares nothing and breaks nothing either; but a
conversation whose past was changed, and an assistant whose rules were, have lost what was paid for.

So requests are sorted twice: by assistant, which is recognised by most of its tools and rules, and among those by how
much they have in common.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import takewhile

from prefold.prompts.dialects import SYSTEM_ROLES
from prefold.prompts.prompt import Prompt, Section, Stability

_PHRASE_ENDS = re.compile(r"[\n.!?;,。！？；，]+")


class Relation(Enum):
    """How a request relates to the earlier one that it is closest to."""

    CONTINUES = "continues"
    """Whatever changed in what the two have in common is a break."""
    ASKS_ANEW = "asks anew"
    """It puts another question to the same assistant: that the question differs is no break, nor is the user's name in
    the rules."""


@dataclass(frozen=True)
class Sent:
    """A request that was sent.

    Attributes:
        label: the caller's name for this kind of request.
        prompt: what it said.
        at: when, in seconds of a monotonic clock.
        size: characters of its body.
    """

    label: str
    prompt: Prompt
    at: float
    size: int

    @cached_property
    def digests(self) -> tuple[int, ...]:
        """One number for each segment, equal where role and text are."""
        return tuple(hash((segment.section, segment.role, segment.text)) for segment in self.prompt.segments)

    @cached_property
    def front(self) -> str:
        """Tools and system: what makes the assistant."""
        return "\n".join(segment.text for segment in self.prompt.segments if segment.section is not Section.MESSAGES)

    @cached_property
    def words(self) -> frozenset[int]:
        """The digests of what was said in the conversation."""
        return frozenset(
            digest
            for digest, segment in zip(self.digests, self.prompt.segments, strict=True)
            if segment.section is Section.MESSAGES and segment.role not in SYSTEM_ROLES
        )

    def shared_with(self, other: Sent) -> int:
        """How many leading segments are equal."""
        pairs = zip(self.digests, other.digests, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@dataclass(frozen=True, slots=True)
class Followed:
    """What a request follows: the earlier request, and how."""

    before: Sent
    relation: Relation


class Conversations:
    """The last request of each conversation; those continued least recently are forgotten first.

    Args:
        capacity: how many requests are kept.
        capacity_size: how many characters they may have together; a longer one is not kept at all.
    """

    def __init__(self, capacity: int = 256, capacity_size: int = 1 << 25) -> None:
        self._capacity = capacity
        self._capacity_size = capacity_size
        self._assistants = _Assistants(min(capacity, 64))
        self._kept: OrderedDict[int, tuple[int, Sent]] = OrderedDict()
        self._count = 0
        self._size = 0

    def follow(self, request: Sent) -> Followed | None:
        """Find what a request follows, and remember it in the place of what it continues."""
        assistant = self._assistants.recognise(request)
        number, before = self._closest(assistant, request)
        followed = Followed(before, relation_of(before, request)) if before else None
        if before and followed and followed.relation is Relation.CONTINUES and request.words & before.words:
            self._forget(number)
        if request.size <= self._capacity_size:
            self._kept[self._count] = (assistant, request)
            self._count += 1
            self._size += request.size
            while len(self._kept) > self._capacity or self._size > self._capacity_size:
                self._forget(next(iter(self._kept)))
        return followed

    def _forget(self, number: int) -> None:
        _, forgotten = self._kept.pop(number)
        self._size -= forgotten.size

    def _closest(self, assistant: int, request: Sent) -> tuple[int, Sent | None]:
        """The one with most words in common, wherever they stand: a break at the front leaves no common prefix.

        One with the same front comes first if it has any: others greet the assistant in the same words. Of equals the
        newest.
        """

        def closeness(entry: tuple[int, Sent]) -> tuple[bool, int, bool, int]:
            number, kept = entry
            common, has_front = len(request.words & kept.words), kept.front == request.front
            return has_front and common > 0, common, has_front, number

        dialect = request.prompt.dialect
        entries = [
            (number, kept)
            for number, (of, kept) in self._kept.items()
            if of == assistant and kept.prompt.dialect is dialect
        ]
        return max(entries, key=closeness) if entries else (-1, None)


class _Assistants:
    """Numbers for what is the same assistant, whatever clock or name its rules hold.

    Args:
        capacity: how many are known at a time.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._fronts: OrderedDict[tuple[str, str], tuple[int, frozenset[str]]] = OrderedDict()
        self._count = 0

    def recognise(self, request: Sent) -> int:
        """The number of a request's assistant."""
        key = (request.label, request.front)
        known = self._fronts.pop(key, None)
        if known is None:
            phrases = phrases_of(request.front)
            known = (self._closest(request.label, phrases), phrases)
        self._fronts[key] = known
        if len(self._fronts) > self._capacity:
            self._fronts.popitem(last=False)
        return known[0]

    def _closest(self, label: str, phrases: frozenset[str]) -> int:
        for (of, _), (number, others) in reversed(self._fronts.items()):
            if of == label and are_alike(phrases, others):
                return number
        self._count += 1
        return self._count


def relation_of(before: Sent, request: Sent) -> Relation:
    """How a request relates to an earlier one to the same assistant."""
    shared = before.shared_with(request)
    if shared == len(before.digests):
        return Relation.CONTINUES
    if shared == len(request.digests):  # it goes back to an earlier point, all of which is there
        return Relation.ASKS_ANEW
    parted, became = before.prompt.segments[shared], request.prompt.segments[shared]
    if parted.section is not Section.MESSAGES:  # with a history in common it is the same conversation
        has_history = any(segment.stability is Stability.SESSION for segment in request.prompt.segments)
        return Relation.CONTINUES if has_history and request.words & before.words else Relation.ASKS_ANEW
    if became.stability is Stability.REQUEST:
        return Relation.ASKS_ANEW
    if parted.stability is Stability.REQUEST:  # the question, now history: the same, but for a change?
        goes_on = are_alike(phrases_of(parted.text), phrases_of(became.text))
    else:
        goes_on = not set(before.digests[shared:]).isdisjoint(request.digests[shared:])
    return Relation.CONTINUES if goes_on else Relation.ASKS_ANEW


def phrases_of(text: str) -> frozenset[str]:
    """The pieces of a text between line ends and punctuation."""
    return frozenset(_PHRASE_ENDS.split(text))


def are_alike(first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether two texts are versions of one: what they have in common makes up half of the shorter one.

    By phrases, not by a common prefix: a clock in the first line and a name in the last leave hardly any.
    """
    if first == second:
        return True
    shorter = min(_characters(first), _characters(second))
    return 0 < shorter <= 2 * _characters(first & second)


def _characters(phrases: frozenset[str]) -> int:
    return sum(map(len, phrases))
