"""Where markers are worth their while in a prompt: at the ends of what repeats, within a provider's limits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType

from prefold.prompts.breakpoints.markers import Form, can_carry, form_for
from prefold.prompts.breakpoints.positions import positions_of
from prefold.prompts.dialects import ANSWERING_ROLES
from prefold.prompts.liveness import find_live
from prefold.prompts.ordering.expectation import value_stability
from prefold.prompts.prompt import Dialect, Prompt, Section, Segment, Stability
from prefold.prompts.tokens import TokenCounter
from prefold.prompts.view import header_of
from prefold.providers.rules import CacheRules, Control

_CONTEXT = 700  # characters before a value that say what it is


@dataclass(frozen=True)
class Reading:
    """A request as the planner sees it.

    Attributes:
        prompt: the request.
        rules: of its provider and model.
        counter: counts its tokens.
        conversation: whether the next request repeats all of this one; None if it is to be told from the request.
        turn_seconds: time between two turns of the conversation; None if that is not known.
    """

    prompt: Prompt
    rules: CacheRules
    counter: TokenCounter
    conversation: bool | None
    turn_seconds: float | None = None

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Those of the prompt."""
        return self.prompt.segments

    @cached_property
    def form(self) -> Form | None:
        """How markers are written; None where there are none."""
        return form_for(self.prompt.dialect, self.rules)

    @cached_property
    def ttls(self) -> tuple[int, ...]:
        """Lifetimes in seconds that the request can ask for, the default first."""
        # Chat Completions takes the default lifetime only.
        is_fixed = self.form is Form.BREAKPOINT and self.prompt.dialect is Dialect.OPENAI
        return self.rules.ttls[:1] if is_fixed else self.rules.ttls

    @cached_property
    def head(self) -> int:
        """Number of segments before the messages."""
        sections = [segment.section for segment in self.segments]
        return sections.index(Section.MESSAGES) if Section.MESSAGES in sections else len(sections)

    @cached_property
    def stabilities(self) -> tuple[Stability, ...]:
        """Of the segments before the messages, the values in their texts looked at too."""
        return tuple(map(_stability_of, self.segments[: self.head]))

    @cached_property
    def stable(self) -> int:
        """Number of segments at the front that stay for a day at least."""
        return next((at for at, found in enumerate(self.stabilities) if found.rank > Stability.DAILY.rank), self.head)

    @cached_property
    def usable(self) -> int:
        """Number of segments at the front that can be read again: all, if nothing before the messages changes."""
        return next((at for at, found in enumerate(self.stabilities) if found is Stability.REQUEST), len(self.segments))

    @cached_property
    def asked(self) -> int:
        """The last segment that is no answer. An answer behind it is the beginning of the next one."""
        places = range(len(self.segments) - 1, -1, -1)
        return next((at for at in places if self.segments[at].role not in ANSWERING_ROLES), -1)

    @cached_property
    def newest(self) -> int | None:
        """The last segment of the messages that can carry a marker and may come again."""
        last = self.asked
        if last > self.head and _is_reminder(self.segments[last], self.segments[last - 1]):
            last -= 1
        return self.carrier(last, self.head)

    @cached_property
    def is_automatic(self) -> bool:
        """Whether the body asks the provider to mark its last block (Anthropic)."""
        return self.prompt.dialect is Dialect.ANTHROPIC and self.prompt.parameters.get("cache_control") is not None

    @cached_property
    def is_forgotten(self) -> bool:
        """Whether no entry lives until the next turn."""
        return self.turn_seconds is not None and bool(self.ttls) and self.turn_seconds > max(self.ttls)

    @cached_property
    def is_conversation(self) -> bool:
        """Whether the next request repeats all of this one, and in time to read it."""
        if self.is_forgotten:
            return False
        if self.conversation is not None:
            return self.conversation
        is_marked = self.newest is not None and self.segments[self.newest].marker is not None
        is_agent = any(segment.section is Section.TOOLS for segment in self.segments)
        is_continued = any(segment.role in ANSWERING_ROLES for segment in self.segments[: max(self.asked, 0)])
        return is_marked or self.is_automatic or is_agent or is_continued

    @cached_property
    def is_newest_marked(self) -> bool:
        """Whether the provider marks the newest message without being told where, and to some use."""
        if self.form is not Form.BREAKPOINT:
            return self.is_automatic and self.is_conversation and self.newest == len(self.segments) - 1
        options = self.prompt.parameters.get("prompt_cache_options")
        is_off = isinstance(options, Mapping) and options.get("mode") == "explicit"
        return self.is_conversation and not is_off and self.usable == len(self.segments)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """Of the prompt, up to and including each segment."""
        return tuple(accumulate(self.counter.count(header_of(segment) + segment.text) for segment in self.segments))

    def tokens_of(self, segments: int) -> int:
        """Tokens of that many segments at the front."""
        return self.tokens[segments - 1] if segments else 0

    @property
    def total_tokens(self) -> int:
        """Of the prompt."""
        return self.tokens_of(len(self.segments))

    def front_tokens(self, level: Stability) -> int:
        """Tokens at the front that can be read again by requests that agree in what varies no more often than that.

        A provider that finds the longest known prefix reads up to the first value that varies more often; one that is
        told where a prefix ends, up to the end of the segment before.
        """
        ranks = [stability.rank for stability in self.stabilities]
        at = next((at for at, rank in enumerate(ranks) if rank > level.rank), None)
        if at is None:
            return self.tokens_of(len(self.segments) if level is Stability.SESSION else self.head)
        segment = self.segments[at]
        if self.rules.control is not Control.IMPLICIT or segment.stability.rank > level.rank:
            return self.tokens_of(at)
        return self.tokens_of(at) + self.counter.count(header_of(segment) + text_before(segment, level))

    def comes_again(self, at: int) -> bool:
        """Whether a later request can read a segment at the same place: not a question asked once, nor what follows."""
        if at < self.head:
            return True
        if self.is_forgotten or self.newest is None:
            return False
        return at < self.newest or (at == self.newest and self.is_conversation)

    def carrier(self, last: int, first: int = 0) -> int | None:
        """The last segment from `first` to `last` that can carry a marker."""
        if self.form is None:
            return None
        places = range(last, first - 1, -1)
        return next(
            (at for at in places if can_carry(self.segments[at], self.form, self.prompt.dialect, self.rules)), None
        )


