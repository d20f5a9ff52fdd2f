"""Counts of calls as plain numbers, and the Prometheus series that are made of them at a scrape.

Numbers are added in the event loop, where nobody else is, so that they need no locks: that, and series that are found
once, keep the metering of a call below the time of a system call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from prefold.providers.prices import PER_MILLION, Price
from prefold.providers.usage import Usage

TTFT_BUCKETS = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 30, 60)
"""Seconds; close enough together to see a fifth."""

_DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 300)
_OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5)


class Buckets:
    """A histogram.

    Args:
        bounds: upper ends of the buckets, ascending; one more bucket takes what is beyond.

    Attributes:
        counts: of each bucket.
        sum: of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True)
class Times:
    """Seconds that calls of one model took at one replica.

    Attributes:
        ttft: to the first byte of a stream, by what the prefix cache did: "hit", "miss" or "unknown".
        duration: to the end of the answer.
        overhead: until the call was sent on.
    """

    ttft: dict[str, Buckets] = field(
        default_factory=lambda: {cache: Buckets(TTFT_BUCKETS) for cache in ("hit", "miss", "unknown")}
    )
    duration: Buckets = field(default_factory=lambda: Buckets(_DURATION_BUCKETS))
    overhead: Buckets = field(default_factory=lambda: Buckets(_OVERHEAD_BUCKETS))


class Series:
    """What calls of one model and tenant used at one replica; at none, where they were answered without.

    Args:
        times: of the model at the replica.

    Attributes:
        requests: that ended, by API, status, outcome and what the response cache did.
        hit: input tokens read from a cache.
        miss: input tokens that were computed.
        written: those of the misses that were written to a cache.
        unreported: input tokens of answers that do not tell of a cache.
        predicted: input tokens that the replica was thought to hold.
        output: tokens of answers.
        without_usage: answers without usage.
        unpriced: answers that no price was known for.
        cost: of all answers.
        premium: that part of it by which writing costs more than reading without a cache.
        saved_by_prefix: not paid, since input was read from a cache.
        saved_by_answer: not paid, since answers were given again.
        replayed_input: input tokens of answers given again.
        replayed_output: tokens of answers given again.
    """

    __slots__ = (
        "_has_reported",
        "cost",
        "hit",
        "miss",
        "output",
        "predicted",
        "premium",
        "replayed_input",
        "replayed_output",
        "requests",
        "saved_by_answer",
        "saved_by_prefix",
        "times",
        "unpriced",
        "unreported",
        "without_usage",
        "written",
    )

    def __init__(self, times: Times) -> None:
        self.times = times
        self.requests: dict[tuple[str, int, str, str], int] = {}
        self.hit = self.miss = self.written = self.unreported = self.predicted = self.output = 0
        self.without_usage = self.unpriced = self.replayed_input = self.replayed_output = 0
        self.cost = self.premium = self.saved_by_prefix = self.saved_by_answer = 0.0
        self._has_reported = False

    def use(self, usage: Usage, price: Price | None) -> str:
        """Count the tokens of an answer and what they cost.

        Returns:
            What the prefix cache did: a "hit" is one of at least half of the input, as in the analysis of logs.
        """
        self.output += usage.output
        if price is None:
            self.unpriced += 1
        else:
            self._pay(usage, price.at(usage.input))
        self._has_reported = self._has_reported or usage.is_reported
        if not self._has_reported:
            self.unreported += usage.input
            return "unknown"
        self.hit += usage.read
        self.miss += usage.uncached + usage.write
        self.written += usage.write
        return "hit" if 2 * usage.read >= usage.input > 0 else "miss"

    def _pay(self, usage: Usage, price: Price) -> None:
        cost = price.cost_of(usage)
        self.cost += cost.total
        self.saved_by_prefix += max(usage.read * price.input / PER_MILLION - cost.read, 0)
        self.premium += max(cost.write - usage.write * price.input / PER_MILLION, 0)

    def replay(self, usage: Usage, price: Price | None) -> None:
        """Count an answer that was given again: neither hits nor misses, and not paid for.

        It saves what it would have cost with nothing read from a cache: how much would have been, nobody can say.
        """
        self.replayed_input += usage.input
        self.replayed_output += usage.output
        if price is not None:
            plain = Usage(uncached=usage.input, output=usage.output)
            self.saved_by_answer += price.at(usage.input).cost_of(plain).total


_COUNTERS: tuple[tuple[str, str, Callable[[Series], int]], ...] = (
    ("llm_prefix_cache_hit_tokens", "Input tokens read from a cache, as reported.", lambda one: one.hit),
    ("llm_prefix_cache_miss_tokens", "Input tokens that were computed.", lambda one: one.miss),
    ("prefold_cache_write_tokens", "Those of the misses that were written to a cache.", lambda one: one.written),
    ("prefold_predicted_hit_tokens", "Input tokens that a replica was thought to hold.", lambda one: one.predicted),
    ("prefold_output_tokens", "Tokens of answers.", lambda one: one.output),
    (
        "prefold_unreported_input_tokens",
        "Input tokens of answers that do not tell of a cache.",
        lambda one: one.unreported,
    ),
    ("prefold_answers_without_usage", "Answers without usage.", lambda one: one.without_usage),
    ("prefold_unpriced_answers", "Answers that no price was known for.", lambda one: one.unpriced),
)
_COSTS: tuple[tuple[str, str, Callable[[Series], float]], ...] = (
    ("prefold_cost", "What answers cost.", lambda one: one.cost),
    ("prefold_write_premium_cost", "That part of it by which writing costs more.", lambda one: one.premium),
)
_BY_REPLICA = ("model", "tenant", "replica")


