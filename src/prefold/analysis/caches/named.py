"""Caches and amounts as people write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from prefold.analysis.caches.resolve import PLAIN, family_of, provider_and_way
from prefold.analysis.caches.spec import DEFAULT_POLICY, CacheSpec, Tier
from prefold.core.units import parse_bytes
from prefold.errors import UsageError
from prefold.providers.rules import CacheRules, providers, rules_for

OWN = "own"
"""The cache that each request of a log was sent to."""

NO_LIMIT = "unlimited"

_COUNTED = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmg]?)(tokens|blocks)", re.IGNORECASE | re.ASCII)
_FORMS = "Write 10GiB, 200000tokens, 10000blocks or unlimited."
_LONGEST_AMOUNT = 40  # characters
_THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def named_rules(name: str, model: str = "") -> CacheRules | None:
    """The rules that a name stands for.

    Args:
        name: a provider or engine (`anthropic`, `vllm`), a model (`claude-sonnet-4-5`, `azure/gpt-5.6`), either with
            one of several ways of caching behind it (`gemini:resource`, `qwen:explicit`), `blocks` for a plain cache,
            or `own` for the one that each request was sent to.
        model: of the log; where the provider named serves it, its family is taken, else the provider's first.

    Returns:
        None for `own`.

    Raises:
        UsageError: nothing is known of that name.
    """
    if name == OWN:
        return None
    if name == PLAIN.provider:
        return PLAIN
    provider, wanted, control = provider_and_way(name)
    if provider is None:
        found = rules_for(wanted, control=control) if wanted else None
    else:
        found = family_of(name, model)
        found = found or next((rules for rules in provider.families if control in (None, rules.control)), None)
    if found is None:
        known = ", ".join(known.name for known in providers())
        raise UsageError(
            f"There is no cache {name!r}.", hint=f"Name a model, or one of {OWN}, {PLAIN.provider}, {known}."
        )
    return found


def is_provider(name: str) -> bool:
    """Whether a name that `named_rules` reads means a provider or an engine, whose models may have other rules."""
    return name not in (OWN, PLAIN.provider) and provider_and_way(name)[0] is not None


def parse_capacity(text: str, *, bytes_per_token: int, block_tokens: int) -> int | None:
    """Tokens in an amount such as `10GiB`, `200000tokens`, `1Mtokens`, `10000blocks`; None for `unlimited`.

    Args:
        text: the amount.
        bytes_per_token: that keys and values of a token take.
        block_tokens: in a block of the cache that is meant.

    Raises:
        UsageError: it is no amount, or less than a block.
    """
    amount = text.strip()
    if amount.lower() == NO_LIMIT:
        return None
    if len(amount) > _LONGEST_AMOUNT:
        raise UsageError(f"{amount[:_LONGEST_AMOUNT]}... is no capacity.", hint=_FORMS)
    if amount.isdecimal():
        raise UsageError(f"The capacity {amount} has no unit.", hint=_FORMS)
    if counted := _COUNTED.fullmatch(amount):
        number, scale, kind = counted.groups()
        tokens = int(float(number) * _THOUSANDS[scale.lower()]) * (block_tokens if kind.lower() == "blocks" else 1)
    else:
        try:
            tokens = parse_bytes(amount) // bytes_per_token
        except UsageError:
            raise UsageError(f"{text!r} is no capacity.", hint=_FORMS) from None
    if tokens < block_tokens:
        raise UsageError(
            f"The capacity {text} is {tokens} tokens, less than a block of {block_tokens}.", hint="Give more."
        )
    return tokens


def parse_tier(text: str, *, bytes_per_token: int, block_tokens: int) -> Tier:
    """A tier such as `host=10GiB`.

    Raises:
        UsageError: it has no name, or its amount is none.
    """
    name, equals, amount = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{text!r} is no tier.", hint="Write its name and size, such as host=10GiB.")
    capacity = parse_capacity(amount, bytes_per_token=bytes_per_token, block_tokens=block_tokens)
    return Tier(name.strip(), capacity, block_tokens)


def specs_for(
    template: CacheSpec,
    *,
    unit: int,
    capacities: Sequence[str],
    policies: Sequence[str],
    tiers: Sequence[str],
    bytes_per_token: int,
) -> list[CacheSpec]:
    """Every combination of capacities and policies for a cache; just one for a cache whose provider chooses them.

    Args:
        template: what all have in common.
        unit: tokens that an id of the log stands for; blocks are whole ones.
        capacities: as `parse_capacity` reads them, of each replica; none for one without limit.
        policies: names.
        tiers: as `parse_tier` reads them; only given to a cache that can have some.
        bytes_per_token: that keys and values of a token take.

    Raises:
        UsageError: as `parse_capacity` and `parse_tier`; or a tier that the cache does not have, or given twice.
    """
    rules = template.rules
    if rules is not None and not rules.self_hosted:
        return [template]
    grain = 1 if rules is None else rules.granularity_tokens
    block = -(-grain // unit) * unit
    amounts = [parse_capacity(text, bytes_per_token=bytes_per_token, block_tokens=block) for text in capacities]
    below = [parse_tier(text, bytes_per_token=bytes_per_token, block_tokens=block) for text in tiers]
    stacked = _stacked(below, rules) if rules is not None and rules.tiers else ()
    return [
        replace(template, capacity=capacity, policy=policy, tiers=stacked)
        for capacity in amounts or [None]
        for policy in policies
    ]


def check_effect(
    specs: Sequence[CacheSpec], *, capacities: Sequence[str], policies: Sequence[str], tiers: Sequence[str]
) -> None:
    """Refuse what is asked of caches and none of them obeys.

    Args:
        specs: all caches.
        capacities: that were asked for.
        policies: that were asked for.
        tiers: that were asked for.

    Raises:
        UsageError: naming it.
    """
    names = ", ".join(dict.fromkeys(spec.name for spec in specs))
    rules = [spec.rules for spec in specs]
    if tiers and not any(spec.tiers for spec in specs):
        raise UsageError(f"None of {names} can have tiers.", hint="vllm, sglang, tensorrt-llm and lmcache can.")
    is_own = any(known is None or known.self_hosted for known in rules)
    if capacities and not is_own:
        raise UsageError(
            f"None of {names} has a capacity that could be chosen.",
            hint="A provider's cache has lifetimes: leave it out.",
        )
    if any(policy != DEFAULT_POLICY for policy in policies) and not is_own:
        raise UsageError(
            f"None of {names} has a policy that could be chosen.",
            hint="Its provider decides what is evicted: leave --policy out.",
        )
    if any(spec.loss_rate for spec in specs) and not any(known is None or known.best_effort for known in rules):
        raise UsageError(
            f"None of {names} loses what it holds, so a loss rate means nothing.",
            hint="openai, azure and deepseek promise nothing: they do.",
        )


def _stacked(tiers: Sequence[Tier], rules: CacheRules) -> tuple[Tier, ...]:
    """Tiers in the order in which they stand below a cache."""
    names = [tier.name for tier in tiers]
    if wrong := [name for name in names if name not in rules.tiers or names.count(name) > 1]:
        problem = "is there twice" if wrong[0] in rules.tiers else f"is none of {rules.provider}'s"
        raise UsageError(f"The tier {wrong[0]!r} {problem}.", hint=f"It can have {', '.join(rules.tiers)}, each once.")
    return tuple(sorted(tiers, key=lambda tier: rules.tiers.index(tier.name)))
