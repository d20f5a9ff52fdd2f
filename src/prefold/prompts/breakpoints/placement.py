"""Where markers are worth their while in a prompt: at the ends of what repeats, within a provider's limits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from prefold.prompts.breakpoints.markers import Form, can_carry, form_for
from prefold.prompts.liveness import is_live
from prefold.prompts.prompt import Dialect, Prompt, Section, Segment, Stability
from prefold.prompts.tokens import TokenCounter
from prefold.prompts.view import header_of
from prefold.prompts.volatile import Kind, find_volatile
from prefold.providers.rules import CacheRules

_ANSWERING = ("assistant", "model")
_RUNS = ("tool_use", "tool_result")
_CLOCKS = (Kind.TIME, Kind.EPOCH, Kind.NONCE)
_IDENTIFIERS = (Kind.IDENTIFIER, Kind.UUID)
_LABEL_LENGTH = 24  # characters before a value that may say what it is


@dataclass(frozen=True)
class Reading:
    """A request as the planner sees it.

    Attributes:
        prompt: the request.
        rules: of its provider and model.
        counter: counts its tokens.
        conversation: whether the next request repeats all of this one; None if it is to be told from the request.
    """

    prompt: Prompt
    rules: CacheRules
    counter: TokenCounter
    conversation: bool | None

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Those of the prompt."""
        return self.prompt.segments

    @cached_property
    def form(self) -> Form | None:
        """How markers are written; None where there are none."""
        return form_for(self.prompt.dialect, self.rules)

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
    def newest(self) -> int | None:
        """The last segment of the messages that can carry a marker and may come again."""
        last = len(self.segments) - 1
        if last > self.head and _changes(self.segments[last].text) is Stability.REQUEST:
            last -= 1  # such as a reminder with the time
        return self.carrier(last, self.head)

    @cached_property
    def is_automatic(self) -> bool:
        """Whether the body asks the provider to mark its last block (Anthropic)."""
        return self.prompt.dialect is Dialect.ANTHROPIC and self.prompt.parameters.get("cache_control") is not None

    @cached_property
    def is_conversation(self) -> bool:
        """Whether the next request repeats all of this one."""
        if self.conversation is not None:
            return self.conversation
        is_marked = self.newest is not None and self.segments[self.newest].marker is not None
        return is_marked or self.is_automatic or any(segment.role in _ANSWERING for segment in self.segments)

    @cached_property
    def is_newest_marked(self) -> bool:
        """Whether the provider marks the newest message without being told where, and to some use."""
        if self.form is not Form.BREAKPOINT:
            return self.is_automatic
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

    def comes_again(self, at: int) -> bool:
        """Whether a later request can have a segment at the same place: not a question asked once, nor what follows."""
        if at < self.head:
            return True
        is_asked_once = at == len(self.segments) - 1 and not self.is_conversation
        return self.newest is not None and at <= self.newest and not is_asked_once

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
    free = rules.max_breakpoints - (1 if reading.is_newest_marked else 0)
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
            f"{tokens:,} tokens before it are fewer than the minimum of {reading.rules.minimum_tokens:,}: move it back."
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
    lookback, newest, segments = reading.rules.lookback, reading.newest, reading.segments
    previous = _previous_end(reading)
    if lookback is None or newest is None or previous is None or newest - previous < lookback:
        return None
    kinds = [_run_of(segment.content) for segment in segments[previous + 1 : newest + 1]]
    positions = sum(not kind or kind != before for kind, before in zip(kinds, ["", *kinds], strict=False))
    runs = " (third parties say that a run of tool calls or results counts as one, and then it would not need to be)"
    notes.append(
        f"The last turn has {newest - previous} blocks and a read looks back over {lookback} positions, so the end of "
        f"the previous request is marked again{runs if positions < lookback else ''}."
    )
    return reading.carrier(previous, reading.head)


def _previous_end(reading: Reading) -> int | None:
    """The last segment of the request that led to the newest answer, if there was one."""
    at = len(reading.segments) - 1
    for is_answer in (True, False, True):  # the beginning of an answer, what is new, and the answer before it
        while at >= reading.head and (reading.segments[at].role in _ANSWERING) is is_answer:
            at -= 1
    return at if at >= reading.head else None


def _run_of(block: Any) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if kind in _RUNS else ""


def _stability_of(segment: Segment) -> Stability:
    """A segment's stability, lowered by the values in its text; schemas and other structures are taken as they are."""
    if segment.text_path is None:
        return segment.stability
    return max(segment.stability, _changes(segment.text), key=lambda stability: stability.rank)


@functools.lru_cache(maxsize=64)  # the same system text is planned for again with every request
def _changes(text: str) -> Stability:
    """How often a text seems to change, by the values in it.

    A clock, a client's nonce or a request's id is taken to be new each time, a date to last a day, and what else is no
    constant a session.
    """
    found = {Stability.STATIC}
    for value in find_volatile(text):
        if not is_live(text, value):
            continue
        label = text[max(0, value.start - _LABEL_LENGTH) : value.end].lower()
        is_request = value.kind in _IDENTIFIERS and ("request" in label or "trace" in label)
        if value.kind in _CLOCKS or is_request:
            return Stability.REQUEST
        found.add(Stability.DAILY if value.kind is Kind.DATE else Stability.SESSION)
    return max(found, key=lambda stability: stability.rank)
