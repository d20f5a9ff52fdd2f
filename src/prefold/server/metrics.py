"""What Prometheus sees. Counters only, where a rate is meant: dividing them is the reader's business."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from prefold.engine.blend.chunk_store import ChunkStore
from prefold.engine.engine import Engine
from prefold.engine.request import Output
from prefold.engine.tiers.ladder import Ladder

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MAX_TENANTS = 100
"""Tenants with series of their own; a client could otherwise fill the memory with names."""

MAX_TENANT_LENGTH = 64

_TTFT_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """The metrics of one server.

    Args:
        engine: read for gauges and totals at each scrape.
        model: its name, a label.
        clock: monotonic seconds.
    """

    def __init__(self, engine: Engine, model: str, clock: Callable[[], float]) -> None:
        self.model = model
        self.clock = clock
        self._tenants = {"default", "other"}
        self._registry = CollectorRegistry()
        self._registry.register(_EngineState(engine, model))
        by_tenant = ("model", "tenant")
        self.hit_tokens = Counter(
            "llm_prefix_cache_hit_tokens", "Prompt tokens found in the cache.", by_tenant, registry=self._registry
        )
        self.miss_tokens = Counter(
            "llm_prefix_cache_miss_tokens", "Prompt tokens computed.", by_tenant, registry=self._registry
        )
        self.generated_tokens = Counter(
            "prefold_generated_tokens", "Tokens generated.", by_tenant, registry=self._registry
        )
        self.finished = Counter(
            "prefold_answers_finished", "Answers ended, by reason.", ("model", "reason"), registry=self._registry
        )
        self.ttft = Histogram(
            "llm_ttft_seconds",
            "Time from the arrival of a request to its first token.",
            ("model", "cache"),
            buckets=_TTFT_BUCKETS,
            registry=self._registry,
        )

    def meter(self, tenant: str | None, arrived: float) -> Meter:
        """Something that measures one request.

        Args:
            tenant: from the client's header. Names beyond the first `MAX_TENANTS`, and long ones, count as `other`.
            arrived: when the request came, by the clock.
        """
        name = tenant or "default"
        if name not in self._tenants:
            if len(name) > MAX_TENANT_LENGTH or len(self._tenants) >= MAX_TENANTS + 2:
                name = "other"
            self._tenants.add(name)
        return Meter(self, name, arrived)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)


class Meter:
    """Measures one request to the engine; called in the engine's thread."""

    def __init__(self, metrics: Metrics, tenant: str, arrived: float) -> None:
        self._metrics = metrics
        self._tenant = tenant
        self._arrived = arrived
        self._ttft: float | None = None

    def observe(self, output: Output) -> None:
        """Take note of an output."""
        metrics, labels = self._metrics, (self._metrics.model, self._tenant)
        if self._ttft is None and output.tokens:
            self._ttft = metrics.clock() - self._arrived
        if output.finish is not None:
            metrics.finished.labels(metrics.model, output.finish).inc()
        usage = output.usage
        if usage is None:
            return
        metrics.generated_tokens.labels(*labels).inc(usage.completion)
        if self._ttft is not None:  # else it ended before its prompt was read
            metrics.hit_tokens.labels(*labels).inc(usage.cached)
            metrics.miss_tokens.labels(*labels).inc(usage.prompt - usage.cached)
            metrics.ttft.labels(metrics.model, "hit" if usage.cached else "miss").observe(self._ttft)


class _EngineState(Collector):
    """Reads the engine at each scrape.

    The numbers are read one by one from another thread, while the engine goes on. Each is whole, being a single
    attribute; two may be of different moments, which a scrape every few seconds does not notice, and which is better
    than a scrape that waits for a step to end.
    """

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._model = model

    def _chunks(self, store: ChunkStore) -> Iterable[Metric]:
        looked_for = CounterMetricFamily("prefold_blend_chunks", "Marked chunks.", labels=("model", "result"))
        for result, number in (("reused", store.counters.hits), ("new", store.counters.misses)):
            looked_for.add_metric((self._model, result), number)
        yield looked_for
        size = GaugeMetricFamily("prefold_blend_bytes", "K/V of chunks that are kept.", labels=("model",))
        size.add_metric((self._model,), store.size)
        yield size

    def _tiers(self, ladder: Ladder) -> Iterable[Metric]:
        labels = ("model", "tier")
        loaded = CounterMetricFamily("prefold_tier_loaded_tokens", "Tokens whose K/V came from a tier.", labels=labels)
        size = GaugeMetricFamily("prefold_tier_bytes", "Bytes that a tier holds.", labels=labels)
        blocks = CounterMetricFamily(
            "prefold_tier_blocks", "Blocks of K/V, by what became of them.", labels=(*labels, "event")
        )
        errors = CounterMetricFamily("prefold_tier_errors", "Operations that failed or took too long.", labels=labels)
        for tier in ladder.state():
            names = (self._model, tier.name)
            loaded.add_metric(names, tier.loaded)
            size.add_metric(names, tier.usage.bytes)
            errors.add_metric(names, tier.usage.errors)
            for event in ("hits", "misses", "corrupt", "refused", "evicted"):
                blocks.add_metric((*names, event), getattr(tier.usage, event))
        yield from (loaded, size, blocks, errors)
        for name, text, value in (
            ("prefold_tier_late", "Answers that went without what was on its way to them.", ladder.late),
            ("prefold_tier_dropped", "Blocks not written, since too many waited for it.", ladder.dropped),
        ):
            counter = CounterMetricFamily(name, text, labels=("model",))
            counter.add_metric((self._model,), value)
            yield counter

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        cache, scheduler, times = self._engine.cache, self._engine.scheduler, self._engine.times
        tokens = GaugeMetricFamily("prefold_kv_tokens", "Tokens of K/V.", labels=("model", "state"))
        for state, value in (
            ("used", cache.tree.size + cache.reserved),
            ("pinned", cache.pinned),
            ("capacity", cache.capacity),
        ):
            tokens.add_metric((self._model, state), value)
        yield tokens
        for name, text, value in (
            ("prefold_requests_waiting", "Answers that wait to be admitted.", len(scheduler.waiting)),
            ("prefold_requests_running", "Answers that are being made.", len(scheduler.running)),
            ("prefold_pins", "Pinned prefixes.", len(self._engine.pins)),
        ):
            gauge = GaugeMetricFamily(name, text, labels=("model",))
            gauge.add_metric((self._model,), value)
            yield gauge
        for name, text, value in (
            ("prefold_preemptions", "Running answers that gave up their room.", scheduler.preemptions),
            ("prefold_steps", "Forward passes.", times.steps),
        ):
            counter = CounterMetricFamily(name, text, labels=("model",))
            counter.add_metric((self._model,), value)
            yield counter
        evicted = CounterMetricFamily(
            "prefold_evicted_tokens", "Tokens evicted from the cache, by who decided.", labels=("model", "policy")
        )
        evicted.add_metric((self._model, self._engine.options.policy), cache.counters.evicted)
        yield evicted
        if self._engine.blender is not None:
            yield from self._chunks(self._engine.blender.store)
        if self._engine.ladder is not None:
            yield from self._tiers(self._engine.ladder)
        seconds = CounterMetricFamily("prefold_step_seconds", "Time of steps, by part.", labels=("model", "part"))
        for part in ("planning", "model", "answering"):
            seconds.add_metric((self._model, part), getattr(times, part))
        yield seconds
