"""The order in which a prompt keeps its prefix: what never changes first, what each request changes last.

Proposed from what `variation` finds: tools that are always there before those that come and go, then system text that
never changes, that of a day, that of a conversation; what each request changes moves behind the newest user message.
Only whole lines and sentences move, with the heading or the tags around them, and no message moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from typing import Any, Protocol

from prefold.prompts.dialects import tool_name
from prefold.prompts.logged import Logged
from prefold.prompts.ordering.opening import is_one_text, split_question
from prefold.prompts.ordering.reorder import opening_moves, reordered
from prefold.prompts.ordering.variation import Family, Variation
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section, Segment, Stability
from prefold.prompts.tokens import TokenCounter, counter_for
from prefold.prompts.view import view_of

_BLOCK = 64
"""Characters, some 16 tokens; see `Measure`."""
_MOST_BLOCKS = 2_000_000
"""Blocks remembered when shares are measured; the oldest are forgotten first, as in a cache."""
_SHOWN = 60
"""Characters of a span that are shown."""
_OPENING, _MESSAGES, _BEHIND = 10, 20, 30
"""Parts of a prompt in order, after the tools; what is late in the opening has its rank added."""


class Measure(Protocol):
    """How long texts are."""

    def size(self, text: str) -> int:
        """In a unit to which tokens are about proportional."""

    def blocks(self, text: str) -> Sequence[str]:
        """The blocks from its beginning that caches hold; what is left at its end is in none."""


class _Characters:
    """Measures texts that models read: in bytes, and in blocks of characters."""

    def size(self, text: str) -> int:
        """Bytes of UTF-8, to which tokens are about proportional in any script."""
        return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))

    def blocks(self, text: str) -> Sequence[str]:
        return [text[start : start + _BLOCK] for start in range(0, len(text) - _BLOCK + 1, _BLOCK)]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the example that a proposal was made with.

    Attributes:
        path: where it comes from; `tools` and `messages` stand for several.
        section: the part of the request that it belongs to.
        text: how it begins.
        varies: how often.
        tokens: how many it has.
        now_at: tokens before it.
        proposed_at: tokens before it in the proposed order.
        goes_to: where it moves; empty if it stays.
    """

    path: str
    section: Section
    text: str
    varies: Stability
    tokens: int
    now_at: int
    proposed_at: int
    goes_to: str

    def as_json(self) -> dict[str, Any]:
        """The span as `--json` prints it."""
        return {
            "path": self.path,
            "section": str(self.section),
            "text": self.text,
            "varies": str(self.varies),
            "tokens": self.tokens,
            "now_at": self.now_at,
            "proposed_at": self.proposed_at,
            "goes_to": self.goes_to or None,
        }


@dataclass(frozen=True)
class Proposal:
    """A better order, if there is one.

    Attributes:
        variation: what it rests on.
        sections: what is put in order: tools, system, both, or neither where that would gain nothing.
        share_before: of all input tokens of the log, those in blocks that begin as an earlier request did, 0 to 1; of a
            single request, those before the first that changes from one conversation or request to the next.
        share_after: the same in the proposed order; never below `share_before`.
    """

    variation: Variation
    sections: frozenset[Section]
    share_before: float
    share_after: float

    def apply(self, prompt: Prompt) -> Prompt:
        """A prompt in the proposed order; itself if nothing has to move. Applying it once more changes nothing."""
        return _ordered(prompt, self.variation, self.sections)

    @property
    def moves(self) -> tuple[Span, ...]:
        """What moves, in the latest request of each family."""
        return self.moves_in()

    def moves_in(self, tokens_of: Callable[[str], int] | None = None) -> tuple[Span, ...]:
        """The same, with tokens counted in another way than by the tokenizer of each family's model."""
        return tuple(
            span
            for family in self.variation.families
            for span in _spans(family, self._sections_of(family), tokens_of or counter_for(family.example.model).count)
            if span.goes_to
        )

    def spans(self, family: Family, counter: TokenCounter | None = None) -> tuple[Span, ...]:
        """The latest request of a family, part by part, in the order in which the model reads it now."""
        counter = counter or counter_for(family.example.model)
        return tuple(_spans(family, self._sections_of(family), counter.count))

    def _sections_of(self, family: Family) -> frozenset[Section]:
        """What is put in order in the latest request of a family."""
        return self.sections if self.apply(family.example) is not family.example else frozenset()


