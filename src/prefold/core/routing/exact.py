"""The policy that knows which replica holds what."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from prefold.core.routing.base import LOAD_BOUND, REQUEST_TOKENS, Ask, Choice, Limits, Load, Why
from prefold.core.routing.spreading import LeastPending

_WEIGHT = 0.005
"""Of load, against tokens to be computed.

Chosen with the other weight on the first half of the Mooncake conversation trace, with loads that `Lately` keeps; 0.003
to 0.01 give almost the same hits and loads. Without any weight, what many replicas hold a little of, such as a common
system prompt, would draw all new conversations to one.
"""

_EXCESS_WEIGHT = 10
"""Of what a replica computed above its share.

More than 1 because a copy that is made of a hot prefix serves more than the one request. On the trace 1 to 10 do alike;
where sessions are few and long, 1 leaves the load with some of the replicas.
"""


class Exact:
    """The replica that serves the request at the least cost: what it would have to compute of the prompt, and its load.

    Load within the bound is charged little, what exceeds it several times. So a replica loses a request only once it
    has done that much more than its share, set against what going elsewhere costs: a prefix that everybody asks for is
    soon held by several replicas, while all others keep what they have. Only the hot one gives up affinity. That
    prefill and load are added up is NVIDIA Dynamo's idea. Where nothing matches, the idlest replica is taken.

    Args:
        load_bound: load relative to the mean up to which it is charged little.
    """

    def __init__(self, load_bound: float = LOAD_BOUND) -> None:
        self._bound = load_bound
        self._fallback = LeastPending(Why.FALLBACK)

    def choose(self, ask: Ask, loads: Sequence[Load], allowed: Sequence[int]) -> Choice:
        """See `Policy`."""
        known = len(ask.matched)
        matched = [ask.matched[index] if index < known else 0 for index in allowed]
        longest = max(matched)
        if not longest or len(allowed) == 1:
            return self._fallback.choose(ask, loads, allowed)
        limits = Limits.of(loads, allowed, self._bound, ask.tokens)
        costs = [_charge(loads[index], limits) - held for index, held in zip(allowed, matched, strict=True)]
        least = min(costs)
        cheapest = [place for place, cost in enumerate(costs) if cost == least]
        chosen = cheapest[0]
        if len(cheapest) > 1:  # equal requests to equal places, in all processes alike, and others elsewhere
            chosen = max(cheapest, key=lambda place: _draw(loads[allowed[place]].name, ask.affinity))
        return Choice(allowed[chosen], Why.EXACT if matched[chosen] == longest else Why.OVERLOADED)


def _charge(load: Load, limits: Limits) -> float:
    """What a replica's load adds to the cost of a request, in tokens."""
    work = load.tokens + REQUEST_TOKENS * load.pending
    excess = _EXCESS_WEIGHT * max(0.0, load.tokens - limits.tokens)
    waiting = REQUEST_TOKENS * max(0, load.pending + 1 - limits.pending)
    return _WEIGHT * work + excess + waiting


def _draw(name: str, affinity: bytes) -> bytes:
    """A lot of a replica for a request (rendezvous hashing)."""
    return blake2b(affinity, digest_size=8, key=blake2b(name.encode(), digest_size=16).digest()).digest()
