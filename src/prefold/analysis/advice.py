"""What to do first, from what a log has shown: only steps that it says would bring something."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from prefold.analysis.caches.base import Reason
from prefold.analysis.situation import FIRST_STEPS, Situation

_WORTH_IT = 0.01
"""Share of all input below which a step is not worth advising."""


def advise(situation: Situation, analysis: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Steps in the order in which they pay in a situation, each with a title, a sentence, and a command or None.

    Args:
        situation: the user's.
        analysis: what `prefold report --json` prints, as far as it is known.
    """
    order = FIRST_STEPS[situation]
    rest = [name for name in _STEPS if name not in order]
    steps = [step for name in (*order, *rest) for step in _STEPS[name](analysis)]
    if not steps:
        return [_step("Leave it as it is", "No step would bring one input token in a hundred.")]
    return steps


def _step(title: str, text: str, command: str | None = None) -> dict[str, Any]:
    return {"title": title, "text": text, "command": command}


def _share(analysis: Mapping[str, Any], *reasons: Reason) -> float:
    rows = analysis["attribution"]
    lost = sum(row["tokens"] for row in rows if row["reason"] in reasons)
    return lost / analysis["input_tokens"] if analysis["input_tokens"] else 0.0


def _source(analysis: Mapping[str, Any]) -> str:
    sources = analysis["log"]["sources"]
    return sources[0] if sources else "LOG"


def _prefix(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for found in analysis["breaks"][:3]:
        share = found["tokens"] / (analysis["input_tokens"] or 1)
        if share >= _WORTH_IT:
            first, second = (*found["example"], None, None)[:2]
            place = f" at {found['path']}" if found["path"] else ""
            yield _step(
                f"Mend the prefix: {found['cause']}{place}",
                f"{share:.1%} of input is read again for it, in {found['requests']:,} requests. {found['fix']}",
                f"prefold diff {first} {second}" if first and second else None,
            )


def _breakpoints(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if (share := _share(analysis, Reason.BREAKPOINT)) >= _WORTH_IT:
        yield _step(
            "Set cache markers where prefixes end",
            f"{share:.1%} of input repeats, but no marker ends there, or it lies too far back.",
            "prefold breakpoints BODY --patched",
        )
    if (share := _share(analysis, Reason.BELOW_MINIMUM)) >= _WORTH_IT:
        yield _step(
            "Bring what repeats above the minimum",
            f"{share:.1%} of input repeats in prefixes that are too short to be cached: put rules, tools and examples "
            "into one prefix, or ask a model with a lower minimum.",
            "prefold providers",
        )


def _order(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    order = analysis["order"]
    if order and order["share_after"] - order["share_before"] >= _WORTH_IT:
        yield _step(
            "Put what never changes first",
            f"The cacheable share rises from {order['share_before']:.1%} to {order['share_after']:.1%}.",
            f"prefold order {_source(analysis)}",
        )


def _lifetime(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if (share := _share(analysis, Reason.EXPIRED)) >= _WORTH_IT:
        yield _step(
            "Keep entries longer",
            f"{share:.1%} of input had been cached and was gone when it was asked for again: ask for the longer "
            "lifetime, or keep the prefix warm.",
            f"prefold simulate {_source(analysis)} --what-if one-hour",
        )


def _capacity(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if (share := _share(analysis, Reason.EVICTED)) >= _WORTH_IT:
        yield _step(
            "Give the cache more room, or a tier below it",
            f"{share:.1%} of input had been evicted when it was asked for again.",
            f"prefold simulate {_source(analysis)} --curve",
        )


def _policy(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    points = (analysis["capacity"] or {}).get("points", ())
    best = max(points, key=lambda point: point["optimum"] - point["lru"], default=None)
    if best and best["optimum"] - best["lru"] >= _WORTH_IT:
        yield _step(
            "Evict by what is likely to come back",
            f"At {best['tokens']:,} tokens least recently used reads {best['lru']:.1%} from the cache, and no policy "
            f"could read more than {best['optimum']:.1%}: see how far prefold's own gets.",
            f"prefold simulate {_source(analysis)} --policy lru,default --capacity {best['tokens']}tokens",
        )


def _routing(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if (share := _share(analysis, Reason.OTHER_REPLICA)) >= _WORTH_IT:
        yield _step(
            "Send requests where their prefix is",
            f"{share:.1%} of input was cached on another replica than the one that was asked.",
            f"prefold simulate {_source(analysis)} --replicas 4 --routing exact",
        )


def _tenants(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if (share := _share(analysis, Reason.OTHER_TENANT)) >= _WORTH_IT:
        yield _step(
            "Share what all tenants have in common",
            f"{share:.1%} of input was cached under another tenant's salt: let the salt begin behind the common part.",
        )


def _slots(analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    rows = {row["cache"]: row for row in analysis["caches"]}
    if not {"llamacpp", "prefold"} <= rows.keys():
        return
    gain = rows["prefold"]["hit_rate"] - rows["llamacpp"]["hit_rate"]
    if gain >= _WORTH_IT:
        yield _step(
            "Share prefixes between slots",
            f"One tree for all requests reads {gain:.1%} more of the input from the cache than separate slots.",
            "prefold serve",
        )


_STEPS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]] = MappingProxyType(
    {
        "prefix": _prefix,
        "breakpoints": _breakpoints,
        "order": _order,
        "lifetime": _lifetime,
        "capacity": _capacity,
        "policy": _policy,
        "routing": _routing,
        "tenants": _tenants,
        "slots": _slots,
    }
)