class Ledger(Collector):
    """All series.

    Args:
        currency: of costs; empty where there are no prices.
    """

    def __init__(self, currency: str) -> None:
        self._currency = currency
        self._series: dict[tuple[str, str, str], Series] = {}
        self._times: dict[tuple[str, str], Times] = {}
        self._handed: dict[tuple[str, str, str], Buckets] = {}

    def handed(self, model: str, replica: str, outcome: str, seconds: float) -> None:
        """Count a prompt that a replica computed for another one, or did not."""
        self._handed.setdefault((model, replica, outcome), Buckets(_DURATION_BUCKETS)).observe(seconds)

    def series(self, model: str, tenant: str, replica: str) -> Series:
        """The series of a model, tenant and replica; empty for none."""
        found = self._series.get((model, tenant, replica))
        if found is None:
            times = self._times.setdefault((model, replica), Times())
            found = self._series[(model, tenant, replica)] = Series(times)
        return found

    def describe(self) -> Iterable[Metric]:
        """See `Collector`."""
        return Ledger(self._currency).collect()

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        used = [(labels, one) for labels, one in self._series.items() if labels[2]]
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=_BY_REPLICA)
            for labels, one in used:
                counter.add_metric(labels, value(one))
            yield counter
        if self._currency:
            yield from self._costs()
        yield self._replayed()
        yield self._requests()
        yield from self._histograms()

    def _costs(self) -> Iterable[Metric]:
        for name, text, value in _COSTS:
            counter = CounterMetricFamily(name, text, labels=(*_BY_REPLICA, "currency"))
            for labels, one in self._series.items():
                if labels[2]:
                    counter.add_metric((*labels, self._currency), value(one))
            yield counter
        saved = CounterMetricFamily("prefold_saved_cost", "What was not paid.", labels=(*_BY_REPLICA, "currency", "by"))
        for labels, one in self._series.items():
            by, amount = ("prefix", one.saved_by_prefix) if labels[2] else ("answer", one.saved_by_answer)
            saved.add_metric((*labels, self._currency, by), amount)
        yield saved

    def _replayed(self) -> Metric:
        counter = CounterMetricFamily(
            "prefold_replayed_tokens", "Tokens of answers given again.", labels=("model", "tenant", "direction")
        )
        for (model, tenant, replica), one in self._series.items():
            if not replica:
                counter.add_metric((model, tenant, "input"), one.replayed_input)
                counter.add_metric((model, tenant, "output"), one.replayed_output)
        return counter

    def _requests(self) -> Metric:
        counter = CounterMetricFamily(
            "prefold_requests",
            "Calls that ended.",
            labels=(*_BY_REPLICA, "api", "status", "outcome", "cache"),
        )
        for labels, one in self._series.items():
            for (api, status, outcome, cache), calls in one.requests.items():
                counter.add_metric((*labels, api, str(status), outcome, cache), calls)
        return counter

    def _histograms(self) -> Iterable[Metric]:
        ttft = HistogramMetricFamily(
            "llm_ttft_seconds",
            "Time from the arrival of a request to the first byte of its stream.",
            labels=("model", "replica", "cache"),
        )
        duration = HistogramMetricFamily(
            "prefold_request_seconds", "Time from the arrival of a request to its end.", labels=("model", "replica")
        )
        overhead = HistogramMetricFamily(
            "prefold_before_upstream_seconds",
            "Time from the arrival of a request until it was sent on.",
            labels=("model", "replica"),
        )
        for labels, times in self._times.items():
            _add(duration, labels, times.duration)
            if labels[1]:
                _add(overhead, labels, times.overhead)
                for cache, buckets in times.ttft.items():
                    _add(ttft, (*labels, cache), buckets)
        yield from (ttft, duration, overhead)
        if self._handed:
            prefill = HistogramMetricFamily(
                "prefold_prefill_seconds",
                "Time that prefill replicas took for prompts of calls that went on to others.",
                labels=("model", "replica", "outcome"),
            )
            for labels_of_prefill, buckets in self._handed.items():
                _add(prefill, labels_of_prefill, buckets)
            yield prefill


def _add(family: HistogramMetricFamily, labels: Sequence[str], buckets: Buckets) -> None:
    ends = [*map(floatToGoString, buckets.bounds), "+Inf"]
    family.add_metric(labels, list(zip(ends, accumulate(buckets.counts), strict=True)), buckets.sum)
