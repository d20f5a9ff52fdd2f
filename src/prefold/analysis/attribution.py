"""Why each input token of a log was read from the cache, or was not.

The positions of a prompt are cut into stretches, each with one reason, so that they sum to its tokens by construction:

    0 .. hit        read from the cache
      .. own        sent before in the request's scope: the cache says why it does not have it
      .. tenants    sent to the model with another salt
      .. anywhere   sent to another model
      .. end        never sent behind this prefix: repeated content that a broken prefix lost, or new
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from prefold.analysis.breaks.contents import Contents, Repeats, rest_of_segment
from prefold.analysis.breaks.diagnosis import Compared, Diagnoses, Diagnosis
from prefold.analysis.breaks.recent import Earlier, Recent
from prefold.analysis.caches.base import Reason, Served
from prefold.analysis.caches.common import Steps
from prefold.analysis.caches.resolve import rules_of_request
from prefold.analysis.history import History, Known
from prefold.analysis.record import Blocks, Body, Place
from prefold.analysis.request import Request
from prefold.prompts.causes import CAUSES
from prefold.providers.rules import CacheRules

AVOIDABLE = frozenset(
    {
        Reason.CHANGED_PREFIX,
        Reason.EXPIRED,
        Reason.EVICTED,
        Reason.OTHER_REPLICA,
        Reason.BREAKPOINT,
        Reason.LOOKBACK,
        Reason.NOT_KEPT,
    }
)
"""Reasons that the user can do something about without asking another model or sharing with another tenant."""

_Key = tuple[Reason, Diagnosis]

_NOTHING = Diagnosis()
_ELSEWHERE = frozenset({Reason.OTHER_TENANT, Reason.OTHER_MODEL})
_SENT_IN_SCOPE = AVOIDABLE - {Reason.CHANGED_PREFIX}  # so that they are among what was sent before
_MOST_ROWS = 1_000  # then new places count without their path
_MOST_REASONS = 100
OTHER_REASONS = "(others)"
"""Where a provider's words are counted once there are too many."""
# What `prefold explain` says about reasons that are not in the text.
_CAUSES: Mapping[Reason, Diagnosis] = MappingProxyType(
    {
        Reason.BELOW_MINIMUM: Diagnosis("too_short"),
        Reason.BREAKPOINT: Diagnosis("no_breakpoint"),
        Reason.LOOKBACK: Diagnosis("lookback"),
        Reason.EXPIRED: Diagnosis("expired"),
        Reason.EVICTED: Diagnosis("evicted"),
        Reason.OTHER_REPLICA: Diagnosis("routed_away"),
        Reason.OTHER_MODEL: Diagnosis("model", "model"),
        Reason.OTHER_TENANT: Diagnosis("salt", "cache_salt"),
    }
)
_KEYS: Mapping[Reason, _Key] = MappingProxyType({reason: (reason, _CAUSES.get(reason, _NOTHING)) for reason in Reason})
_NEVER_LOST = frozenset(key for reason, key in _KEYS.items() if reason not in AVOIDABLE | _ELSEWHERE)
_HISTORY_CHANGED = "Blocks that were sent before come behind other ones; the trace does not say why."


class Row(NamedTuple):
    """Tokens with one reason.

    Attributes:
        reason: why they were read from the cache, or were not.
        cause: a name in `causes.CAUSES`; empty where the reason says all.
        path: where in the body, with `*` for positions in the conversation; empty where there is no place.
        tokens: how many.
        requests: in how many requests.
        avoidable: those of `tokens` that the cache would have served, by its rules, had they not been lost.
    """

    reason: Reason
    cause: str
    path: str
    tokens: int
    requests: int
    avoidable: int = 0

    @property
    def key(self) -> tuple[Reason, str, str]:
        """What it has in common with the rows of other requests."""
        return self.reason, self.cause, self.path


@dataclass(frozen=True, slots=True)
class Break:
    """What breaks prefixes, and what it costs.

    Attributes:
        reason: as in `Row`, and likewise `path`.
        cause: a name in `causes.CAUSES`; empty where a trace of blocks does not say.
        path: where in the body.
        tokens: those that were computed for it.
        requests: in how many requests.
        before: an example: what stood there in the earlier request.
        after: the same in the later one.
        fix: one sentence: what to do.
        explanation: one sentence: what happened.
        gain_tokens: those that the fix gives back, as far as the cache's rules allow: of a change in the text the share
            that it gave back in the requests that were compared in full, of anything else all; 0 where there is none.
        example: where an earlier and a later request stand; empty where the earlier one is not known.
        miss_reasons: the provider's own words, and how often it said them of these requests.
    """

    reason: Reason
    cause: str
    path: str
    tokens: int
    requests: int
    before: str
    after: str
    fix: str
    explanation: str
    gain_tokens: int
    example: tuple[Place, ...]
    miss_reasons: Mapping[str, int]


