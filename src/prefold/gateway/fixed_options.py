"""What a running gateway cannot change: it stays as it was when the gateway began, whatever the file says later."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from prefold.gateway.config import (
    AnswerOptions,
    EngineTable,
    GatewayConfig,
    MeaningOptions,
    MeteringOptions,
    RedisOptions,
)

_MEANING_CHANGES = frozenset(
    (
        *("mode", "force", "ttl_seconds", "principal", "principal_header", "earlier_turns", "sampled", "personal"),
        *("time_bound", "shared", "epoch", "tags", "route"),
    )
)
FIXED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "server": ("host", "port", "operator_host", "operator_port", "drain_seconds"),
        "engine": EngineTable.__struct_fields__,
        "routing": ("index_blocks",),
        "answers": AnswerOptions.__struct_fields__,
        "meaning": tuple(name for name in MeaningOptions.__struct_fields__ if name not in _MEANING_CHANGES),
        "redis": RedisOptions.__struct_fields__,
        "metering": MeteringOptions.__struct_fields__,
    }
)
"""Keys, by their table."""


def in_force(running: GatewayConfig, wanted: GatewayConfig) -> tuple[GatewayConfig, tuple[str, ...]]:
    """What comes of a new configuration while a gateway runs.

    Args:
        running: the configuration in force.
        wanted: the new one.

    Returns:
        The new one with the old values of what cannot change, and the keys that make a difference and were ignored: a
        table's name where it is there in one of the two only.
    """
    kept = {}
    ignored: list[str] = []
    for name, keys in FIXED.items():
        old, new = getattr(running, name), getattr(wanted, name)
        if old is None or new is None:
            kept[name] = old
            ignored += [name] if old != new else []
        else:
            values = {key: getattr(old, key) for key in keys}
            kept[name] = msgspec.structs.replace(new, **values)
            ignored += [f"{name}.{key}" for key, value in values.items() if getattr(new, key) != value]
    return msgspec.structs.replace(wanted, **kept), tuple(ignored)
