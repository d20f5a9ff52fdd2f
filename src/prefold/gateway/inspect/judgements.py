"""What an engine says of itself, judged: will prefixes be read once, and be kept apart where they must be?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from prefold.gateway.call import Api
from prefold.gateway.inspect.engines import Engine, EngineName, engine_of
from prefold.gateway.inspect.facts import Check, Fact, Facts
from prefold.gateway.inspect.pages import read_pages
from prefold.gateway.inspect.verification import PROMPT_TOKENS, Conclusion, Verification, verify
from prefold.gateway.upstream import Upstream

GOOD_HIT_RATE = 0.5
"""Where the share of input tokens that are hits falls below this, `prefold watch-log` warns too."""

ENOUGH_INPUT_TOKENS = 20_000
"""Input tokens from which on a hit rate says something."""

FULL = 0.9
"""Share of K/V memory: where running requests hold as much, little is kept for those that follow."""

FULL_PROMPTS = 2
"""K/V memory should hold at least so many prompts of full length, or one of them pushes everything else out."""

COMMON_PROMPT_TOKENS = 1_000
"""Length of a prompt where the metrics do not tell that of the traffic."""

BLOCK_SHARE = 0.1
"""A block may be so much of a prompt: on average half a block of each hit is computed again."""

SMALL_BLOCK = 16
"""A block of this size is never too large."""

PREFIX_AWARE = frozenset({"lpm", "dfs-weight"})
"""Scheduling policies that look at prefixes."""

_WIDE = frozenset({"auto", "bf16", "bfloat16", "f16", "fp16", "float16", "half", "f32", "fp32", "float32"})
_NARROW = ("3bit", "4bit", "int4", "fp4", "q4_", "v4")


class Verdict(StrEnum):
    """How something is."""

    GOOD = "good"
    POOR = "poor"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One check.

    Attributes:
        check: what was judged.
        verdict: how it is.
        read: what was read, and where; empty for nothing.
        because: what that means, as a sentence.
        fix: what to start the engine with, or to look at; empty where there is nothing to do.
    """

    check: Check
    verdict: Verdict
    read: str
    because: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """An engine, judged.

    Attributes:
        engine: what it is.
        version: of it; empty where it does not say.
        model: that was asked; empty where there is none.
        judgements: all checks.
        verification: what came of asking it; None where that was not wanted.
    """

    engine: EngineName
    version: str
    model: str
    judgements: tuple[Judgement, ...]
    verification: Verification | None

    @property
    def has_findings(self) -> bool:
        """Whether anything is poor."""
        return any(judgement.verdict is Verdict.POOR for judgement in self.judgements)


