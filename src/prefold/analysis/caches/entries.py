"""Caches that keep the prefixes that end at markers, and resources that are created beforehand."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.caches.common import at, scope_of, units_of
from prefold.analysis.caches.ends import Ends
from prefold.analysis.caches.resolve import rules_of_request
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Marker, Request
from prefold.providers.rules import CacheRules, Control, Storage


@dataclass(frozen=True, slots=True)
class _Entry:
    """A prefix that was written.

    Attributes:
        ttl: seconds that it lives; 0 if it was too short, so that it never did.
        readable: seconds from which others can read it.
        expires: seconds up to which they can.
    """

    ttl: int
    readable: float
    expires: float


@dataclass(frozen=True, slots=True)
class _Known:
    """What a cache has of a prompt, in units.

    Attributes:
        entries: those that are whole prefixes of it, ascending, with their ends.
        asked: markers, ascending.
        hit: end of the entry that is read, 0 for none.
        lost: the stretches behind it.
    """

    entries: list[tuple[int, _Entry]]
    asked: tuple[Marker, ...]
    hit: int
    lost: tuple[Loss, ...]


class EntryCache:
    """One replica of a cache that writes an entry at each marker, and looks back from markers.

    What stands for markers where a log has none: a trace of blocks has one at the end of each prompt, and so has the
    cache that sets one by itself. A request made for a cache without markers gets those that need no thought: behind
    its system prompt, or its first block where it has none, before its last block, and at its end. One made for a cache
    with markers and sent without is not cached, since it would not have been. A resource holds tools and system prompt;
    it is created by the first request that needs it.

    Args:
        spec: capacity and isolation.
        rules: minimum, lifetimes, lookback, and how many markers count.
        unit: tokens that an id stands for in all requests to come.
    """

    def __init__(self, spec: CacheSpec, rules: CacheRules, unit: int) -> None:
        self._spec = spec
        self._rules = rules
        self._unit = unit
        self._ends: Ends[_Entry] = Ends(units_of(spec.capacity, unit))
        self._is_resource = rules.stores is Storage.RESOURCE
        self._is_written = self._is_resource or bool(rules.write_multipliers)

    def peek(self, request: Request) -> Served:
        """See `Replica`."""
        return self._served(request, self._look(request))

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        known = self._look(request)
        return replace(self._served(request, known), written=self._write(request, known))

    # Looking

    def _served(self, request: Request, known: _Known) -> Served:
        otherwise = Reason.BREAKPOINT
        if request.tokens < self._rules.minimum_tokens:
            otherwise = Reason.BELOW_MINIMUM
        elif self._ends.has_forgotten:
            otherwise = Reason.EVICTED
        return Served(known.hit * self._unit, lost=known.lost, otherwise=otherwise)

    def _look(self, request: Request) -> _Known:
        _, entries = self._ends.known(request.run, scope_of(request, self._spec.isolate_tenants))
        asked = self._asked(request)
        considered = self._rules.searched_entries
        lost: list[Loss] = []
        hit = 0
        for age, (end, entry) in enumerate(reversed(entries)):
            reason = self._obstacle(request, asked, end, entry)
            if reason is None and considered is not None and age >= considered:
                reason = Reason.LOOKBACK
            if reason is None:
                hit = end
                break
            if not lost or lost[-1].reason is not reason:
                lost.append(Loss(reason, end * self._unit))
        return _Known(entries, asked, hit, tuple(reversed(lost)))

    def _obstacle(self, request: Request, asked: Sequence[Marker], end: int, entry: _Entry) -> Reason | None:
        """Why an entry is not read, or None."""
        if not entry.ttl:
            return Reason.BELOW_MINIMUM
        if request.time > entry.expires:
            return Reason.EXPIRED
        if not self._is_found(request, asked, end):
            is_behind = self._rules.lookback is not None and bool(asked) and asked[-1].end >= end
            return Reason.LOOKBACK if is_behind else Reason.BREAKPOINT
        return Reason.NOT_KEPT if request.time < entry.readable else None

    def _is_found(self, request: Request, asked: Sequence[Marker], end: int) -> bool:
        """Whether a read that begins at the markers comes upon an entry."""
        place = bisect_left(asked, end, key=lambda marker: marker.end)
        if place == len(asked):
            return False
        if not request.ends:  # the log does not say where blocks end, so nothing can be counted
            return True
        if self._is_resource:
            return asked[place].end == end
        if self._rules.lookback is None:
            return True
        start, stop = bisect_left(request.ends, end), bisect_left(request.ends, asked[place].end)
        if stop == len(request.ends) or request.ends[start] != end:
            return False
        if request.positions and self._rules.runs_count_once:
            start, stop = request.positions[start], request.positions[stop]
        return stop - start < self._rules.lookback

    def _asked(self, request: Request) -> tuple[Marker, ...]:
        """Where a request has entries written and read."""
        end = Marker(request.units)
        if not request.ends:
            asked = request.markers or ((end,) if request.units else ())
        elif self._is_resource:
            asked = (Marker(request.system_end),) if request.system_end else ()
        elif self._rules.control is Control.BREAKPOINT:
            asked = (
                request.markers if request.markers and request.markers[-1].end == end.end else (*request.markers, end)
            )
        elif request.markers or rules_of_request(request).control is Control.EXPLICIT:
            asked = request.markers
        else:
            ends = {request.system_end or request.ends[0], *request.ends[-2:]}
            asked = tuple(Marker(place) for place in sorted(ends) if place)
        limit = self._rules.max_breakpoints
        return asked[-limit:] if limit else asked

    # Keeping

    def _write(self, request: Request, known: _Known) -> Counter[int]:
        """Write and renew entries; returns the tokens that are billed as written, by lifetime."""
        scope = scope_of(request, self._spec.isolate_tenants)
        readable, start = at(request, self._rules.readable_from), at(request, self._rules.ttl_from)
        present = dict(known.entries)
        if self._rules.ttl_renewed and known.hit:
            entry = present[known.hit]
            present[known.hit] = replace(entry, expires=start + entry.ttl)
            self._ends.put(request.run, known.hit, scope, present[known.hit])
        written: Counter[int] = Counter()
        paid = known.hit
        for end, ttl in self._written(known.asked):
            old = present.get(end)
            if old is not None and old.ttl and request.time <= old.expires:
                longer = max(old.ttl, ttl)  # what is marked again lives on by its own lifetime, as what is read does
                expires = max(old.expires, start + longer) if self._rules.ttl_renewed else old.expires
                entry = _Entry(longer, min(old.readable, readable), expires)
            else:
                entry = _Entry(ttl, readable, start + ttl)
            self._ends.put(request.run, end, scope, entry)
            if ttl and end > paid:
                written[ttl] += (end - paid) * self._unit
                paid = end
        return written if self._is_written else Counter()

    def _written(self, asked: Sequence[Marker]) -> Iterator[tuple[int, int]]:
        """Ends of the entries that a request writes, with their lifetimes; 0 for those that are too short to live."""
        longest = self._rules.maximum_tokens
        for marker in asked:
            tokens = marker.end * self._unit
            if longest is not None and tokens > longest:
                continue
            ttl = marker.ttl if marker.ttl in self._rules.ttls and marker.ttl else self._rules.ttls[0]
            yield marker.end, ttl if tokens >= self._rules.minimum_tokens else 0
