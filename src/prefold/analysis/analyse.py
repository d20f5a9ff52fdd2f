"""From a log to what the report shows: one pass over the requests, and at the end one JSON object.

Each request goes to the cache that it was sent to, and what that served is attributed,
counted over time and drawn. Beside it the same request goes to the other caches. Everything that is kept is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefold.analysis.advice import advise
from prefold.analysis.attribution import Attribution, Row
from prefold.analysis.bill import Bill
from prefold.analysis.caches.base import Reason
from prefold.analysis.caches.build import build
from prefold.analysis.caches.resolve import rules_of_request
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.comparison import Comparison
from prefold.analysis.encode import BLOCK_IDS, Encoder
from prefold.analysis.logs.checks import Notes
from prefold.analysis.record import Body, Record
from prefold.analysis.report.flame import FlameTree
from prefold.analysis.request import Request
from prefold.analysis.routes import Routes, Saving
from prefold.analysis.situation import Situation, guess_situation
from prefold.analysis.timeline import Timeline
from prefold.prompts.logged import Logged
from prefold.prompts.ordering.proposal import propose
from prefold.prompts.ordering.variation import analyse as analyse_variation
from prefold.providers.prices import Prices

AVOIDABLE = frozenset(
    {
        Reason.CHANGED_PREFIX,
        Reason.EXPIRED,
        Reason.EVICTED,
        Reason.OTHER_REPLICA,
        Reason.BREAKPOINT,
        Reason.NOT_KEPT,
    }
)
"""Reasons that the user can do something about without asking another model or sharing with another tenant."""

_ORDERED_BYTES = 4_000_000
"""Bodies at the start of a log from which a better order is learned."""
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
        self._cache = build(options.cache)
        self._attribution = Attribution()
        self._bill = Bill(options.cache, prices)
        self._comparison = comparison
        self._timeline = Timeline()
        self._routes = Routes()
        self._flame = FlameTree()
        self._opening = _Opening()
        self._models: Counter[str] = Counter()
        self._providers: Counter[str] = Counter()
        self._sessions = _Distinct()
        self._tenants = _Distinct()
        self._salts = _Distinct()
        self._replicas = _Distinct()
        self._times: tuple[float, float] | None = None

    def add(self, request: Request) -> None:
        """Take in the next request.

        Raises:
            UsageError: if ids of this log stand for different numbers of tokens.
        """
        served = self._cache.serve(request)
        self._attribution.add(request, served)
        self._bill.add(request, served)
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
        self._providers[(self._options.cache.rules or rules_of_request(request)).provider] += 1
        self._sessions.add(record.session)
        self._tenants.add(record.tenant)
        self._salts.add(request.salt or "")
        self._replicas.add(record.replica)
        if record.time is not None:
            first = self._times[0] if self._times else record.time
            self._times = first, request.time

    def as_json(self, sources: Sequence[str], notes: Notes) -> dict[str, Any]:
        """What the report shows.

        Args:
            sources: names of the files.
            notes: what was found while they were read.
        """
        rows = self._attribution.rows()
        total = self._attribution.input_tokens
        hit = sum(row.tokens for row in rows if row.reason is Reason.HIT)
        avoidable = sum(row.tokens for row in rows if self._is_avoidable(row))
        bill = self._bill
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
            "cost": bill.as_json(avoidable),
            "attribution": [
                {
                    "reason": str(row.reason),
                    "cause": row.cause or None,
                    "path": row.path or None,
                    "tokens": row.tokens,
                    "requests": row.requests,
                    "share": _share(row.tokens, total),
                    "cost": bill.of_row(row),
                }
                for row in rows
            ],
            "reported": self._reported(),
            "breaks": self._breaks(),
            "order": self._opening.as_json(),
            "capacity": compared.capacity and {"unit_bytes": self._options.bytes_per_token, **compared.capacity},
            "over_time": self._timeline.as_json() if self._times else [],
            "caches": [row.as_json() for row in compared.rows],
            "routes": list(self._five_routes(avoidable)),
            "situation": str(self._situation()),
            "flame": self._flame.as_json(),
            "redacted": False,
        }
        analysis["advice"] = advise(self._situation(), analysis)
        return analysis

    def _is_avoidable(self, row: Row) -> bool:
        """Whether it need not have been computed. Content that comes behind another beginning for no cause does."""
        is_trace = BLOCK_IDS in self._encoder.counters
        return row.reason in AVOIDABLE and (bool(row.cause) or is_trace or row.reason is not Reason.CHANGED_PREFIX)

    def _log(self, sources: Sequence[str], notes: Notes) -> dict[str, Any]:
        first, last = self._times or (None, None)
        return {
            "sources": list(sources),
            "requests": notes.records,
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

    def _reported(self) -> dict[str, Any] | None:
        reported = self._attribution.reported
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
                "cost": self._bill.of_avoidable(found.tokens),
                "before": found.before,
                "after": found.after,
                "fix": found.fix,
                "explanation": found.explanation,
                "gain_tokens": found.gain_tokens,
                "example": [str(place) for place in found.example],
                "miss_reasons": dict(found.miss_reasons),
            }
            for found in self._attribution.breaks()[:_MOST_BREAKS]
            if found.tokens
        ]

    def _situation(self) -> Situation:
        if self._options.situation is not None:
            return self._options.situation
        replicas = max(self._options.cache.replicas, self._replicas.count)
        return guess_situation(self._providers, replicas=replicas, salts=self._salts.count)

    def _five_routes(self, avoidable: int) -> Iterator[dict[str, Any]]:
        routes, bill = self._routes, self._bill
        yield _route(
            "provider_cache",
            avoidable,
            bill.of_avoidable(avoidable),
            "Input that was sent before and is computed again, and need not be: the same answers, for less.",
        )
        yield _saving(
            "exact_repeat",
            routes.exact_repeat,
            bill,
            "Requests that an earlier one equals byte for byte: its answer can be kept.",
        )
        yield _saving(
            "semantic",
            routes.semantic,
            bill,
            "First questions that differ from an earlier one in case, spacing or punctuation only. A cache that goes "
            "by meaning finds more, and can be wrong.",
        )
        yield _saving(
            "compaction",
            routes.compaction,
            bill,
            "History before the last 20 blocks of a conversation. Each time it is summarised, what follows is computed "
            "once more, and something is forgotten.",
        )
        yield _saving(
            "smaller_model",
            routes.smaller_model,
            bill,
            "Requests with answers of 64 tokens at most, which a smaller model may do as well; what it would cost "
            "depends on that model.",
            is_priced=False,
        )


class _Opening:
    """The first bodies of a log, from which a better order is learned."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._left = _ORDERED_BYTES

    def add(self, record: Record) -> None:
        """Keep a record while there is room."""
        if isinstance(record.content, Body) and self._left > 0:
            self._left -= len(record.content.content)
            self._records.append(record)

    def as_json(self) -> dict[str, Any] | None:
        """The proposed order; None for a log without content."""
        if not self._records:
            return None
        logged = [
            Logged(record.content.prompt, record.time, record.session, record.usage)
            for record in self._records
            if isinstance(record.content, Body)
        ]
        proposal = propose(analyse_variation(logged), logged)
        return {
            "requests": len(self._records),
            "share_before": proposal.share_before,
            "share_after": proposal.share_after,
            "moves": [
                {"path": span.path, "text": span.text, "to": span.goes_to, "tokens": span.tokens}
                for span in proposal.moves
            ],
        }


class _Distinct:
    """How many different names there were, up to a limit; empty ones do not count.

    Attributes:
        count: of them.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self.count = 0
        self._limit = limit
        self._seen: set[int] = set()

    def add(self, name: str) -> None:
        """Count a name if it is new."""
        if name and len(self._seen) < self._limit:
            self._seen.add(hash(name))
            self.count = len(self._seen)


def _saving(name: str, saving: Saving, bill: Bill, text: str, *, is_priced: bool = True) -> dict[str, Any]:
    """A route that spares input, of which some is read from the cache anyway."""
    computed = bill.of_computed(saving.input_tokens)
    saved = None
    if computed is not None and is_priced:
        saved = computed - (bill.of_avoidable(saving.hit_tokens) or 0.0)
    return _route(name, saving.input_tokens, saved, f"{saving.requests:,} requests. {text}")


def _route(name: str, tokens: int, cost: float | None, text: str) -> dict[str, Any]:
    lossless = name in ("provider_cache", "exact_repeat")
    return {"route": name, "lossless": lossless, "saved_tokens": tokens, "saved_cost": cost, "text": text}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
