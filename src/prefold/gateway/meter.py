"""What calls cost and what the cache saved: by tenant, model and replica, for Prometheus and other readers.

Tokens are those that the upstream reports. What its usage does not say is not made up: input of an answer that says
nothing about its cache counts apart, until its replica has reported hits for once. Then silence means a miss, since
vLLM and others leave the number out where nothing was read.

All series of tokens, cost and time have the label `replica`, which those of prefold's own engine have not. Where both
are scraped, `replica!=""` keeps sums from counting twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from prefold.errors import UsageError
from prefold.gateway.answer_usage import AnswerUsage
from prefold.gateway.call import Api
from prefold.gateway.config import DEFAULT_TENANT, JUDGE, GatewayConfig, Kind
from prefold.gateway.gauges import Collected, Gauges, Lossy, Reading
from prefold.gateway.handed import Handed, Handing
from prefold.gateway.series import Ledger, Series
from prefold.providers.prices import Price, Prices
from prefold.providers.usage import Usage
from prefold.responses.endings import Ending

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
"""The label of all names beyond the limit."""

_MOST_MODELS = 100
_MOST_REPLICAS = 1_000  # those that went are still counted, so that configurations that change do not fill the memory
_LONGEST_NAME = 128
AnswerCache = Literal["hit", "miss", "off", "observed", "shared", "semantic"]
"""What the response caches did."""

TOLD: frozenset[AnswerCache] = frozenset(("hit", "shared", "semantic"))
"""Those with which no replica was asked: kept for the same request, on its way for one, or kept for other words."""


class Outcome(StrEnum):
    """How a call ended."""

    DONE = "done"
    """The client has the whole answer, of whatever status."""
    CLIENT_GONE = "client_gone"
    FAILED = "failed"
    """The upstream gave no answer, or broke off."""
    REFUSED = "refused"
    """The gateway itself would not have it."""
    EXPLAINED = "explained"
    """The client only wanted to know where it would go: nobody was asked, and sinks are not told."""


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that ended, for those who write it down or send it on.

    Attributes:
        time: when it came, in seconds since 1970.
        api: where it came in.
        model: as the client named it.
        model_label: the same, bounded.
        tenant: who sent it.
        session: the conversation; empty for none.
        request_id: the gateway's name for it.
        replica: that answered; empty where none was asked.
        kind: of the replica.
        why: the replica was chosen.
        status: sent to the client; 0 where none was.
        outcome: how it ended.
        cache: what the response cache did.
        duration: seconds to the end of the answer.
        ttft: seconds to the first byte of a stream; None for other answers.
        usage: what the upstream counted; None where it did not say.
        matched: tokens that the replica was thought to hold; None where nobody knew.
        body: the client's; empty where nobody asked for it.
    """

    time: float
    api: Api
    model: str
    model_label: str
    tenant: str
    session: str
    request_id: str
    replica: str
    kind: Kind
    why: str
    status: int
    outcome: Outcome
    cache: AnswerCache
    duration: float
    ttft: float | None
    usage: Usage | None
    matched: int | None
    body: bytes


class Sink(Lossy, Protocol):
    """Takes calls that ended. It never raises and never waits; what it has to leave out it counts."""

    def __call__(self, record: CallRecord, /) -> None:
        """Take one."""


