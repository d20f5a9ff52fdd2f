"""Answers by meaning in the gateway: which requests may have them, on whose behalf, and what is counted."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from prefold.core.breaker import Breaker
from prefold.gateway.call import Call
from prefold.gateway.config import GatewayConfig, MeaningMode, MeaningOptions
from prefold.gateway.gauges import MeaningReading
from prefold.gateway.meaning_proofs import Proofs
from prefold.gateway.meaning_store import Lent, MeaningParts, asking_tenant, open_parts
from prefold.gateway.meter import Metering
from prefold.gateway.own_model import Ask, OwnModel, RecentTenants
from prefold.responses.cache import Replay
from prefold.responses.flights import Fetch, LiveAnswer
from prefold.responses.semantic.cache import SemanticCache
from prefold.responses.semantic.decision.decision import DecisionOptions
from prefold.responses.semantic.eligibility import EligibilityOptions
from prefold.responses.semantic.options import Mode, SemanticOptions
from prefold.responses.semantic.question import QuestionOptions, read_question
from prefold.responses.semantic.report import Report, make_report, require_proof
from prefold.responses.semantic.types import Question, Reason
from prefold.responses.store import StoreFailed

_CLOSING_SECONDS = 1.0
_LOOK_SECONDS = 10.0
_BREAKER_FAILURES = 5
_BREAKER_SECONDS = 10.0
_GUARDED_SHARE = 0.9  # of what a request waits for the store, so that it is the breaker that hears of it
_GIVEN = 100_000
_ENTRY = b"x-prefold-entry"


@dataclass(frozen=True, slots=True)
class _Route:
    """What holds for a model."""

    mode: MeaningMode
    cache: SemanticCache
    questions: QuestionOptions


class Meaning:
    """The semantic cache of a gateway, between its exact cache and its replicas.

    A fault or delay of any part costs a hit: a request never fails, nor waits longer than the budgets, because of it.

    Args:
        parts: store, embedder, judge, verifier.
        config: the gateway's.
        tenants: told of whoever's texts a judge may be asked about.
        clock: Unix seconds.
        monotonic: seconds that only grow.
    """

    def __init__(
        self,
        parts: MeaningParts,
        config: GatewayConfig,
        tenants: RecentTenants,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        options = config.meaning
        self._parts = parts
        self._tenants = tenants
        self._clock = clock
        self._monotonic = monotonic
        self._decision = DecisionOptions(max_wrong=options.max_wrong, audit_share=options.audit_share)
        breaker = Breaker(_BREAKER_FAILURES, _BREAKER_SECONDS, monotonic)
        self._entries = Lent(parts.store, options.store_seconds * _GUARDED_SHARE, breaker)
        self._proofs = Proofs(parts.store, options.max_wrong)
        self._caches: dict[tuple[MeaningMode, float], SemanticCache] = {}
        self._retiring: set[SemanticCache] = set()
        self._retired: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._given: OrderedDict[str, set[str]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_credentials = False
        self._options = options
        self._routes: dict[str, _Route | None] = {}
        self._other: _Route | None = None
        self.reload(config)

    # Configurations

    def reload(self, config: GatewayConfig) -> None:
        """Take on another configuration; requests under way keep the one that they began with."""
        self._options = options = config.meaning
        # For good: entries from before are still there, and nobody knows whose they are.
        self._by_credentials = self._by_credentials or config.access.by == "open"
        self._other = self._route(options)
        self._routes = {
            model: self._route(options.for_route(route)) for route in options.route for model in route.models
        }
        used = {route.cache for route in (self._other, *self._routes.values()) if route is not None}
        for key, cache in list(self._caches.items()):
            if cache not in used:
                self._retiring.add(self._caches.pop(key))
                self._spawn(self._retire(cache))

    async def require_proof(self, config: GatewayConfig) -> None:
        """Refuse to serve what is not proven.

        Raises:
            UsageError: if the report does not pass.
            StoreFailed: if the store cannot be read.
        """
        if "on" in config.meaning.modes and not config.meaning.force:
            await require_proof(self._parts.store, self._decision)

    def _route(self, options: MeaningOptions) -> _Route | None:
        if options.mode == "off":
            return None
        questions = QuestionOptions(
            earlier_turns=options.earlier_turns,
            sampled=options.sampled,
            eligibility=EligibilityOptions(time_bound=options.time_bound, personal=options.personal),
            epoch=options.epoch,
            tags=frozenset(options.tags),
            shared=options.shared,
        )
        key = (options.mode, options.ttl_seconds)
        if key not in self._caches:
            self._caches[key] = self._cache(options)
        return _Route(options.mode, self._caches[key], questions)

    def _cache(self, options: MeaningOptions) -> SemanticCache:
        return SemanticCache(
            Mode(options.mode),
            self._entries,
            self._parts.embedding,
            self._parts.judge,
            verifier=self._parts.verifier,
            options=SemanticOptions(
                ttl_seconds=options.ttl_seconds,
                principals=options.principals,
                inserts_per_minute=options.inserts_per_minute,
                store_seconds=options.store_seconds,
                verify_seconds=options.verify_seconds,
            ),
            decision=self._decision,
            clock=self._clock,
            monotonic=self._monotonic,
            draw=random.SystemRandom().random,
            new_id=lambda: secrets.token_hex(16),
        )

    async def _retire(self, cache: SemanticCache) -> None:
        await cache.close(_CLOSING_SECONDS)
        self._retiring.remove(cache)
        self._retired += cache.tallies

    # Requests

    async def fetch(self, call: Call, fetch: Fetch) -> LiveAnswer:
        """The answer to a call: kept for other words, or the one that is fetched, which is learned from.

        Args:
            call: canonical.
            fetch: asks a replica.
        """
        route = self._routes.get(call.model, self._other)
        if route is None or _must_not_tell(call):
            return await fetch()
        question = self._question(call, route)
        if isinstance(question, Reason):
            if question is not Reason.NOT_A_QUESTION or call.api.generates:
                route.cache.refused(question)
            return await fetch()
        self._tell_who_asks(call)
        answer = await route.cache.reply(question, fetch, api=call.path, fields=call.fields)
        if isinstance(answer, Replay):
            self._give(call.tenant.name, answer)
        return answer

    async def explain(self, call: Call) -> dict[str, Any] | None:
        """What would become of a call, as JSON; None where its model has no answers by meaning.

        No text is in it: the candidate's was written by somebody else.
        """
        route = self._routes.get(call.model, self._other)
        if route is None or _must_not_tell(call):
            return None
        question = self._question(call, route)
        if isinstance(question, Reason):
            return {"mode": route.mode, "outcome": question.value}
        self._tell_who_asks(call)
        verdict = (await route.cache.explain(question)).verdict
        told = {"mode": route.mode, "outcome": "hit" if verdict.reason is None else verdict.reason.value}
        if (candidate := verdict.candidate) is None:
            return told
        return {
            **told,
            "entry": candidate.entry,
            "similarity": candidate.similarity,
            "guards": [guard.value for guard in verdict.guards],
            "probability": verdict.probability,
            "wrong_bound": verdict.bound,
        }

    def _tell_who_asks(self, call: Call) -> None:
        """For models behind this gateway that are asked about a question, now or in the background."""
        self._tenants.see(call.tenant)
        asking_tenant.set(call.tenant.name)

    def _question(self, call: Call, route: _Route) -> Question | Reason:
        return read_question(
            call.path,
            call.fields,
            partition=call.tenant.name,
            principal=self._principal(call),
            options=route.questions,
            headers=call.headers,
            by_credentials=self._by_credentials,
        )

    def _principal(self, call: Call) -> str:
        """Hash of who asks; "" where nobody can tell: within a tenant, by the tenant alone."""
        match self._options.principal:
            case "tenant":
                return ""
            case "user":
                name = _user(call.fields)
            case _:
                name = call.headers.get(self._options.principal_header.lower().encode(), b"").decode("latin-1")
        if not name:
            return ""
        said = f"prefold principal\0{call.tenant.name}\0{name}".encode("utf-8", "surrogatepass")
        return sha256(said).hexdigest()

    def _give(self, tenant: str, answer: Replay) -> None:
        entry = dict(answer.headers).get(_ENTRY, b"").decode("ascii")
        self._given.setdefault(entry, set()).add(tenant)
        self._given.move_to_end(entry)
        if len(self._given) > _GIVEN:
            self._given.popitem(last=False)

    # What clients and administrators do

    def was_given(self, entry: str, tenant: str) -> bool:
        """Whether a tenant may say something about an entry: it was given it, as far as that is still known.

        Where nobody knows (another gateway gave it, or this one before it was started anew) the id itself is the proof:
        128 random bits, told to those alone who were given the answer.
        """
        given = self._given.get(entry)
        return given is None or tenant in given

    async def quarantine(self, entry: str, note: str) -> bool:
        """Serve an entry no more, from now on; whether there is one of this id."""
        return await self._parts.store.quarantine(entry, note)

    async def vet(self, entry: str) -> bool:
        """Free an entry for all of its tenant."""
        return await self._parts.store.vet(entry)

    async def share(self, entry: str) -> bool:
        """Free an entry for all tenants."""
        return await self._parts.store.share(entry)

    async def delete(self, entry: str) -> bool:
        """Remove an entry with all that was derived from its texts."""
        return any([await each.delete(entry) for each in self._all_that_know()])

    async def invalidate(self, tag: str) -> int:
        """Remove all entries with a tag; how many there were."""
        return sum([await each.invalidate(tag) for each in self._all_that_know()])

    def _all_that_know(self) -> Sequence[SemanticCache]:
        """Whatever has wordings of entries in memory; each removes them from the store, too."""
        return list(self._caches.values())

    # Figures

    def reading(self) -> MeaningReading:
        """For metrics; what the store has was looked at some seconds ago."""
        outcomes = {reason.value for reason in Reason} | {"hits"}
        questions = {
            "hit" if name == "hits" else name: count for name, count in self._counted().items() if name in outcomes
        }
        proofs = self._proofs
        return MeaningReading(
            questions, self._decision.max_wrong, proofs.entries, proofs.samples, proofs.bound, proofs.threshold
        )

    async def report(self) -> Report:
        """What the store has shown so far, with what is counted here and not in it yet.

        Raises:
            StoreFailed: if it cannot be read.
        """
        store = self._parts.store
        samples = {pool: await store.samples(pool) for pool in await store.pools()}
        tallies = Counter(await store.tallies()) + (self._counted() - self._told)
        return await asyncio.to_thread(make_report, samples, tallies, self._decision)

    # Running

    def start(self) -> None:
        """Begin to look at the store now and then."""
        self._spawn(self._look())

    async def close(self) -> None:
        """End learning, within a second or so; what the store acknowledged is kept."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(cache.close(_CLOSING_SECONDS) for cache in self._caches.values()))
        with suppress(StoreFailed, TimeoutError):
            async with asyncio.timeout(self._options.store_seconds):
                await self._tell()
        await self._parts.close()

    async def _look(self) -> None:
        while True:
            with suppress(StoreFailed):
                await self._tell()
                await self._proofs.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _tell(self) -> None:
        """Add what was counted since the last time to what the store has counted."""
        counted = self._counted()
        if news := counted - self._told:
            await self._parts.store.tally(news)
            self._told = counted

    def _counted(self) -> Counter[str]:
        """What became of questions, and of what was learned, since the gateway began; names as in a report."""
        caches = (*self._caches.values(), *self._retiring)
        return sum((cache.tallies for cache in caches), self._retired)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _must_not_tell(call: Call) -> bool:
    """Whether nothing may say what is cached: an answer for other words is marked as one."""
    return call.tenant.group.ttft == "uniform"


