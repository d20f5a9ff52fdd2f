"""Who is evicted.

A policy decides and never stores: the tree keeps pins and children, so no policy can evict a pinned or an inner node,
whatever it answers. To add one, write a subclass of `Policy` and name it in `POLICIES`; the contract tests pick it up.
A policy object serves one cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from prefold.core.policies.base import Policy, Shelves
from prefold.core.policies.cost import Cost
from prefold.core.policies.ghosts import ARC, S3FIFO
from prefold.core.policies.gittins import Gittins
from prefold.core.policies.simple import FIFO, GDSF, LFU, LRU, TTLLRU, Pinned

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "arc": ARC,
        "default": Gittins,
        "fifo": FIFO,
        "gdsf": GDSF,
        "lfu": LFU,
        "lru": LRU,
        "pinned": Pinned,
        "s3-fifo": S3FIFO,
        "ttl-lru": TTLLRU,
    }
)
"""Every policy by the name that options use."""

__all__ = [
    "ARC",
    "FIFO",
    "GDSF",
    "LFU",
    "LRU",
    "POLICIES",
    "S3FIFO",
    "TTLLRU",
    "Cost",
    "Gittins",
    "Pinned",
    "Policy",
    "Shelves",
]
