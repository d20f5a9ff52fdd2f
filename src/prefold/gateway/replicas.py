"""The fleet: which replicas there are, what they have to do, and which of them should be asked.

Replicas have indexes, under which routing and the block index know them. An index stays with its replica until that has
been removed and has ended what ran on it; then a new one may get it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from prefold.core.routing import Lately, Load, Work
from prefold.gateway.condition import Condition, State, is_outlier
from prefold.gateway.config import GatewayConfig, GroupTable, Isolation, Kind, ReplicaTable, UpstreamOptions
from prefold.gateway.http_upstream import HttpUpstream
from prefold.gateway.model_cards import read_cards
from prefold.gateway.upstream import Outgoing, Upstream, UpstreamFailed
from prefold.server.asgi import HttpError
from prefold.server.fields import shown

OpenUpstream = Callable[[ReplicaTable, UpstreamOptions], Upstream]
"""Makes the upstream of a replica; raises UsageError where it cannot."""

MODELS_SECONDS = 30.0
"""How often a replica is asked which models it serves, where its table does not say."""

_log = logging.getLogger(__name__)
_TOLD: Mapping[State, str] = MappingProxyType(
    {
        State.UP: "up again",
        State.DOWN: "down: its health checks fail",
        State.OPEN: "left alone for a time: calls to it failed in a row",
        State.EJECTED: "ejected for a time: it fails, or is slow, far more often than the others",
    }
)
_HOSTED = (Kind.OPENAI, Kind.ANTHROPIC)  # they have no health path; only calls tell how they are
_NO_ANSWER = (502, 503, 504)  # statuses of those that speak for a server that does not
_ENGINES = (Kind.PREFOLD, Kind.VLLM, Kind.SGLANG, Kind.LLAMACPP)  # they know no clients, and so no limits of theirs
_OVERLOADED = (429, 503, 529)
_MOST_BYTES = 1 << 20  # of an answer to a question of ours
_ANTHROPIC_VERSION = (b"anthropic-version", b"2023-06-01")


def http_upstreams(environ: Mapping[str, str]) -> OpenUpstream:
    """Makes upstreams over HTTP, with keys read from an environment or from files."""

    def open_upstream(table: ReplicaTable, options: UpstreamOptions) -> Upstream:
        key = table.api_key.read(environ) if table.api_key is not None else None
        header: Literal["authorization", "x-api-key"] = "x-api-key" if table.kind is Kind.ANTHROPIC else "authorization"
        return HttpUpstream(table.url, options, key, key_header=header)

    return open_upstream


class Replica:
    """One server.

    Attributes:
        table: what the configuration says of it.
        upstream: the way to it.
        load: what it has to do.
        condition: how it is.
        models: names that it serves; empty while it has not said so.
        adapters: those of them that it says are LoRA adapters.
    """

    def __init__(self, table: ReplicaTable, upstream: Upstream, condition: Condition) -> None:
        self.table = table
        self.upstream = upstream
        self.load = Load(table.name)
        self.condition = condition
        self.models = frozenset(table.models)
        self.adapters: frozenset[str] = frozenset()
        self.models_asked = -math.inf
        self._told = State.UP

    def tell(self, now: float) -> None:
        """Log how it is, if that has changed since the last time; a rest that it asked for is no change."""
        state = self.condition.state(now)
        state = State.UP if state is State.RESTING else state
        if state is not self._told and state in _TOLD:
            self._told = state
            _log.warning("The replica %s is %s", self.table.name, _TOLD[state])

    def is_for(self, group: GroupTable) -> bool:
        """Whether tenants of a group may use it."""
        groups = self.table.groups
        return group.name in groups or (not groups and group.isolation is not Isolation.DEDICATED)


@dataclass(frozen=True, slots=True)
class Change:
    """Indexes of the replicas that a reload brought and took away."""

    added: tuple[int, ...]
    removed: tuple[int, ...]


class Lease:
    """A call's place on a replica, from the choice to the end.

    One of `answered`, `failed` and `left` ends it; what comes after that changes nothing.

    Attributes:
        table: what the configuration says of the replica.
        upstream: the way to it.
    """

    __slots__ = (
        "_clock",
        "_condition",
        "_is_over",
        "_is_trial",
        "_replica",
        "_started",
        "_tokens",
        "_wall_clock",
        "_work",
        "table",
        "upstream",
    )

    def __init__(
        self, replica: Replica, work: Work, clock: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        self.table = replica.table
        self.upstream = replica.upstream
        self._replica = replica
        self._condition = replica.condition
        self._tokens = work.tokens
        self._work = work
        self._clock = clock
        self._wall_clock = wall_clock
        self._started = clock()
        self._is_over = False
        self._is_trial = replica.condition.began()
        replica.load.pending += 1

    def first_byte(self) -> None:
        """The first byte of a well-begun stream has come.

        It is not for answers that come whole: how long these take is their length.
        """
        now = self._clock()
        self._condition.outcomes.waited(now, now - self._started, self._tokens)
        if self._is_trial:  # a stream may go on for minutes, and others need not wait for its end
            self._condition.succeeded(is_trial=True)
            self._is_trial = False

    def computed(self, tokens: int) -> None:
        """So many tokens of the prompt were computed: what was not known before is what the replica had already.

        Without it a conversation that is at home somewhere would look like work, and be sent away for it.
        """
        self._work.correct(tokens)

    def answered(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """There was a whole answer; or one that was refused for its status. A wait that it asks for is kept.

        A status of the replica's own, even 500, comes from a server that works: a poisonous request must not open the
        breaker for everybody. If it is more than that, it shows against the other replicas.
        """
        if self._is_over:
            return
        seconds = retry_after(headers, self._wall_clock()) if status in _OVERLOADED else None
        if status in _NO_ANSWER and seconds is None:
            self.failed()
            return
        now = self._clock()
        if seconds is not None and (status != 429 or self._is_for_all()):
            self._condition.rest(now, seconds)
        self._condition.succeeded(is_trial=self._is_trial)
        self._condition.outcomes.ended(now, is_failure=status >= 500 and status not in _OVERLOADED)
        self._end()

    def failed(self) -> None:
        """There was no answer, or it broke off by the upstream's doing."""
        if not self._is_over:
            now = self._clock()
            self._condition.failed(now, is_trial=self._is_trial)
            self._replica.tell(now)
            self._condition.outcomes.ended(now, is_failure=True)
            self._end()

    def left(self) -> None:
        """The client left before the end."""
        if not self._is_over:
            self._condition.undecided(is_trial=self._is_trial)
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._replica.load.pending -= 1

    def _is_for_all(self) -> bool:
        """Whether a 429 is about the replica, and not about the key that the client sent along."""
        return self.table.api_key is not None or self.table.kind in _ENGINES


