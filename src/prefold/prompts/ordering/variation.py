"""What varies in the opening of a prompt, and how often, learned from many requests or guessed from one.

The opening of a request is cut into units, see `prefold.prompts.ordering.opening`.

Requests that share much of their opening form a family. The units that nearly all of a family have, in the same order,
are its anchors; what stands between two anchors is a gap. What varies lies in the gaps, so each gap is watched: whether
it changes between two requests of a conversation, between conversations, or only from one day to the next.

All of it takes time linear in the log, and memory for one prompt per family and for hashes of what varies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prefold.prompts.dialects import tool_name
from prefold.prompts.logged import Conversations, Logged
from prefold.prompts.ordering.alignment import align, gaps_of
from prefold.prompts.ordering.expectation import expected_stability, only_dates_differ
from prefold.prompts.ordering.opening import Openings, Unit
from prefold.prompts.prompt import Prompt, Section, Stability

_MOSTLY = 0.95
"""Share of a family's requests that must have a unit, or a value, for it to count as never changing."""
_SELDOM = 0.1
"""Share of the steps within conversations in which a span may change and still count as one of the conversation."""
_RELATED = 0.5
"""Share of the shorter of two openings that two requests of a family have in common..."""
_BARELY_RELATED = 0.05
"""...or this share, if they begin alike: retrieved documents can be most of a prompt."""
_MOST_FAMILIES = 64
_MOST_PARTS = 16
"""Units of a gap that are watched one by one; a longer gap is watched as a whole."""
_MOST_VALUES = 4096
"""Different values of a span that are told apart."""
_MOST_SAMPLES = 3
_LONGEST_SAMPLE = 2000
"""Characters of a value that is looked at closely."""
_CONTEXT = 600
"""Characters before a unit that can make what is in it an example."""
_MOST_CONVERSATIONS = 10_000
"""Conversations of a family whose last request is remembered."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that varies.

    Attributes:
        stability: how often.
        is_always_filled: whether each request of the family has something there.
    """

    stability: Stability
    is_always_filled: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """What stands between two anchors.

    Attributes:
        whole: the gap as one place.
        parts: each of its units, where all requests have equally many of them there; else none.
    """

    whole: Slot
    parts: tuple[Slot, ...]


@dataclass(frozen=True)
class Family:
    """Requests with the same opening but for what varies in it.

    Attributes:
        example: the last of them.
        requests: how many there are.
        anchors: the units that nearly all of them have, in order, without their spacing.
        gaps: by the number of anchors before them that are expected to stay; those that no request fills are left out.
        tools: how often each tool comes, goes or changes, by name.
        is_tool_order_fixed: whether tools always come in the same order.
        expected: how often each anchor is likely to vary all the same, where the family is too small to tell: of one
            request nothing is known, of one conversation or day not what it shares with no other.
        openings: cuts openings into units.
    """

    example: Prompt
    requests: int
    anchors: tuple[str, ...]
    gaps: Mapping[int, Gap]
    tools: Mapping[str, Stability]
    is_tool_order_fixed: bool
    expected: Mapping[str, Stability]
    openings: Openings = field(repr=False, compare=False)

    def units(self, prompt: Prompt) -> list[Unit] | None:
        """The opening of a prompt of this family, each unit with its stability.

        Returns:
            None if a place that every request filled is empty: the prompt has been put in another order already.
        """
        units = self.openings.units(prompt)
        keys = [unit.key for unit in units]
        anchors = set(self.anchors)
        contents: dict[int, list[int]] = {}
        fixed = [anchor for anchor in self.anchors if anchor not in self.expected]
        for index, number in enumerate(gaps_of(keys, align(fixed, keys))):
            if number is not None and keys[index] not in anchors:
                contents.setdefault(number, []).append(index)
        stabilities = [self.expected.get(key, Stability.STATIC) for key in keys]
        for number, gap in self.gaps.items():
            inside = contents.get(number, [])
            has_all_parts = len(inside) == len(gap.parts)
            is_missing = not inside or (gap.parts and not has_all_parts)
            if is_missing and gap.whole.is_always_filled and gap.whole.stability is not Stability.STATIC:
                return None
            for part, index in enumerate(inside):
                stabilities[index] = (gap.parts[part] if has_all_parts else gap.whole).stability
        return [
            unit if unit.stability is stability else replace(unit, stability=stability)
            for unit, stability in zip(units, stabilities, strict=True)
        ]


@dataclass(frozen=True)
class Variation:
    """What varies in a log.

    Attributes:
        requests: how many it has.
        families: their openings, the largest family first.
        outside: requests that belong to none of them, because there would be too many.
    """

    requests: int
    families: tuple[Family, ...]
    outside: int
    _index: Mapping[str, tuple[int, ...]] = field(repr=False)
    _openings: Openings = field(repr=False, compare=False)

    def family_of(self, prompt: Prompt) -> Family | None:
        """The family that a prompt belongs to."""
        keys = self._openings.keys(prompt)
        found = _related(keys, [family.anchors for family in self.families], self._index)
        return None if found is None else self.families[found]


