"""Which cache to simulate: rules of a provider or an engine, and what the user sets."""

from __future__ import annotations

from dataclasses import dataclass

from prefold.providers.rules import CacheRules

DEFAULT_POLICY = "lru"
"""Who is evicted where nothing is said."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A slower store below the pool.

    Attributes:
        name: such as `host` or `disk`.
        capacity: in tokens; None for no limit.
        grain: tokens of its blocks.
    """

    name: str
    capacity: int | None
    grain: int = 1


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """A cache to simulate.

    Attributes:
        name: what tables call it, such as `vllm` or `anthropic`.
        rules: what it caches and what that costs; None for rules by each request's model and provider.
        capacity: in tokens, of each replica, and for each model that it serves; None for no limit.
        policy: who is evicted; a name in `prefold.core.policies.POLICIES`.
        tiers: below the pool, the fastest first.
        replicas: how many servers share the traffic.
        routing: how they do: `round_robin`, `prefix_hash` or `exact`.
        isolate_tenants: whether tenants share nothing, as if each had a salt.
        loss_rate: share of requests for which a cache that promises nothing has nothing.
        seed: of everything that is drawn by chance.
        by_model: whether `name` is a provider's and `rules` are those of one of its families: a request for a model of
            another one is then judged by the rules of that.
        attention_span: position at which a token costs twice what it costs at the beginning, for policies that weigh
            it, as prefold's engine does by its model's shape (`ModelConfig.attention_span`); None to leave it to them.
    """

    name: str
    rules: CacheRules | None
    capacity: int | None = None
    policy: str = DEFAULT_POLICY
    tiers: tuple[Tier, ...] = ()
    replicas: int = 1
    routing: str = "round_robin"
    isolate_tenants: bool = False
    loss_rate: float = 0.0
    seed: int = 0
    by_model: bool = False
    attention_span: float | None = None
