"""Where and why a request stops matching the one before it, what that costs, and whether mending it helps.

`compare` is one straight line: the first difference in text, the first setting that breaks the prefix, the rules of the
cache; whichever comes first is the cause. Then the cause is mended in a copy and everything is measured again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any

from prefold.errors import InvalidRequest
from prefold.prompts.causes import CAUSES, NONE
from prefold.prompts.divergence.differences import Difference, first_difference
from prefold.prompts.divergence.repair import repair
from prefold.prompts.divergence.reuse import Reuse, TokenSums, reuse, target_rules
from prefold.prompts.divergence.settings import SettingChange, setting_change
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section
from prefold.prompts.sequences import common_length
from prefold.prompts.templates.breaks import TemplateBreak, template_break
from prefold.prompts.templates.chat_template import ChatTemplate
from prefold.prompts.tokens import RememberingCounter, TokenCounter, counter_for, divergence_token
from prefold.prompts.view import header_of, view_of
from prefold.providers.rules import CacheRules, Control

_TEMPLATE_FIX = "Use a template that leaves the history as it was rendered, or send no part that it takes out later."
_STATE_CAUSES = ("expired", "lookback", "no_breakpoint", "too_short")
_CONTEXT = 24  # characters shown before the difference
_EXCERPT = 36  # and from it on


@dataclass(frozen=True, slots=True)
class Divergence:
    """How a request relates to the one before it.

    Attributes:
        cause: one of the names in `causes.CAUSES`.
        path: where the break is in the later request's body, in the earlier one's for something that is gone; None
            where there is no place, as for an entry that expired.
        char: the first character of the later request's view (see `prompts.view`) that differs; None where the
            texts do not, or are not the cause.
        offset: characters into the text at `path` that are still the same; None where there is no text.
        token: the token it belongs to; with an estimate a guess.
        tokens_are_exact: whether tokens were counted with the model's own tokenizer.
        counter: the name of what counted them.
        lost_tokens: input tokens that are read again and need not have been.
        hit_tokens: those that are read from the cache.
        before: some characters on each side of the place in the earlier request.
        after: the same in the later one.
        fix: one sentence: what to do.
        gain_tokens: tokens that are read from the cache more, once the fix was applied to a copy of both requests.
        explanation: one sentence: what happened.
        target: the cache whose rules were taken, such as `anthropic, Claude, 1,024 tokens`.
        note: what else to know, one sentence, or empty.
        mended: both requests with the fix; None where nothing can be mended in them.
    """

    cause: str
    path: Path | None
    char: int | None
    offset: int | None
    token: int | None
    tokens_are_exact: bool
    counter: str
    lost_tokens: int
    hit_tokens: int
    before: str
    after: str
    fix: str
    gain_tokens: int
    explanation: str
    target: str
    note: str = ""
    mended: tuple[Prompt, Prompt] | None = field(default=None, repr=False)

    @property
    def is_break(self) -> bool:
        """Whether the prefix breaks, be it for less than one step of the cache."""
        return self.cause != NONE

    def as_json(self) -> dict[str, Any]:
        """The form that `prefold diff --json` prints, without the mended requests."""
        shown = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "mended"}
        return {**shown, "path": None if self.path is None else str(self.path)}


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Two requests, compared and measured, before anything is mended."""

    cause: str
    path: Path | None
    difference: Difference | None
    change: SettingChange | None
    reuse: Reuse
    sums: TokenSums

    @property
    def lost_tokens(self) -> int:
        """Input tokens that are read again and need not have been."""
        return 0 if self.cause == NONE else max(0, self.reuse.possible - self.reuse.tokens)


def compare(
    before: Prompt,
    after: Prompt,
    *,
    rules: CacheRules | None = None,
    counter: TokenCounter | None = None,
    gap_seconds: float = 0.0,
    observed_tokens: int | None = None,
    template: ChatTemplate | None = None,
) -> Divergence:
    """Compare a request with the one before it.

    Args:
        before: the earlier request.
        after: the later one.
        rules: those of the cache that is asked; by the earlier request's model if not given.
        counter: what counts tokens; by the earlier request's model if not given.
        gap_seconds: time from the start of the earlier to the start of the later request.
        observed_tokens: input tokens that usage reported as read from the cache, where it is known.
        template: the chat template that renders both, where it is known: what it adds or rewrites counts, too.

    Raises:
        InvalidRequest: if the two are of different dialects, a body does not have the form of its dialect, or the
            template refuses it.
    """
    if before.dialect is not after.dialect:
        raise InvalidRequest(
            f"One request is {before.dialect}, the other {after.dialect}.",
            hint="Compare requests of one form, or name it with --dialect.",
        )
    if template is not None and (blamed := template_break(before, after, template, gap_seconds=gap_seconds)):
        return _by_template(blamed, counter or counter_for(before.model))
    rules = rules or target_rules(before)
    counter = counter or counter_for(before.model)
    remembering = RememberingCounter(counter)  # both requests and their copies have the same segments
    found = _compared(before, after, rules, remembering, gap_seconds)
    if found.cause == NONE and observed_tokens is not None and 2 * observed_tokens < found.reuse.tokens:
        reused = Reuse(observed_tokens, found.reuse.tokens)
        found = replace(found, cause="evicted", reuse=reused)
    mending = repair(before, after, found.cause, found.difference, found.change, found.reuse, rules)
    gain, note, prompts = 0, "", mending.prompts
    if prompts is not None:
        # What a break in the text costs is told for an entry that is still there.
        alive = gap_seconds if found.cause in _STATE_CAUSES else 0.0
        mended = _compared(*prompts, rules, remembering, alive)
        # No more than what was lost: a request that sends more, such as history again, also has more to read.
        gain = max(0, min(found.lost_tokens, mended.reuse.tokens - found.reuse.tokens))
        if (mended.cause, mended.path) == (found.cause, found.path):
            prompts = None  # it is no remedy here
        elif mended.cause != NONE:
            note = f"With the fix another break comes to light: {mended.cause}{_at(mended.path)}."
        elif alive != gap_seconds and _compared(*prompts, rules, remembering, gap_seconds).cause == "expired":
            note = f"After a pause of {gap_seconds:,.0f} seconds the entry may have expired as well."
    place = _place_of(before, after, found, counter)
    return Divergence(
        cause=found.cause,
        path=found.path,
        char=place.char,
        offset=place.offset,
        token=place.token,
        tokens_are_exact=counter.is_exact,
        counter=counter.name,
        lost_tokens=found.lost_tokens,
        hit_tokens=found.reuse.tokens,
        before=place.before,
        after=place.after,
        fix=mending.description,
        gain_tokens=gain,
        explanation=CAUSES[found.cause].summary,
        target=f"{rules.provider}, {rules.family}" if rules else "an exact prefix cache",
        note=note,
        mended=prompts,
    )