def propose(variation: Variation, log: Iterable[Logged], measure: Measure | None = None) -> Proposal:
    """Find the order with the largest cacheable share.

    Args:
        variation: what varies in the log, from `analyse`.
        log: the same requests, which are read once for each order that is tried, four times at most.
        measure: what says how long its texts are; None for what models read as it stands there.
    """
    measure = measure or _Characters()
    sections = frozenset(section for family in variation.families for section in _varying(family))
    candidates = [frozenset[Section](), *(frozenset({section}) for section in sorted(sections))]
    if len(sections) > 1:
        candidates.append(sections)
    shares = [_share(variation, log, sections, measure) for sections in candidates]
    best = max(range(len(candidates)), key=lambda number: (round(shares[number], 6), -number))
    return Proposal(variation, candidates[best], shares[0], shares[best])


def _varying(family: Family) -> Iterator[Section]:
    """The sections in which another order could gain something."""
    if not family.is_tool_order_fixed or any(found is not Stability.STATIC for found in family.tools.values()):
        yield Section.TOOLS
    if family.expected or any(gap.whole.stability is not Stability.STATIC for gap in family.gaps.values()):
        yield Section.SYSTEM


def _ordered(prompt: Prompt, variation: Variation, sections: frozenset[Section]) -> Prompt:
    ordered = _ordered_once(prompt, variation, sections)
    # What would be ordered anew each time fits what was learned too badly to be touched.
    return ordered if _ordered_once(ordered, variation, sections) is ordered else prompt


def _ordered_once(prompt: Prompt, variation: Variation, sections: frozenset[Section]) -> Prompt:
    family = variation.family_of(prompt) if sections else None
    return prompt if family is None else reordered(prompt, family, sections)


# -------------------------------------------------------------------------------------------------- cacheable share


def _share(variation: Variation, log: Iterable[Logged], sections: frozenset[Section], measure: Measure) -> float:
    if variation.requests == 1:
        return max((_stable_share(family, variation, sections, measure) for family in variation.families), default=0.0)
    seen = _Blocks(measure)
    read = total = 0
    for logged in log:
        prompt = _ordered(logged.prompt, variation, sections)
        begun, size = seen.add(view_of(prompt).text, prompt.model)
        read += begun
        total += size
    return read / total if total else 0.0


def _stable_share(family: Family, variation: Variation, sections: frozenset[Section], measure: Measure) -> float:
    """What of a single request lies before the first part that changes with the conversation or the request."""
    prompt = _ordered(family.example, variation, sections)
    view = view_of(prompt)
    starts = {piece.path: piece.header_end for piece in view.pieces}
    unstable = [
        starts[unit.segment.path] + unit.start
        for unit in family.units(prompt) or []
        if unit.stability in (Stability.SESSION, Stability.REQUEST)
    ]
    said = next((segment for segment in prompt.segments if segment.section is Section.MESSAGES), None)
    if said is not None:
        rules = split_question(said.text)[0] if is_one_text(prompt) else ""
        unstable.append(starts[said.path] + len(rules))
    size = measure.size(view.text)
    return measure.size(view.text[: min(unstable, default=None)]) / size if size else 0.0


