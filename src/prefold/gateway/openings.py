"""What a reload may never do: open what was closed. A file that is empty or half written would otherwise be taken.

A file that is read while somebody writes it does not say whether what is missing was meant to go. So what takes
protection away needs a new start; what closes is taken at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from prefold.errors import UsageError
from prefold.gateway.config import DEFAULT_GROUP, DEFAULT_TENANT, GatewayConfig, GroupTable, Isolation

_PROOFS = {"open": 0, "header": 1, "key": 2, "jwt": 2}
"""How much a client has to show."""

_CLOSED = {
    Isolation.SHARED: frozenset(Isolation),
    Isolation.SHARED_SYSTEM: frozenset({Isolation.SHARED_SYSTEM, Isolation.ISOLATED}),
    Isolation.ISOLATED: frozenset({Isolation.ISOLATED}),
    Isolation.DEDICATED: frozenset({Isolation.DEDICATED}),
}
"""What tenants of a level may become. Dedicated ones share with each other, isolated ones share machines."""

_NOBODY = ""
"""Stands for all tenants that have no table."""


def check_reload(running: GatewayConfig, wanted: GatewayConfig) -> None:
    """Refuse a configuration that opens what is closed, or leaves no replica.

    Args:
        running: the configuration in force.
        wanted: the new one, as it would be in force.

    Raises:
        UsageError: naming each such change, and how to make it on purpose.
    """
    changes = [*_of_replicas(running, wanted), *_of_access(running, wanted), *_of_tenants(running, wanted)]
    if changes:
        raise UsageError(
            f"It would open what is closed: {'; '.join(changes)}.",
            hint="If that is meant, start the gateway anew; if the file was half written, replace it by a rename.",
        )


def _of_replicas(running: GatewayConfig, wanted: GatewayConfig) -> Iterator[str]:
    if running.replica and not wanted.replica:
        yield "no replica is left"
    limited = {table.name for table in running.replica if table.groups}
    for table in wanted.replica:
        if table.name in limited and not table.groups:
            yield f"replica {table.name} is for all groups"


def _of_access(running: GatewayConfig, wanted: GatewayConfig) -> Iterator[str]:
    old, new = running.access, wanted.access
    if _PROOFS[new.by] < _PROOFS[old.by]:
        yield f"access.by is {new.by}, and was {old.by}"
    if old.by == new.by == "header" and old.header.lower() != new.header.lower():
        yield "access.header is another one, which the proxy in front may let clients set"
    if old.by == new.by == "jwt" and old.jwt is not None and new.jwt is not None:
        for key in ("audience", "issuer"):
            if getattr(old.jwt, key) and not getattr(new.jwt, key):
                yield f"access.jwt.{key} is gone"
        if old.jwt.claim != new.jwt.claim:
            yield "access.jwt.claim is another one"


def _of_tenants(running: GatewayConfig, wanted: GatewayConfig) -> Iterator[str]:
    """What tenants lose who may come before and after."""
    by_key = running.access.by == wanted.access.by == "key"
    if by_key and _with_keys(running).isdisjoint(_with_keys(wanted)):
        yield "no tenant that had a key has one"
    before, after = _Groups(running), _Groups(wanted)
    losers: dict[str, list[str]] = {}
    for name in dict.fromkeys((_NOBODY, DEFAULT_TENANT, *before.named, *after.named)):
        old, new = before.of(name), after.of(name)
        if old is not None and new is not None:
            for loss in _losses(old, new):
                losers.setdefault(loss, []).append(name or "those without a table")
    for loss, names in losers.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{loss}, for tenant {names[0]}{more}"


def _with_keys(config: GatewayConfig) -> set[str]:
    return {table.name for table in config.tenant if table.key_hashes}


def _losses(old: GroupTable, new: GroupTable) -> Iterator[str]:
    """What a tenant that was in one group has no more in another."""
    if new.isolation not in _CLOSED[old.isolation]:
        yield f"isolation is {new.isolation.value}, and was {old.isolation.value}"
    if old.ttft == "uniform" and new.ttft != "uniform":
        yield "ttft is no longer uniform"
    for key in ("requests_per_minute", "tokens_per_minute"):
        if getattr(old, key) is not None and getattr(new, key) is None:
            yield f"{key} is gone"


class _Groups:
    """Groups of tenants, by their names.

    Attributes:
        named: the tenants that have tables.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.named = {table.name: table for table in config.tenant}
        self._by = config.access.by
        self._groups = {group.name: group for group in config.groups}

    def of(self, name: str) -> GroupTable | None:
        """A tenant's group; None where nobody can come by that name."""
        table = self.named.get(name)
        if self._by == "open" and name != DEFAULT_TENANT:
            return None
        if self._by == "key" and (table is None or not table.key_hashes):
            return None
        return self._groups[table.group if table is not None else DEFAULT_GROUP]
