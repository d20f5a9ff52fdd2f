"""Asking each engine of the fleet whether it really caches, when it is first up and on demand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from weakref import WeakSet

from prefold.gateway.call import Api
from prefold.gateway.condition import State
from prefold.gateway.config import Kind
from prefold.gateway.inspect.verification import Conclusion, Verification, verify
from prefold.gateway.replica import Replica
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
        self._greeted: WeakSet[Replica] = WeakSet()

    async def verify_engines(self) -> None:
        """Ask every engine of ours, one after the other; those that do not cache are named in the log."""
        for replica in self._engines():
            await self.verify(replica.table.name)

    async def verify_new_engines(self) -> None:
        """Ask those that are up and that this has not asked before."""
        for replica in self._engines():
            is_up = replica.condition.is_checked and replica.states(self._clock())[""] is State.UP
            if is_up and replica not in self._greeted:
                self._greeted.add(replica)
                await self.verify(replica.table.name)

    def forget(self, name: str) -> None:
        """A replica is gone, and its name may become another's."""
        self.outcomes.pop(name, None)

    def _engines(self) -> list[Replica]:
        return [
            replica
            for replica in self._fleet.replicas
            if replica.table.kind in _ENGINES and replica.models and not replica.condition.is_removed
        ]

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