class _Blocks:
    """Blocks of requests seen so far, each known by all that comes before it."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._seen: dict[int, None] = {}

    def add(self, text: str, model: str) -> tuple[int, int]:
        """Note a request; returns the size of what it begins with that an earlier one began with too, and its own."""
        blocks = self._measure.blocks(text)
        chain = hash(model)
        begun = 0
        is_known = True
        for block in blocks:
            chain = hash((chain, block))
            is_known = is_known and chain in self._seen
            if is_known:
                begun += 1
            else:
                self._seen[chain] = None
        while len(self._seen) > _MOST_BLOCKS:
            del self._seen[next(iter(self._seen))]
        return self._measure.size("".join(blocks[:begun])), self._measure.size(text)


# ------------------------------------------------------------------------------------------------------------ spans


@dataclass(frozen=True, slots=True)
class _Part:
    """A span while its place is looked for.

    Attributes:
        path: where it comes from.
        section: the part of the request that it belongs to.
        text: all of it, or the name of a tool.
        end: the character of the view after it.
        varies: how often.
        order: by which the parts are sorted in the new order, together with where they are now.
        goes_to: where it moves; empty if it stays.
    """

    path: str
    section: Section
    text: str
    end: int
    varies: Stability
    order: int
    goes_to: str = ""


def _spans(family: Family, sections: frozenset[Section], tokens_of: Callable[[str], int]) -> Iterator[Span]:
    """The example of a family in spans that together are its view."""
    text = view_of(family.example).text
    groups = [
        list(group)
        for _, group in groupby(
            _parts(family, sections), key=lambda part: (part.path, part.varies, part.order, part.goes_to)
        )
    ]
    starts = [0, *(group[-1].end for group in groups)]
    tokens = [tokens_of(text[start:end]) for start, end in pairwise(starts)]
    now_at = list(accumulate(tokens, initial=0))
    proposed = sorted(range(len(groups)), key=lambda number: (groups[number][0].order, number))
    proposed_at = dict(zip(proposed, accumulate((tokens[number] for number in proposed), initial=0), strict=False))
    for number, group in enumerate(groups):
        first = group[0]
        text_of_group = " ".join(" ".join(part.text for part in group[:8]).split())[:_SHOWN]
        shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text_of_group)
        yield Span(
            first.path,
            first.section,
            shown,
            first.varies,
            tokens[number],
            now_at[number],
            proposed_at[number],
            first.goes_to,
        )


def _parts(family: Family, sections: frozenset[Section]) -> Iterator[_Part]:
    """Tools one by one, the opening unit by unit, the history, and what comes after it."""
    prompt = family.example
    moves = opening_moves(prompt, family)
    if Section.SYSTEM not in sections:
        moves = replace(moves, leaving=(), late=())
    units = moves.units or family.units(prompt) or family.openings.units(prompt)
    end_of_opening = "before the last paragraph" if is_one_text(prompt) else "to the end of the system text"
    places: dict[Path, list[int]] = {}
    for place, unit in enumerate(units):
        places.setdefault(unit.segment.path, []).append(place)
    for segment, piece in zip(prompt.segments, view_of(prompt).pieces, strict=True):
        if segment.section is Section.TOOLS:
            yield _tool_part(segment, piece.end, family, moves=Section.TOOLS in sections)
            continue
        end = piece.header_end
        for place in places.get(segment.path, ()):
            unit = units[place]
            end = piece.header_end + unit.start + len(unit.text)
            goes_to, order = "", _OPENING
            if place in moves.leaving:
                goes_to, order = "behind the newest user message", _BEHIND
            elif place in moves.late:
                goes_to, order = end_of_opening, _OPENING + unit.stability.rank
            yield _Part(str(segment.path), segment.section, unit.text, end, unit.stability, order, goes_to)
        if end < piece.end or segment.path not in places:
            is_said = segment.section is Section.MESSAGES
            path = (
                "messages"
                if is_said and segment.stability is Stability.SESSION
                else str(segment.message or segment.path)
            )
            rest = segment.text[end - piece.header_end :]
            yield _Part(path, segment.section, rest, piece.end, segment.stability, _MESSAGES if is_said else _OPENING)


def _tool_part(tool: Segment, end: int, family: Family, *, moves: bool) -> _Part:
    name = tool_name(tool.content)
    varies = family.tools[name]
    goes_to = ""
    if moves and not family.is_tool_order_fixed:
        goes_to = "to its place by name"
    elif moves and varies is not Stability.STATIC:
        goes_to = "behind the other tools"
    return _Part("tools", Section.TOOLS, name, end, varies, varies.rank if moves else 0, goes_to)
