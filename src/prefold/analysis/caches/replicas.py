"""Several replicas behind a router."""

from __future__ import annotations

from collections.abc import Sequence

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.caches.common import Replica
from prefold.analysis.request import Request
from prefold.core.routing import HASH_TOKENS, POLICIES, Ask, Lately, Load, make
from prefold.core.tokens import WIDTH

ROUTERS = tuple(POLICIES)
"""Every way to spread requests, by the name that options use."""

USUAL_ROUTING = "round_robin"
"""The one where nothing else is asked for."""


class Fleet:
    """Replicas that share traffic, with the policies that the gateway routes by.

    Logs seldom say how long a request was under way, so a replica's load is what it computed lately.

    Args:
        replicas: at least one.
        routing: a name in `ROUTERS`.
        hash_tokens: leading tokens of a prompt that stand for it.

    Raises:
        UsageError: there is no such routing.
    """

    def __init__(self, replicas: Sequence[Replica], routing: str, hash_tokens: int = HASH_TOKENS) -> None:
        self._replicas = replicas
        self._policy = make(routing)
        self._hash_tokens = hash_tokens
        self._all = range(len(replicas))
        self._loads = [Load(str(index)) for index in self._all]
        self._lately = Lately()

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        peeked = [replica.peek(request) for replica in self._replicas]
        chosen = self._policy.choose(self._ask(request, peeked), self._loads, self._all).replica
        served = self._replicas[chosen].serve(request)
        self._lately.add(self._loads[chosen], request.tokens - served.hit, len(self._replicas))
        others = [other for index, other in enumerate(peeked) if index != chosen]
        elsewhere = max(other.hit for other in others)
        lost = [Loss(Reason.OTHER_REPLICA, elsewhere)] if elsewhere > served.hit else []
        known = max(served.hit, elsewhere)
        for each in (served, *others):  # what one of them cannot explain, another one may
            for loss in each.lost:
                if loss.stop > known:
                    lost.append(loss)
                    known = loss.stop
        return served._replace(lost=tuple(lost), replica=chosen)

    def _ask(self, request: Request, peeked: Sequence[Served]) -> Ask:
        beginning = request.run[: -(-self._hash_tokens // request.unit) * WIDTH]
        return Ask(
            beginning=repr(request.scope).encode() + beginning,
            session=request.record.session,
            tokens=request.tokens,
            matched=[each.hit for each in peeked],
        )