def _by_template(blamed: TemplateBreak, counter: TokenCounter) -> Divergence:
    """A break that is the template's doing; the server's own cache is asked, which has no rules of a provider."""
    hit = divergence_token(counter, blamed.kept, blamed.text)
    return Divergence(
        cause=blamed.cause,
        path=blamed.path,
        char=blamed.char,
        offset=None,
        token=hit,
        tokens_are_exact=counter.is_exact,
        counter=counter.name,
        lost_tokens=counter.count(blamed.kept) - hit,
        hit_tokens=hit,
        before=blamed.before,
        after=blamed.after,
        fix=_TEMPLATE_FIX if blamed.cause == "text_edit" else CAUSES[blamed.cause].fix,
        gain_tokens=0,
        explanation=blamed.explanation,
        target="the rendered chat template",
    )


def _compared(
    before: Prompt, after: Prompt, rules: CacheRules | None, counter: TokenCounter, gap_seconds: float
) -> _Comparison:
    difference = _of_marked_blocks(first_difference(before, after), before, after, rules)
    change = setting_change(before, after, rules)
    if change and difference and difference.cause != NONE and _comes_first(before, difference, change.section):
        change = None
    common = difference.index if difference else min(len(before.segments), len(after.segments))
    old = TokenSums(before.segments, counter)
    new = TokenSums(after.segments, counter, old, common)
    result = reuse(
        before,
        after,
        difference=difference,
        lost_from=change.section if change else None,
        sums=(old, new),
        rules=rules,
        gap_seconds=gap_seconds,
    )
    if change:
        return _Comparison(change.cause, change.path, difference, change, result, new)
    if difference and difference.cause != NONE:
        return _Comparison(difference.cause, difference.path, difference, None, result, new)
    return _Comparison(result.cause, None, difference, None, result, new)


def _of_marked_blocks(
    difference: Difference | None, before: Prompt, after: Prompt, rules: CacheRules | None
) -> Difference | None:
    """The difference, as a cache sees it whose entries end at marked blocks: a block that went on is another one."""
    if difference is None or difference.cause != NONE or rules is None or rules.control is not Control.EXPLICIT:
        return difference
    first, second = before.segments[difference.index], after.segments[difference.index]
    has_gone_on = 0 < difference.characters == len(first.text) and first.marker is not None
    return replace(difference, cause="text_edit", path=second.path) if has_gone_on else difference


def _comes_first(before: Prompt, difference: Difference, section: Section) -> bool:
    """Whether the texts differ before the section that a setting takes with it."""
    order = list(Section)
    segments = before.segments
    return order.index(segments[difference.index].section) < order.index(section)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a break is, with what stands there in both requests."""

    char: int | None = None
    offset: int | None = None
    token: int | None = None
    before: str = ""
    after: str = ""


def _place_of(before: Prompt, after: Prompt, found: _Comparison, counter: TokenCounter) -> _Place:
    difference, change = found.difference, found.change
    if change is not None:
        index = next((i for i, s in enumerate(after.segments) if s.section is change.section), len(after.segments))
        view = view_of(after)
        char = view.pieces[index].start if index < len(view.pieces) else len(view.text)
        return _Place(char, None, found.sums.until[index], _shown(change.before), _shown(change.after))
    if difference is None or found.path is None:  # the texts are not the cause
        return _Place()
    first, second = before.segments[difference.index], after.segments[difference.index]
    old_view, view = view_of(before), view_of(after)
    start = view.pieces[difference.index].start
    char = start + common_length(old_view.text[start:], view.text[start:])
    token = found.sums.until[difference.index]
    if difference.characters:
        token += counter.count(header_of(second)) + divergence_token(counter, first.text, second.text)
    return _Place(char, difference.characters, token, _excerpt(old_view.text, char), _excerpt(view.text, char))


def _at(path: Path | None) -> str:
    return "" if path is None else f" at {path}"


def _excerpt(text: str, position: int) -> str:
    return text[max(0, position - _CONTEXT) : position + _EXCERPT]


def _shown(value: Any) -> str:
    text = "(absent)" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"