class Fleet:
    """All replicas.

    Args:
        config: names them. An embedded engine is a replica like others, for which `open_upstream` gives another way.
        open_upstream: makes the way to each.
        clock: monotonic seconds.
        wall_clock: Unix time, for dates in Retry-After.

    Attributes:
        replicas: by index, those that are gone included.
        loads: of each, as routing policies take them.

    Raises:
        UsageError: if a replica's URL or key cannot be used.
    """

    def __init__(
        self,
        config: GatewayConfig,
        open_upstream: OpenUpstream,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.replicas: list[Replica] = []
        self.loads: list[Load] = []
        self._config = config
        self._open_upstream = open_upstream
        self._clock = clock
        self._wall_clock = wall_clock
        self._lately = Lately()
        self.reload(config)

    # Who may be asked

    def replicas_for(self, model: str, group: GroupTable) -> list[int]:
        """Those that serve a model to a group, in whatever state; none: the model is not there for it."""
        return [
            index
            for index, replica in enumerate(self.replicas)
            if model in replica.models and not replica.condition.is_removed and replica.is_for(group)
        ]

    def usable(self, model: str, group: GroupTable) -> list[int]:
        """Those of them to choose from, ascending.

        Where none is up, those that asked for a rest are taken, then those that were ejected: better than nobody. Those
        that are down, or whose breaker is open, are not; one whose breaker waits for a trial is, for one call.

        Raises:
            HttpError: 404 if the model is not there for the group, 503 if none of its replicas can be asked.
        """
        candidates = self.replicas_for(model, group)
        if not candidates:
            raise HttpError(
                404, f"There is no model {shown(model)}", hint="see /v1/models", code="model_not_found", param="model"
            )
        now = self._clock()
        states = [self.replicas[index].condition.state(now) for index in candidates]
        if states.count(State.UP) == len(states):
            return candidates
        up: list[int] = []
        second: list[int] = []
        third: list[int] = []
        for index, state in zip(candidates, states, strict=True):
            if state is State.UP or (state is State.OPEN and self.replicas[index].condition.may_be_tried(now)):
                up.append(index)
            elif state is State.RESTING:
                second.append(index)
            elif state is State.EJECTED:
                third.append(index)
        if chosen := up or second or third:
            return chosen
        raise HttpError(
            503,
            f"No replica of {shown(model)} can be reached",
            hint="try again",
            code="no_replica",
            headers={"retry-after": str(math.ceil(self._config.health.seconds * self._config.health.rise))},
        )

    def models(self, group: GroupTable) -> list[str]:
        """Names that a group may ask for, sorted."""
        there = [replica for replica in self.replicas if not replica.condition.is_removed and replica.is_for(group)]
        return sorted({name for replica in there for name in replica.models})

    def begin(self, index: int, tokens: int) -> Lease:
        """A call goes to a replica.

        Args:
            index: of the replica.
            tokens: of the prompt, that it has to compute. Its load keeps them until as many calls have followed as
                `Lately` remembers: where a fleet is hardly busy, only what lies behind shows who gets too much.
        """
        replica = self.replicas[index]
        work = self._lately.add(replica.load, tokens, len(self.replicas))
        return Lease(replica, work, self._clock, self._wall_clock)

    # Who is there

    def reload(self, config: GatewayConfig) -> Change:
        """Take another configuration.

        Replicas whose way is the same stay, with all that is known of them; others are removed, and end what runs on
        them; new ones are added.

        Raises:
            UsageError: if a new one cannot be made; then nothing has changed.
        """
        staying: dict[int, ReplicaTable] = {}
        missing: list[ReplicaTable] = []
        present = {
            _way(replica.table): index
            for index, replica in enumerate(self.replicas)
            if not replica.condition.is_removed
        }
        for table in config.replica:
            index = present.get(_way(table))
            if index is None:
                missing.append(table)
            else:
                staying[index] = table
        new = [
            Replica(table, self._open_upstream(table, config.upstream), Condition(config.health, config.upstream))
            for table in missing
        ]
        removed = tuple(sorted(set(present.values()) - staying.keys()))
        for index in removed:
            self.replicas[index].condition.is_removed = True
        for index, table in staying.items():
            self._renew(self.replicas[index], table, config)
        self._config = config
        return Change(tuple([self._place(replica) for replica in new]), removed)

    def _renew(self, replica: Replica, table: ReplicaTable, config: GatewayConfig) -> None:
        if table.models:
            replica.models = frozenset(table.models)
        elif replica.table.models:  # it used to be told
            replica.models = frozenset()
            replica.models_asked = -math.inf
        replica.table = table
        replica.condition.health = config.health
        replica.condition.upstream = config.upstream
        if isinstance(replica.upstream, HttpUpstream):
            replica.upstream.options = config.upstream

    def _place(self, new: Replica) -> int:
        """Give a replica an index: a free one, or the next."""
        for index, replica in enumerate(self.replicas):
            if replica.condition.is_gone:
                self.replicas[index], self.loads[index] = new, new.load
                return index
        self.replicas.append(new)
        self.loads.append(new.load)
        return len(self.replicas) - 1

    # How they are

    async def run(self) -> None:
        """Look after the fleet until cancelled."""
        while True:
            started = self._clock()
            await self.check()
            await asyncio.sleep(max(0.0, started + self._config.health.seconds - self._clock()))

    async def check(self) -> None:
        """Ask each replica how it is and what it serves, leave out outliers, and let go of what has been drained."""
        await asyncio.gather(*[self._check(replica) for replica in self.replicas if not replica.condition.is_removed])
        self._eject_outliers()
        for replica in self.replicas:
            replica.tell(self._clock())
            condition = replica.condition
            if condition.is_removed and not condition.is_gone and not replica.load.pending:
                condition.is_gone = True
                await replica.upstream.close()

    async def close(self) -> None:
        """Let go of all connections."""
        await asyncio.gather(*[replica.upstream.close() for replica in self.replicas])

    async def _check(self, replica: Replica) -> None:
        was_down = replica.condition.state(self._clock()) is State.DOWN
        if replica.table.kind not in _HOSTED:
            status, _ = await self._ask(replica, self._config.health.path)
            # Some servers have no such path, or want a key for it: they are there, too.
            replica.condition.checked(is_well=0 < status < 500)
        is_down = replica.condition.state(self._clock()) is State.DOWN
        is_due = self._clock() >= replica.models_asked + MODELS_SECONDS or was_down or not replica.models
        # Where the names are known, it only matters to its events which of them are adapters.
        if is_due and not is_down and (replica.table.events or not replica.table.models):
            status, body = await self._ask(replica, "/v1/models")
            if status == 200 and (cards := read_cards(body)):
                replica.models = frozenset(replica.table.models or [card.id for card in cards])
                replica.adapters = frozenset([card.id for card in cards if card.parent])
                replica.models_asked = self._clock()

    async def _ask(self, replica: Replica, path: str) -> tuple[int, bytes]:
        """Status and body of an answer to GET; 0 where there is none. A body that is too long is none."""
        headers = [_ANTHROPIC_VERSION] if replica.table.kind is Kind.ANTHROPIC else []
        body = b""
        try:
            async with asyncio.timeout(self._config.health.timeout_seconds):
                answer = await replica.upstream.send(Outgoing("GET", path, headers, b""))
                try:
                    async for chunk in answer.chunks():
                        body += chunk
                        if len(body) > _MOST_BYTES:
                            return answer.status, b""
                finally:
                    await answer.close()
        except (UpstreamFailed, TimeoutError):
            return 0, b""
        return answer.status, body

    def _eject_outliers(self) -> None:
        now = self._clock()
        present = [index for index, replica in enumerate(self.replicas) if not replica.condition.is_removed]
        states = {index: self.replicas[index].condition.state(now) for index in present}
        working = [index for index in present if states[index] in (State.UP, State.RESTING)]
        summaries = {index: self.replicas[index].condition.outcomes.summary(now) for index in working}
        for index in working:
            models = self.replicas[index].models
            peers = [other for other in present if self.replicas[other].models & models]
            out = sum(states[other] is State.EJECTED for other in peers)
            room = int(self._config.upstream.ejection_share * len(peers)) - out
            compared = {
                other: summaries[other] for other in peers if states[other] is not State.EJECTED and other in summaries
            }
            if room > 0 and is_outlier(index, compared):
                self.replicas[index].condition.eject(now)
                states[index] = State.EJECTED

    def as_json(self) -> list[dict[str, Any]]:
        """The fleet as JSON, without those that are gone; no secrets."""
        now = self._clock()
        return [
            _view(index, replica, now) for index, replica in enumerate(self.replicas) if not replica.condition.is_gone
        ]


def retry_after(headers: Mapping[bytes, bytes], wall_time: float) -> float | None:
    """Seconds that an answer asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date; None without."""
    try:
        if (value := headers.get(b"retry-after-ms")) is not None:
            seconds = float(value) / 1000
        elif (value := headers.get(b"retry-after")) is None:
            return None
        elif value.strip()[:1].isdigit():
            seconds = float(value)
        else:
            seconds = parsedate_to_datetime(value.decode("latin-1")).timestamp() - wall_time
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _way(table: ReplicaTable) -> bytes:
    """What makes a replica the same one: all but who may ask it for what."""
    return msgspec.json.encode(msgspec.structs.replace(table, models=(), groups=()))


def _view(index: int, replica: Replica, now: float) -> dict[str, Any]:
    condition = replica.condition
    summary = condition.outcomes.summary(now)
    left = condition.seconds_left(now)
    return {
        "index": index,
        "name": replica.table.name,
        "url": replica.table.url,
        "kind": replica.table.kind.value,
        "state": condition.state(now).value,
        "seconds_left": round(left, 1) if math.isfinite(left) else None,
        "models": sorted(replica.models),
        "groups": list(replica.table.groups),
        "pending": replica.load.pending,
        "tokens": replica.load.tokens,
        "failures_in_a_row": condition.failures,
        "recent_calls": summary.calls,
        "recent_failures": summary.failures,
    }
