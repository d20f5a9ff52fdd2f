"""Caches that keep the prefixes that end at markers, and resources that are created beforehand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.caches.common import at, scope_of, units_of
from prefold.analysis.caches.ends import Ends, values
from prefold.analysis.caches.resolve import rules_of_request
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Marker, Request
from prefold.core.keys import Scope
from prefold.core.radix import Match
from prefold.providers.rules import CacheRules, Control, Storage


@dataclass(slots=True)
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


@dataclass(slots=True)
class _Known:
    """What a cache has of a prompt, in units.

    Attributes:
        scope: who may share it.
        match: how far it was seen.
        asked: markers, ascending.
        hit: end of the entry that is read, 0 for none.
        read: that entry.
        lost: the stretches behind it.
    """

    scope: Scope
    match: Match[_Entry | None]
    asked: Sequence[Marker]
    hit: int = 0
    read: _Entry | None = None
    lost: tuple[Loss, ...] = ()


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
        known = self._look(request)
        return Served(known.hit * self._unit, lost=known.lost, otherwise=self._otherwise(request))

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        known = self._look(request)
        otherwise = self._otherwise(request)  # what is forgotten for this request was not missed by it
        return Served(known.hit * self._unit, self._write(request, known), known.lost, otherwise)

    def _otherwise(self, request: Request) -> Reason:
        if request.tokens < self._rules.minimum_tokens:
            return Reason.BELOW_MINIMUM
        return Reason.EVICTED if self._ends.has_forgotten else Reason.BREAKPOINT

    # Looking

    def _look(self, request: Request) -> _Known:
        scope = scope_of(request, self._spec.isolate_tenants)
        known = _Known(scope, self._ends.find(request.run, scope), self._asked(request))
        marked = [marker.end for marker in known.asked]
        considered = self._rules.searched_entries
        lost: list[Loss] = []
        for age, (end, entry) in enumerate(values(known.match)):
            reason = self._obstacle(request, marked, end, entry)
            if reason is None and considered is not None and age >= considered:
                reason = Reason.LOOKBACK
            if reason is None:
                known.hit, known.read = end, entry
                break
            if not lost or lost[-1].reason is not reason:
                lost.append(Loss(reason, end * self._unit))
        known.lost = tuple(reversed(lost))
        return known

    def _obstacle(self, request: Request, marked: Sequence[int], end: int, entry: _Entry) -> Reason | None:
        """Why an entry is not read, or None."""
        if not entry.ttl:
            return Reason.BELOW_MINIMUM
        if request.time > entry.expires:
            return Reason.EXPIRED
        if not self._is_found(request, marked, end):
            is_behind = self._rules.lookback is not None and bool(marked) and marked[-1] >= end
            return Reason.LOOKBACK if is_behind else Reason.BREAKPOINT
        return Reason.NOT_KEPT if request.time < entry.readable else None

    def _is_found(self, request: Request, marked: Sequence[int], end: int) -> bool:
        """Whether a read that begins at the markers comes upon an entry."""
        place = bisect_left(marked, end)
        if place == len(marked):
            return False
        if not request.ends:  # the log does not say where blocks end, so nothing can be counted
            return True
        if self._is_resource:
            return marked[place] == end
        if self._rules.lookback is None:
            return True
        start, stop = bisect_left(request.ends, end), bisect_left(request.ends, marked[place])
        if stop == len(request.ends) or request.ends[start] != end:
            return False
        if request.positions and self._rules.runs_count_once:
            start, stop = request.positions[start], request.positions[stop]
        return stop - start < self._rules.lookback

    def _asked(self, request: Request) -> Sequence[Marker]:
        """Where a request has entries written and read."""
        asked: Sequence[Marker] = request.markers
        if not request.ends:
            asked = asked or ((Marker(request.units),) if request.units else ())
        elif self._is_resource:
            asked = (Marker(request.system_end),) if request.system_end else ()
        elif self._rules.control is Control.BREAKPOINT:
            if not asked or asked[-1].end != request.units:
                asked = (*asked, Marker(request.units))
        elif not asked and rules_of_request(request).control is not Control.EXPLICIT:
            places = {request.system_end or request.ends[0], *request.ends[-2:]}
            asked = [Marker(place) for place in sorted(places) if place]
        limit = self._rules.max_breakpoints
        return asked[-limit:] if limit else asked

    # Keeping

    def _write(self, request: Request, known: _Known) -> Mapping[int, int]:
        """Write and renew entries; returns the tokens that are billed as written, by lifetime."""
        renews = self._rules.ttl_renewed
        readable, start = at(request, self._rules.readable_from), at(request, self._rules.ttl_from)
        asked = self._written(known.asked)
        ends = [end for end, _ in asked]
        if known.read is not None and renews:
            known.read.expires = start + known.read.ttl
            if not ends or ends[-1] < known.hit:
                ends.append(known.hit)  # it was used, though nothing is written there
        if not ends:
            return {}
        nodes = self._ends.put(request.run, known.scope, known.match, ends)
        before = [node.value for node in nodes]  # two markers may end at one place
        written: dict[int, int] = {}
        paid = known.hit
        for node, old, (end, ttl) in zip(nodes, before, asked, strict=False):
            if old is not None and old.ttl and request.time <= old.expires:
                longer = max(old.ttl, ttl)  # what is marked again lives on by its own lifetime, as what is read does
                expires = max(old.expires, start + longer) if renews else old.expires
                node.value = _Entry(longer, min(old.readable, readable), expires)
            else:
                node.value = _Entry(ttl, readable, start + ttl)
            if ttl and end > paid:
                written[ttl] = written.get(ttl, 0) + (end - paid) * self._unit
                paid = end
        return written if self._is_written else {}

    def _written(self, asked: Sequence[Marker]) -> list[tuple[int, int]]:
        """Ends of the entries that a request writes, with their lifetimes; 0 for those that are too short to live."""
        rules, written = self._rules, []
        for marker in asked:
            tokens = marker.end * self._unit
            if rules.maximum_tokens is None or tokens <= rules.maximum_tokens:
                ttl = marker.ttl if marker.ttl in rules.ttls and marker.ttl else rules.ttls[0]
                written.append((marker.end, ttl if tokens >= rules.minimum_tokens else 0))
        return written
