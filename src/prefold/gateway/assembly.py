"""From a configuration to a running gateway, and from one configuration to the next."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from prefold.core.distinct import DistinctLately
from prefold.core.units import parse_bytes
from prefold.errors import PrefoldError
from prefold.gateway.access import Access
from prefold.gateway.app import GatewayApp
from prefold.gateway.budgets import Budgets
from prefold.gateway.canonical import Canonicalizer
from prefold.gateway.config import GatewayConfig, Kind, ReplicaTable, UpstreamOptions
from prefold.gateway.dispatch import Dispatcher
from prefold.gateway.embedded import AppUpstream
from prefold.gateway.fixed_options import in_force
from prefold.gateway.gauges import Reading, ReplicaReading
from prefold.gateway.handover import Handover
from prefold.gateway.knowledge import Knowledge
from prefold.gateway.load_config import load_config
from prefold.gateway.meter import Metering, Sink
from prefold.gateway.openings import check_reload
from prefold.gateway.parts import Parts
from prefold.gateway.replicas import Fleet, http_upstreams
from prefold.gateway.request_log import RequestLog
from prefold.gateway.router import Router
from prefold.gateway.uniform import Uniform
from prefold.gateway.upstream import Upstream
from prefold.gateway.verifier import Verifier
from prefold.providers.prices import Prices
from prefold.responses.cache import AnswerCache, AnswerCacheOptions, Mode
from prefold.responses.redis_store import RedisStore
from prefold.responses.sqlite_store import SqliteStore
from prefold.responses.store import Store
from prefold.server.asgi import App

if TYPE_CHECKING:  # it needs packages that only those have who use it
    from prefold.gateway.meaning import Meaning

_log = logging.getLogger(__name__)
_ENGINE_URL = "prefold:engine"
_LATELY_SECONDS = 3_600.0
_LOG_LABEL = b"prefold/request-log/1"
_STATES = {"draining": "down", "gone": "down", "resting": "up"}  # as metrics call them


class Gateway:
    """A gateway from its configuration file on.

    Args:
        path: of the file.
        environ: where secrets are.
        engine: the embedded engine's application and its models, where the configuration has one.
        state_folder: for answers that are kept, where the file names no other place.
        prices: of models; None to know none.
        clock: monotonic seconds.
        now: Unix seconds.

    Attributes:
        app: the application.

    Raises:
        UsageError, ModelError: what is wrong with the configuration.
    """

    def __init__(
        self,
        path: Path,
        environ: Mapping[str, str],
        *,
        engine: tuple[App, tuple[str, ...]] | None,
        state_folder: Path,
        prices: Prices | None,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._path = path
        self._environ = environ
        self._state_folder = state_folder
        self._meaning: Meaning | None = None
        self._engine = engine
        self._clock = clock
        self._now = now
        config = self._with_engine(load_config(path, environ))
        self._knowledge = Knowledge(config.routing, clock)
        self._knowledge.check(config)
        self._beginnings = DistinctLately(_LATELY_SECONDS, clock())
        self._fleet = Fleet(config, self._open_upstream, clock=clock, wall_clock=now)
        self._sinks = _sinks(config, environ)
        self._metering = Metering(config, prices, clock, now, gauges=self._reading, sinks=self._sinks)
        self._answers = _answers(config, environ, state_folder, clock=now, monotonic=clock)
        self._budgets = Budgets(
            config.redis.address(environ) if config.redis else "",
            config.redis.budget_seconds if config.redis else 0.1,
            clock,
        )
        self._verifier = Verifier(self._fleet, clock, Random())  # noqa: S311 - prompts, not secrets
        self._uniform = Uniform(clock, asyncio.sleep, secrets.SystemRandom().random)
        self._reloading = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        ids = Random(secrets.randbits(128))  # noqa: S311 - they have to differ, not to be secret
        self.app = GatewayApp(self._parts(config), clock=clock, new_id=lambda: f"{ids.getrandbits(128):032x}")

    # Running

    async def start(self) -> None:
        """Begin what runs beside requests; the health of all replicas is known when this returns.

        Raises:
            UsageError, MissingExtra, ModelError, StoreFailed: if answers by meaning are wanted and cannot be had.
        """
        config = self.app.parts.config
        try:
            self._meaning = await self._meaning_for(config)
        except BaseException:  # whatever ends the start, what is open is let go of
            await self.close()
            raise
        self.app.parts = self._parts(config, self.app.parts.access)
        for index, replica in enumerate(self._fleet.replicas):
            self._knowledge.follow(index, replica.table)
        await self._fleet.check()
        self._spawn(self._fleet.run())
        self._spawn(self._verify_new_engines())

    async def close(self) -> None:
        """Stop all of it, once no request runs any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._answers.close()
        if self._meaning is not None:
            await self._meaning.close()
        await self._budgets.close()
        await self._knowledge.close()
        await self._fleet.close()
        for sink in self._sinks:
            sink.close()

    async def reload(self) -> None:
        """Read the configuration again. What is wrong with it, or would open what is closed, is logged.

        Nothing changes then. Streams go on. What `FIXED` names stays as it was; what the file says of it then is named
        in the log.
        """
        async with self._reloading:  # or else the one that began first might end last
            await self._reload()

    async def _reload(self) -> None:
        try:
            config, ignored = in_force(self.app.parts.config, load_config(self._path, self._environ))
            config = self._with_engine(config)
            check_reload(self.app.parts.config, config)
            self._knowledge.check(config)
            access = Access(config, self._environ)
            meaning = await self._meaning_for(config)
            change = self._fleet.reload(config)
        except PrefoldError as error:
            _log.error("The configuration was not reloaded: %s %s", error.message, error.hint)
            return
        self._knowledge.reload(config.routing)
        for index in change.removed:
            self._verifier.forget(self._fleet.replicas[index].table.name)
            await self._knowledge.leave(index)
        for index in change.added:
            self._knowledge.follow(index, self._fleet.replicas[index].table)
        self._metering.reload(config)
        for sink in self._sinks:
            if isinstance(sink, RequestLog):
                sink.reopen()
        self._meaning = meaning
        if meaning is not None:
            meaning.reload(config)
        self.app.parts = self._parts(config, access)
        _log.warning("The configuration was reloaded from %s", self._path)
        if ignored:
            _log.warning("Only a new start changes these, which stay as they were: %s", ", ".join(ignored))

    async def _meaning_for(self, config: GatewayConfig) -> Meaning | None:
        """What answers by meaning: opened when it is first wanted, and kept from then on.

        Raises:
            UsageError, MissingExtra, ModelError, StoreFailed: if it cannot be had, or may not be on.
        """
        meaning = self._meaning
        if config.meaning.modes == {"off"}:
            return meaning
        if meaning is not None:
            await meaning.require_proof(config)
            return meaning
        from prefold.gateway.meaning import open_meaning  # noqa: PLC0415 - see above

        return await open_meaning(
            config,
            self._environ,
            self._state_folder,
            ask=self.app.ask,
            metering=self._metering,
            clock=self._now,
            monotonic=self._clock,
        )

    async def _verify_new_engines(self) -> None:
        while True:
            health = self.app.parts.config.health
            if health.verify_caching:
                await self._verifier.verify_new_engines()
            await asyncio.sleep(health.seconds)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Parts

    def _with_engine(self, config: GatewayConfig) -> GatewayConfig:
        if self._engine is None:
            return config
        name = config.engine.name if config.engine else "engine"
        table = ReplicaTable(name=name, url=_ENGINE_URL, kind=Kind.PREFOLD, models=self._engine[1])
        return msgspec.structs.replace(config, replica=(*config.replica, table))

    def _parts(self, config: GatewayConfig, access: Access | None = None) -> Parts:
        access = access or Access(config, self._environ)
        dispatcher = Dispatcher(frozenset(access.credentials), self._now)
        handover = Handover(
            Router(self._fleet, self._knowledge, config.routing, for_prefill=True),
            self._fleet,
            dispatcher,
            config.routing,
            is_on=any(table.role == "prefill" for table in config.replica),
            clock=self._clock,
        )
        return Parts(
            config=config,
            access=access,
            budgets=self._budgets,
            canonical=Canonicalizer(config.canonical),
            answers=self._answers,
            meaning=None if config.meaning.modes == {"off"} else self._meaning,
            router=Router(self._fleet, self._knowledge, config.routing, self._beginnings.add),
            handover=handover,
            fleet=self._fleet,
            knowledge=self._knowledge,
            dispatcher=dispatcher,
            metering=self._metering,
            verifier=self._verifier,
            uniform=self._uniform,
            body_limit=parse_bytes(config.server.body_limit),
            engine=None if self._engine is None else self._engine[0],
        )

    def _open_upstream(self, table: ReplicaTable, options: UpstreamOptions) -> Upstream:
        if table.url == _ENGINE_URL and self._engine is not None:
            return AppUpstream(self._engine[0], table.name)
        return http_upstreams(self._environ)(table, options)

    def _reading(self) -> Reading:
        knowledge = self._knowledge
        replicas = [
            ReplicaReading(
                name=view["name"],
                state=_STATES.get(view["state"], view["state"]),
                trust=trust.value if (trust := knowledge.trust(view["index"])) else "",
                pending=view["pending"],
                blocks=knowledge.index.blocks_of(view["index"]),
                evicted_tokens=knowledge.evicted_blocks(view["index"])
                * self._fleet.replicas[view["index"]].table.block_size,
            )
            for view in self._fleet.as_json()
        ]
        return Reading(
            replicas,
            knowledge.index.size,
            knowledge.index.capacity,
            distinct_prefixes=self._beginnings.read(self._clock()) or None,  # with one replica nobody looks at them
            skipped={"budgets": self._budgets.uncounted, "answers": self._answers.counts.store_failures},
            meaning=self._meaning.reading() if self._meaning is not None else None,
        )