def _user(fields: Mapping[str, Any]) -> str:
    """The end user, in the words of either API."""
    metadata = fields.get("metadata")
    named = (
        fields.get("safety_identifier"),
        fields.get("user"),
        metadata.get("user_id") if isinstance(metadata, Mapping) else None,
    )
    return next((name for name in named if isinstance(name, str) and name), "")


async def open_meaning(
    config: GatewayConfig,
    environ: Mapping[str, str],
    folder: Path,
    *,
    ask: Ask,
    metering: Metering,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
) -> Meaning:
    """Open answers by meaning, and begin what runs beside requests.

    Args:
        config: the gateway's.
        environ: where secrets are.
        folder: of the SQLite file, where the configuration names no other.
        ask: routes and sends a call of the gateway's own.
        metering: counts it.
        clock: Unix seconds.
        monotonic: seconds that only grow.

    Raises:
        UsageError, MissingExtra, ModelError: if a part cannot be had, or what is to be on is not proven.
        StoreFailed: if it is to be on, and the store cannot be read.
    """
    tenants = RecentTenants()
    parts = await open_parts(
        config,
        environ,
        folder,
        own_model=lambda model: OwnModel(model, tenants, ask, metering),
        clock=clock,
        monotonic=monotonic,
    )
    meaning = Meaning(parts, config, tenants, clock=clock, monotonic=monotonic)
    try:
        await meaning.require_proof(config)
    except BaseException:  # whatever ends the start, what is open is let go of
        await meaning.close()
        raise
    meaning.start()
    return meaning
