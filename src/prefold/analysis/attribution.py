"""Why each input token of a log was read from the cache, or was not.

The positions of a prompt are cut into stretches, each with one reason, so that they sum to its tokens by construction:

    0 .. hit        read from the cache
      .. own        sent before in the request's scope: the cache says why it does not have it
      .. tenants    sent to the model with another salt
      .. anywhere   sent to another model
      .. end        never sent behind this prefix: repeated content that a broken prefix lost, or new
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from prefold.analysis.breaks.contents import Contents, Repeats, rest_of_segment
from prefold.analysis.breaks.diagnosis import Compared, Diagnoses, Diagnosis
from prefold.analysis.breaks.recent import Earlier, Recent
from prefold.analysis.caches.base import Reason, Served
from prefold.analysis.history import History, Known
from prefold.analysis.record import Blocks, Place
from prefold.analysis.request import Request
from prefold.prompts.causes import CAUSES

_NOTHING = Diagnosis()
_MOST_ROWS = 1_000  # then new places count without their path
_MOST_REASONS = 100
OTHER_REASONS = "(others)"
"""Where a provider's words are counted once there are too many."""
# What `prefold explain` says about reasons that are not in the text.
_CAUSES: Mapping[Reason, Diagnosis] = MappingProxyType(
    {
        Reason.BELOW_MINIMUM: Diagnosis("too_short"),
        Reason.EXPIRED: Diagnosis("expired"),
        Reason.EVICTED: Diagnosis("evicted"),
        Reason.OTHER_REPLICA: Diagnosis("routed_away"),
        Reason.OTHER_MODEL: Diagnosis("model", "model"),
        Reason.OTHER_TENANT: Diagnosis("salt", "cache_salt"),
    }
)
_HISTORY_CHANGED = "Blocks that were sent before come behind other ones; the trace does not say why."


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens with one reason.

    Attributes:
        reason: why they were read from the cache, or were not.
        cause: a name in `causes.CAUSES`; empty where the reason says all.
        path: where in the body, with `*` for positions in the conversation; empty where there is no place.
        tokens: how many.
        requests: in how many requests.
    """

    reason: Reason
    cause: str
    path: str
    tokens: int
    requests: int


@dataclass(frozen=True, slots=True)
class Break:
    """What breaks prefixes, and what it costs.

    Attributes:
        cause: a name in `causes.CAUSES`; empty where a trace of blocks does not say.
        path: as in `Row`.
        tokens: those that were computed for it.
        requests: in how many requests.
        before: an example: what stood there in the earlier request.
        after: the same in the later one.
        fix: one sentence: what to do.
        explanation: one sentence: what happened.
        gain_tokens: those of `tokens` that the fix gives back: of a change in the text the share that it gave back in
            the requests that were compared in full, of anything else all; 0 where there is no fix.
        example: where an earlier and a later request stand; empty where the earlier one is not known.
        miss_reasons: the provider's own words, and how often it said them of these requests.
    """

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


@dataclass(frozen=True, slots=True)
class Reported:
    """What providers reported, beside what was simulated for the same requests.

    Attributes:
        requests: those whose usage says what was read from the cache.
        input_tokens: as reported.
        hit_tokens: as reported.
        simulated_input_tokens: as counted here.
        simulated_hit_tokens: as simulated.
    """

    requests: int = 0
    input_tokens: int = 0
    hit_tokens: int = 0
    simulated_input_tokens: int = 0
    simulated_hit_tokens: int = 0

    @property
    def difference_tokens(self) -> int:
        """Tokens that were read beyond what was simulated; negative where fewer were."""
        return self.hit_tokens - self.simulated_hit_tokens


@dataclass(slots=True)
class _Total:
    tokens: int = 0
    requests: int = 0


@dataclass(slots=True)
class _Broken:
    """Running totals of a break."""

    tokens: int = 0
    requests: int = 0
    shown: Compared | None = None
    example: tuple[Place, ...] = ()
    lost_tokens: int = 0
    gain_tokens: int = 0
    miss_reasons: Counter[str] = field(default_factory=Counter)

    def add(self, tokens: int, request: Request, earlier: Earlier | None) -> None:
        self.tokens += tokens
        self.requests += 1
        if earlier is not None and not self.example:
            self.example = earlier.place, request.record.place
        _count_word(self.miss_reasons, request.record.miss_reason)


@dataclass(frozen=True, slots=True)
class _Part:
    """Tokens of one request with one reason."""

    reason: Reason
    tokens: int
    diagnosis: Diagnosis = _NOTHING


class Attribution:
    """Attributes requests, in order of time. What it remembers of them is bounded.

    Args:
        history: holds what was sent.

    Attributes:
        history: the same.
        input_tokens: those of all requests: the sum of all rows.
        reported: what providers reported, where they did.
        miss_reasons: the providers' own words, and how often they said them.
    """

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History()
        self.input_tokens = 0
        self.reported = Reported()
        self.miss_reasons: Counter[str] = Counter()
        self._contents = Contents()
        self._recent = Recent()
        self._diagnoses = Diagnoses()
        self._rows: dict[tuple[Reason, Diagnosis], _Total] = {(Reason.UNEXPLAINED, _NOTHING): _Total()}
        self._broken: dict[tuple[Reason, Diagnosis], _Broken] = {}

    @property
    def comparisons(self) -> int:
        """Pairs of requests that were compared in full."""
        return self._diagnoses.comparisons

    def add(self, request: Request, served: Served) -> None:
        """Attribute the tokens of a request.

        Args:
            request: the next one of the log.
            served: what the cache did for it.
        """
        known = self.history.add(request)
        sender = self._contents.sender(request, known.own // request.unit)
        earlier = self._recent.get(sender)
        totals: dict[tuple[Reason, Diagnosis], int] = {}
        for part in self._parts(request, served, known, sender):
            key = part.reason, part.diagnosis
            totals[key] = totals.get(key, 0) + part.tokens
        for key, tokens in totals.items():
            total = self._rows.setdefault(key, _Total())
            total.tokens += tokens
            total.requests += 1
            if _is_break(*key, request):
                self._broken.setdefault(key, _Broken()).add(tokens, request, earlier)
        self.input_tokens += request.tokens
        self._reconcile(request, served)
        _count_word(self.miss_reasons, request.record.miss_reason)

    def rows(self) -> list[Row]:
        """All reasons, in their order, the causes of each by tokens; one for `unexplained` in any case."""
        order = list(Reason)
        rows = [
            Row(reason, diagnosis.cause, diagnosis.path, total.tokens, total.requests)
            for (reason, diagnosis), total in self._rows.items()
        ]
        return sorted(rows, key=lambda row: (order.index(row.reason), -row.tokens, row.cause, row.path))

    def breaks(self) -> list[Break]:
        """What breaks prefixes, the most expensive first."""
        found = [_break(reason, diagnosis, broken) for (reason, diagnosis), broken in self._broken.items()]
        return sorted(found, key=lambda each: (-each.tokens, each.cause, each.path))

    def _parts(self, request: Request, served: Served, known: Known, sender: int | None) -> Iterator[_Part]:
        """The stretches of a prompt, from its start on."""
        hit = min(served.hit, request.tokens)
        if hit:
            yield _Part(Reason.HIT, hit)
        position = hit
        ends = [(loss.reason, min(loss.stop, known.own)) for loss in served.lost]
        ends += (
            (served.otherwise, known.own),
            (Reason.OTHER_TENANT, known.tenants),
            (Reason.OTHER_MODEL, known.anywhere),
        )
        for reason, end in ends:
            if end > position:
                yield _told(reason, end - position, request)
                position = end
        yield from self._unsent(request, known.own // request.unit, position, sender)

    def _unsent(self, request: Request, known: int, position: int, sender: int | None) -> Iterator[_Part]:
        """Behind all that was ever sent: content that is repeated, and what is new; then the rest of a last block."""
        unit, units = request.unit, request.units
        start = -(-position // unit)
        turn = self._recent.turn(request, known, sender)
        repeats = self._contents.visit(request, known, start, turn)
        is_sure = bool(repeats.stretches)
        if not is_sure and turn.lost and unit == 1:
            repeats = rest_of_segment(request, start, turn)
        if repeats.stretches:
            diagnosis = self._diagnose(request, known, repeats)
            for stretch in repeats.stretches if is_sure or diagnosis.cause else ():
                if stretch.start * unit > position:
                    yield _Part(Reason.COLD, stretch.start * unit - position)
                yield _Part(Reason.CHANGED_PREFIX, (stretch.stop - stretch.start) * unit, diagnosis)
                position = stretch.stop * unit
        self._recent.put(turn.conversation, request)
        whole = max(position, units * unit)
        if whole > position:
            yield _Part(Reason.COLD, whole - position)
        if request.tokens > whole:
            yield _Part(Reason.COLD if start < units else Reason.BLOCK_TAIL, request.tokens - whole)

    def _diagnose(self, request: Request, known: int, repeats: Repeats) -> Diagnosis:
        """Why content is repeated that was sent before; keeps an example."""
        earlier = self._recent.get(repeats.nearest)
        answer = self._diagnoses.ask(earlier, request, known, repeats)
        diagnosis = answer.diagnosis if isinstance(answer, Compared) else answer
        if len(self._rows) >= _MOST_ROWS and (Reason.CHANGED_PREFIX, diagnosis) not in self._rows:
            diagnosis = Diagnosis(diagnosis.cause)
        key = Reason.CHANGED_PREFIX, diagnosis
        if not _is_break(*key, request):
            return diagnosis
        broken = self._broken.setdefault(key, _Broken())
        if isinstance(answer, Compared):
            broken.lost_tokens += answer.lost_tokens
            broken.gain_tokens += answer.gain_tokens
            broken.shown = broken.shown or answer
        if earlier is not None and not broken.example:
            broken.example = earlier.place, request.record.place
        return diagnosis

    def _reconcile(self, request: Request, served: Served) -> None:
        usage = request.record.usage
        if usage is None or not usage.is_reported:
            return
        so_far = self.reported
        self.reported = Reported(
            so_far.requests + 1,
            so_far.input_tokens + usage.input,
            so_far.hit_tokens + usage.read,
            so_far.simulated_input_tokens + request.tokens,
            so_far.simulated_hit_tokens + min(served.hit, request.tokens),
        )


def _count_word(words: Counter[str], word: str) -> None:
    if word:
        words[word if word in words or len(words) < _MOST_REASONS else OTHER_REASONS] += 1


def _told(reason: Reason, tokens: int, request: Request) -> _Part:
    """Tokens whose reason the cache gave."""
    if reason is Reason.BREAKPOINT:
        return _Part(reason, tokens, Diagnosis("lookback" if request.markers else "no_breakpoint"))
    return _Part(reason, tokens, _CAUSES.get(reason, _NOTHING))


def _is_break(reason: Reason, diagnosis: Diagnosis, request: Request) -> bool:
    """Whether it is listed among the breaks: all with a cause, and changed histories of traces, which give none."""
    is_trace = reason is Reason.CHANGED_PREFIX and isinstance(request.record.content, Blocks)
    return bool(diagnosis.cause) or is_trace


def _break(reason: Reason, diagnosis: Diagnosis, broken: _Broken) -> Break:
    cause = CAUSES.get(diagnosis.cause)
    gain = broken.tokens
    if reason is Reason.CHANGED_PREFIX:
        gain = broken.tokens * min(broken.gain_tokens, broken.lost_tokens) // (broken.lost_tokens or 1)
    elif reason is Reason.BELOW_MINIMUM:
        gain = 0
    shown = broken.shown or Compared(
        diagnosis, fix=cause.fix if cause else "", explanation=cause.summary if cause else _HISTORY_CHANGED
    )
    return Break(
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
