"""Asking each engine of the fleet whether it really caches, at the start and on demand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

from prefold.gateway.call import Api
from prefold.gateway.config import Kind
from prefold.gateway.inspect.verification import Conclusion, Verification, verify
from prefold.gateway.replicas import Fleet

_log = logging.getLogger(__name__)
_ENGINES = frozenset({Kind.PREFOLD, Kind.VLLM, Kind.SGLANG, Kind.LLAMACPP})  # others send a bill


class Verifier:
    """Keeps the latest outcome for each replica.

    Args:
        fleet: the replicas.
        clock: monotonic seconds.
        random: makes prompts that nobody has sent before.

    Attributes:
        outcomes: by the name of the replica.
    """

    def __init__(self, fleet: Fleet, clock: Callable[[], float], random: Random) -> None:
        self.outcomes: dict[str, Verification] = {}
        self._fleet = fleet
        self._clock = clock
        self._random = random

    async def verify_engines(self) -> None:
        """Ask every engine of ours, one after the other; those that do not cache are named in the log."""
        for replica in tuple(self._fleet.replicas):
            if replica.table.kind in _ENGINES and replica.models and not replica.condition.is_removed:
                await self.verify(replica.table.name)

    async def verify(self, name: str) -> Verification | None:
        """Ask one replica; None if there is none of that name, or nobody knows a model of it."""
        replica = next(
            (each for each in self._fleet.replicas if each.table.name == name and not each.condition.is_removed), None
        )
        if replica is None or not replica.models:
            return None
        api = Api.CHAT if "openai" in replica.table.dialects else Api.MESSAGES
        outcome = await verify(replica.upstream, min(replica.models), api, clock=self._clock, random=self._random)
        self.outcomes[name] = outcome
        if outcome.conclusion is Conclusion.DOES_NOT_CACHE:
            _log.warning("%s does not cache prompt prefixes: %s", name, outcome.reason)
        return outcome

    def caches(self, name: str) -> str | None:
        """What came of it for a replica, in a word; None where nobody asked yet."""
        outcome = self.outcomes.get(name)
        return outcome.conclusion.value if outcome else None