class Metering:
    """Counts calls.

    Args:
        config: tells how many tenants have series of their own, and which tenants, models and replicas there are.
        prices: of models; None to know none.
        clock: monotonic seconds.
        now: seconds since 1970.
        gauges: reads the fleet at each scrape.
        sinks: what is told of each call that ended.
    """

    def __init__(
        self,
        config: GatewayConfig,
        prices: Prices | None,
        clock: Callable[[], float],
        now: Callable[[], float],
        *,
        gauges: Gauges = Reading,
        sinks: Sequence[Sink] = (),
    ) -> None:
        self._prices = prices
        self.clock = clock
        self.now = now
        self.sinks = tuple(sinks)
        self._ledger = Ledger(prices.currency if prices else "")
        self._registry = CollectorRegistry()
        self._registry.register(self._ledger)
        self._registry.register(Collected(gauges, self.sinks))
        self._tenants = _Names(config.metering.tenants, [DEFAULT_TENANT, *([JUDGE] if config.meaning.judge else ())])
        self._models = _Names(_MOST_MODELS, [])
        self._replicas = _Names(_MOST_REPLICAS, [])
        self._config = config
        self._kinds: dict[str, Kind] = {}
        self.reload(config)

    def reload(self, config: GatewayConfig) -> None:
        """Take on a new configuration; all counts go on. The limit of tenants stays what it was."""
        self._config = config
        self._kinds = {replica.name: replica.kind for replica in config.replica}
        if config.has_engine:
            self._kinds[config.engine.name if config.engine else "engine"] = Kind.PREFOLD
        self._tenants.admit(tenant.name for tenant in config.tenant)
        self._models.admit(model for replica in config.replica for model in replica.models)
        self._replicas.admit(self._kinds)

    def call(
        self, api: Api, model: str, tenant: str, *, session: str = "", request_id: str = "", body: bytes = b""
    ) -> CallMeter:
        """Something that measures one call, from now on.

        Args:
            api: where it came in.
            model: as the client named it.
            tenant: who sends it; empty where that is not known.
            session: the conversation; empty for none.
            request_id: the gateway's name for it.
            body: the client's own, for the request log.
        """
        return CallMeter(self, api, model, tenant, session, request_id, body)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)

    def kind_of(self, replica: str, model: str) -> Kind:
        """What a replica is; where none was asked, what one that could have been asked for the model is."""
        if replica:
            return self._kinds.get(replica, Kind.OTHER)
        serving = (each.kind for each in self._config.replica if not each.models or model in each.models)
        return next(serving, Kind.PREFOLD if self._config.has_engine else Kind.OTHER)

    def price_of(self, model: str, kind: Kind) -> Price | None:
        """What a replica of this kind asks for a model; None where it sends no bill, or nobody knows."""
        if self._prices is None or kind not in (Kind.OPENAI, Kind.ANTHROPIC, Kind.OTHER):
            return None
        try:
            return self._prices.price_of(model, "" if kind is Kind.OTHER else kind.value)
        except UsageError:  # it is known in another currency only
            return None

    def labels(self, model: str, tenant: str, replica: str, *, is_real: bool) -> tuple[str, str, str]:
        """The labels of a call.

        Args:
            model: as the client named it.
            tenant: who sends it.
            replica: that answered; empty for none.
            is_real: whether the call was answered well, so that its names may have series of their own; or else
                somebody might use up all of them with names that do not exist.
        """
        return (
            self._models.label(model, is_real=is_real),
            self._tenants.label(tenant, is_real=is_real),
            self._replicas.label(replica, is_real=True) if replica else "",
        )

    def handed(self, labels: tuple[str, str, str], handing: Handing, seconds: float) -> None:
        """Count what came of having a prompt computed by a prefill replica, and the seconds that took."""
        model, _, replica = labels
        self._ledger.handed(model, replica, handing, seconds)

    def series(self, labels: tuple[str, str, str]) -> Series:
        """The series with these labels."""
        return self._ledger.series(*labels)


class _Left(NamedTuple):
    """How a call ended for its client, while its replica went on."""

    status: int
    outcome: Outcome
    cache: AnswerCache
    duration: float


