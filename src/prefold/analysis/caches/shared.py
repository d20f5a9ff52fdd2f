"""Several caches without a limit that keep every prefix: one tree for all of them.

They hold the same and differ in how they round and how long they wait, so each is a few numbers beside the tree. What
is served equals what a `PrefixCache` of its own would serve; a test says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from prefold.analysis.caches.base import Reason, Served
from prefold.analysis.caches.common import Steps, at, check_unit, is_full, scope_of
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.memory import MOST_UNITS
from prefold.analysis.request import Request
from prefold.core.keys import Scope
from prefold.core.radix import Insertion, Leaves, Match, RadixTree
from prefold.core.tokens import WIDTH
from prefold.providers.rules import Moment, Storage


def can_share(spec: CacheSpec) -> bool:
    """Whether a cache keeps every prefix without a limit, so that it can share its tree with others like it."""
    rules = spec.rules
    return (
        rules is not None
        and rules.stores is Storage.PREFIXES
        and spec.capacity is None
        and not spec.tiers
        and spec.replicas == 1
        and not spec.loss_rate
        and rules.ttl_from is rules.readable_from is Moment.REQUEST
        and rules.ttl_renewed
        and not (rules.ttls and rules.keeps_output)  # an answer is not used when its prompt is, see `_GrowingTree`
    )


def sharing_key(spec: CacheSpec) -> tuple[bool, bool]:
    """What caches must have in common to share a tree: who is kept apart, and whether answers are kept."""
    return spec.isolate_tenants, spec.rules is not None and spec.rules.keeps_output


@dataclass(frozen=True, slots=True)
class _Member:
    """One of the caches: how it rounds, and how many seconds it keeps what nobody asks for."""

    steps: Steps
    ttl: float


class _GrowingTree(RadixTree[float]):
    """A tree in which what goes on from a leaf makes it longer: a conversation is one node, not one for each turn.

    That loses nothing where all that a leaf holds was used at the same time, as long as no scope has a salt.
    """

    def insert(
        self,
        run: bytes,
        scope: Scope,
        make_value: Callable[[int, int], float],
        used: int,
        match: Match[float] | None = None,
    ) -> Insertion[float]:
        """See `RadixTree`; a leaf that has become longer keeps its value."""
        match = match or self.peek(run, scope)
        leaf = match.node
        if leaf.children or leaf.parent is None or match.length < leaf.stop:
            return super().insert(run, scope, make_value, used, match)
        self.extend(leaf, run)
        return Insertion(match.length, leaf, (), None)


class SharedPrefixes:
    """Caches without a limit.

    Args:
        specs: those for which `can_share` holds, with the same `sharing_key`.
        unit: tokens that an id stands for in all requests to come.
    """

    def __init__(self, specs: Sequence[CacheSpec], unit: int) -> None:
        self._unit = unit
        self._isolates_tenants = specs[0].isolate_tenants
        self._keeps_output = specs[0].rules is not None and specs[0].rules.keeps_output
        self._members: list[_Member] = []
        self._is_timed = False
        for spec in specs:
            self.add(spec)
        self._leaves: Leaves[float] = Leaves()
        # The value of a node is the time of the latest request that used it.
        self._tree = _GrowingTree(-inf, lambda time, _length: (time, time), self._leaves)
        self._forgot = False
        self._clock = 0
        self._running: list[tuple[float, int, bytes, Scope]] = []

    def add(self, spec: CacheSpec) -> None:
        """Have another cache share the tree, for models of which no request has come yet."""
        if (rules := spec.rules) is not None:
            self._members.append(_Member(Steps(rules, self._unit), rules.ttls[0] if rules.ttls else inf))
            self._is_timed |= bool(rules.ttls)

    def serve(self, request: Request) -> list[Served]:
        """What each cache does for a request, in the order of the specifications.

        Raises:
            UsageError: its ids stand for another number of tokens than those of earlier requests.
        """
        check_unit(request, self._unit)
        if not request.run:
            return [Served(0)] * len(self._members)
        while self._running and self._running[0][0] <= request.time:
            _, _, run, scope = heapq.heappop(self._running)
            self._insert(run, scope, request.time)
        scope = scope_of(request, self._isolates_tenants)
        self._clock += 1
        inserted = self._tree.insert(request.run, scope, lambda *_: request.time, self._clock)
        path = []  # where nodes end, and when they were last used, tails first
        node = inserted.node
        while node.parent is not None:
            if self._is_timed:
                if node.start < inserted.existed:
                    path.append((node.start, node.value))
                node.value = request.time
            node.used = self._clock
            node = node.parent
        served = [self._served(member, request, inserted.existed, path) for member in self._members]
        self._forget()
        self._keep_answer(request, scope)
        return served

    def _served(self, member: _Member, request: Request, matched: int, path: Sequence[tuple[int, float]]) -> Served:
        live = matched
        oldest = request.time - member.ttl
        for start, used in path:
            if used >= oldest:
                break
            live = start
        otherwise = Reason.EVICTED if self._forgot else Reason.UNEXPLAINED
        return member.steps.served(request, matched, live, Reason.EXPIRED, otherwise)

    def _keep_answer(self, request: Request, scope: Scope) -> None:
        if not self._keeps_output or not request.output:
            return
        # The last token of an answer was never fed back, so it has no keys and values.
        run = request.run + (request.output[:-WIDTH] if self._unit == 1 else request.output)
        if request.record.duration is None:
            self._insert(run, scope, request.time)
        else:
            heapq.heappush(self._running, (at(request, Moment.ANSWER), self._clock, run, scope))

    def _insert(self, run: bytes, scope: Scope, time: float) -> None:
        self._clock += 1
        end = self._tree.insert(run, scope, lambda *_: time, self._clock).node
        self._tree.touch(end, self._clock)
        self._forget()

    def _forget(self) -> None:
        while is_full(self._tree, MOST_UNITS) and (oldest := self._leaves.oldest()) is not None:
            excess = self._tree.size - MOST_UNITS  # of units no more goes than must, of nodes a whole one
            self._tree.truncate(oldest, max(0, oldest.length - excess) if excess > 0 else 0)
            self._forgot = True