def _sinks(config: GatewayConfig, environ: Mapping[str, str]) -> list[Any]:
    sinks: list[Sink] = []
    metering = config.metering
    if metering.request_log:
        secret = config.access.salt_secret
        # One key for all gateways that share the secret, so that what they redact can be compared; else one of its own.
        key = hmac.digest(secret.read(environ).encode(), _LOG_LABEL, "sha256") if secret else secrets.token_bytes(32)
        sinks.append(RequestLog(Path(metering.request_log), bodies=metering.bodies, key=key))
    if metering.otlp_endpoint:
        from prefold.gateway.otel import connect  # noqa: PLC0415 - only where it is asked for

        telemetry = connect(metering.otlp_endpoint, time.time_ns, secrets.token_hex(8))
        telemetry.start()
        sinks.append(telemetry)
    return sinks


def _answers(
    config: GatewayConfig,
    environ: Mapping[str, str],
    folder: Path,
    *,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
) -> AnswerCache:
    options = config.answers
    budget = config.redis.budget_seconds if config.redis else 0.1
    store: Store | None = None
    if options.mode == "on" and options.store == "redis" and config.redis is not None:
        store = RedisStore(config.redis.address(environ), budget)
    elif options.mode == "on":
        path = Path(options.path).expanduser() if options.path else folder / "answers.sqlite"
        store = SqliteStore(path, parse_bytes(options.max_bytes), clock)
    limits = AnswerCacheOptions(
        ttl_seconds=options.ttl_seconds,
        every_request=options.every_request,
        by_credentials=config.access.by == "open",
        budget_seconds=budget,
    )
    return AnswerCache(Mode(options.mode), store, limits, clock, monotonic)
