"""Metrics by the GenAI conventions of OpenTelemetry, sent over OTLP.

Names and bounds are those of the conventions as of October 2026 (open-telemetry/semantic-conventions-genai, which are
in development): the histograms gen_ai.client.token.usage, gen_ai.client.operation.duration and
gen_ai.server.time_to_first_token, and the counters gen_ai.client.inference.usage.*, of which those of the cache are the
point here. A replica's kind is the provider's name, and the tenant is not told.

Calls are counted as plain numbers, and a thread makes data of the SDK out of them when it sends: instruments of the SDK
take ten times as long at each call.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from prefold.errors import MissingExtra
from prefold.gateway.call import Api
from prefold.gateway.meter import TOLD, CallRecord, Outcome
from prefold.gateway.series import Buckets

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, Metric, MetricExporter, MetricsData

SECONDS = 15.0
"""Between two times that all is sent."""

_TOKEN_BOUNDS = tuple(4.0**power for power in range(14))
_DURATION_BOUNDS = tuple(0.01 * 2**power for power in range(14))
_TTFT_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_OPERATIONS: Mapping[Api, str] = MappingProxyType(
    {
        Api.CHAT: "chat",
        Api.RESPONSES: "chat",
        Api.MESSAGES: "chat",
        Api.COMPLETIONS: "text_completion",
        Api.EMBEDDINGS: "embeddings",
    }
)
_USAGE = "gen_ai.client.inference.usage"
_MOST_GROUPS = 10_000


class _Group(NamedTuple):
    """Calls that are counted together."""

    operation: str
    provider: str
    model: str
    error: str

    @property
    def attributes(self) -> dict[str, str]:
        """As the conventions call them."""
        named = {
            "gen_ai.operation.name": self.operation,
            "gen_ai.provider.name": self.provider,
            "gen_ai.request.model": self.model,
        }
        return {**named, "error.type": self.error} if self.error else named


class _Histogram(Buckets):
    """With the extremes that OTLP has beside the buckets."""

    __slots__ = ("max", "min")

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self.min, self.max = math.inf, -math.inf

    def observe(self, value: float) -> None:
        """Count a value."""
        super().observe(value)
        self.min, self.max = min(self.min, value), max(self.max, value)


class _Counts:
    """Of a group of calls."""

    __slots__ = ("duration", "input", "output", "read", "ttft", "written")

    def __init__(self) -> None:
        self.duration = _Histogram(_DURATION_BOUNDS)
        self.ttft = _Histogram(_TTFT_BOUNDS)
        self.input = _Histogram(_TOKEN_BOUNDS)
        self.output = _Histogram(_TOKEN_BOUNDS)
        self.read = self.written = 0


class Telemetry:
    """Counts calls that a replica answered, and sends the counts every `SECONDS`.

    Args:
        exporter: sends them.
        clock_ns: nanoseconds since 1970.
        instance: what tells this process from others.

    Attributes:
        name: what metrics call it.
        lost: times that sending failed; what was not sent goes with the next time, since all counts are totals.
    """

    name = "otlp"

    def __init__(self, exporter: MetricExporter, clock_ns: Callable[[], int], instance: str) -> None:
        self.lost = 0
        self._exporter = exporter
        self._clock_ns = clock_ns
        self._instance = instance
        self._began = clock_ns()
        self._groups: dict[_Group, _Counts] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send once more, and end."""
        self._is_over.set()
        self._thread.join()
        self._exporter.shutdown()

    def __call__(self, record: CallRecord, /) -> None:
        """Count a call."""
        operation = _OPERATIONS.get(record.api)
        if operation is None or not record.replica or record.cache in TOLD:
            return
        group = _Group(operation, record.kind.value, record.model_label, _error_of(record))
        counts = self._groups.get(group)
        if counts is None:
            if len(self._groups) >= _MOST_GROUPS:
                return
            counts = self._groups[group] = _Counts()
        counts.duration.observe(record.duration)
        if record.ttft is not None:
            counts.ttft.observe(record.ttft)
        if record.usage is not None:
            counts.input.observe(record.usage.input)
            counts.output.observe(record.usage.output)
            counts.read += record.usage.read
            counts.written += record.usage.write

    def _run(self) -> None:
        while not self._is_over.wait(SECONDS):
            self._send()
        self._send()

    def _send(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult  # noqa: PLC0415 - only where it is wanted

        try:
            is_sent = self._exporter.export(self.collect()) is MetricExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - whatever an exporter does, it must not end the thread
            is_sent = False
        self.lost += not is_sent

    def collect(self) -> MetricsData:
        """All counts since the beginning, as the SDK has them."""
        from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415 - only where it is wanted
            MetricsData,
            ResourceMetrics,
            ScopeMetrics,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

        resource = Resource.create({"service.name": "prefold-gateway", "service.instance.id": self._instance})
        scope = InstrumentationScope("prefold")
        metrics = list(self._metrics(list(self._groups.items()), self._clock_ns()))
        return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])

    def _metrics(self, groups: list[tuple[_Group, _Counts]], now: int) -> Iterable[Metric]:
        def named(name: str, text: str, unit: str, points: Iterable[HistogramDataPoint]) -> Metric:
            return _histogram(name, text, unit, list(points))

        def point(group: _Group, buckets: _Histogram, **more: str) -> HistogramDataPoint:
            return _point({**group.attributes, **more}, buckets, self._began, now)

        yield named(
            "gen_ai.client.operation.duration",
            "GenAI operation duration.",
            "s",
            (point(group, counts.duration) for group, counts in groups if any(counts.duration.counts)),
        )
        yield named(
            "gen_ai.server.time_to_first_token",
            "Time to generate first token for successful responses.",
            "s",
            (point(group, counts.ttft) for group, counts in groups if any(counts.ttft.counts)),
        )
        yield named(
            "gen_ai.client.token.usage",
            "Number of input and output tokens used.",
            "{token}",
            (
                point(group, buckets, **{"gen_ai.token.type": kind})
                for group, counts in groups
                for kind, buckets in (("input", counts.input), ("output", counts.output))
                if any(buckets.counts)
            ),
        )
        values: tuple[tuple[str, str, Callable[[_Counts], float]], ...] = (
            ("input_tokens", "Input tokens used, cached ones included.", lambda counts: counts.input.sum),
            ("output_tokens", "Output tokens used.", lambda counts: counts.output.sum),
            ("cache_read.input_tokens", "Input tokens read from a cache.", lambda counts: counts.read),
            ("cache_write.input_tokens", "Input tokens written to a cache.", lambda counts: counts.written),
        )
        for name, text, value in values:
            # No usage tells modalities apart, so that they are unknown.
            points = [
                ({**group.attributes, "gen_ai.token.modality": "unknown"}, round(value(counts)))
                for group, counts in groups
            ]
            yield _sum(f"{_USAGE}.{name}", text, points, self._began, now)


