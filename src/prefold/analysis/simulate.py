"""The same traffic under several caches, in one pass: what each would hit, recompute, write and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from prefold.analysis.caches.base import CacheModel, Served
from prefold.analysis.caches.build import build
from prefold.analysis.caches.resolve import judge_of
from prefold.analysis.caches.shared import SharedPrefixes, can_share, sharing_key
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.named_replicas import cache_of_log
from prefold.analysis.request import Request
from prefold.analysis.tally import Meter, PriceOf, Tally
from prefold.providers.prices import Prices
from prefold.providers.rules import CacheRules

_MOST_MODELS = 1_000
"""Models whose plan is remembered; then they are made anew."""


@dataclass(frozen=True, slots=True)
class SimulatedRow:
    """What a cache did for a log.

    Attributes:
        cache: its name.
        policy: who was evicted; None where nobody chooses, as at a provider.
        capacity_tokens: of each replica; None for no limit.
        block_tokens: tokens that it keeps or drops together, and at least one id of the log.
        replicas: how many servers shared the traffic.
        routing: how they did; None for one.
        requests: in the log.
        input_tokens: sent.
        hit_tokens: those served from the cache.
        written_tokens: those that were billed as written.
        cost: of all input, storage included; None where no request has a price.
        currency: of the cost; empty where there is none.
        unpriced_requests: requests that are not in the cost.
        load_imbalance: computed tokens of the replica that computed most, divided by their mean; 1 for even loads.
        families: requests by the family of the provider whose rules judged them; none where each request was judged by
            those of the cache that it was sent to.
    """

    cache: str
    policy: str | None
    capacity_tokens: int | None
    block_tokens: int
    replicas: int
    routing: str | None
    requests: int
    input_tokens: int
    hit_tokens: int
    written_tokens: int
    cost: float | None
    currency: str
    unpriced_requests: int
    load_imbalance: float
    families: Mapping[str, int]

    @property
    def capacity_blocks(self) -> int | None:
        """The capacity in blocks; None for no limit."""
        return None if self.capacity_tokens is None else self.capacity_tokens // self.block_tokens

    @property
    def recomputed_tokens(self) -> int:
        """Input tokens that had to be computed."""
        return self.input_tokens - self.hit_tokens

    @property
    def hit_rate(self) -> float:
        """Input tokens served from cache divided by input tokens; 0 for an empty log."""
        return self.hit_tokens / self.input_tokens if self.input_tokens else 0.0

    def as_json(self) -> dict[str, object]:
        """The row as `--json` prints it."""
        return {
            "cache": self.cache,
            "policy": self.policy,
            "capacity_blocks": self.capacity_blocks,
            "capacity_tokens": self.capacity_tokens,
            "replicas": self.replicas,
            "routing": self.routing,
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "hit_tokens": self.hit_tokens,
            "recomputed_tokens": self.recomputed_tokens,
            "written_tokens": self.written_tokens,
            "hit_rate": round(self.hit_rate, 6),
            "cost": self.cost,
            "currency": self.currency or None,
            "unpriced_requests": self.unpriced_requests,
            "load_imbalance": round(self.load_imbalance, 4),
            "families": dict(self.families),
        }


def simulate(
    requests: Iterable[Request], specs: Sequence[CacheSpec], prices: Prices | None = None
) -> list[SimulatedRow]:
    """Send requests to caches.

    Args:
        requests: in order of time.
        specs: the caches, each with a row in the answer.
        prices: what tokens cost; None to leave the cost out.

    Raises:
        UsageError: as `build`, as `Prices.price_of`, or if ids of the log stand for different numbers of tokens.
    """
    simulation = Simulation(specs, prices)
    for request in requests:
        simulation.add(request)
    return simulation.rows()


class Simulation:
    """Caches that requests are sent to one by one; what was served can be asked for at any time.

    Args:
        specs: the caches.
        prices: what tokens cost; None to leave the cost out.

    Raises:
        UsageError: as `build`.
    """

    def __init__(self, specs: Sequence[CacheSpec], prices: Prices | None = None) -> None:
        self._specs = specs
        self._currency = "" if prices is None else prices.currency
        self._meters = [Meter(PriceOf(prices, judge_of(spec))) for spec in specs]
        self._judges = [judge_of(spec) for spec in specs]
        # Caches without a limit that keep the same prefixes share a tree; the others have one each.
        self._alone = [_Alone(cache_of_log(spec) if spec.rules is None else build(spec)) for spec in specs]
        self._shared: dict[tuple[bool, bool], _Shared] = {}
        self._seats: dict[tuple[int, str], _Seat] = {}
        self._plans: dict[str, _Plan] = {}
        self._is_by_model = any(spec.by_model for spec in specs)

    def add(self, request: Request) -> None:
        """Send a request to every cache; they come in order of time."""
        plan = self._plans.get(request.record.model if self._is_by_model else "")
        for group, takers in plan or self._plan_for(request):
            served = group.serve(request)
            for seat, meter, other in takers:
                meter.add(request, served[seat])
                if other:
                    meter.tally.others[other] = meter.tally.others.get(other, 0) + 1

    def _plan_for(self, request: Request) -> _Plan:
        """Which groups a request of a model goes to; where caches judge by model, that is not the same for all."""
        plan: dict[int, tuple[_Group, list[_Taker]]] = {}
        for index, (spec, judge) in enumerate(zip(self._specs, self._judges, strict=True)):
            rules = None if spec.rules is None else judge(request)
            group, seat = self._seat(index, spec if rules is None else replace(spec, rules=rules))
            other = rules.family if rules is not None and rules is not spec.rules else ""
            plan.setdefault(id(group), (group, []))[1].append((seat, self._meters[index], other))
        if len(self._plans) == _MOST_MODELS:
            self._plans.clear()
        found = self._plans[request.record.model if self._is_by_model else ""] = list(plan.values())
        return found

    def _seat(self, index: int, spec: CacheSpec) -> _Seat:
        """The group of a cache with the rules of a family, and its place in that."""
        if not can_share(spec) or spec.rules is None:
            return self._alone[index], 0
        key = index, spec.rules.family
        if key not in self._seats:
            shared = self._shared.setdefault(sharing_key(spec), _Shared())
            self._seats[key] = shared, shared.add(spec)
        return self._seats[key]

    def tallies(self) -> list[Tally]:
        """The sums of each cache, in the order of the specifications."""
        return [meter.tally for meter in self._meters]

    def rows(self) -> list[SimulatedRow]:
        """What each cache did so far, in the order of the specifications."""
        return rows_of(self._specs, self.tallies(), self._currency)


def rows_of(specs: Sequence[CacheSpec], tallies: Sequence[Tally], currency: str) -> list[SimulatedRow]:
    """Rows from sums.

    Args:
        specs: the caches.
        tallies: their sums, in the same order.
        currency: of the cost; empty where no prices are known.
    """
    return [_row(spec, tally, currency) for spec, tally in zip(specs, tallies, strict=True)]


def _row(spec: CacheSpec, tally: Tally, currency: str) -> SimulatedRow:
    rules = spec.rules
    grain = 1 if rules is None else rules.granularity_tokens
    is_chosen = rules is None or rules.self_hosted  # of a provider's cache nobody knows capacity and policy
    mean = sum(tally.computed.values()) / spec.replicas
    cost = tally.cost if currency else None
    return SimulatedRow(
        cache=spec.name,
        policy=spec.policy if is_chosen else None,
        capacity_tokens=spec.capacity,
        block_tokens=-(-grain // tally.unit) * tally.unit,
        replicas=spec.replicas,
        routing=spec.routing if spec.replicas > 1 else None,
        requests=tally.requests,
        input_tokens=tally.input_tokens,
        hit_tokens=tally.hit_tokens,
        written_tokens=tally.written_tokens,
        cost=cost,
        currency=currency if cost is not None else "",
        unpriced_requests=tally.unpriced_requests if currency else 0,
        load_imbalance=max(tally.computed.values()) / mean if mean else 1.0,
        families=_families(rules, tally),
    )


def _families(rules: CacheRules | None, tally: Tally) -> dict[str, int]:
    """Requests by the family that judged them, the one of the specification first."""
    if rules is None:
        return {}
    families = {rules.family: tally.requests - sum(tally.others.values()), **dict(sorted(tally.others.items()))}
    return {family: requests for family, requests in families.items() if requests}


class _Group(Protocol):
    """Caches that a request is sent to at once."""

    def serve(self, request: Request) -> Sequence[Served]:
        """What each does for it."""


_Seat = tuple[_Group, int]
"""A group, and the place of a cache in what it serves."""
_Taker = tuple[int, Meter, str]
"""A place in what a group serves, who counts that, and the family whose rules it follows where those are others."""
_Plan = list[tuple[_Group, list[_Taker]]]


class _Alone:
    """A cache by itself."""

    def __init__(self, cache: CacheModel) -> None:
        self._cache = cache

    def serve(self, request: Request) -> Sequence[Served]:
        return (self._cache.serve(request),)


class _Shared:
    """Caches that share a tree, which learns with the first request what an id stands for."""

    def __init__(self) -> None:
        self._specs: list[CacheSpec] = []
        self._shared: SharedPrefixes | None = None

    def add(self, spec: CacheSpec) -> int:
        """Have one more share it, before the first request of any model that it judges; returns its place."""
        self._specs.append(spec)
        if self._shared is not None:
            self._shared.add(spec)
        return len(self._specs) - 1

    def serve(self, request: Request) -> Sequence[Served]:
        if self._shared is None:
            self._shared = SharedPrefixes(self._specs, request.unit)
        return self._shared.serve(request)
