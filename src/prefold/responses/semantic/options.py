"""What the semantic cache is told, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from prefold.responses.semantic.types import Reason


class Mode(StrEnum):
    """What the cache may do: nothing; watch, learn and serve nothing; or serve what is proven."""

    OFF = "off"
    SHADOW = "shadow"
    ON = "on"


@dataclass(frozen=True, slots=True)
class SemanticOptions:
    """What is kept, and who is served.

    Attributes:
        ttl_seconds: from the answer on; hits do not prolong it.
        principals: independent ones that must have got an answer before anybody else does, unless it is vetted.
        inserts_per_minute: entries that one principal may add.
        candidates: nearest entries that are looked at.
        store_seconds: longest that the store is waited for.
        verify_seconds: longest that the verifier is waited for.
        least_overlap: share of words that two questions must have in common if no verifier looks at them.
        learning: answers that may be learned from at a time; there is nothing to learn from further ones.
        rooms: contexts whose clusters are held in memory.
        pools: partitions whose decisions are.
    """

    ttl_seconds: float = 86_400.0
    principals: int = 2
    inserts_per_minute: float = 60.0
    candidates: int = 8
    store_seconds: float = 0.1
    verify_seconds: float = 0.2
    least_overlap: float = 0.1
    learning: int = 64
    rooms: int = 256
    pools: int = 256


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of questions.

    Attributes:
        hits: answered from the cache.
        misses: by reason.
        learned: answers kept.
        aliases: wordings added to entries.
        rejected: pairs found to have different answers.
        unjudged: pairs that the judge's budget left aside, or too many at a time.
    """

    hits: int
    misses: Mapping[Reason, int]
    learned: int
    aliases: int
    rejected: int
    unjudged: int
