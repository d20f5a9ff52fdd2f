"""Divides a change of hit rate over its causes, exactly.

The hit rate is one minus the losses by reason, per input token, and requests are grouped by what they are. For each
grouping in turn, kind of traffic, model, cache settings, replica, turn of the conversation, the change within a group
of groups is

    sum of (w' - w) (r + r') / 2   +   sum of (w + w') / 2 (r' - r)

with the share w of input tokens and the loss r of each group before and w', r' after (Kitagawa, Components of a
Difference Between Two Rates, JASA 50, 1955): what moved between the groups, at the losses that they have, and what
changed inside them. The first part goes to the cause that the grouping stands for; the second is divided again by the
next grouping. What is left in the end are losses of like requests, by reason, and each reason has its cause. Everything
is a fraction, so that the parts sum to the drop.

A group that is on one side only lacks r or r'. Kinds of traffic are taken to have always had the loss that they have.
Models, settings and replicas that went are compared with those that came, by reason, and where there are none of the
one or the other, with those that grew or shrank instead. What happened in the turns that both sides have is taken to
have happened in the others, too: sessions that go on through a drop are not to blame for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from itertools import chain
from operator import attrgetter
from types import MappingProxyType

from prefold.analysis.caches.base import Reason


class DropCause(StrEnum):
    """The usual causes of a drop, in the order in which they are worth checking."""

    TRAFFIC_MIX = "traffic_mix"
    PREFIX_CONTENT = "prefix_content"
    SERIALISATION = "serialisation"
    MODEL_VERSION = "model_version"
    DEPLOYMENT = "deployment_or_routing"
    SESSIONS = "sessions"
    CAPACITY = "capacity_and_eviction"
    PARAMETERS = "request_parameters"
    UNEXPLAINED = "unexplained"
    """None of the eight."""


@dataclass(frozen=True, slots=True)
class Group:
    """What requests of a group have in common.

    Attributes:
        kind: tenant and application, as far as they can be told; nothing that a release changes.
        model: as the requests name it.
        settings: what they say about caching: markers, lifetimes, salt, routing key.
        replica: the server that they went to.
        turn: of the conversation, as the first of a range: 1, 2, 3, 5, 9, 17, ...
    """

    kind: str = ""
    model: str = ""
    settings: str = ""
    replica: str = ""
    turn: int = 1


@dataclass(frozen=True, slots=True)
class Lost:
    """Why tokens were lost.

    Attributes:
        reason: as the attribution has it.
        cause: of a changed prefix, a name in `prefold.prompts.causes`; else empty.
    """

    reason: Reason
    cause: str = ""


@dataclass(slots=True)
class Tally:
    """Tokens of a group.

    Attributes:
        input_tokens: all.
        requests: their number.
        lost: those that were no hits, by why.
    """

    input_tokens: int = 0
    requests: int = 0
    lost: Counter[Lost] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Count another one in."""
        self.input_tokens += other.input_tokens
        self.requests += other.requests
        self.lost.update(other.lost)

    @property
    def loss(self) -> Fraction:
        """Lost tokens divided by input tokens."""
        return Fraction(self.lost.total(), self.input_tokens) if self.input_tokens else Fraction(0)


