"""What the doctor notes about each request: which group it is of, and why its tokens were lost."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from prefold.analysis.attribution import Attribution
from prefold.analysis.caches.base import Reason, Served
from prefold.analysis.caches.resolve import judge_of
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.doctor.decompose import Group, Lost, Tally
from prefold.analysis.doctor.kinds import OTHERS, Kinds
from prefold.analysis.named_replicas import cache_of_log
from prefold.analysis.record import Body
from prefold.analysis.reported import fit, reported_usage
from prefold.analysis.request import Request
from prefold.providers.rules import CacheRules

HOUR = 3600
TURNS = (1, 2, 3, 5, 9, 17, 33)
"""Turns of a conversation from which on requests are another group."""
_MOST_GROUPS = 1_000
_MOST_PLACES = 256
_MOST_SESSIONS = 65_536
_LONGEST_VALUE = 48  # characters of a setting
_ROUTING_KEY = "prompt_cache_key"
_KEYS = frozenset({_ROUTING_KEY, "user", "extra_key"})  # of which only the name counts: each conversation has its own
_OWN_GROUPS = frozenset({"model", "modelId", "cache_salt"})  # told otherwise
_MAY_BE_MORE = frozenset({Lost(Reason.OTHER_REPLICA), Lost(Reason.CHANGED_PREFIX, "parameter")})
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Observation:
    """A request.

    Attributes:
        group: what it has in common with others.
        lost: simulated: tokens that were no hits, by why and where.
        input_tokens: as they were counted here.
        is_self_hosted: whether the cache runs on the user's own machines.
        reported_input: as the provider counted them; None where it did not say what was read from its cache.
        reported_lost: the same tokens by why, made to agree with what the provider read.
    """

    group: Group
    lost: Mapping[tuple[Lost, str], int]
    input_tokens: int
    is_self_hosted: bool
    reported_input: int | None = None
    reported_lost: Mapping[Lost, int] = field(default_factory=dict)


class Totals:
    """One side of the comparison. Groups beyond a bound are counted as one.

    Attributes:
        requests: their number.
        self_hosted: those to a cache on the user's own machines.
        simulated: tokens by group.
        reported: those of requests of which the provider said what was read from its cache.
        places: lost tokens by why and where, those that come first.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.self_hosted = 0
        self.simulated: dict[Group, Tally] = {}
        self.reported: dict[Group, Tally] = {}
        self.places: Counter[tuple[Lost, str]] = Counter()

    def add(self, seen: Observation) -> None:
        """Count a request."""
        self.requests += 1
        self.self_hosted += seen.is_self_hosted
        lost: Counter[Lost] = Counter()
        for (why, path), tokens in seen.lost.items():
            lost[why] += tokens
            if path and ((why, path) in self.places or len(self.places) < _MOST_PLACES):
                self.places[why, path] += tokens
        _count(self.simulated, seen.group, Tally(seen.input_tokens, 1, lost))
        if seen.reported_input is not None:
            _count(self.reported, seen.group, Tally(seen.reported_input, 1, Counter(seen.reported_lost)))


class Observer:
    """Observes requests in order of time, through one cache, or through one for each replica that the log names.

    Args:
        spec: the cache.

    Raises:
        UsageError: as `build`.
    """

    def __init__(self, spec: CacheSpec) -> None:
        self._judge = judge_of(spec)
        self._cache = cache_of_log(spec)
        self._attribution = Attribution(rules_of=self._judge)
        self._kinds = Kinds()
        self._turns: OrderedDict[str, int] = OrderedDict()

    def observe(self, request: Request) -> Observation:
        """Send a request to the cache, and say what became of its tokens."""
        lost = self._lost(request, self._cache.serve(request))
        rules = self._judge(request)
        group = self._group(request, rules)
        usage = reported_usage(request)
        if usage is None:
            return Observation(group, lost, request.tokens, rules.self_hosted)
        by_why: Counter[Lost] = Counter()
        for (why, _), tokens in lost.items():
            by_why[why] += tokens
        # A provider may hold less for a request that went elsewhere, or has other settings, than is simulated.
        gone = next((why for why in by_why if why in _MAY_BE_MORE), Lost(Reason.NOT_KEPT))
        fitted = fit(by_why, request.tokens, usage.input, usage.input - usage.read, gone)
        return Observation(group, lost, request.tokens, rules.self_hosted, usage.input, fitted)

    def _lost(self, request: Request, served: Served) -> dict[tuple[Lost, str], int]:
        """The tokens of a request that were lost, by why and where."""
        lost: dict[tuple[Lost, str], int] = {}
        for row in self._attribution.add(request, served):
            if row.reason is not Reason.HIT:
                key = Lost(row.reason, row.cause if row.reason is Reason.CHANGED_PREFIX else ""), row.path
                lost[key] = lost.get(key, 0) + row.tokens
        return lost

    def _group(self, request: Request, rules: CacheRules) -> Group:
        turn = self._turn(request)
        return Group(
            kind=self._kinds.of(request),
            model=request.record.model,
            settings=_settings(request, rules),
            replica=request.record.replica,
            turn=max(start for start in TURNS if start <= turn),
        )

    def _turn(self, request: Request) -> int:
        """Which turn of its conversation it is; without a session, by the blocks behind tools and system prompt."""
        session = request.record.session
        if not session:
            return max(1, (sum(end > request.system_end for end in request.ends) + 1) // 2)
        turn = self._turns.pop(session, 0) + 1
        self._turns[session] = turn
        if len(self._turns) > _MOST_SESSIONS:
            self._turns.popitem(last=False)
        return turn


def _settings(request: Request, rules: CacheRules) -> str:
    """What a request says about caching: its markers, and settings that a change of loses the prefix."""
    said = []
    if request.markers:
        longest = max((marker.ttl or 0 for marker in request.markers), default=0)
        said.append("markers, 1 h" if longest >= HOUR else "markers")
    if request.salt is not None:
        said.append("salt")
    content = request.record.content
    if isinstance(content, Body):
        said += _fields(content.content, rules)
    return ", ".join(said) or "none"


def _fields(body: bytes, rules: CacheRules) -> Iterator[str]:
    """Those fields of a body that the rules name, with their values."""
    try:
        fields = _fields_of(body)
        for name in sorted(rules.invalidation.keys() | {_ROUTING_KEY}):
            first, *inner = name.split(".")
            if name in _OWN_GROUPS or first not in fields:
                continue
            value = msgspec.json.decode(fields[first])
            for step in inner:
                value = value.get(step) if isinstance(value, dict) else None
            if value is not None:
                yield name if name in _KEYS else f"{name} {_short(value)}"
    except (msgspec.DecodeError, RecursionError):
        return  # the reader of bodies took it all the same


def _short(value: object) -> str:
    """A value, or what names a long one."""
    written = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(written) <= _LONGEST_VALUE:
        return written.strip('"')
    return hashlib.blake2b(written.encode(errors="surrogatepass"), digest_size=4).hexdigest()


def _count(side: dict[Group, Tally], group: Group, tally: Tally) -> None:
    if group not in side and len(side) >= _MOST_GROUPS:
        group = Group(kind=OTHERS)
    side.setdefault(group, Tally()).add(tally)