def choose(reading: Reading, notes: list[str]) -> dict[int, str]:
    """The segments to mark and why, in reading order, no more than breakpoints are free.

    Args:
        reading: the request.
        notes: takes a sentence for what is left out or worth knowing.
    """
    rules = reading.rules
    free = rules.max_breakpoints - (1 if reading.is_newest_marked or reading.is_automatic else 0)
    chosen: dict[int, str] = {}
    too_short: set[int] = set()
    for at, reason in _candidates(reading, notes):
        if at >= reading.usable or at in chosen or len(chosen) == free:
            continue
        if reading.tokens[at] >= rules.minimum_tokens:
            chosen[at] = reason
        elif at not in too_short:
            too_short.add(at)
            notes.append(
                f"{reading.segments[at].path} is not marked: the {reading.tokens[at]:,} tokens up to there are fewer "
                f"than the minimum of {rules.minimum_tokens:,}."
            )
    return dict(sorted(chosen.items()))


def why_removed(reading: Reading, at: int) -> str:
    """Why a marker of the request is not among those that were chosen."""
    if at >= reading.usable:
        return "it stands behind a value that changes with each request"
    if reading.is_forgotten and at >= reading.head:
        return "no lifetime reaches the next turn"
    if not reading.comes_again(at):
        return "the block never comes again"
    if reading.tokens[at] < reading.rules.minimum_tokens:
        return f"{reading.tokens[at]:,} tokens are fewer than the minimum of {reading.rules.minimum_tokens:,}"
    return f"no more than {reading.rules.max_breakpoints} breakpoints are allowed"