@dataclass(slots=True)
class _Total:
    tokens: int = 0
    requests: int = 0
    avoidable: int = 0


@dataclass(slots=True)
class _Broken:
    """Running totals of a break."""

    tokens: int = 0
    requests: int = 0
    recoverable: int = 0  # those of `tokens` that the cache would have served
    shown: Compared | None = None
    example: tuple[Place, ...] = ()
    lost_tokens: int = 0
    gain_tokens: int = 0
    miss_reasons: Counter[str] = field(default_factory=Counter)

    def add(self, tokens: int, recoverable: int, request: Request, earlier: Earlier | None) -> None:
        self.tokens += tokens
        self.recoverable += recoverable
        self.requests += 1
        if earlier is not None and not self.example:
            self.example = earlier.place, request.record.place
        _count_word(self.miss_reasons, request.record.miss_reason)


class Attribution:
    """Attributes requests, in order of time. What it remembers of them is bounded.

    Args:
        history: holds what was sent.
        rules_of: the rules of the cache that serves a request; those of the one that it was sent to, if not given.

    Attributes:
        history: the same.
        input_tokens: those of all requests: the sum of all rows.
        miss_reasons: the providers' own words, and how often they said them.
    """

    def __init__(
        self, history: History | None = None, rules_of: Callable[[Request], CacheRules] = rules_of_request
    ) -> None:
        self.history = history or History()
        self.input_tokens = 0
        self._rules_of = rules_of
        self.miss_reasons: Counter[str] = Counter()
        self._contents = Contents()
        self._recent = Recent()
        self._diagnoses = Diagnoses()
        self._rows: dict[_Key, _Total] = defaultdict(_Total, {_KEYS[Reason.UNEXPLAINED]: _Total()})
        self._broken: dict[_Key, _Broken] = defaultdict(_Broken)

    def add(self, request: Request, served: Served) -> list[Row]:
        """Attribute the tokens of a request.

        Args:
            request: the next one of the log.
            served: what the cache did for it.

        Returns:
            What became of them: the rows of this request alone, from its start on.
        """
        known = self.history.add(request)
        sender = self._contents.sender(request, known.own // request.unit)
        earlier = self._recent.get(sender)
        totals = self._totals(request, served, known, sender)
        recoverable = self._recoverable(request, max(served.hit, known.own), totals)
        rows = []
        for key, tokens in totals.items():
            reason, (cause, path) = key
            back = recoverable.get(key, 0)
            avoidable = back if reason in AVOIDABLE else 0
            rows.append(Row(reason, cause, path, tokens, 1, avoidable))
            total = self._rows[key]
            total.tokens += tokens
            total.requests += 1
            total.avoidable += avoidable
            if _is_break(*key, request):
                self._broken[key].add(tokens, back, request, earlier)
        self.input_tokens += request.tokens
        _count_word(self.miss_reasons, request.record.miss_reason)
        return rows

    def _recoverable(self, request: Request, sent: int, totals: Mapping[_Key, int]) -> dict[_Key, int]:
        """The tokens that a request would have had from the cache, had they not been lost, by why they were.

        What can be avoided comes back first, and then what another model or tenant has; both as far as the cache serves
        prefixes of that length.

        Args:
            request: the request.
            sent: tokens of its beginning that were sent before in its scope.
            totals: its tokens.
        """
        found: dict[_Key, int] = {}
        if _NEVER_LOST.issuperset(totals):  # as of most requests
            return found
        steps = Steps(self._rules_of(request), request.unit)
        served = totals.get(_KEYS[Reason.HIT], 0)
        for group in (AVOIDABLE, _ELSEWHERE):
            lost = {key: tokens for key, tokens in totals.items() if key[0] in group and _is_avoidable(*key)}
            sent += sum(tokens for (reason, _), tokens in lost.items() if reason not in _SENT_IN_SCOPE)
            left = max(0, steps.hit(sent // request.unit, request) * request.unit - served)
            for key, tokens in lost.items():
                found[key] = min(tokens, left)
                left -= found[key]
                served += found[key]
        return found

    def rows(self) -> list[Row]:
        """All reasons, in their order, the causes of each by tokens; one for `unexplained` in any case."""
        order = list(Reason)
        rows = [
            Row(reason, cause, path, total.tokens, total.requests, total.avoidable)
            for (reason, (cause, path)), total in self._rows.items()
        ]
        return sorted(rows, key=lambda row: (order.index(row.reason), -row.tokens, row.cause, row.path))

    def breaks(self) -> list[Break]:
        """What breaks prefixes: first what gives back most when it is mended, then what costs most."""
        found = [
            _break(reason, diagnosis, broken) for (reason, diagnosis), broken in self._broken.items() if broken.tokens
        ]
        return sorted(found, key=lambda each: (-each.gain_tokens, -each.tokens, each.cause, each.path))

    def _totals(self, request: Request, served: Served, known: Known, sender: int | None) -> dict[_Key, int]:
        """The tokens of a request by why they are as they are, in the order in which they begin."""
        position = min(served.hit, request.tokens)
        totals: dict[_Key, int] = defaultdict(int)
        if position:
            totals[_KEYS[Reason.HIT]] = position
        if known.anywhere > position:
            ends = (
                *((loss.reason, min(loss.stop, known.own)) for loss in served.lost),
                (served.otherwise, known.own),
                (Reason.OTHER_TENANT, known.tenants),
                (Reason.OTHER_MODEL, known.anywhere),
            )
            for reason, end in ends:
                if end > position:
                    totals[_KEYS[reason]] += end - position
                    position = end
        self._add_unsent(totals, request, known.own // request.unit, position, sender)
        return totals

    def _add_unsent(
        self, totals: dict[_Key, int], request: Request, known: int, position: int, sender: int | None
    ) -> None:
        """Behind all that was ever sent: content that is repeated, and what is new; then the rest of a last block."""
        unit, units = request.unit, request.units
        start = -(-position // unit)
        turn = self._recent.turn(request, known, sender)
        repeats = self._contents.visit(request, known, start, turn)
        is_sure = bool(repeats.stretches)
        if not is_sure and turn.lost and isinstance(request.record.content, Body):
            repeats = rest_of_segment(request, start, turn)
        if repeats.stretches:
            # What a conversation lost itself, it says best, even where another one repeated it since.
            earlier = self._recent.get(turn.conversation if turn.lost else repeats.nearest)
            diagnosis = self._diagnose(request, known, repeats, earlier, self._recent.get(sender))
            for stretch in repeats.stretches if is_sure or diagnosis.cause else ():
                if stretch.start * unit > position:
                    totals[_KEYS[Reason.COLD]] += stretch.start * unit - position
                totals[Reason.CHANGED_PREFIX, diagnosis] += (stretch.stop - stretch.start) * unit
                position = stretch.stop * unit
        self._recent.put(turn.conversation, request)
        whole = max(position, units * unit)
        if whole > position:
            totals[_KEYS[Reason.COLD]] += whole - position
        if request.tokens > whole:
            totals[_KEYS[Reason.COLD if start < units else Reason.BLOCK_TAIL]] += request.tokens - whole

    def _diagnose(
        self, request: Request, known: int, repeats: Repeats, earlier: Earlier | None, opening: Earlier | None
    ) -> Diagnosis:
        """Why content is repeated that was sent before; keeps an example."""
        answer = self._diagnoses.ask(earlier, opening, request, known, repeats)
        diagnosis = answer.diagnosis if isinstance(answer, Compared) else answer
        if len(self._rows) >= _MOST_ROWS and (Reason.CHANGED_PREFIX, diagnosis) not in self._rows:
            diagnosis = Diagnosis(diagnosis.cause)
        key = Reason.CHANGED_PREFIX, diagnosis
        if not _is_break(*key, request):
            return diagnosis
        broken = self._broken[key]
        if isinstance(answer, Compared):
            down = Steps(self._rules_of(request), 1).down
            hit = down(answer.hit_tokens)
            broken.lost_tokens += down(answer.hit_tokens + answer.lost_tokens) - hit
            broken.gain_tokens += down(answer.hit_tokens + answer.gain_tokens) - hit
            broken.shown = broken.shown or answer
        if earlier is not None and not broken.example:
            broken.example = earlier.place, request.record.place
        return diagnosis


def _count_word(words: Counter[str], word: str) -> None:
    if word:
        words[word if word in words or len(words) < _MOST_REASONS else OTHER_REASONS] += 1


def _is_avoidable(reason: Reason, diagnosis: Diagnosis) -> bool:
    """Whether tokens need not have been lost. Content that comes behind another beginning for no cause has to be."""
    return reason is not Reason.CHANGED_PREFIX or bool(diagnosis.cause)


def _is_break(reason: Reason, diagnosis: Diagnosis, request: Request) -> bool:
    """Whether it is listed among the breaks: all with a cause, and changed histories of traces, which give none."""
    is_trace = reason is Reason.CHANGED_PREFIX and isinstance(request.record.content, Blocks)
    return bool(diagnosis.cause) or is_trace


def _break(reason: Reason, diagnosis: Diagnosis, broken: _Broken) -> Break:
    cause = CAUSES.get(diagnosis.cause)
    gain = broken.recoverable
    if reason is Reason.CHANGED_PREFIX:
        gain = gain * min(broken.gain_tokens, broken.lost_tokens) // (broken.lost_tokens or 1)
    shown = broken.shown or Compared(
        diagnosis, fix=cause.fix if cause else "", explanation=cause.summary if cause else _HISTORY_CHANGED
    )
    return Break(
        reason,
        diagnosis.cause,
        diagnosis.path,
        broken.tokens,
        broken.requests,
        shown.before,
        shown.after,
        shown.fix,
        shown.explanation,
        gain,
        broken.example,
        dict(broken.miss_reasons),
    )
