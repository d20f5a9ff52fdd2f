"""The fleet: which replicas there are, what they have to do, and which of them should be asked.

Replicas have indexes, under which routing and the block index know them. An index stays with its replica until that has
been removed and has ended what ran on it; then a new one may get it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from prefold.core.routing import Lately, Load
from prefold.gateway.condition import Condition, State, is_outlier
from prefold.gateway.config import GatewayConfig, GroupTable, Kind, ReplicaTable, UpstreamOptions
from prefold.gateway.http_upstream import HttpUpstream
from prefold.gateway.model_cards import read_cards, read_role
from prefold.gateway.replica import Lease, Replica
from prefold.gateway.upstream import Outgoing, Upstream, UpstreamFailed
from prefold.server.asgi import HttpError
from prefold.server.fields import shown

OpenUpstream = Callable[[ReplicaTable, UpstreamOptions], Upstream]
"""Makes the upstream of a replica; raises UsageError where it cannot."""

MODELS_SECONDS = 30.0
"""How often a replica is asked which models it serves, where its table does not say."""

_log = logging.getLogger(__name__)
_HOSTED = (Kind.OPENAI, Kind.ANTHROPIC)  # they have no health path; only calls tell how they are
_MOST_BYTES = 1 << 20  # of an answer to a question of ours
_OK = 200
_ANTHROPIC_VERSION = (b"anthropic-version", b"2023-06-01")


def http_upstreams(environ: Mapping[str, str]) -> OpenUpstream:
    """Makes upstreams over HTTP, with keys read from an environment or from files."""

    def open_upstream(table: ReplicaTable, options: UpstreamOptions) -> Upstream:
        key = table.api_key.read(environ) if table.api_key is not None else None
        header: Literal["authorization", "x-api-key"] = "x-api-key" if table.kind is Kind.ANTHROPIC else "authorization"
        return HttpUpstream(table.url, options, key, key_header=header)

    return open_upstream


@dataclass(frozen=True, slots=True)
class Change:
    """Indexes of the replicas that a reload brought and took away."""

    added: tuple[int, ...]
    removed: tuple[int, ...]


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

        Where none is up, those that asked for a rest are taken, then those that were ejected: better than nobody. Then
        those that can be reached, but failed at this model in a row: where all did, the fault is in the requests, or
        behind the replicas, and those of somebody else may do better. Those that are down or cannot be reached are not
        taken; one whose breaker waits for a trial is, for one call. Where none can be taken, those are whose role it is
        to compute prompts for the others.

        Raises:
            HttpError: 404 if the model is not there for the group, 503 if none of its replicas can be asked.
        """
        candidates = self.replicas_for(model, group)
        if not candidates:
            if any(not each.is_asked and not each.models and each.is_for(group) for each in self._present()):
                raise HttpError(
                    503,
                    "The servers have not said yet which models they have",
                    hint="try again",
                    code="no_replica",
                    headers={"retry-after": "1"},
                )
            raise HttpError(
                404, f"There is no model {shown(model)}", hint="see /v1/models", code="model_not_found", param="model"
            )
        answering = [index for index in candidates if not self._is_for_prefill(index)]
        if chosen := self._best(answering, model) or self._best([*filter(self._is_for_prefill, candidates)], model):
            return chosen
        raise HttpError(
            503,
            f"No replica of {shown(model)} can be reached",
            hint="try again",
            code="no_replica",
            headers={"retry-after": str(math.ceil(self._config.health.seconds * self._config.health.rise))},
        )

    def for_prefill(self, model: str, group: GroupTable) -> list[int]:
        """Those that compute prompts for others and are up, or due for a trial, ascending; nobody needs them."""
        now = self._clock()
        up: list[int] = []
        for index in filter(self._is_for_prefill, self.replicas_for(model, group)):
            condition = self.replicas[index].condition
            state = condition.state(now, model)
            if state is State.UP or (state is State.OPEN and condition.may_be_tried(now, model)):
                up.append(index)
        return up

    def _is_for_prefill(self, index: int) -> bool:
        return self.replicas[index].table.role == "prefill"

    def _best(self, candidates: list[int], model: str) -> list[int]:
        """Those of some candidates that are well, or else fare best; none where none can be asked."""
        now = self._clock()
        states = [self.replicas[index].condition.state(now, model) for index in candidates]
        if states.count(State.UP) == len(states):
            return candidates
        up: list[int] = []
        second: list[int] = []
        third: list[int] = []
        last: list[int] = []
        for index, state in zip(candidates, states, strict=True):
            condition = self.replicas[index].condition
            if state is State.UP or (state is State.OPEN and condition.may_be_tried(now, model)):
                up.append(index)
            elif state is State.RESTING:
                second.append(index)
            elif state is State.EJECTED:
                third.append(index)
            elif state is State.OPEN and condition.breaker.may_be_tried(now):
                last.append(index)
        return up or second or third or last

    def models(self, group: GroupTable) -> list[str]:
        """Names that a group may ask for, sorted."""
        return sorted({name for replica in self._present() if replica.is_for(group) for name in replica.models})

    def _present(self) -> Iterator[Replica]:
        return (replica for replica in self.replicas if not replica.condition.is_removed)

    def begin(self, index: int, tokens: int, model: str) -> Lease:
        """A call goes to a replica.

        Args:
            index: of the replica.
            model: that it asks for.
            tokens: of the prompt, that it has to compute. Its load keeps them until as many calls have followed as
                `Lately` remembers: where a fleet is hardly busy, only what lies behind shows who gets too much.
        """
        replica = self.replicas[index]
        work = self._lately.add(replica.load, tokens, len(self.replicas))
        return Lease(replica, model, work, self._clock, self._wall_clock)

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
        await asyncio.gather(*[self._check(replica) for replica in self._present()])
        self._eject_outliers()
        for replica in self.replicas:
            replica.condition.keep(replica.models)
            replica.tell(self._clock())
            condition = replica.condition
            if condition.is_removed and not condition.is_gone and not replica.load.pending:
                condition.is_gone = True
                await replica.upstream.close()

    async def close(self) -> None:
        """Let go of all connections."""
        await asyncio.gather(*[replica.upstream.close() for replica in self.replicas])

    async def _check(self, replica: Replica) -> None:
        was_down = replica.condition.is_down
        if replica.table.kind not in _HOSTED:
            status, body = await self._ask(replica, self._config.health.path)
            # Some servers have no such path, or want a key for it: they are there, too.
            replica.condition.checked(is_well=0 < status < 500)
            if status == _OK and replica.table.kind is Kind.PREFOLD and replica.table.role != "both":
                replica.says_role(read_role(body))
        is_down = replica.condition.is_down
        is_due = self._clock() >= replica.models_asked + MODELS_SECONDS or was_down or not replica.models
        # Where the names are known, it only matters to its events which of them are adapters.
        if is_due and not is_down and (replica.table.events or not replica.table.models):
            status, body = await self._ask(replica, "/v1/models")
            if status == _OK and (cards := read_cards(body)):
                replica.models = frozenset(replica.table.models or [card.id for card in cards])
                replica.adapters = frozenset([card.id for card in cards if card.parent])
                replica.models_asked = self._clock()
        replica.is_asked = True

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
        """Leave out, for a model, those that serve it far worse than the others that do."""
        for model in {model for replica in self._present() for model in replica.condition.services}:
            self._eject_outliers_of(model)

    def _eject_outliers_of(self, model: str) -> None:
        now = self._clock()
        conditions = {
            index: replica.condition
            for index, replica in enumerate(self.replicas)
            if model in replica.models and not replica.condition.is_removed
        }
        states = {index: condition.state(now, model) for index, condition in conditions.items()}
        summaries = {
            index: conditions[index].service(model).outcomes.summary(now)
            for index, state in states.items()
            if state in (State.UP, State.RESTING)
        }
        out = sum(state is State.EJECTED for state in states.values())
        room = int(self._config.upstream.ejection_share * len(conditions)) - out
        for index in tuple(summaries):
            if room > 0 and is_outlier(index, summaries):
                conditions[index].services[model].eject(now)
                del summaries[index]
                room -= 1

    def as_json(self) -> list[dict[str, Any]]:
        """The fleet as JSON, without those that are gone; no secrets."""
        now = self._clock()
        return [
            _view(index, replica, now) for index, replica in enumerate(self.replicas) if not replica.condition.is_gone
        ]


def _way(table: ReplicaTable) -> bytes:
    """What makes a replica the same one: all but who may ask it for what."""
    return msgspec.json.encode(msgspec.structs.replace(table, models=(), groups=(), role="both"))


def _view(index: int, replica: Replica, now: float) -> dict[str, Any]:
    condition = replica.condition
    services = condition.services.values()
    summaries = [service.outcomes.summary(now) for service in services]
    states = {model: state.value for model, state in replica.states(now).items()}
    left = replica.seconds_left(now)
    return {
        "index": index,
        "name": replica.table.name,
        "url": replica.table.url,
        "kind": replica.table.kind.value,
        "role": replica.table.role,
        "state": states.pop(""),
        "states": states,  # of models that fare worse
        "seconds_left": round(left, 1) if math.isfinite(left) else None,
        "models": sorted(replica.models),
        "groups": list(replica.table.groups),
        "pending": replica.load.pending,
        "tokens": replica.load.tokens,
        "failures_in_a_row": max([condition.breaker.failures, *[service.breaker.failures for service in services]]),
        "recent_calls": sum(summary.calls for summary in summaries),
        "recent_failures": sum(summary.failures for summary in summaries),
    }