def analyse(log: Iterable[Logged]) -> Variation:
    """Find what varies in a log.

    Args:
        log: the requests, oldest first. They are read twice: a list, or an object that can be iterated again.

    Raises:
        TypeError: if `log` is an iterator, which can be read only once.
    """
    if iter(log) is log:
        raise TypeError("a log is read more than once; give a list or a RequestLog, not an iterator")
    openings = Openings()
    drafts: list[_Draft] = []
    index: dict[str, list[int]] = {}
    requests = 0
    for logged in log:
        requests += 1
        keys = openings.keys(logged.prompt)
        number = _related(keys, [draft.reference for draft in drafts], index)
        if number is None and len(drafts) < _MOST_FAMILIES:
            number = len(drafts)
            drafts.append(_Draft(keys))
            for key in set(keys):
                index.setdefault(key, []).append(number)
        if number is not None:
            drafts[number].count(keys)
    watches = [_Watch(draft.anchors(), openings) for draft in drafts]
    conversations = Conversations()
    outside = 0
    for logged in log:
        conversation = conversations.of(logged)
        keys = openings.keys(logged.prompt)
        number = _related(keys, [draft.reference for draft in drafts], index)
        if number is None:
            outside += 1
        else:
            watches[number].see(logged, keys, conversation)
    families = [family for watch in watches if (family := watch.family()) is not None]
    families.sort(key=lambda family: -family.requests)
    final: dict[str, list[int]] = {}
    for number, family in enumerate(families):
        for key in set(family.anchors):
            final.setdefault(key, []).append(number)
    final_index = {key: tuple(numbers) for key, numbers in final.items()}
    return Variation(requests, tuple(families), outside, final_index, openings)


def _related(keys: Sequence[str], openings: Sequence[Sequence[str]], index: Mapping[str, Sequence[int]]) -> int | None:
    """The opening that shares most with a request, if it shares enough."""
    if not keys:
        return next((number for number, opening in enumerate(openings) if not opening), None)
    shared: Counter[int] = Counter()
    for key in dict.fromkeys(keys):  # in their order, so that ties are settled alike in every process
        for number in index.get(key, ()):
            shared[number] += len(key)
    for number, length in shared.most_common(1):
        shorter = min(sum(map(len, set(keys))), sum(map(len, set(openings[number]))))
        begins_alike = not set(keys[:2]).isdisjoint(openings[number][:2])
        if length >= (_BARELY_RELATED if begins_alike else _RELATED) * shorter:
            return number
    return None


class _Draft:
    """A family while its anchors are looked for."""

    def __init__(self, reference: list[str]) -> None:
        self.reference = reference
        self._hits = [0] * len(reference)
        self._requests = 0

    def count(self, keys: Sequence[str]) -> None:
        self._requests += 1
        for number, place in enumerate(align(self.reference, keys)):
            self._hits[number] += place is not None

    def anchors(self) -> tuple[str, ...]:
        enough = _MOSTLY * self._requests
        return tuple(key for key, hits in zip(self.reference, self._hits, strict=True) if hits >= enough)


def _merged(one: Gap, other: Gap) -> Gap:
    """Two gaps that follow each other as one."""
    stability = max(one.whole.stability, other.whole.stability, key=lambda found: found.rank)
    has_parts = all(gap.parts and gap.whole.is_always_filled for gap in (one, other))
    whole = Slot(stability, one.whole.is_always_filled or other.whole.is_always_filled)
    return Gap(whole, one.parts + other.parts if has_parts else ())


_Place = tuple[int, int] | str
"""A gap and a part of it, -1 for the whole; or the name of a tool."""


@dataclass(slots=True)
class _Tally:
    """What was seen at a place, and how often it changed."""

    filled: int = 0
    changes: int = 0
    changes_in_conversation: int = 0
    values: Counter[int] = field(default_factory=Counter)
    samples: set[str] = field(default_factory=set)


