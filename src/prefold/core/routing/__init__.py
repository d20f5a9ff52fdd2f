"""Which replica a request goes to: policies over a view of a fleet. Pure: no clock, no network.

The gateway and the simulator drive the same policies with the same calls. To add one, write a class with `choose` and
name it in `POLICIES`; the simulator and the contract tests pick it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from prefold.core.routing.base import LOAD_BOUND, Ask, Choice, Lately, Load, Policy, Why, Work
from prefold.core.routing.exact import Exact
from prefold.core.routing.ring import HASH_TOKENS, VIRTUAL_NODES, PrefixHash, Sticky
from prefold.core.routing.spreading import LeastPending, RoundRobin
from prefold.errors import UsageError

POLICIES: Mapping[str, Callable[[int, float], Policy]] = MappingProxyType(
    {
        "round_robin": lambda _virtual_nodes, _load_bound: RoundRobin(),
        "least_pending": lambda _virtual_nodes, _load_bound: LeastPending(),
        "sticky": Sticky,
        "prefix_hash": PrefixHash,
        "exact": lambda _virtual_nodes, load_bound: Exact(load_bound),
    }
)
"""Makes every policy, by the name that options use, from virtual nodes and load bound."""


def make(name: str, *, virtual_nodes: int = VIRTUAL_NODES, load_bound: float = LOAD_BOUND) -> Policy:
    """A policy by its name, for one fleet.

    Args:
        name: in `POLICIES`.
        virtual_nodes: points of each replica on a ring, for those that have one.
        load_bound: load relative to the mean above which affinity gives way, for those that know any.

    Raises:
        UsageError: there is no such policy.
    """
    if name not in POLICIES:
        raise UsageError(f"There is no routing {name!r}.", hint=f"Known: {', '.join(POLICIES)}.")
    return POLICIES[name](virtual_nodes, load_bound)


__all__ = [
    "HASH_TOKENS",
    "LOAD_BOUND",
    "POLICIES",
    "VIRTUAL_NODES",
    "Ask",
    "Choice",
    "Exact",
    "Lately",
    "LeastPending",
    "Load",
    "Policy",
    "PrefixHash",
    "RoundRobin",
    "Sticky",
    "Why",
    "Work",
    "make",
]
