"""The doctor's answer: how far the hit rate fell, and how much of that each usual cause explains, with evidence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from types import MappingProxyType

from prefold.analysis.doctor.decompose import Decomposition, DropCause, Group, Lost, Moved, Side, Tally, decompose
from prefold.analysis.doctor.observe import TURNS, Observer, Totals
from prefold.analysis.request import Request

_ENOUGH_REPORTED = Fraction(1, 2)  # of the input tokens on each side, beyond which what providers reported counts
_SHOWN = 3  # pieces of evidence of a kind
_MOSTLY = Fraction(1, 2)  # of the requests
_LEAST_EVIDENCE = Fraction(1, 50)  # of what the cause did
_LEVEL_NAMES: Mapping[str, tuple[DropCause, str]] = MappingProxyType(
    {
        "kind": (DropCause.TRAFFIC_MIX, "requests of"),
        "model": (DropCause.MODEL_VERSION, "model"),
        "settings": (DropCause.PARAMETERS, "cache settings"),
        "replica": (DropCause.DEPLOYMENT, "replica"),
        "turn": (DropCause.SESSIONS, "turn"),
    }
)
_CHECKS: Mapping[DropCause, str] = MappingProxyType(
    {
        DropCause.TRAFFIC_MIX: "Compare hit rates by tenant and application: each may be as good as before.",
        DropCause.PREFIX_CONTENT: "Take what varies out of the prefix, or move it to the end: see `prefold lint`.",
        DropCause.SERIALISATION: "Let one serialiser write requests, with sorted keys and tools: see "
        "`prefold canonicalize`.",
        DropCause.MODEL_VERSION: "Stay with one model in a conversation, and look up the new one's rules: see "
        "`prefold providers`.",
        DropCause.DEPLOYMENT: "Send requests that share a prefix to one replica, also after a deployment.",
        DropCause.SESSIONS: "Look at how long conversations and their pauses are, and how history is shortened.",
        DropCause.CAPACITY: "Give the cache more memory, or pin what is shared: see `prefold simulate`.",
        DropCause.PARAMETERS: "Keep markers, lifetimes, salts and settings as they were: see `prefold breakpoints`.",
        DropCause.UNEXPLAINED: "None of the usual causes: `prefold report` shows the requests concerned.",
    }
)
_CHECKS_WHERE_HOSTED: Mapping[DropCause, str] = MappingProxyType(
    {
        **_CHECKS,
        DropCause.DEPLOYMENT: "Send requests that share a prefix with one routing key, and by one route.",
        DropCause.CAPACITY: "How long a prefix is kept is the provider's choice: send requests that share one closer "
        "together.",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one cause did.

    Attributes:
        cause: which.
        drop: what it took off the hit rate, from -1 to 1; negative where it improved it.
        share: the same, divided by the whole drop; None where the rate did not fall.
        tokens: the same in input tokens of the side after; those of all findings sum to the drop's.
        evidence: sentences with numbers, the weightiest first.
        check: one sentence: what to look at.
    """

    cause: DropCause
    drop: Fraction
    share: Fraction | None
    tokens: int
    evidence: tuple[str, ...]
    check: str


