"""From a log to what the report shows: one pass over the requests, and at the end one JSON object.

Each request goes to the cache that it was sent to. What that served, or what was reported where it was, is attributed,
counted over time and drawn. Beside it the same request goes to the other caches. Everything that is kept is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefold.analysis.advice import advise
from prefold.analysis.attribution import Attribution
from prefold.analysis.bill import Bill
from prefold.analysis.caches.base import Reason
from prefold.analysis.caches.resolve import judge_of
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.comparison import Comparison
from prefold.analysis.encode import Encoder
from prefold.analysis.logs.checks import Notes
from prefold.analysis.named_replicas import cache_of_log
from prefold.analysis.opening import Opening
from prefold.analysis.report.flame import FlameTree
from prefold.analysis.reported import Reported, fitted
from prefold.analysis.request import Request
from prefold.analysis.routes import Routes, five_routes
from prefold.analysis.situation import Situation, guess_situation
from prefold.analysis.timeline import Timeline
from prefold.providers.prices import Prices

_MOST_MODELS = 1_000
_MOST_BREAKS = 100


@dataclass(frozen=True, slots=True)
class Options:
    """What an analysis is asked for.

    Attributes:
        cache: the cache that the log is judged by; with rules None the one that each request was sent to.
        situation: the user's; None to guess it.
        bytes_per_token: that keys and values of a token take, to show capacities in bytes; None if it is not known.
    """

    cache: CacheSpec
    situation: Situation | None = None
    bytes_per_token: int | None = None


class Analysis:
    """Takes requests one by one, in order of time; what it says can be asked for at any time.

    Args:
        options: what is asked for.
        encoder: what made the requests: it knows how tokens were counted.
        comparison: shows the same traffic under other caches.
        prices: what tokens cost; None to leave costs out.

    Raises:
        UsageError: a cache that cannot be built.
    """

    def __init__(
        self, options: Options, encoder: Encoder, comparison: Comparison, prices: Prices | None = None
    ) -> None:
        self._options = options
        self._encoder = encoder
        self._cache = cache_of_log(options.cache)
        self._attribution = Attribution(rules_of=judge_of(options.cache))
        self._judge = judge_of(options.cache)
        self._reported = Reported()
        self._bill = Bill(options.cache, prices)
        self._comparison = comparison
        self._timeline = Timeline()
        self._routes = Routes()
        self._flame = FlameTree()
        self._opening = Opening()
        self._models: Counter[str] = Counter()
        self._providers: Counter[str] = Counter()
        self._sessions = _Distinct()
        self._tenants = _Distinct()
        self._salts = _Distinct()
        self._replicas = _Distinct()
        self._times: tuple[float, float] | None = None
        self._requests = 0

    def add(self, request: Request) -> None:
        """Take in the next request.

        Raises:
            UsageError: if ids of this log stand for different numbers of tokens.
        """
        self._requests += 1
        simulated = self._cache.serve(request)
        self._reported = self._reported.plus(request, simulated)
        served = fitted(request, simulated)
        rows = self._attribution.add(request, served)
        self._bill.add(request, served, rows)
        self._comparison.add(request)
        self._timeline.add(request, served.hit)
        self._routes.add(request, served.hit)
        self._flame.add(request, served.hit)
        self._opening.add(request.record)
        self._note(request)

    def _note(self, request: Request) -> None:
        record = request.record
        if record.model in self._models or len(self._models) < _MOST_MODELS:
            self._models[record.model] += 1
        self._providers[self._judge(request).provider] += 1
        self._sessions.add(record.session)
        self._tenants.add(record.tenant)
        self._salts.add(request.salt or "")
        self._replicas.add(record.replica)
        if record.time is not None:
            first = self._times[0] if self._times else record.time
            self._times = first, request.time

    def as_json(self, sources: Sequence[str], notes: Notes, reading: Sequence[str] = ()) -> dict[str, Any]:
        """What the report shows.

        Args:
            sources: names of the files.
            notes: what was found while they were read.
            reading: options that commands need to read the log as it was read.
        """
        rows = self._attribution.rows()
        total = self._attribution.input_tokens
        hit = sum(row.tokens for row in rows if row.reason is Reason.HIT)
        avoidable = sum(row.avoidable for row in rows)
        bill = self._bill
        self._comparison.finish()
        order, flame = self._opening.as_json(), self._flame.as_json()
        compared = self._comparison.result()
        analysis: dict[str, Any] = {
            "schema_version": 1,
            "title": ", ".join(sources),
            "log": self._log(sources, notes),
            "input_tokens": total,
            "hit_tokens": hit,
            "recomputed_tokens": total - hit,
            "avoidable_tokens": avoidable,
            "hit_rate": _share(hit, total),
            "possible_hit_rate": _share(hit + avoidable, total),
            "cache": self._options.cache.name,
            "cost": bill.as_json(),
            "attribution": [
                {
                    "reason": str(row.reason),
                    "cause": row.cause or None,
                    "path": row.path or None,
                    "tokens": row.tokens,
                    "requests": row.requests,
                    "share": _share(row.tokens, total),
                    "cost": bill.of_row(row.key),
                }
                for row in rows
            ],
            "reported": self._of_reported(),
            "breaks": self._breaks(),
            "order": order,
            "capacity": compared.capacity and {"unit_bytes": self._options.bytes_per_token, **compared.capacity},
            "over_time": self._timeline.as_json() if self._times else [],
            "caches": [row.as_json() for row in compared.rows],
            "routes": five_routes(self._routes, bill, avoidable),
            "situation": str(self._situation()),
            "flame": flame,
            "redacted": False,
        }
        analysis["advice"] = advise(self._situation(), analysis, reading)
        return analysis

    def _log(self, sources: Sequence[str], notes: Notes) -> dict[str, Any]:
        first, last = self._times or (None, None)
        return {
            "sources": list(sources),
            "requests": self._requests,
            "formats": dict(notes.formats),
            "skipped": notes.skipped,
            "skipped_lines": [str(place) for place in notes.skipped_places],
            "problems": {name: count for name, count in notes.problems.items() if count},
            "first_time": first,
            "last_time": last,
            "tenants": self._tenants.count,
            "sessions": self._sessions.count,
            "models": dict(self._models),
            "tokens": {"counters": dict(self._encoder.counters), "exact": self._encoder.is_exact},
            "history_was_forgotten": self._attribution.history.forgot,
        }

    def _of_reported(self) -> dict[str, Any] | None:
        reported = self._reported
        if not reported.requests:
            return None
        return {
            "requests": reported.requests,
            "input_tokens": reported.input_tokens,
            "hit_tokens": reported.hit_tokens,
            "hit_rate": _share(reported.hit_tokens, reported.input_tokens),
            "simulated_input_tokens": reported.simulated_input_tokens,
            "simulated_hit_tokens": reported.simulated_hit_tokens,
            "difference_tokens": reported.difference_tokens,
            "miss_reasons": dict(self._attribution.miss_reasons),
        }

    def _breaks(self) -> list[dict[str, Any]]:
        return [
            {
                "cause": found.cause or None,
                "path": found.path or None,
                "tokens": found.tokens,
                "requests": found.requests,
                "cost": self._bill.of_break((found.reason, found.cause, found.path)),
                "before": found.before,
                "after": found.after,
                "fix": found.fix,
                "explanation": found.explanation,
                "gain_tokens": found.gain_tokens,
                "example": [str(place) for place in found.example],
                "miss_reasons": dict(found.miss_reasons),
            }
            for found in self._attribution.breaks()[:_MOST_BREAKS]
        ]

    def _situation(self) -> Situation:
        if self._options.situation is not None:
            return self._options.situation
        replicas = max(self._options.cache.replicas, self._replicas.count)
        return guess_situation(self._providers, replicas=replicas, salts=self._salts.count)


class _Distinct:
    """How many different names there were, up to a limit; empty ones do not count.

    Attributes:
        count: of them.
    """

    def __init__(self, limit: int = 200_000) -> None:
        self.count = 0
        self._limit = limit
        self._seen: set[int] = set()

    def add(self, name: str) -> None:
        """Count a name if it is new."""
        if name and len(self._seen) < self._limit:
            self._seen.add(hash(name))
            self.count = len(self._seen)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