Side = Mapping[Group, Tally]
"""Everything before, or everything after."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A group whose share of the input tokens changed.

    Attributes:
        level: which grouping, one of those in `Group`.
        name: the group's value.
        before: its share before, of what it is a part of.
        after: its share after.
        drop: what that took off the overall hit rate, against the average of what it is a part of.
    """

    level: str
    name: str
    before: Fraction
    after: Fraction
    drop: Fraction


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A change of hit rate and its parts.

    Attributes:
        before: the hit rate before.
        after: the hit rate after.
        parts: what each cause took off the hit rate; negative for what improved it. They sum to `drop`.
        reasons: the same for the losses of like requests only, by cause and why.
        moved: groups whose share changed, those that took most off first.
    """

    before: Fraction
    after: Fraction
    parts: Mapping[DropCause, Fraction]
    reasons: Mapping[tuple[DropCause, Lost], Fraction]
    moved: Sequence[Moved]

    @property
    def drop(self) -> Fraction:
        """By how much the hit rate fell; negative if it rose."""
        return self.before - self.after


_BY_CAUSE: Mapping[str, DropCause] = MappingProxyType(
    {
        # Another prefix, although nothing says what is other about it.
        **dict.fromkeys(("", "none"), DropCause.PREFIX_CONTENT),
        **dict.fromkeys(("clock", "identifier", "text_edit"), DropCause.PREFIX_CONTENT),
        **dict.fromkeys(("tool_set", "block_order", "moved_block"), DropCause.PREFIX_CONTENT),
        **dict.fromkeys(("tool_order", "key_order", "whitespace", "number_format"), DropCause.SERIALISATION),
        **dict.fromkeys(("template_default", "bos"), DropCause.SERIALISATION),
        **dict.fromkeys(("truncation", "summary", "expired"), DropCause.SESSIONS),
        **dict.fromkeys(("parameter", "salt", "lookback", "no_breakpoint"), DropCause.PARAMETERS),
        "model": DropCause.MODEL_VERSION,
        "routed_away": DropCause.DEPLOYMENT,
        "evicted": DropCause.CAPACITY,
        "too_short": DropCause.TRAFFIC_MIX,
    }
)
"""By the cause of a changed prefix, a name in `prefold.prompts.causes.CAUSES`."""

_BY_REASON: Mapping[Reason, DropCause] = MappingProxyType(
    {
        # Tokens that nobody sent before, and prompts too short to be cached, although nothing else changed.
        Reason.COLD: DropCause.TRAFFIC_MIX,
        Reason.BLOCK_TAIL: DropCause.TRAFFIC_MIX,
        Reason.BELOW_MINIMUM: DropCause.TRAFFIC_MIX,
        Reason.EXPIRED: DropCause.SESSIONS,
        Reason.EVICTED: DropCause.CAPACITY,
        Reason.NOT_KEPT: DropCause.CAPACITY,
        Reason.OTHER_REPLICA: DropCause.DEPLOYMENT,
        Reason.OTHER_MODEL: DropCause.MODEL_VERSION,
        Reason.OTHER_TENANT: DropCause.PARAMETERS,
        Reason.BREAKPOINT: DropCause.PARAMETERS,
        Reason.LOOKBACK: DropCause.PARAMETERS,
        Reason.UNEXPLAINED: DropCause.UNEXPLAINED,
    }
)
"""By any other reason that is no hit."""


@dataclass(frozen=True, slots=True)
class _Level:
    """A grouping.

    Attributes:
        name: an attribute of `Group`.
        cause: what it means that tokens moved between its groups.
        replaced: where groups of one side gave way to others, as after a release, the reasons that are put down to
            that; None where groups have so little in common that one is never compared with another.
        is_series: whether its groups follow upon each other, so that one does not stand in for another.
    """

    name: str
    cause: DropCause
    replaced: frozenset[Reason] | None = None
    is_series: bool = False


_VAGUE = frozenset({Reason.NOT_KEPT, Reason.EVICTED, Reason.UNEXPLAINED})
_ROUNDING = frozenset({Reason.BELOW_MINIMUM, Reason.BLOCK_TAIL})
_MARKERS = frozenset({Reason.BREAKPOINT, Reason.LOOKBACK})
_LEVELS = (
    _Level("kind", DropCause.TRAFFIC_MIX),
    _Level("model", DropCause.MODEL_VERSION, _VAGUE | _ROUNDING | _MARKERS),
    _Level("settings", DropCause.PARAMETERS, _VAGUE | _MARKERS | {Reason.EXPIRED, Reason.BELOW_MINIMUM}),
    _Level("replica", DropCause.DEPLOYMENT, _VAGUE),
    # A turn's number tells how much of a prompt is new, and no more.
    _Level("turn", DropCause.SESSIONS, _ROUNDING | {Reason.COLD}, is_series=True),
)
_REPLACED = 10
"""A group whose share is so many times another than before counts as one that was not there before, or is not now."""

_Cells = Sequence[tuple[Group, Tally]]
_Groups = Mapping[str | int, _Cells]
_Blame = Mapping[Reason, DropCause]


def decompose(before: Side, after: Side) -> Decomposition:
    """Divide the change of the hit rate between two sides over its causes.

    A side without input tokens has nothing to compare: every part is 0, and so is the drop.
    """
    old, new = _cells(before), _cells(after)
    if not old or not new:
        return Decomposition(_rate(old), _rate(old), dict.fromkeys(DropCause, Fraction(0)), {}, ())
    division = _Division()
    division.divide(old, new, Fraction(1), _LEVELS, _BY_REASON)
    parts = {cause: division.parts.get(cause, Fraction(0)) for cause in DropCause}
    moved = sorted(division.moved.values(), key=lambda each: -each.drop)
    return Decomposition(_rate(old), _rate(new), parts, division.reasons, moved)


def cause_of(lost: Lost, blame: _Blame = _BY_REASON) -> DropCause:
    """The cause that a loss among like requests speaks for."""
    if lost.reason is Reason.CHANGED_PREFIX:
        return _BY_CAUSE[lost.cause]
    return blame[lost.reason]


class _Division:
    """Sums up the parts while groups are compared with groups."""

    def __init__(self) -> None:
        self.parts: dict[DropCause, Fraction] = {}
        self.reasons: dict[tuple[DropCause, Lost], Fraction] = {}
        self.moved: dict[tuple[str, str], Moved] = {}

    def divide(self, old: _Cells, new: _Cells, weight: Fraction, levels: Sequence[_Level], blame: _Blame) -> None:
        """Divide what changed between two sets of groups, both with input tokens, times a weight."""
        if not levels:
            self._by_reason(_sum(old), _sum(new), weight, blame)
            return
        level, rest = levels[0], levels[1:]
        before, after = _sum(old), _sum(new)
        olds, news = _grouped(old, level.name), _grouped(new, level.name)
        for name in sorted({*olds, *news}, key=str):
            was, became = olds.get(name, ()), news.get(name, ())
            excess = _mean_loss(was, became) - (before.loss + after.loss) / 2
            self._note(level, name, (_share(was, before), _share(became, after)), excess, weight)
        between = weight * (after.loss - before.loss)
        for pair in _pairs(level, olds, news):
            inside = weight * pair.weight
            between -= inside * (_sum(pair.became).loss - _sum(pair.was).loss)
            blamed = {**blame, **dict.fromkeys(level.replaced or (), level.cause)} if pair.is_replaced else blame
            self.divide(pair.was, pair.became, inside, rest, blamed)
        self.parts[level.cause] = self.parts.get(level.cause, Fraction(0)) + between

    def _by_reason(self, old: Tally, new: Tally, weight: Fraction, blame: _Blame) -> None:
        for lost in old.lost.keys() | new.lost.keys():
            change = Fraction(new.lost[lost], new.input_tokens) - Fraction(old.lost[lost], old.input_tokens)
            cause = cause_of(lost, blame)
            self.parts[cause] = self.parts.get(cause, Fraction(0)) + weight * change
            key = (cause, lost)
            self.reasons[key] = self.reasons.get(key, Fraction(0)) + weight * change

    def _note(
        self, level: _Level, name: str | int, shares: tuple[Fraction, Fraction], excess: Fraction, weight: Fraction
    ) -> None:
        """Remember a group that moved; of one that moved in several places, the sum."""
        moved = weight * (shares[1] - shares[0])
        if not moved:
            return
        key = (level.name, str(name))
        known = self.moved.get(key)
        drop = moved * excess + (known.drop if known else 0)
        before, after = (weight * share for share in shares)
        if known:
            before, after = before + known.before, after + known.after
        self.moved[key] = Moved(level.name, str(name), before, after, drop)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Groups before that are compared with groups after.

    Attributes:
        was: those before, with input tokens.
        became: those after, likewise.
        weight: of the change of their loss, from 0 to 1.
        is_replaced: whether the second ones stand in the place of the first.
    """

    was: _Cells
    became: _Cells
    weight: Fraction
    is_replaced: bool = False


