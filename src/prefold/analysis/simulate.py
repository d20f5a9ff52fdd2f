"""The same traffic under several caches, in one pass: what each would hit, recompute, write and cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prefold.analysis.caches.base import CacheModel, Served
from prefold.analysis.caches.build import build
from prefold.analysis.caches.resolve import rules_of_request
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Request
from prefold.providers.prices import HOUR, Price, Prices
from prefold.providers.usage import Usage

_TOKENS_PER_PRICE = 1_000_000


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
        self._runs = [_Run(spec, prices) for spec in specs]

    def add(self, request: Request) -> None:
        """Send a request to every cache; they come in order of time."""
        for run in self._runs:
            run.add(request)

    def rows(self) -> list[SimulatedRow]:
        """What each cache did so far, in the order of the specifications."""
        return [run.row() for run in self._runs]


class _Run:
    """One cache and its sums."""

    def __init__(self, spec: CacheSpec, prices: Prices | None) -> None:
        self._spec = spec
        self._cache: CacheModel = build(spec)
        self._prices = prices
        self._unit = 1
        self._requests = self._input = self._hit = self._written = self._unpriced = 0
        self._cost = 0.0
        self._computed = [0] * spec.replicas

    def add(self, request: Request) -> None:
        served = self._cache.serve(request)
        self._unit = request.unit
        self._requests += 1
        self._input += request.tokens
        self._hit += served.hit
        self._written += sum(served.written.values())
        self._computed[served.replica] += request.tokens - served.hit
        if self._prices is not None:
            self._bill(request, served, self._prices)

    def _bill(self, request: Request, served: Served, prices: Prices) -> None:
        rules = self._spec.rules or rules_of_request(request)
        price = prices.price_of(request.record.model, request.record.provider, rules=rules)
        if price is None:
            self._unpriced += 1
            return
        self._cost += input_cost(request.tokens, served, price.at(request.tokens))

    def row(self) -> SimulatedRow:
        spec, rules = self._spec, self._spec.rules
        grain = 1 if rules is None else rules.granularity_tokens
        is_chosen = rules is None or rules.self_hosted  # of a provider's cache nobody knows capacity and policy
        is_priced = self._prices is not None and self._unpriced < self._requests
        mean = sum(self._computed) / len(self._computed)
        return SimulatedRow(
            cache=spec.name,
            policy=spec.policy if is_chosen else None,
            capacity_tokens=spec.capacity,
            block_tokens=-(-grain // self._unit) * self._unit,
            replicas=spec.replicas,
            routing=spec.routing if spec.replicas > 1 else None,
            requests=self._requests,
            input_tokens=self._input,
            hit_tokens=self._hit,
            written_tokens=self._written,
            cost=self._cost if is_priced else None,
            currency=self._prices.currency if self._prices is not None and is_priced else "",
            unpriced_requests=self._unpriced,
            load_imbalance=max(self._computed) / mean if mean else 1.0,
        )


def input_cost(tokens: int, served: Served, price: Price) -> float:
    """What the input of a request costs, storage included where its price is known.

    Args:
        tokens: of the whole input.
        served: what the cache did.
        price: of this model under this cache.
    """
    written = sum(served.written.values())
    usage = Usage(
        uncached=tokens - served.hit - written,
        read=served.hit,
        write=written,
        write_1h=served.written.get(HOUR, 0),
    )
    token_hours = sum(count * ttl / HOUR for ttl, count in served.written.items())
    return price.cost_of(usage).input + (price.storage or 0.0) * token_hours / _TOKENS_PER_PRICE