@dataclass(frozen=True, slots=True)
class SideSummary:
    """One side in numbers.

    Attributes:
        requests: all.
        compared_requests: those whose hit rate is compared.
        input_tokens: of those.
        hit_rate: of those.
    """

    requests: int
    compared_requests: int
    input_tokens: int
    hit_rate: Fraction


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole answer.

    Attributes:
        before: the side before.
        after: the side after.
        is_reported: whether hits are those that providers reported, rather than simulated ones.
        findings: one for each cause, in the order in which they are worth checking.
    """

    before: SideSummary
    after: SideSummary
    is_reported: bool
    findings: tuple[Finding, ...]

    @property
    def drop(self) -> Fraction:
        """By how much the hit rate fell; negative if it rose."""
        return self.before.hit_rate - self.after.hit_rate

    @property
    def main(self) -> Finding | None:
        """What took most off the hit rate; None where nothing did."""
        worst = max(self.findings, key=lambda finding: finding.drop)
        return worst if worst.drop > 0 else None


def observe(requests: Iterable[Request], observer: Observer) -> Totals:
    """The totals of one side."""
    totals = Totals()
    for request in requests:
        totals.add(observer.observe(request))
    return totals


def diagnose(before: Totals, after: Totals) -> Diagnosis:
    """Explain the change of the hit rate between two sides.

    Hits are those that providers reported where both sides have them for more than half of their input, and simulated
    ones otherwise: a reported rate is never compared with a simulated one.
    """
    is_reported = all(_tokens(side.reported) > _ENOUGH_REPORTED * _tokens(side.simulated) for side in (before, after))
    old, new = (side.reported if is_reported else side.simulated for side in (before, after))
    found = decompose(old, new)
    is_own = after.self_hosted > _MOSTLY * after.requests
    checks = _CHECKS if is_own else _CHECKS_WHERE_HOSTED
    tokens = _apportioned({cause: drop * _tokens(new) for cause, drop in found.parts.items()})
    return Diagnosis(
        before=_summary(before, old, found.before),
        after=_summary(after, new, found.after),
        is_reported=is_reported,
        findings=tuple(
            Finding(
                cause=cause,
                drop=drop,
                share=drop / found.drop if found.drop > 0 else None,
                tokens=tokens[cause],
                evidence=tuple(_evidence(cause, found, (old, new), before.places + after.places)) if drop else (),
                check=checks[cause],
            )
            for cause, drop in found.parts.items()
        ),
    )


def _summary(totals: Totals, side: Side, rate: Fraction) -> SideSummary:
    return SideSummary(totals.requests, sum(tally.requests for tally in side.values()), _tokens(side), rate)


def _tokens(side: Mapping[Group, Tally]) -> int:
    return sum(tally.input_tokens for tally in side.values())


def _apportioned(exact: Mapping[DropCause, Fraction]) -> dict[DropCause, int]:
    """Whole numbers that sum to the nearest of the sum of all, those with the largest remainders rounded up."""
    counts = {cause: math.floor(number) for cause, number in exact.items()}
    missing = round(sum(exact.values())) - sum(counts.values())
    for cause in sorted(exact, key=lambda cause: counts[cause] - exact[cause])[:missing]:
        counts[cause] += 1
    return counts


def _evidence(
    cause: DropCause, found: Decomposition, sides: tuple[Side, Side], places: Counter[tuple[Lost, str]]
) -> Iterable[str]:
    """What speaks for a cause, or against it, the weightiest first."""
    reasons = sorted(
        (
            (drop, lost)
            for (of, lost), drop in found.reasons.items()
            if of is cause and abs(drop) > _LEAST_EVIDENCE * abs(found.parts[cause])
        ),
        key=lambda each: -abs(each[0]),
    )
    moved = [
        each
        for each in found.moved
        if _LEVEL_NAMES[each.level][0] is cause and abs(each.drop) > _LEAST_EVIDENCE * abs(found.parts[cause])
    ]
    moved.sort(key=lambda each: -abs(each.drop))
    return chain(
        (_loss_sentence(lost, sides, places) for _, lost in reasons[:_SHOWN]),
        (_moved_sentence(each) for each in moved[:_SHOWN]),
    )


def _loss_sentence(lost: Lost, sides: tuple[Side, Side], places: Counter[tuple[Lost, str]]) -> str:
    before, after = (_lost_share(lost, side) for side in sides)
    at = max((path for why, path in places if why == lost), key=lambda path: places[lost, path], default="")
    name = lost.cause or lost.reason.value
    return f"{name}{f' at {at}' if at else ''}: {_percent(before)} of the input tokens before, {_percent(after)} after."


def _lost_share(lost: Lost, side: Side) -> Fraction:
    return Fraction(sum(tally.lost[lost] for tally in side.values()), _tokens(side) or 1)


def _moved_sentence(moved: Moved) -> str:
    name = _turns(int(moved.name)) if moved.level == "turn" else moved.name or "(no name)"
    what = f"{_LEVEL_NAMES[moved.level][1]} {name}"
    return f"{what}: {_percent(moved.before)} of the input tokens before, {_percent(moved.after)} after."


def _turns(first: int) -> str:
    """The turns of a conversation that are counted together."""
    after = next((start for start in TURNS if start > first), None)
    return f"{first} and later" if after is None else str(first) if after == first + 1 else f"{first} to {after - 1}"


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f} %"


def split_at(requests: Iterable[Request], time: float, observer: Observer) -> tuple[Totals, Totals]:
    """The totals of a log before a moment, and from it on."""
    before, after = Totals(), Totals()
    for request in requests:
        (before if request.time < time else after).add(observer.observe(request))
    return before, after
