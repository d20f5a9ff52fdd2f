"""Why a prefix broke: two requests compared in full, a bounded number of times for breaks that look alike.

A full comparison takes milliseconds, and a log in which every request breaks for one reason would need one for each.
So breaks are sorted by where they are and how far the requests part; of each kind the first few are compared, then
ever fewer, and the others take the most frequent answer of their kind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from prefold.analysis.breaks.contents import Repeats
from prefold.analysis.breaks.recent import Earlier
from prefold.analysis.caches.resolve import rules_of_request
from prefold.analysis.encoding.bodies import CONTENT_FIELDS
from prefold.analysis.encoding.settings import invalidating
from prefold.analysis.record import Body
from prefold.analysis.request import Request
from prefold.errors import PrefoldError
from prefold.prompts.causes import CAUSES, NONE
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section
from prefold.prompts.tokens import RememberingCounter, counter_for
from prefold.providers.rules import CacheRules, rules_of

if TYPE_CHECKING:
    from prefold.prompts.divergence.compare import Divergence

_ALWAYS = 4  # first breaks of a kind that are compared
_BASE, _SHARE = 64, 64  # comparisons of all kinds: 64, and one for each 64 breaks
_MOST_KINDS = 4096  # then all begin anew
_LISTS = ("messages", "input", "contents")
# Told by the cache that is simulated, not by the text.
_STATES = frozenset({NONE, "expired", "lookback", "no_breakpoint", "too_short", "evicted", "routed_away"})

# How a new question to the same assistant looks, too.
_OF_NEW_QUESTIONS = frozenset({"text_edit", "truncation", "summary"})
_SHARED = 3  # one part in three of what the shorter request says behind the known prefix makes it the same conversation

Kind = tuple[str, int, bool, int, int]


class Diagnosis(NamedTuple):
    """Why a prefix broke.

    Attributes:
        cause: a name in `causes.CAUSES`; empty where nothing broke, but content is repeated behind another beginning,
            and where nothing is known.
        path: where, with `*` for positions in the conversation; empty where there is no place.
    """

    cause: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """A diagnosis from a full comparison, with what is shown of it.

    Attributes:
        diagnosis: cause and path.
        before: the place in the earlier request.
        after: the same in the later one.
        fix: one sentence: what to do.
        explanation: one sentence: what happened.
        lost_tokens: those that this break cost.
        gain_tokens: those that the fix gives back.
        hit_tokens: those before the break; all three for a cache that keeps any prefix.
        token: the first of the later request that differs; None where none does.
    """

    diagnosis: Diagnosis
    before: str = ""
    after: str = ""
    fix: str = ""
    explanation: str = ""
    lost_tokens: int = 0
    gain_tokens: int = 0
    hit_tokens: int = 0
    token: int | None = None


@dataclass(slots=True)
class _Answers:
    breaks: int = 0
    compared: int = 0
    found: Counter[Diagnosis] = field(default_factory=Counter)

    def best(self) -> Diagnosis:
        """The most frequent answer, of several the first."""
        return max(self.found, key=lambda diagnosis: self.found[diagnosis], default=Diagnosis())


class Diagnoses:
    """Answers why prefixes break."""

    def __init__(self) -> None:
        self._comparisons = 0  # full ones, so far
        self._breaks = 0
        self._by_kind: dict[Kind, _Answers] = {}
        self._by_place: dict[tuple[str, int], _Answers] = {}
        self._counter = RememberingCounter(counter_for(""))
        self._counted_model = ""

    def ask(
        self, earlier: Earlier | None, opening: Earlier | None, request: Request, known: int, repeats: Repeats
    ) -> Diagnosis | Compared:
        """Why a request does not go on where an earlier one, of which it repeats content, still matches.

        Args:
            earlier: the request to compare it with; None where that is not kept any more.
            opening: one that begins as it does, in case that one parts from it before.
            request: the later one.
            known: units of its beginning that were sent before.
            repeats: the content behind them that was sent before.
        """
        content = request.record.content
        if isinstance(content, Body):
            goes_on = earlier is not None and _goes_on(earlier, request, known, repeats)
            kind = _kind_of(request, known, repeats, goes_on=goes_on)
            self._breaks += 1
            if len(self._by_kind) == _MOST_KINDS:
                self._by_kind.clear()
                self._by_place.clear()
            alike = self._by_kind.setdefault(kind, _Answers())
            near = self._by_place.setdefault(kind[:2], _Answers())
            alike.breaks += 1
            if earlier is not None and earlier.body is not None and self._is_worth_comparing(alike):
                rules = rules_of_request(request)
                compared = self._compare(earlier.body, content, rules, goes_on=goes_on)
                self._comparisons += 1
                if opening is not None and opening.body is not None and _parts_before(compared, request, known):
                    nearer = self._compare(opening.body, content, rules, goes_on=False)
                    self._comparisons += 1
                    compared = nearer if nearer.diagnosis.cause else compared
                alike.compared += 1
                alike.found[compared.diagnosis] += 1
                near.found[compared.diagnosis] += 1
                return compared
            return (alike if alike.found else near).best()
        return Diagnosis()

    def _is_worth_comparing(self, alike: _Answers) -> bool:
        is_due = alike.compared < _ALWAYS or alike.breaks.bit_count() == 1  # at powers of two
        return is_due and self._comparisons < _BASE + self._breaks // _SHARE

    def _compare(self, before: Body, after: Body, rules: CacheRules, *, goes_on: bool) -> Compared:
        # What a break costs is told for a cache that keeps any prefix: what another one makes of it, the attribution
        # says. But which settings break a prefix is a matter of the one that was asked.
        from prefold.prompts.divergence.compare import compare  # noqa: PLC0415 - logs without breaks do without it

        any_prefix = replace(rules_of("prefold"), invalidation=rules.invalidation)
        try:
            earlier = before.prompt
            later = _with_settings_of(earlier, Body(after.content, after.dialect).prompt, rules)
            found = compare(earlier, later, rules=any_prefix, counter=self._counter_for(earlier.model))
        except PrefoldError:  # requests of two dialects
            return Compared(Diagnosis())
        is_fixed = found.path is not None and all(_is_in_system(each, found.path) for each in (earlier, later))
        if found.cause in _STATES or (found.cause in _OF_NEW_QUESTIONS and not goes_on and not is_fixed):
            return Compared(Diagnosis(), token=found.token)
        return Compared(
            Diagnosis(found.cause, _general_path(found, earlier, later)),
            found.before,
            found.after,
            found.fix or CAUSES[found.cause].fix,
            found.explanation,
            found.lost_tokens,
            found.gain_tokens,
            found.hit_tokens,
            found.token,
        )

    def _counter_for(self, model: str) -> RememberingCounter:
        if model != self._counted_model:
            self._counter, self._counted_model = RememberingCounter(counter_for(model)), model
        return self._counter


def _parts_before(compared: Compared, request: Request, known: int) -> bool:
    """Whether two requests part in an earlier segment than the one in which a request leaves all that was sent."""
    index = bisect_right(request.ends, known)
    start = request.ends[index - 1] if index else 0
    return compared.token is not None and compared.token + index < start  # counted one by one, each is rounded


def _with_settings_of(earlier: Prompt, later: Prompt, rules: CacheRules) -> Prompt:
    """A request with the settings of an earlier one that the cache does not look at, so that none of them is blamed."""
    if not isinstance(earlier.value, dict) or not isinstance(later.value, dict):
        return later
    kept = {*CONTENT_FIELDS, *(name.partition(".")[0] for name in invalidating(rules))}
    others = {name: value for name, value in earlier.value.items() if name not in kept}
    return later.with_value({**others, **{name: value for name, value in later.value.items() if name in kept}})


def _goes_on(earlier: Earlier, request: Request, known: int, repeats: Repeats) -> bool:
    """Whether a request belongs to the conversation of an earlier one, judged by what they have in common."""
    if request.record.session and request.record.session == earlier.session:
        return True
    common = max(repeats.votes.values(), default=0)
    return _SHARED * common >= min(earlier.units, request.units) - known


def _kind_of(request: Request, known: int, repeats: Repeats, *, goes_on: bool) -> Kind:
    """What tells breaks apart without reading the requests: where they are, and how far the requests part there."""
    index = bisect_right(request.ends, known)
    start = request.ends[index - 1] if index else 0
    fixed = bisect_right(request.ends, request.system_end) if request.system_end else 0
    is_fixed = known < request.system_end
    place = (request.record.model, index if is_fixed else fixed + min(index - fixed, 1))
    gap = repeats.stretches[0].start - known if repeats.stretches else 0
    return (*place, goes_on, (known - start).bit_length(), gap.bit_length())


def _general_path(found: Divergence, before: Prompt, after: Prompt) -> str:
    """A path that is the same for breaks that are: positions in the conversation, unlike those in the rules, vary.

    So does that of the first of several tools that is not where it was.
    """
    path = found.path
    if path is None:
        return ""
    steps = path.steps
    if found.cause == "tool_order" and isinstance(steps[-1], int):
        return f"{path.parent}[*]"
    if len(steps) < 2 or steps[0] not in _LISTS or _is_in_system(before, path) or _is_in_system(after, path):
        return str(path)
    written = [str(step) if isinstance(step, str) else "[*]" for step in steps]
    return "".join(part if part.startswith("[") else f".{part}" for part in written).removeprefix(".")


def _is_in_system(prompt: Prompt, path: Path) -> bool:
    """Whether a path leads into tools or system."""
    part = path.steps[:2]
    return any(s.section is not Section.MESSAGES and s.path.steps[: len(part)] == part for s in prompt.segments)
