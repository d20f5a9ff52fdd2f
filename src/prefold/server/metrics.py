"""What Prometheus sees. Counters only, where a rate is meant: dividing them is the reader's business."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from prefold.engine.engine import Engine
from prefold.engine.request import Output

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

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        cache, scheduler, times = self._engine.cache, self._engine.scheduler, self._engine.times
        tokens = GaugeMetricFamily("prefold_kv_tokens", "Tokens of K/V.", labels=("model", "state"))
        for state, value in (
            ("used", cache.tree.size + cache.reserved),
            ("pinned", cache.tree.pinned),
            ("capacity", cache.capacity),
        ):
            tokens.add_metric((self._model, state), value)
        yield tokens
        for name, text, value in (
            ("prefold_requests_waiting", "Answers that wait to be admitted.", len(scheduler.waiting)),
            ("prefold_requests_running", "Answers that are being made.", len(scheduler.running)),
        ):
            gauge = GaugeMetricFamily(name, text, labels=("model",))
            gauge.add_metric((self._model,), value)
            yield gauge
        for name, text, value in (
            ("prefold_evicted_tokens", "Tokens evicted from the cache.", cache.counters.evicted),
            ("prefold_preemptions", "Running answers that gave up their room.", scheduler.preemptions),
            ("prefold_steps", "Forward passes.", times.steps),
        ):
            counter = CounterMetricFamily(name, text, labels=("model",))
            counter.add_metric((self._model,), value)
            yield counter
        seconds = CounterMetricFamily("prefold_step_seconds", "Time of steps, by part.", labels=("model", "part"))
        for part in ("planning", "model", "answering"):
            seconds.add_metric((self._model, part), getattr(times, part))
        yield seconds