def connect(endpoint: str, clock_ns: Callable[[], int], instance: str) -> Telemetry:
    """What sends to an endpoint, by OTLP over HTTP; to be started.

    Args:
        endpoint: URL of a collector; with the path /v1/metrics, or without any path.
        clock_ns: nanoseconds since 1970.
        instance: what tells this process from others.

    Raises:
        MissingExtra: if OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - only where it is wanted
            OTLPMetricExporter,
        )
    except ModuleNotFoundError:
        raise MissingExtra(
            "metering.otlp_endpoint needs the packages of OpenTelemetry, which are not installed.",
            hint="pip install 'prefold[gateway]'",
        ) from None
    path = "/v1/metrics"
    url = endpoint if endpoint.endswith(path) else endpoint.rstrip("/") + path
    return Telemetry(OTLPMetricExporter(endpoint=url, timeout=SECONDS / 2), clock_ns, instance)


def _error_of(record: CallRecord) -> str:
    """A word for how a call failed; empty where it did not."""
    if record.outcome is not Outcome.DONE:
        return record.outcome.value
    return str(record.status) if record.status >= 400 else ""


def _point(attributes: dict[str, str], buckets: _Histogram, began: int, now: int) -> HistogramDataPoint:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint  # noqa: PLC0415

    counts = list(buckets.counts)
    return HistogramDataPoint(
        attributes=attributes,
        start_time_unix_nano=began,
        time_unix_nano=now,
        count=sum(counts),
        sum=buckets.sum,
        bucket_counts=counts,
        explicit_bounds=buckets.bounds,
        min=buckets.min,
        max=buckets.max,
    )


def _histogram(name: str, text: str, unit: str, points: list[HistogramDataPoint]) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Histogram, Metric  # noqa: PLC0415

    return Metric(name, text, unit, Histogram(points, AggregationTemporality.CUMULATIVE))


def _sum(name: str, text: str, values: Iterable[tuple[dict[str, str], int]], began: int, now: int) -> Metric:
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        AggregationTemporality,
        Metric,
        NumberDataPoint,
        Sum,
    )

    points = [NumberDataPoint(attributes, began, now, value) for attributes, value in values]
    return Metric(name, text, "{token}", Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True))