def why_nothing(reading: Reading, tokens: int) -> str:
    """Why nothing of a request is cached.

    Args:
        reading: the request.
        tokens: of its front that could be read again.
    """
    if tokens >= reading.rules.minimum_tokens:
        last = reading.segments[min(reading.usable, reading.head) - 1]
        return f"Caching does not pay: no block up to {last.path} can carry a marker; put that text into a message."
    if reading.usable < reading.head:
        return (
            f"Caching does not pay: {reading.segments[reading.usable].path} seems to change with each request, and the "
            f"{tokens:,} tokens that can be read again before that are fewer than the minimum of "
            f"{reading.rules.minimum_tokens:,}: move what changes to the end."
        )
    return (
        f"Caching does not pay: {tokens:,} of {reading.total_tokens:,} tokens repeat, and the minimum is "
        f"{reading.rules.minimum_tokens:,}."
    )


def _candidates(reading: Reading, notes: list[str]) -> Iterator[tuple[int, str]]:
    """Places for markers, the most valuable first."""
    segments, head = reading.segments, reading.head
    ranks = [stability.rank for stability in reading.stabilities]
    rises = [at - 1 for at in range(1, head) if ranks[at] > ranks[at - 1]]
    if reading.is_conversation and reading.newest is not None and not reading.is_newest_marked:
        yield reading.newest, "newest message, read again by the next turn"
    places = [(rises[0] if rises else head - 1, "end of the static part")]
    if (previous := _outgrown(reading, notes)) is not None:
        places.append((previous, "end of the previous request, out of reach of the newest marker"))
    if reading.is_conversation or reading.stable == head:
        places.append((head - 1, "end of what stands before the conversation"))
    places += [(at, "before a part that changes more often") for at in rises[1:]]
    for at, reason in places:
        if (carrier := reading.carrier(at)) is not None:
            yield carrier, reason
    for at, segment in enumerate(segments):
        if segment.marker is not None and reading.comes_again(at):
            yield at, "marked in the request"
    tools = [at for at, segment in enumerate(segments) if segment.section is Section.TOOLS]
    if tools and (carrier := reading.carrier(tools[-1])) is not None:
        yield carrier, "end of the tools"


def _outgrown(reading: Reading, notes: list[str]) -> int | None:
    """The end of the previous request, if a read from the newest marker does not reach back to it."""
    lookback, newest, previous = reading.rules.lookback, reading.newest, _previous_end(reading)
    if lookback is None or newest is None or previous is None:
        return None
    positions = positions_of(reading.segments, reading.rules)
    added = positions[newest] - positions[previous]
    if added < lookback:
        return None
    notes.append(
        f"The last turn adds {added} positions and a read checks {lookback}, its own among them, so the end of the "
        "previous request is marked again."
    )
    return reading.carrier(previous, reading.head)


def _previous_end(reading: Reading) -> int | None:
    """The last segment of the request that led to the newest answer, if there was one."""
    at = len(reading.segments) - 1
    for is_answer in (True, False, True):  # the beginning of an answer, what is new, and the answer before it
        while at >= reading.head and (reading.segments[at].role in ANSWERING_ROLES) is is_answer:
            at -= 1
    return at if at >= reading.head else None


def _is_reminder(last: Segment, before: Segment) -> bool:
    """Whether a message's last words, behind other words of it, hold a clock: such are put in anew for each request."""
    is_behind = last.message is not None and last.message == before.message and last.text_path is not None
    return is_behind and Stability.REQUEST in _first_values(last.text)


def _stability_of(segment: Segment) -> Stability:
    """A segment's stability, lowered by the values in its text; schemas and other structures are taken as they are."""
    if segment.text_path is None:
        return segment.stability
    return max((segment.stability, *_first_values(segment.text)), key=lambda stability: stability.rank)


def text_before(segment: Segment, level: Stability) -> str:
    """The text of a segment up to the first value in it that varies more often than that."""
    if segment.text_path is None:
        return segment.text
    starts = (start for stability, start in _first_values(segment.text).items() if stability.rank > level.rank)
    return segment.text[: min(starts, default=len(segment.text))]


@functools.lru_cache(maxsize=64)  # the same system text is planned for again with every request
def _first_values(text: str) -> Mapping[Stability, int]:
    """Where the first value of each stability begins in a text; what follows one of a request does not matter."""
    first: dict[Stability, int] = {}
    for value in find_live(text):
        stability = value_stability(text, value)
        first.setdefault(stability, value.start)
        if stability is Stability.REQUEST:
            break
    return MappingProxyType(first)