class _Watch:
    """A family while its gaps are watched."""

    def __init__(self, anchors: tuple[str, ...], openings: Openings) -> None:
        self._anchors = anchors
        self._openings = openings
        self._example: Prompt | None = None
        self._requests = 0
        self._steps_in_conversation = 0
        self._conversations: dict[str, dict[_Place, int]] = {}
        self._last: dict[_Place, int] = {}
        self._days: set[int] = set()
        self._tallies: dict[_Place, _Tally] = {}
        self._lengths: dict[int, int] = {}  # units in each gap; -1 where that varies
        self._tool_ranks: dict[str, int] = {}
        self._is_tool_order_fixed = True

    def see(self, logged: Logged, keys: Sequence[str], conversation: str) -> None:
        """Watch one request."""
        values = self._values(logged.prompt, keys)
        before = self._conversations.pop(conversation, None)
        for place in values.keys() | self._last.keys() | (before or {}).keys():
            tally = self._tallies.setdefault(place, _Tally())
            value = values.get(place)
            tally.filled += value is not None
            if value is not None and (value in tally.values or len(tally.values) < _MOST_VALUES):
                tally.values[value] += 1
            tally.changes += bool(self._requests) and self._last.get(place) != value
            tally.changes_in_conversation += before is not None and before.get(place) != value
        self._steps_in_conversation += before is not None
        self._conversations[conversation] = values
        if len(self._conversations) > _MOST_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        if logged.time is not None:
            self._days.add(int(logged.time // 86_400))
        self._last = values
        self._requests += 1
        self._example = logged.prompt

    def _values(self, prompt: Prompt, keys: Sequence[str]) -> dict[_Place, int]:
        """A hash of what stands at each place of a request."""
        gaps: dict[int, list[str]] = {}
        for key, gap in zip(keys, gaps_of(keys, align(self._anchors, keys)), strict=True):
            if gap is not None:
                gaps.setdefault(gap, []).append(key)
        values: dict[_Place, int] = {}
        for gap, inside in gaps.items():
            if self._lengths.setdefault(gap, len(inside)) != len(inside) or len(inside) > _MOST_PARTS:
                self._lengths[gap] = -1
            values[gap, -1] = self._hash((gap, -1), "\n".join(inside))
            if self._lengths[gap] > 0:
                values.update(((gap, part), self._hash((gap, part), key)) for part, key in enumerate(inside))
        rank = -1
        for segment in prompt.segments:
            if segment.section is Section.TOOLS:
                name = tool_name(segment.content)
                values[name] = hash(segment.text)
                known = self._tool_ranks.setdefault(name, len(self._tool_ranks))
                self._is_tool_order_fixed &= known > rank
                rank = known
        return values

    def _hash(self, place: _Place, text: str) -> int:
        samples = self._tallies.setdefault(place, _Tally()).samples
        if len(samples) < _MOST_SAMPLES and len(text) <= _LONGEST_SAMPLE:
            samples.add(text)
        return hash(text)

    def family(self) -> Family | None:
        """What was learned; None if no request was seen."""
        if self._example is None:
            return None
        slots = {place: self._slot(tally) for place, tally in self._tallies.items()}
        expected = self._expected(self._example)
        tools = {place: slot.stability for place, slot in slots.items() if isinstance(place, str)}
        return Family(
            self._example,
            self._requests,
            self._anchors,
            self._gaps(slots, expected),
            tools,
            self._is_tool_order_fixed,
            expected,
            self._openings,
        )

    def _gaps(self, slots: Mapping[_Place, Slot], expected: Mapping[str, Stability]) -> dict[int, Gap]:
        """What was seen between anchors. An anchor that is expected to vary may move: it does not part two gaps."""
        stays = [anchor not in expected for anchor in self._anchors]
        gaps: dict[int, Gap] = {}
        for gap, length in sorted(self._lengths.items()):
            found = Gap(slots[gap, -1], tuple(slots[gap, part] for part in range(length)))
            number = sum(stays[:gap])
            gaps[number] = _merged(gaps[number], found) if number in gaps else found
        return gaps

    def _slot(self, tally: _Tally) -> Slot:
        return Slot(self._stability(tally), is_always_filled=tally.filled == self._requests)

    def _stability(self, tally: _Tally) -> Stability:
        absent = self._requests - tally.filled
        if max(absent, *tally.values.values()) >= _MOSTLY * self._requests:
            return Stability.STATIC
        if tally.changes <= 1:  # that may have been an edit
            return max(map(expected_stability, tally.samples), key=lambda found: found.rank, default=Stability.STATIC)
        # A day in the application's time zone may begin within one of ours, but there are no more changes for that.
        is_daily = tally.changes < len(self._days) and 4 * tally.changes <= self._requests
        if is_daily or only_dates_differ(tally.samples):
            return Stability.DAILY
        if self._steps_in_conversation:
            is_kept = tally.changes_in_conversation <= _SELDOM * self._steps_in_conversation
        else:  # no conversation goes on in this log: what is of a user or a conversation comes back all the same
            is_kept = 2 * len(tally.values) <= self._requests
        return Stability.SESSION if is_kept else Stability.REQUEST

    def _expected(self, example: Prompt) -> dict[str, Stability]:
        undecided = set(Stability) if self._requests == 1 else set()
        if len(self._days) <= 1:
            undecided.add(Stability.DAILY)
        if len(self._conversations) <= 1:
            undecided.add(Stability.SESSION)
        anchors = set(self._anchors)
        expected: dict[str, Stability] = {}
        for unit in self._openings.units(example) if undecided else ():
            if unit.key in anchors:
                before = unit.segment.text[max(0, unit.start - _CONTEXT) : unit.start]
                expected[unit.key] = expected_stability(before + unit.text, len(before))
        return {key: stability for key, stability in expected.items() if stability in undecided - {Stability.STATIC}}
