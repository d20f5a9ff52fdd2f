"""What is told about requests as they come: breaks when they happen, and alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from prefold.analysis.alerts import Alert, Alerts, Sample, Thresholds
from prefold.analysis.attribution import Attribution, Break, Row
from prefold.analysis.caches.base import Reason
from prefold.analysis.caches.resolve import judge_of
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.encode import Encoder
from prefold.analysis.named_replicas import cache_of_log
from prefold.analysis.record import Place, Record
from prefold.analysis.reported import reported_usage
from prefold.analysis.request import Request
from prefold.core.tokens import WIDTH
from prefold.prompts.causes import CAUSES
from prefold.providers.rules import CacheRules

_NO_BREAKS = (Reason.HIT, Reason.BELOW_MINIMUM)  # below its minimum nothing was built that could be lost
_FRONT_UNITS = 256  # that name a prefix where tools and rules are not told apart
_EVICTED = "evicted"
_MOST_KINDS = 256
_LEAST_TOLD = 32  # tokens; fewer are what rounding to blocks leaves over


@dataclass(frozen=True, slots=True)
class BreakSeen:
    """A request that lost tokens that were sent before.

    Attributes:
        place: where it stands in the log.
        time: when it was sent, in seconds.
        model: which it asked.
        tenant: whose it is; empty where the log does not say.
        session: the conversation; likewise.
        cause: a name in `causes.CAUSES`.
        path: where in the body; empty where there is no place.
        lost_tokens: input tokens that were computed and had been sent before.
        before: what stood there in the earlier request; empty for all but the first requests that break so.
        after: what stands there now; likewise.
        fix: one sentence: what to do.
        count: how many requests broke so, this one included.
        miss_reason: the provider's own word, where it said one.
    """

    place: Place
    time: float
    model: str
    tenant: str
    session: str
    cause: str
    path: str
    lost_tokens: int
    before: str
    after: str
    fix: str
    count: int
    miss_reason: str


@dataclass(slots=True)
class Summary:
    """What was seen in all.

    Attributes:
        requests: their number.
        input_tokens: of all.
        hit_tokens: those served from cache, as reported, or as simulated where nobody reported them.
        lost_tokens: those of all breaks.
        breaks: requests by cause and path, those that break most often and some hundred at most.
        alerts: alerts that began, by name.
    """

    requests: int = 0
    input_tokens: int = 0
    hit_tokens: int = 0
    lost_tokens: int = 0
    breaks: Counter[tuple[str, str]] = field(default_factory=Counter)
    alerts: Counter[str] = field(default_factory=Counter)


class Watch:
    """Examines requests in the order of the log.

    Each is compared with the best-matching earlier one, whoever sent it, as the attribution does; what is remembered is
    bounded.

    Args:
        spec: the cache that is simulated; one for each replica that the log names.
        encoder: counts tokens.
        thresholds: when alerts begin and end.

    Raises:
        UsageError: as `build`.
    """

    def __init__(self, spec: CacheSpec, encoder: Encoder, thresholds: Thresholds | None = None) -> None:
        self.summary = Summary()
        self._judge = judge_of(spec)
        self._cache = cache_of_log(spec)
        self._encoder = encoder
        self._attribution = Attribution(rules_of=self._judge)
        self._alerts = Alerts(thresholds)

    def see(self, record: Record, now: float) -> Iterator[BreakSeen | Alert]:
        """Examine a request: its breaks, and the alerts that begin or end with it.

        Args:
            record: the next one of the log.
            now: seconds since 1970, which is its time where the log has none.

        Raises:
            InvalidRequest: if the record's body is none.
        """
        request = self._encoder.encode(record if record.time is not None else replace(record, time=now))
        served = self._cache.serve(request)
        simulated = min(served.hit, request.tokens)
        grown = self._attribution.add(request, served)
        usage = reported_usage(request)
        sent, hit = (usage.input, usage.read) if usage else (request.tokens, simulated)
        # Half of it may be gone for reasons of counting; more is a cache that had it no more.
        evicted = simulated - hit if usage and 2 * hit < simulated else 0
        self.summary.requests += 1
        self.summary.input_tokens += sent
        self.summary.hit_tokens += hit
        for row in grown:
            if row.cause and row.reason not in _NO_BREAKS and row.tokens >= _LEAST_TOLD:
                yield self._seen(request, row, self._shown(row))
        if evicted:
            yield self._seen(request, Row(Reason.EVICTED, _EVICTED, "", evicted, 1), None)
        lost = sum(row.tokens for row in grown if row.reason is Reason.EVICTED)
        yield from self._counted(self._alerts.add(_sample(request, sent, hit, min(sent, evicted + lost))))

    def finish(self) -> Iterator[Alert]:
        """The alerts of the last minute."""
        yield from self._counted(self._alerts.finish())

    def _counted(self, alerts: list[Alert]) -> list[Alert]:
        self.summary.alerts.update(alert.name for alert in alerts if not alert.is_over)
        return alerts

    def _shown(self, row: Row) -> Break | None:
        """What the attribution has to show of a break, where this is one of the first."""
        if self.summary.breaks[row.cause, row.path] > 0:
            return None
        found = (each for each in self._attribution.breaks() if (each.cause, each.path) == (row.cause, row.path))
        return next(found, None)

    def _seen(self, request: Request, row: Row, shown: Break | None) -> BreakSeen:
        breaks, kind = self.summary.breaks, (row.cause, row.path)
        breaks[kind] += 1
        if len(breaks) > _MOST_KINDS:
            del breaks[min(breaks, key=lambda each: (breaks[each], each != kind))]
        self.summary.lost_tokens += row.tokens
        record = request.record
        return BreakSeen(
            place=record.place,
            time=request.time,
            model=record.model,
            tenant=record.tenant,
            session=record.session,
            cause=row.cause,
            path=row.path,
            lost_tokens=row.tokens,
            before=shown.before if shown else "",
            after=shown.after if shown else "",
            fix=shown.fix if shown and shown.before else _fix(row.cause, self._judge(request)),
            count=max(1, breaks[kind]),
            miss_reason=record.miss_reason,
        )


def _fix(cause: str, rules: CacheRules) -> str:
    """What to do about a break; where the text is not at fault, by who runs the cache."""
    if cause == "evicted" and not rules.self_hosted:
        key = f", and with one {rules.routing_key}" if rules.routing_key else ""
        return f"Send requests with the same prefix closer together{key}: how long it is kept is the provider's choice."
    if cause == "routed_away" and rules.self_hosted:
        return "Send requests that share a prefix to the replica that has it."
    return CAUSES[cause].fix


def _sample(request: Request, sent: int, hit: int, evicted: int) -> Sample:
    units = request.system_end or min(request.units, _FRONT_UNITS)
    return Sample(
        time=request.time,
        input_tokens=sent,
        hit_tokens=hit,
        tenant=request.record.tenant,
        prefix=request.run[: units * WIDTH],
        prefix_tokens=units * request.unit,
        evicted_tokens=evicted,
        ttft=request.record.ttft,
    )