async def inspect(
    upstream: Upstream,
    model: str | None = None,
    *,
    clock: Callable[[], float],
    random: Random,
    is_asked: bool = True,
) -> Inspection:
    """Read what an engine says of itself, ask it whether it caches, and judge both.

    Args:
        upstream: the engine.
        model: the model to ask; None for the first that it serves.
        clock: monotonic seconds.
        random: makes prompts that nobody has sent before.
        is_asked: whether prompts may be sent to it.

    Raises:
        UpstreamFailed: if it cannot be reached.
    """
    pages = await read_pages(upstream)
    engine = engine_of(pages)
    facts = engine.read(pages)
    name = model or next(iter(facts.models), "")
    verification = None
    if is_asked and name:
        # A short context gets a prompt that fits.
        tokens = min(PROMPT_TOKENS, facts.context.value // 2) if facts.context else PROMPT_TOKENS
        verification = await verify(upstream, name, Api.CHAT, clock=clock, random=random, prompt_tokens=max(1, tokens))
    elif is_asked:
        verification = Verification(Conclusion.CANNOT_SAY, "It names no model that could be asked.")
    return Inspection(engine.name, facts.version, name, judge(engine, facts, verification), verification)


def judge(engine: Engine, facts: Facts, verification: Verification | None) -> tuple[Judgement, ...]:
    """Judge what an engine says.

    Args:
        engine: what it is.
        facts: what it says.
        verification: what came of asking it; None if it was not asked.
    """
    drafts = (
        _caching(facts),
        _comparison(facts),
        _kv_type(facts),
        _kv_memory(facts),
        _block_size(facts),
        _scheduling(facts),
        _reporting(facts, verification),
        _hit_rate(facts, engine.metrics_flag),
        *([] if verification is None else [_verification(verification)]),
    )
    return tuple(
        replace(draft, fix=engine.fixes[draft.check])
        if draft.verdict is Verdict.POOR and draft.check in engine.fixes
        else draft
        for draft in drafts
    )


def _unknown(check: Check, facts: Facts, *, read: str = "", fix: str = "") -> Judgement:
    return Judgement(check, Verdict.UNKNOWN, read, facts.remarks.get(check, "It does not say."), fix)


def _verdict(*, is_good: bool) -> Verdict:
    return Verdict.GOOD if is_good else Verdict.POOR


def _caching(facts: Facts) -> Judgement:
    told = facts.caching
    if told is None:
        return _unknown(Check.CACHING, facts)
    because = "Prefixes are kept." if told.value else "Every prompt is read from its beginning."
    return Judgement(Check.CACHING, _verdict(is_good=told.value), told.source, because)


def _comparison(facts: Facts) -> Judgement:
    told = facts.comparison
    if told is None:
        return _unknown(Check.COMPARISON, facts)
    if told.value == "tokens":
        return Judgement(
            Check.COMPARISON,
            Verdict.GOOD,
            told.source,
            "Tokens themselves are compared; there is no hash that could collide.",
        )
    is_good = told.value.startswith("sha256")
    because = (
        "Nobody can make two prompts with the same key."
        if is_good
        else "The hash is not cryptographic: who finds two prompts with one key gets another tenant's K/V for his own."
    )
    return Judgement(Check.COMPARISON, _verdict(is_good=is_good), told.source, because)


def _kv_type(facts: Facts) -> Judgement:
    told, in_use = facts.kv_type, facts.kv_in_use
    if told is None:
        return _unknown(Check.KV_TYPE, facts)
    name = told.value.lower()
    if name in _WIDE and in_use is not None and in_use.value >= FULL:
        because = (
            f"Running requests hold {in_use.value:.0%} of K/V memory; 8 bits a value would hold twice as many tokens."
        )
        return Judgement(Check.KV_TYPE, Verdict.POOR, f"{told.source}, {in_use.source}", because)
    if name in _WIDE:
        because = "K and V are as exact as the model."
    elif any(part in name for part in _NARROW):
        because = "K and V are stored in so few bits that answers change: compare them with those of a wider type."
        return Judgement(Check.KV_TYPE, Verdict.UNKNOWN, told.source, because)
    else:
        because = "K and V take half the memory, or less."
    return Judgement(Check.KV_TYPE, Verdict.GOOD, told.source, because)


def _kv_memory(facts: Facts) -> Judgement:
    room, context, in_use = facts.kv_tokens, facts.context, facts.kv_in_use
    read = ", ".join(fact.source for fact in (room, context, in_use) if fact is not None)
    if in_use is not None and in_use.value >= FULL:
        because = f"Running requests hold {in_use.value:.0%} of it, which leaves little for what is to be hit."
        return Judgement(Check.KV_MEMORY, Verdict.POOR, read, because)
    if room is None or context is None or not context.value:
        return _unknown(Check.KV_MEMORY, facts, read=read)
    prompts = room.value / context.value
    is_good = prompts >= FULL_PROMPTS
    because = f"Room for {room.value:,} tokens: {prompts:,.1f} prompts of full length" + (
        "." if is_good else ", so that one of them pushes out everything else."
    )
    return Judgement(Check.KV_MEMORY, _verdict(is_good=is_good), read, because)


def _block_size(facts: Facts) -> Judgement:
    block, tokens, prompts = facts.block, facts.input_tokens, facts.prompts
    if block is None:
        return _unknown(Check.BLOCK_SIZE, facts)
    if block.value == 1:
        return Judgement(Check.BLOCK_SIZE, Verdict.GOOD, block.source, "Hits end at any token.")
    if tokens is not None and prompts is not None and prompts.value:
        length, whose = tokens.value / prompts.value, "prompts here have"
        read = f"{block.source}, {tokens.source}, {prompts.source}"
    else:
        length, whose, read = float(COMMON_PROMPT_TOKENS), "a common prompt has", block.source
    is_good = block.value <= max(SMALL_BLOCK, BLOCK_SHARE * length)
    because = f"Each hit computes {block.value / 2:g} tokens of its prefix again on average; {whose} {length:,.0f}."
    return Judgement(Check.BLOCK_SIZE, _verdict(is_good=is_good), read, because)


def _scheduling(facts: Facts) -> Judgement:
    told = facts.policy
    if told is None:
        return _unknown(Check.SCHEDULING, facts)
    if told.value in PREFIX_AWARE:
        because = "Requests with a cached prefix go first; watch the slowest ones, which are those without."
        return Judgement(Check.SCHEDULING, Verdict.GOOD, told.source, because)
    because = (
        "The order does not look at prefixes, so that what a waiting request could hit may be evicted before its turn."
    )
    return Judgement(Check.SCHEDULING, Verdict.POOR, told.source, because)


def _reporting(facts: Facts, verification: Verification | None) -> Judgement:
    told = facts.reports
    is_silent = verification is not None and verification.conclusion is Conclusion.CACHES_SILENTLY
    if verification is not None and verification.cached_tokens is not None and not is_silent:
        told = Fact(value=True, source="usage")
    elif is_silent:
        told = Fact(value=False, source="usage" if told is None else told.source)
    if told is None:
        return _unknown(Check.REPORTING, facts)
    because = (
        "Usage holds the cached tokens."
        if told.value
        else "Usage does not hold the cached tokens, so that nobody can count or bill them."
    )
    return Judgement(Check.REPORTING, _verdict(is_good=told.value), told.source, because)


def _hit_rate(facts: Facts, metrics_flag: str) -> Judgement:
    tokens, hits = facts.input_tokens, facts.hit_tokens
    if tokens is None or hits is None:
        return _unknown(Check.HIT_RATE, facts, fix=metrics_flag)
    read = f"{hits.source}, {tokens.source}"
    if tokens.value < ENOUGH_INPUT_TOKENS:
        return Judgement(Check.HIT_RATE, Verdict.UNKNOWN, read, f"It has read {tokens.value:,} tokens only.")
    rate = hits.value / tokens.value
    because = f"{rate:.1%} of all input tokens since its start came from cache."
    if rate >= GOOD_HIT_RATE:
        return Judgement(Check.HIT_RATE, Verdict.GOOD, read, because)
    return Judgement(
        Check.HIT_RATE, Verdict.POOR, read, because, "`prefold report LOG` says where prefixes are lost, and why"
    )


def _verification(verification: Verification) -> Judgement:
    match verification.conclusion:
        case Conclusion.CACHES | Conclusion.CACHES_SILENTLY:
            verdict = Verdict.GOOD
        case Conclusion.DOES_NOT_CACHE:
            verdict = Verdict.POOR
        case Conclusion.CANNOT_SAY:
            verdict = Verdict.UNKNOWN
    return Judgement(Check.VERIFICATION, verdict, "the same prompt twice", verification.reason)
