"""What the doctor notes about each request: which group it is of, and why its tokens were lost."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prefold.analysis.attribution import Attribution
from prefold.analysis.caches.base import CacheModel, Reason, Served
from prefold.analysis.doctor.decompose import Group, Lost, Tally
from prefold.analysis.doctor.kinds import OTHERS, Kinds
from prefold.analysis.increments import Increments
from prefold.analysis.record import Body
from prefold.analysis.request import Request
from prefold.core.tokens import WIDTH

HOUR = 3600
TURNS = (1, 2, 3, 5, 9, 17, 33)
"""Turns of a conversation from which on requests are another group."""
_MOST_GROUPS = 1_000
_MOST_PLACES = 256
_MOST_REPLICAS = 32
_MOST_SESSIONS = 65_536
_FRONT_UNITS = 256  # that tell prompts apart whose session is not known
_ROUTING_KEY = b'"prompt_cache_key"'


@dataclass(frozen=True, slots=True)
class Observation:
    """A request.

    Attributes:
        group: what it has in common with others.
        lost: simulated: tokens that were no hits, by why and where.
        input_tokens: as they were counted here.
        reported_input: as the provider counted them; None where it did not say what was read from its cache.
        reported_lost: the same tokens by why, made to agree with what the provider read.
    """

    group: Group
    lost: Mapping[tuple[Lost, str], int]
    input_tokens: int
    reported_input: int | None = None
    reported_lost: Mapping[Lost, int] = field(default_factory=dict)


class Totals:
    """One side of the comparison. Groups beyond a bound are counted as one.

    Attributes:
        requests: their number.
        simulated: tokens by group.
        reported: those of requests of which the provider said what was read from its cache.
        places: lost tokens by why and where, those that come first.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.simulated: dict[Group, Tally] = {}
        self.reported: dict[Group, Tally] = {}
        self.places: Counter[tuple[Lost, str]] = Counter()

    def add(self, seen: Observation) -> None:
        """Count a request."""
        self.requests += 1
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
        make_cache: makes an empty one.
    """

    def __init__(self, make_cache: Callable[[], CacheModel]) -> None:
        self._make_cache = make_cache
        self._caches: OrderedDict[str, CacheModel] = OrderedDict()
        self._attributed = Increments(Attribution())
        self._kinds = Kinds()
        self._turns: OrderedDict[str, int] = OrderedDict()
        self._replicas: OrderedDict[bytes, str] = OrderedDict()  # that served a session, or a prefix, last

    def observe(self, request: Request) -> Observation:
        """Send a request to the cache, and say what became of its tokens."""
        served = self._cache(request.record.replica).serve(request)
        has_moved = self._has_moved(request)
        if has_moved and not served.hit and not _is_too_short(served):
            served = Served(0, served.written, otherwise=Reason.OTHER_REPLICA)
        lost = self._lost(request, served)
        group = self._group(request)
        usage = request.record.usage
        if usage is None or not usage.is_reported:
            return Observation(group, lost, request.tokens)
        by_why: Counter[Lost] = Counter()
        for (why, _), tokens in lost.items():
            by_why[why] += tokens
        gone = Lost(Reason.OTHER_REPLICA if has_moved else Reason.NOT_KEPT)
        fitted = fit(by_why, request.tokens, usage.input, usage.input - usage.read, gone)
        return Observation(group, lost, request.tokens, usage.input, fitted)

    def _cache(self, replica: str) -> CacheModel:
        """The cache of a replica; of many that come and go, those used least recently are gone."""
        cache = self._caches.pop(replica, None) or self._make_cache()
        self._caches[replica] = cache
        if len(self._caches) > _MOST_REPLICAS:
            self._caches.popitem(last=False)
        return cache

    def _lost(self, request: Request, served: Served) -> dict[tuple[Lost, str], int]:
        """The tokens of a request that were lost, by why and where."""
        lost: dict[tuple[Lost, str], int] = {}
        for row in self._attributed.add(request, served):
            if row.reason is not Reason.HIT:
                key = Lost(row.reason, row.cause if row.reason is Reason.CHANGED_PREFIX else ""), row.path
                lost[key] = lost.get(key, 0) + row.tokens
        return lost

    def _group(self, request: Request) -> Group:
        turn = self._turn(request)
        return Group(
            kind=self._kinds.of(request),
            model=request.record.model,
            settings=_settings(request),
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

    def _has_moved(self, request: Request) -> bool:
        """Whether another replica served the request before, of its session or else with its beginning."""
        record = request.record
        if not record.replica:
            return False
        key = record.session.encode(errors="surrogatepass") or _digest(request.run[: WIDTH * _FRONT_UNITS])
        before = self._replicas.pop(key, record.replica)
        self._replicas[key] = record.replica
        if len(self._replicas) > _MOST_SESSIONS:
            self._replicas.popitem(last=False)
        return before != record.replica


def fit(lost: Mapping[Lost, int], counted: int, reported: int, target: int, gone: Lost) -> Counter[Lost]:
    """Losses that agree with what a provider reported.

    Args:
        lost: as simulated, by why.
        counted: input tokens as they were counted here.
        reported: input tokens as the provider counted them.
        target: those of them that it did not read from its cache.
        gone: why tokens are lost beyond those that were to be expected.

    Returns:
        Counts that sum to `target`: those of `lost` on the provider's scale, all cut alike if they are too many.
    """
    scaled = Counter({why: tokens * reported // counted if counted else 0 for why, tokens in lost.items()})
    total = scaled.total()
    if total > target:
        scaled = Counter({why: tokens * target // total for why, tokens in scaled.items()})
        # What rounding down left over goes to the largest.
        gone = max(scaled, key=lambda why: scaled[why])
    scaled[gone] += target - scaled.total()
    return +scaled


def _is_too_short(served: Served) -> bool:
    """Whether no server would have had it."""
    return Reason.BELOW_MINIMUM in (served.otherwise, *(loss.reason for loss in served.lost))


def _settings(request: Request) -> str:
    """What a request says about caching."""
    said = []
    if request.markers:
        longest = max((marker.ttl or 0 for marker in request.markers), default=0)
        said.append("markers, 1 h" if longest >= HOUR else "markers")
    if request.salt is not None:
        said.append("salt")
    content = request.record.content
    if isinstance(content, Body) and _ROUTING_KEY in content.content:
        said.append("prompt_cache_key")
    return ", ".join(said) or "none"


def _count(side: dict[Group, Tally], group: Group, tally: Tally) -> None:
    if group not in side and len(side) >= _MOST_GROUPS:
        group = Group(kind=OTHERS)
    side.setdefault(group, Tally()).add(tally)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
