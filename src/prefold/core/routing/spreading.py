"""Policies that know nothing of prefixes."""

from __future__ import annotations

from collections.abc import Sequence

from prefold.core.routing.base import Ask, Choice, Load, Why


class _Turns:
    """Takes replicas in turn: always the one that was taken longest ago.

    A counter would do for one set of replicas; where several models share a policy, each with replicas of its own,
    requests that alternate between them would make it skip the same ones each time.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._latest: dict[str, int] = {}

    def take(self, loads: Sequence[Load], among: Sequence[int]) -> int:
        """One of the replicas."""
        chosen = min(among, key=lambda index: self._latest.get(loads[index].name, 0))
        self._turn += 1
        self._latest[loads[chosen].name] = self._turn
        return chosen


class RoundRobin:
    """Each in turn."""

    def __init__(self) -> None:
        self._turns = _Turns()

    def choose(self, ask: Ask, loads: Sequence[Load], allowed: Sequence[int]) -> Choice:  # noqa: ARG002 - the protocol's
        """See `Policy`."""
        chosen = self._turns.take(loads, allowed)
        return Choice(chosen, Why.ONLY_ONE if len(allowed) == 1 else Why.ROUND_ROBIN)


class LeastPending:
    """The one with the fewest requests under way, of equals the one with the fewest tokens, of equals each in turn.

    Args:
        why: what it says for it; others fall back to it.
    """

    def __init__(self, why: Why = Why.LEAST_PENDING) -> None:
        self._turns = _Turns()
        self._why = why

    def choose(self, ask: Ask, loads: Sequence[Load], allowed: Sequence[int]) -> Choice:  # noqa: ARG002 - the protocol's
        """See `Policy`."""
        if len(allowed) == 1:
            return Choice(allowed[0], Why.ONLY_ONE)
        work = [(loads[index].pending, loads[index].tokens) for index in allowed]
        least = min(work)
        idlest = [index for index, each in zip(allowed, work, strict=True) if each == least]
        return Choice(self._turns.take(loads, idlest), self._why)
