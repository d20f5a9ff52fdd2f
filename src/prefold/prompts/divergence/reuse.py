"""What a request can read from the cache entry that an earlier one wrote, by the rules of the cache it is sent to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prefold.prompts.breakpoints.markers import entries_asked
from prefold.prompts.breakpoints.positions import positions_of
from prefold.prompts.causes import NONE
from prefold.prompts.divergence.differences import Difference
from prefold.prompts.prompt import Dialect, Prompt, Section, Segment
from prefold.prompts.tokens import TokenCounter
from prefold.prompts.view import header_of
from prefold.providers.rules import CacheRules, Control, rules_for, rules_of

_LONG_RETENTION = 86_400  # seconds, of OpenAI's prompt_cache_retention "24h"
# Where a model is not known, a dialect that is one provider's tells whose rules hold.
_USUAL_MODELS = {
    Dialect.ANTHROPIC: ("claude-sonnet-4-5", "anthropic"),
    Dialect.BEDROCK: ("anthropic.claude-sonnet-4-5", "bedrock"),
    Dialect.GEMINI: ("gemini-2.5-flash", "gemini"),
}


@dataclass(frozen=True, slots=True)
class Reuse:
    """What a cache gives a request.

    Attributes:
        tokens: input tokens that are read from the cache.
        possible: those that could have been, had the request gone on where the earlier one ended and kept all rules.
        cause: why the two differ although text and settings agree; `none` where they do not differ.
        needed_at: number of segments at whose end a marker is missing; 0 where none is.
    """

    tokens: int
    possible: int
    cause: str = NONE
    needed_at: int = 0


def target_rules(prompt: Prompt, provider: str | None = None) -> CacheRules | None:
    """The rules of the cache that a request is sent to; None for an exact cache without any, such as prefold's own.

    Raises:
        UsageError: if nobody of the name `provider` is known.
    """
    found = rules_for(prompt.model, provider, control=_control(prompt)) if prompt.model else None
    found = found or (rules_for(prompt.model, provider) if prompt.model else None)
    if found is not None:
        return found
    if provider is not None:  # a model that it does not list
        return rules_of(provider)
    return rules_for(*_USUAL_MODELS[prompt.dialect]) if prompt.dialect in _USUAL_MODELS else None


def _control(prompt: Prompt) -> Control | None:
    """What a request itself shows of how it is cached, where a provider offers several ways."""
    if "cachedContent" in prompt.parameters:
        return Control.RESOURCE
    return Control.EXPLICIT if any(segment.marker for segment in prompt.segments) else None


class TokenSums:
    """Tokens of a prompt's view up to each of its segments.

    Args:
        segments: the prompt's.
        counter: what counts them.
        shared: the sums of another prompt, whose first `common` segments are the same.
        common: how many that are.
    """

    def __init__(
        self, segments: Sequence[Segment], counter: TokenCounter, shared: TokenSums | None = None, common: int = 0
    ) -> None:
        self._segments = segments
        self._counter = counter
        self.until: list[int] = [0] if shared is None else shared.until[: common + 1]
        """Tokens before each segment, and of all of them at the end."""
        for segment in segments[common:]:
            self.until.append(self.until[-1] + counter.count(header_of(segment)) + counter.count(segment.text))

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return self.until[-1]

    def at(self, index: int, characters: int) -> int:
        """Tokens before a place: some characters into the text of a segment."""
        if index >= len(self._segments) or not characters:
            return self.until[min(index, len(self._segments))]
        segment = self._segments[index]
        header = self._counter.count(header_of(segment))
        return self.until[index] + header + self._counter.count(segment.text[:characters])


def reuse(
    before: Prompt,
    after: Prompt,
    *,
    difference: Difference | None,
    lost_from: Section | None,
    sums: tuple[TokenSums, TokenSums],
    rules: CacheRules | None,
    gap_seconds: float,
) -> Reuse:
    """What the later of two requests reads from the cache.

    Args:
        before: the earlier request.
        after: the later one.
        difference: the first difference of their segments, None where the later one goes on from the earlier.
        lost_from: the first section that a changed setting takes with it.
        sums: token sums of both.
        rules: those of the cache; None for an exact cache without a minimum.
        gap_seconds: time from the start of the earlier to the start of the later request.
    """
    old, new = sums
    index = difference.index if difference else min(len(before.segments), len(after.segments))
    characters = difference.characters if difference else 0
    if lost_from is not None and (start := _start_of(before.segments, lost_from)) <= index:
        index, characters = start, 0
    is_intact = lost_from is None and (difference is None or difference.cause == NONE)
    if rules is not None and rules.control in (Control.EXPLICIT, Control.BREAKPOINT):
        return _marked(before, after, index, old, new, rules, gap_seconds, is_intact)
    shared = new.at(index, characters)
    if difference is None and lost_from is None:
        shared = min(old.total, new.total)
    minimum = rules.minimum_tokens if rules else 0
    granularity = rules.granularity_tokens if rules else 1

    def cached(tokens: int) -> int:
        return 0 if tokens < minimum else tokens - (tokens - minimum) % granularity

    possible = cached(shared if is_intact else min(old.total, new.total))
    if is_intact and shared < minimum:
        return Reuse(0, shared, "too_short" if index else NONE)  # requests that share nothing cannot be mended
    if is_intact and gap_seconds > _retention(before, rules):
        return Reuse(0, possible, "expired")
    return Reuse(cached(shared), possible)


def _start_of(segments: Sequence[Segment], section: Section) -> int:
    order = list(Section)
    return next(
        (i for i, segment in enumerate(segments) if order.index(segment.section) >= order.index(section)),
        len(segments),
    )


def _retention(before: Prompt, rules: CacheRules | None) -> float:
    """Seconds that an entry may live in a cache without markers."""
    if rules is None or not rules.ttls:
        return float("inf")
    if before.parameters.get("prompt_cache_retention") == "24h":
        return _LONG_RETENTION
    return rules.ttls[0]


def _marked(
    before: Prompt,
    after: Prompt,
    common: int,
    old: TokenSums,
    new: TokenSums,
    rules: CacheRules,
    gap_seconds: float,
    is_intact: bool,
) -> Reuse:
    """Reuse where entries end at markers."""
    lifetimes = dict(_markers(before, rules))
    written = [index for index in lifetimes if old.until[index + 1] >= rules.minimum_tokens]
    matching = [index for index in written if index < common]
    asked = [index for index, _ in _markers(after, rules)]
    positions = positions_of(after.segments, rules)
    if not is_intact:
        hits = [index for index in matching if _is_found(index, asked, positions, rules)]
        whole = old.until[max(written) + 1] if written else old.total
        return Reuse(new.until[max(hits) + 1] if hits else 0, min(whole, new.total))

    shared = new.until[min(common, len(after.segments))]
    if shared < rules.minimum_tokens:
        return Reuse(0, shared, "too_short" if common else NONE)
    if not matching:  # no marker, or none on a part that repeats
        return Reuse(0, shared, "no_breakpoint", needed_at=common)
    possible = old.until[max(matching) + 1]
    alive = [index for index in matching if gap_seconds <= lifetimes[index]]
    hits = [index for index in alive if _is_found(index, asked, positions, rules)]
    tokens = new.until[max(hits) + 1] if hits else 0
    if tokens == possible:
        return Reuse(tokens, possible)
    if not alive or (hits and max(hits) == max(alive)):
        return Reuse(tokens, possible, "expired")
    return Reuse(tokens, possible, "lookback" if asked else "no_breakpoint", needed_at=max(alive) + 1)


def _is_found(entry: int, asked: Sequence[int], positions: Sequence[int], rules: CacheRules) -> bool:
    """Whether a read finds an entry that ends with a segment."""
    if rules.control is Control.BREAKPOINT:
        return True  # earlier breakpoints of a conversation are searched, however far back
    place = bisect_left(asked, entry)
    if place == len(asked):
        return False
    return rules.lookback is None or positions[asked[place]] - positions[entry] < rules.lookback


def _markers(prompt: Prompt, rules: CacheRules) -> Iterator[tuple[int, float]]:
    """Markers of a request by the segment they end, with the seconds that their entries live."""
    marked = [(index, segment.marker) for index, segment in enumerate(prompt.segments) if segment.marker is not None]
    default = rules.ttls[0] if rules.ttls else 0
    is_implicit = rules.control is Control.BREAKPOINT
    return entries_asked(marked, len(prompt.segments), prompt.parameters, default, is_implicit=is_implicit)
