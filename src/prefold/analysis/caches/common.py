"""What all simulated caches share: scopes, moments, rounding, luck, and the limit of what they remember."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.memory import MOST_NODES, MOST_UNITS
from prefold.analysis.request import Request
from prefold.core.keys import Scope
from prefold.core.radix import RadixTree
from prefold.errors import UsageError
from prefold.providers.rules import CacheRules, Moment


class Replica(Protocol):
    """A cache that a router can choose: it can also say what it would serve."""

    def peek(self, request: Request) -> Served:
        """What `serve` would answer now, but for what is written. Changes nothing but that time passes."""

    def serve(self, request: Request) -> Served:
        """See `prefold.analysis.caches.base.CacheModel`."""


def at(request: Request, moment: Moment) -> float:
    """When a moment of a request is, in seconds; its arrival where the log does not say more."""
    record = request.record
    if moment is Moment.ANSWER:
        return request.time + (record.duration or 0.0)
    if moment is Moment.FIRST_TOKEN:
        return request.time + (record.ttft or 0.0)
    return request.time


def units_of(capacity: int | None, unit: int) -> int:
    """Units that a capacity in tokens holds; as many as are remembered where there is no limit."""
    return MOST_UNITS if capacity is None else max(1, capacity // unit)


def is_full(tree: RadixTree[Any], capacity: int) -> bool:
    """Whether a tree holds more than a capacity in units, or more than is remembered."""
    return tree.size > capacity or tree.node_count > MOST_NODES


def scope_of(request: Request, isolate_tenants: bool) -> Scope:
    """What keeps a request apart from others: model and salt, and its tenant where they are isolated."""
    record = request.record
    return _scope(record.model, request.salt, record.tenant if isolate_tenants else None)


@lru_cache(maxsize=1024)
def _scope(model: str, salt: str | None, tenant: str | None) -> Scope:
    """Kept for the whole process, since all caches ask for it with each request; pure, and a few short names each."""
    if salt is None and tenant is None:
        return Scope(namespace=model)
    # A separator that no header can hold, so that no choice of names makes two scopes one.
    return Scope(namespace=f"{model}\0{'-' if salt is None else '+' + salt}\0{tenant or ''}")


def check_unit(request: Request, unit: int) -> None:
    """Refuse a request whose ids stand for something else than those of the requests before it.

    Raises:
        UsageError: naming both.
    """
    if request.unit != unit:
        raise UsageError(
            f"{request.record.place}: ids stand for {request.unit} tokens, those before for {unit}.",
            hint="Simulate the two logs one by one.",
        )


class Steps:
    """Rounds what is known of a prompt to what a cache serves.

    Args:
        rules: minimum, granularity, and whether the last token is computed anyway.
        unit: tokens that an id stands for; both are rounded up to whole units.
    """

    def __init__(self, rules: CacheRules, unit: int) -> None:
        self.minimum = -(-rules.minimum_tokens // unit)
        """Units that the shortest cached prefix has."""
        self.step = -(-rules.granularity_tokens // unit)
        """Units between two lengths that can be cached."""
        self._unit = unit
        self._computes_last = rules.computes_last

    def down(self, known: int) -> int:
        """The longest cacheable length of at most `known` units."""
        return 0 if known < self.minimum else known - (known - self.minimum) % self.step

    def hit(self, known: int, request: Request) -> int:
        """Units that are served of those known."""
        # In a trace of blocks the last block of a prompt is a part of one in truth, and the last token is in it.
        if self._computes_last and self._unit == 1:
            known = min(known, max(0, request.tokens - 1))
        return self.down(known)

    def served(self, request: Request, matched: int, live: int, reason: Reason, otherwise: Reason) -> Served:
        """What a cache answers that keeps every prefix.

        Args:
            request: what is asked for.
            matched: units of it that were sent before and are still there.
            live: units of it that can be read.
            reason: why no more of the matched ones can.
            otherwise: why nothing is known of what lies behind.
        """
        hit = self.hit(live, request)
        reachable = hit if live == matched else self.hit(matched, request)
        lost = []
        if reachable > hit:
            lost.append(Loss(reason, self._tokens(request, reachable)))
        if matched > max(hit, reachable):
            rounding = Reason.BELOW_MINIMUM if matched < self.minimum else Reason.BLOCK_TAIL
            lost.append(Loss(rounding, self._tokens(request, matched)))
        return Served(self._tokens(request, hit), lost=tuple(lost), otherwise=otherwise)

    def _tokens(self, request: Request, units: int) -> int:
        return min(units * self._unit, request.tokens)


class Luck:
    """Draws the requests for which a cache that promises nothing has nothing.

    Args:
        rate: their share.
        seed: the same seed draws the same requests.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self._rate = rate
        self._seed = seed
        self._drawn = 0

    def fails(self) -> bool:
        """Whether the next request is one of them."""
        if not self._rate:
            return False
        self._drawn += 1
        digest = blake2b(f"{self._seed}/{self._drawn}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") < self._rate * 2**64
