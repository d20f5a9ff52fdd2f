"""Alerts on a stream of requests: hit rates that stay low, hits that bring nothing, evictions that jump.

Time is that of the requests, in minutes. A rate is taken over the last five of them, so that one cold request is no
alert. Beside each alert stand the number of distinct prefixes and the size of what they would need in a cache, now and
before: where those grew, the traffic changed and the cache need not be at fault.

Memory is bounded: some thousand tenants, and samples of fixed size of times and, for each minute that is looked back,
of prefixes.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MINUTE = 60.0
_RATE_MINUTES = 5  # a rate is taken over
_BASELINE_MINUTES = 30  # minutes before those, that an eviction rate is compared with
_MOST_TENANTS = 4_096
_SKETCH = 256  # smallest hashes kept of a minute's prefixes; exact up to there, 6 % standard error beyond
_TIMES = 2_000  # newest times to first token, of hits and of misses
_ENOUGH_TIMES = 100  # of each, for a 99th percentile that means anything
_LEAST_EVICTED = 0.01  # of the input, for a jump that means anything
_NEW_TRAFFIC = 1.5  # times as many distinct prefixes as before, and the traffic has changed


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When to warn, and when all is well again.

    Attributes:
        tenant_hit_rate: a tenant's share of input tokens served from cache that is too low.
        tenant_healthy: and one that ends the alert.
        tenant_minutes: how long it must have been too low.
        hit_share: share of all input tokens served from cache that is too low.
        hit_share_healthy: and one that ends the alert.
        ttft_gain: by which share of the misses' 99th percentile of time to first token that of hits must be lower.
        eviction_jump: how many times the eviction rate of the half hour before is too much.
    """

    tenant_hit_rate: float = 0.6
    tenant_healthy: float = 0.8
    tenant_minutes: float = 30
    hit_share: float = 0.5
    hit_share_healthy: float = 0.7
    ttft_gain: float = 0.2
    eviction_jump: float = 3.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What alerts need to know of a request.

    Attributes:
        time: seconds; what comes late counts to the minute that is open.
        input_tokens: all.
        hit_tokens: those served from cache.
        tenant: whose it is.
        prefix: what names its stable beginning.
        prefix_tokens: the length of that.
        evicted_tokens: those that should have been served from cache and were gone.
        ttft: seconds to the first token; None where it is not known.
    """

    time: float
    input_tokens: int
    hit_tokens: int
    tenant: str = ""
    prefix: bytes = b""
    prefix_tokens: int = 0
    evicted_tokens: int = 0
    ttft: float | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """How varied the requests of some minutes were.

    Attributes:
        prefixes: distinct beginnings, an estimate where there are many.
        cache_tokens: what they would take in a cache.
    """

    prefixes: int
    cache_tokens: int


@dataclass(frozen=True, slots=True)
class Alert:
    """Something to look at, or the end of it.

    Attributes:
        name: `tenant_hit_rate`, `hit_share`, `ttft_gain` or `eviction_jump`.
        time: of the minute's end at which it was found.
        is_over: whether all is well again.
        tenant: whose hit rate it is; else empty.
        value: what was measured.
        limit: the threshold that it passed.
        now: the traffic of the last minutes.
        before: that of as many minutes before it began; None where there were no requests.
    """

    name: str
    time: float
    is_over: bool
    tenant: str
    value: float
    limit: float
    now: Traffic
    before: Traffic | None

    @property
    def is_new_traffic(self) -> bool:
        """Whether there are so many more distinct prefixes that a change of traffic explains it."""
        return self.before is not None and self.now.prefixes > _NEW_TRAFFIC * max(self.before.prefixes, 1)


class _Sketch:
    """Distinct things, counted by the smallest of their hashes.

    Bar-Yossef and others, Counting Distinct Elements in a Data Stream, RANDOM 2002.
    """

    __slots__ = ("_heap", "_tokens")

    def __init__(self) -> None:
        self._heap: list[int] = []  # negative hashes, the largest hash first
        self._tokens: dict[int, int] = {}

    def add(self, name: bytes, tokens: int) -> None:
        """See one."""
        self._put(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()), tokens)

    def _put(self, hashed: int, tokens: int) -> None:
        if hashed in self._tokens:
            self._tokens[hashed] = max(self._tokens[hashed], tokens)
        elif len(self._heap) < _SKETCH:
            heapq.heappush(self._heap, -hashed)
            self._tokens[hashed] = tokens
        elif hashed < -self._heap[0]:
            del self._tokens[-heapq.heappushpop(self._heap, -hashed)]
            self._tokens[hashed] = tokens

    @classmethod
    def united(cls, sketches: Iterable[_Sketch]) -> _Sketch:
        """Of all that any of some saw."""
        union = cls()
        for sketch in sketches:
            for hashed, tokens in sketch._tokens.items():
                union._put(hashed, tokens)
        return union

    @property
    def traffic(self) -> Traffic:
        """How many there are, and how long they are together."""
        kept = len(self._heap)
        if kept < _SKETCH:
            return Traffic(kept, sum(self._tokens.values()))
        distinct = (kept - 1) * 2**64 // max(-self._heap[0], 1)
        return Traffic(distinct, distinct * sum(self._tokens.values()) // kept)


@dataclass(slots=True)
class _Minute:
    """What happened in a minute."""

    number: int
    input_tokens: int = 0
    hit_tokens: int = 0
    evicted_tokens: int = 0
    prefixes: _Sketch = field(default_factory=_Sketch)


@dataclass(frozen=True, slots=True)
class _Change:
    """An alert that begins or ends.

    Attributes:
        value: what was measured.
        is_bad: whether it begins.
        since: the first minute that was bad, or the one in which all was well again.
    """

    value: float
    is_bad: bool
    since: int


class _Rate:
    """A share of tokens over the last minutes that have any, and for how long it has been low.

    Args:
        low: what is too low.
        healthy: what is well again.
        seconds: how long it must be low.
    """

    __slots__ = ("_healthy", "_is_firing", "_low", "_low_since", "_minutes", "_seconds")

    def __init__(self, low: float, healthy: float, seconds: float) -> None:
        self._low = low
        self._healthy = max(low, healthy)
        self._seconds = seconds
        self._minutes: deque[list[int]] = deque(maxlen=_RATE_MINUTES)  # number, input tokens, hit tokens
        self._low_since: int | None = None
        self._is_firing = False

    def add(self, minute: int, input_tokens: int, hit_tokens: int) -> None:
        """Count a request."""
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append([minute, 0, 0])
        self._minutes[-1][1] += input_tokens
        self._minutes[-1][2] += hit_tokens

    def end(self, minute: int) -> _Change | None:
        """What changed at the end of a minute, if anything did. A minute without requests tells nothing."""
        if not self._minutes or self._minutes[-1][0] != minute:
            return None
        recent = [counted for counted in self._minutes if counted[0] > minute - _RATE_MINUTES]
        sent = sum(counted[1] for counted in recent)
        if not sent:
            return None
        rate = sum(counted[2] for counted in recent) / sent
        if rate >= self._low:
            self._low_since = None
        elif self._low_since is None:
            self._low_since = minute
        if self._is_firing:
            if rate < self._healthy:
                return None
            self._is_firing = False
            return _Change(rate, is_bad=False, since=minute)
        if self._low_since is None or (minute + 1 - self._low_since) * MINUTE < self._seconds:
            return None
        self._is_firing = True
        return _Change(rate, is_bad=True, since=self._low_since)


class Alerts:
    """Watches a stream of requests.

    Args:
        thresholds: when to warn.
    """

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._thresholds = limits = thresholds or Thresholds()
        self._open: _Minute | None = None
        remembered = 3 * _RATE_MINUTES + max(_BASELINE_MINUTES, math.ceil(limits.tenant_minutes))
        self._closed: deque[_Minute] = deque(maxlen=remembered)
        self._tenants: OrderedDict[str, _Rate] = OrderedDict()
        self._all = _Rate(limits.hit_share, limits.hit_share_healthy, _RATE_MINUTES * MINUTE)
        self._hit_times: deque[float] = deque(maxlen=_TIMES)
        self._miss_times: deque[float] = deque(maxlen=_TIMES)
        self._firing: set[str] = set()  # of the alerts that are either on or off

    def add(self, sample: Sample) -> list[Alert]:
        """Count a request; returns the alerts of the minutes that it ends."""
        number = math.floor(sample.time / MINUTE)
        found: list[Alert] = []
        if self._open is not None and number > self._open.number:
            found = list(self._end_minute(self._open))
            self._open = None
        if self._open is None:
            self._open = _Minute(number)
        self._count(self._open, sample)
        return found

    def finish(self) -> list[Alert]:
        """End the minute that is open; returns its alerts."""
        last, self._open = self._open, None
        return [] if last is None else list(self._end_minute(last))

    def _count(self, minute: _Minute, sample: Sample) -> None:
        minute.input_tokens += sample.input_tokens
        minute.hit_tokens += sample.hit_tokens
        minute.evicted_tokens += sample.evicted_tokens
        if sample.prefix:
            minute.prefixes.add(sample.prefix, sample.prefix_tokens)
        if sample.tenant:
            rate = self._tenants.pop(sample.tenant, None) or self._new_tenant()
            self._tenants[sample.tenant] = rate
            if len(self._tenants) > _MOST_TENANTS:
                self._tenants.popitem(last=False)
            rate.add(minute.number, sample.input_tokens, sample.hit_tokens)
        self._all.add(minute.number, sample.input_tokens, sample.hit_tokens)
        if sample.ttft is not None:
            is_hit = 2 * sample.hit_tokens >= sample.input_tokens
            (self._hit_times if is_hit else self._miss_times).append(sample.ttft)

    def _new_tenant(self) -> _Rate:
        limits = self._thresholds
        return _Rate(limits.tenant_hit_rate, limits.tenant_healthy, limits.tenant_minutes * MINUTE)

    def _end_minute(self, minute: _Minute) -> Iterator[Alert]:
        self._closed.append(minute)
        limits = self._thresholds
        changes = [("tenant_hit_rate", tenant, rate.end(minute.number)) for tenant, rate in self._tenants.items()]
        changes.append(("hit_share", "", self._all.end(minute.number)))
        gain, jump = self._ttft_gain(), self._eviction_jump(minute.number)
        if gain is not None:
            changes.append(("ttft_gain", "", self._switched("ttft_gain", gain, gain < limits.ttft_gain, minute)))
        if jump is not None:
            is_bad = jump > limits.eviction_jump
            changes.append(("eviction_jump", "", self._switched("eviction_jump", jump, is_bad, minute)))
        for name, tenant, change in changes:
            if change is not None:
                yield Alert(
                    name=name,
                    time=(minute.number + 1) * MINUTE,
                    is_over=not change.is_bad,
                    tenant=tenant,
                    value=change.value,
                    limit=self._limit(name, is_over=not change.is_bad),
                    now=self._traffic(minute.number) or Traffic(0, 0),
                    before=self._traffic(change.since - _RATE_MINUTES),  # the rate was still good then
                )

    def _limit(self, name: str, *, is_over: bool) -> float:
        limits = self._thresholds
        return {
            "tenant_hit_rate": limits.tenant_healthy if is_over else limits.tenant_hit_rate,
            "hit_share": limits.hit_share_healthy if is_over else limits.hit_share,
            "ttft_gain": limits.ttft_gain,
            "eviction_jump": limits.eviction_jump,
        }[name]

    def _switched(self, name: str, value: float, is_bad: bool, minute: _Minute) -> _Change | None:
        if is_bad == (name in self._firing):
            return None
        (self._firing.add if is_bad else self._firing.discard)(name)
        return _Change(value, is_bad, minute.number)

    def _ttft_gain(self) -> float | None:
        if min(len(self._hit_times), len(self._miss_times)) < _ENOUGH_TIMES:
            return None
        misses = _percentile_99(self._miss_times)
        return 1 - _percentile_99(self._hit_times) / misses if misses else None

    def _eviction_jump(self, minute: int) -> float | None:
        """How many times the eviction rate of the half hour before that of the last minutes is."""
        since = minute - _RATE_MINUTES
        now = _evicted_share(self._between(since + 1, minute))
        before = _evicted_share(self._between(since + 1 - _BASELINE_MINUTES, since))
        if now is None or before is None:
            return None
        return 0.0 if now < _LEAST_EVICTED else now / max(before, _LEAST_EVICTED / 10)

    def _traffic(self, last: int) -> Traffic | None:
        """That of the minutes up to one, as many as a rate takes: more time always shows more prefixes."""
        minutes = self._between(last - _RATE_MINUTES + 1, last)
        return _Sketch.united(each.prefixes for each in minutes).traffic if minutes else None

    def _between(self, first: int, last: int) -> list[_Minute]:
        return [each for each in self._closed if first <= each.number <= last]


def _evicted_share(minutes: Iterable[_Minute]) -> float | None:
    counted = list(minutes)
    sent = sum(minute.input_tokens for minute in counted)
    return sum(minute.evicted_tokens for minute in counted) / sent if sent else None


def _percentile_99(times: Iterable[float]) -> float:
    ordered = sorted(times)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]
