"""What an engine is set up to do and how it does, in words that all engines share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Check(StrEnum):
    """What is judged, in the order in which it is shown."""

    CACHING = "prefix_caching"
    COMPARISON = "hash"
    KV_TYPE = "kv_type"
    KV_MEMORY = "kv_memory"
    BLOCK_SIZE = "block_size"
    SCHEDULING = "scheduling"
    REPORTING = "cached_tokens_reported"
    HIT_RATE = "hit_rate"
    VERIFICATION = "verification"


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """Something that an engine says.

    Attributes:
        value: what it means.
        source: where it stands and what it says there, such as `page_size = 1 in /server_info`.
    """

    value: T
    source: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine says; None for what it does not.

    Attributes:
        version: of the engine; empty where it does not say.
        models: names of the models that it serves.
        context: most tokens of a prompt and its answer.
        caching: whether prefixes are kept.
        comparison: how prefixes are found equal: `tokens`, or the name of a hash.
        kv_type: the type of keys and values.
        kv_tokens: tokens that K/V memory holds.
        kv_in_use: share of K/V memory that running requests hold, from 0 to 1.
        block: tokens at whose multiples a hit ends.
        policy: who goes first among those that wait.
        reports: whether usage holds cached tokens.
        input_tokens: of all prompts since the start.
        hit_tokens: those of them that came from cache.
        prompts: how many these were.
        remarks: what else is to be said of a check, as a sentence, where nothing can be judged.
    """

    version: str = ""
    models: tuple[str, ...] = ()
    context: Fact[int] | None = None
    caching: Fact[bool] | None = None
    comparison: Fact[str] | None = None
    kv_type: Fact[str] | None = None
    kv_tokens: Fact[int] | None = None
    kv_in_use: Fact[float] | None = None
    block: Fact[int] | None = None
    policy: Fact[str] | None = None
    reports: Fact[bool] | None = None
    input_tokens: Fact[int] | None = None
    hit_tokens: Fact[int] | None = None
    prompts: Fact[int] | None = None
    remarks: Mapping[Check, str] = field(default_factory=dict)