def _pairs(level: _Level, olds: _Groups, news: _Groups) -> list[_Pair]:
    """What is compared with what inside a grouping."""
    before, after = (_sum(chain.from_iterable(side.values())) for side in (olds, news))
    names = sorted({*olds, *news}, key=str)
    shares = {name: (_share(olds.get(name, ()), before), _share(news.get(name, ()), after)) for name in names}
    least = 0 if level.replaced is None else Fraction(1, _REPLACED)
    weights = {name: sum(both, Fraction(0)) / 2 for name, both in shares.items() if min(both) > least * max(both)}
    gone = [cell for name, cells in olds.items() if name not in weights for cell in cells]
    come = [cell for name, cells in news.items() if name not in weights for cell in cells]
    pairs = []
    if level.replaced is None:
        pass
    elif gone and come:
        pairs.append(_Pair(gone, come, 1 - sum(weights.values(), Fraction(0)), is_replaced=True))
    elif level.is_series:
        whole = sum(weights.values(), Fraction(0))
        weights = {name: weight / whole for name, weight in weights.items()}
    elif gone or come:
        # They took their share from the groups that shrank, or gave it to those that grew.
        moves = {name: shares[name][0] - shares[name][1] for name in weights}
        moves = {name: max(Fraction(0), move if come else -move) for name, move in moves.items()}
        alone, total = _share(gone, before) + _share(come, after), sum(moves.values(), Fraction(0))
        for name in [name for name, move in moves.items() if move]:
            moved = alone * moves[name] / total
            weights[name] -= moved / 2
            pairs.append(_Pair(gone or olds[name], come or news[name], moved, is_replaced=True))
    return pairs + [_Pair(olds[name], news[name], weight) for name, weight in weights.items()]


def _cells(side: Side) -> _Cells:
    return [(group, tally) for group, tally in side.items() if tally.input_tokens]


def _grouped(cells: _Cells, name: str) -> dict[str | int, list[tuple[Group, Tally]]]:
    value = attrgetter(name)
    groups: dict[str | int, list[tuple[Group, Tally]]] = {}
    for group, tally in cells:
        groups.setdefault(value(group), []).append((group, tally))
    return groups


def _sum(cells: Iterable[tuple[Group, Tally]]) -> Tally:
    total = Tally()
    for _, tally in cells:
        total.add(tally)
    return total


def _rate(cells: _Cells) -> Fraction:
    return 1 - _sum(cells).loss if cells else Fraction(0)


def _share(cells: _Cells, total: Tally) -> Fraction:
    return Fraction(sum(tally.input_tokens for _, tally in cells), total.input_tokens)


def _mean_loss(was: _Cells, became: _Cells) -> Fraction:
    """The loss of a group: the mean of before and after where it is in both."""
    losses = [_sum(cells).loss for cells in (was, became) if cells]
    return sum(losses, Fraction(0)) / len(losses)