class CallMeter:
    """Measures one call.

    Attributes:
        usage: what the upstream counted; None where it did not say, and before the end.
    """

    __slots__ = (
        "_answer",
        "_api",
        "_arrived",
        "_body",
        "_estimate",
        "_handed",
        "_has_ended",
        "_is_asking",
        "_is_late",
        "_is_void",
        "_left",
        "_matched",
        "_metering",
        "_model",
        "_overhead",
        "_replica",
        "_request_id",
        "_session",
        "_tenant",
        "_ttft",
        "_why",
        "usage",
    )

    def __init__(
        self, metering: Metering, api: Api, model: str, tenant: str, session: str, request_id: str, body: bytes
    ) -> None:
        self.usage: Usage | None = None
        self._metering = metering
        self._api = api
        self._model = model
        self._tenant = tenant
        self._session = session
        self._request_id = request_id
        self._body = body if metering.sinks else b""
        self._arrived = metering.clock()
        self._answer = AnswerUsage()
        self._replica = self._why = ""
        self._matched: int | None = None
        self._overhead: float | None = None
        self._ttft: float | None = None
        self._has_ended = self._is_asking = self._is_late = self._is_void = False
        self._left: _Left | None = None
        self._estimate: int | None = None
        self._handed: Handed | None = None

    def sent(self, replica: str, matched: int | None = None, why: str = "") -> None:
        """The call goes to a replica; of several tries the last one counts.

        Args:
            replica: its name.
            matched: tokens of the prompt that it is thought to hold; None where nobody knows.
            why: it was chosen.
        """
        self._replica, self._matched, self._why = replica, matched, why
        if self._overhead is None:
            self._overhead = self._metering.clock() - self._arrived

    def hand_over(self, replica: str, handing: Handing, seconds: float = 0.0, cached: int = 0) -> Handed | None:
        """A prefill replica was asked to compute the prompt, or would have been. Returns what that was good for.

        What it counts for its one token is nobody's: the client pays for the call that follows, once.

        Args:
            replica: its name; empty where none is up.
            handing: what came of it.
            seconds: that it took.
            cached: tokens that it had already.
        """
        labels = self._metering.labels(self._model, self._tenant, replica, is_real=handing is Handing.DONE)
        self._metering.handed(labels, handing, seconds)
        self._handed = Handed(replica, cached) if handing is Handing.DONE else None
        return self._handed

    def first_byte(self) -> None:
        """The first byte of the body came; times after the first one count for nothing."""
        if self._ttft is None:
            self._ttft = self._metering.clock() - self._arrived

    def chunk(self, data: bytes) -> None:
        """A part of the body came, plain, as the upstream or the response cache gave it."""
        self._answer.feed(data)

    def has_last_event(self) -> bool:
        """Whether a stream has said all, though its end may still be to come."""
        return self._answer.has_last_event()

    def ending(self) -> Ending:
        """How a stream ended whose connection has ended."""
        return self._answer.ending()

    def ask(self) -> None:
        """A replica is to be asked. Until `asked`, an end is only the client's: others may wait for the answer."""
        self._is_asking = True
        if self._has_ended:  # its client left before anybody was asked
            self._has_ended, self._is_late = False, True

    def asked(self, status: int = 0) -> bool:
        """No replica works for the call any more. Returns whether its client had left before.

        Args:
            status: of the replica's answer; 0 for none.
        """
        self._is_asking = False
        if self._left is None and not self._is_late:
            return False
        self.end(status, Outcome.CLIENT_GONE, "miss")
        return True

    def answered(self, status: int, outcome: Outcome, cache: AnswerCache) -> None:
        """The replica's answer has come to its end; see `end`."""
        self._is_asking = False
        self.end(status, outcome, cache)

    def end(self, status: int, outcome: Outcome = Outcome.DONE, cache: AnswerCache = "off") -> None:
        """The call is over; calls after the first one count for nothing.

        Where its replica is still being asked, for others who wait for the same answer, what it used counts later.

        Args:
            status: that the client got; 0 for none.
            outcome: how it ended.
            cache: what the response cache did.
        """
        if self._has_ended:
            return
        metering = self._metering
        is_real = 200 <= status < 300 and outcome is not Outcome.REFUSED
        replica = "" if cache in TOLD else self._replica
        labels = metering.labels(self._model, self._tenant, replica, is_real=is_real)
        series = metering.series(labels)
        left = self._left
        if left is None:
            duration = metering.clock() - self._arrived
            if not self._is_late:
                key = (self._api, status, outcome, cache)
                series.requests[key] = series.requests.get(key, 0) + 1
                series.times.duration.observe(duration)
            if self._is_asking:
                self._left = _Left(status, outcome, cache, duration)
                return
        self._has_ended = True
        self._is_void = outcome is Outcome.EXPLAINED or (not is_real and outcome is not Outcome.CLIENT_GONE)
        kind = metering.kind_of(replica, self._model)
        if replica and self._overhead is not None:
            series.times.overhead.observe(self._overhead)
        if outcome is Outcome.EXPLAINED:
            return
        ttft = self._use(series, replica, kind, is_whole=outcome is Outcome.DONE) if is_real else None
        if metering.sinks and not self._is_late:
            if left is not None:  # what its client got, and not what came for others
                status, outcome, cache, duration = left
            self._tell(labels[0], kind, status, outcome, cache, duration, ttft)

    def _use(self, series: Series, replica: str, kind: Kind, *, is_whole: bool) -> float | None:
        """Count what a good answer used. Returns the seconds to the first byte of a stream."""
        counts_tokens = self._api is not Api.COUNT_TOKENS  # whose answer says what a prompt would have
        usage = self.usage = self._answer.read() if counts_tokens else None
        if usage is None or not is_whole:
            self._estimate = self._answer.estimate() if self._api.generates else 0
        ttft = self._ttft if counts_tokens and self._answer.is_stream else None
        price = self._metering.price_of(self._model, kind) if usage is not None else None
        if not replica:
            if usage is not None:
                series.replay(usage, price)
            return ttft
        if usage is not None and self._handed is not None:
            usage = self._handed.corrected(usage)
        if counts_tokens:
            series.predicted += self._matched or 0
            effect = "unknown"
            if usage is None:
                series.without_usage += 1
            else:
                effect = series.use(usage, price)
            if ttft is not None:
                series.times.ttft[effect].observe(ttft)
        return ttft

    def tokens(self, prompt: int) -> int | None:
        """What the call is charged for, after its end; None to leave it at what was taken for it.

        Its usage says it. Where that is missing, or the answer was left before it was whole, what was relayed does.
        Where there was no good answer, nothing was computed for it; but nobody knows when the client left before one.

        Args:
            prompt: tokens of the prompt, as estimated.
        """
        if self._is_void:
            return 0
        if self.usage is None:
            return None if self._estimate is None else prompt + self._estimate
        return self.usage.input + max(self.usage.output, self._estimate or 0)

    def _tell(
        self,
        model_label: str,
        kind: Kind,
        status: int,
        outcome: Outcome,
        cache: AnswerCache,
        duration: float,
        ttft: float | None,
    ) -> None:
        usage = self.usage
        if usage is not None and self._handed is not None:
            usage = self._handed.corrected(usage)
        record = CallRecord(
            time=self._metering.now() - duration,
            api=self._api,
            model=self._model,
            model_label=model_label,
            tenant=self._tenant,
            session=self._session,
            request_id=self._request_id,
            replica=self._replica,
            kind=kind,
            why=self._why,
            status=status,
            outcome=outcome,
            cache=cache,
            duration=duration,
            ttft=ttft,
            usage=usage,
            matched=self._matched,
            body=self._body,
        )
        for sink in self._metering.sinks:
            sink(record)


class _Names:
    """Names that have series of their own.

    Args:
        limit: most of them.
        known: those that have them from the start.
    """

    def __init__(self, limit: int, known: Iterable[str]) -> None:
        self._limit = limit
        self._names: set[str] = set()
        self.admit(known)

    def admit(self, names: Iterable[str]) -> None:
        """Give names series of their own, while there is room."""
        for name in names:
            self.label(name, is_real=True)

    def label(self, name: str, *, is_real: bool) -> str:
        """The label of a name."""
        if name in self._names:
            return name
        if not is_real or not name or len(name) > _LONGEST_NAME or len(self._names) >= self._limit:
            return OTHER
        self._names.add(name)
        return name
