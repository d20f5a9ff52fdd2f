"""One replica, and the calls that run on it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType

from prefold.core.routing import Load, Work
from prefold.gateway.condition import Condition, State
from prefold.gateway.config import GroupTable, Isolation, Kind, ReplicaTable
from prefold.gateway.upstream import Upstream
from prefold.server.fields import shown

_log = logging.getLogger(__name__)
_TOLD: Mapping[State, str] = MappingProxyType(
    {
        State.UP: "up again",
        State.DOWN: "down: its health checks fail",
        State.OPEN: "left alone for a time: calls to it failed in a row",
        State.EJECTED: "ejected for a time: it fails, or is slow, far more often than the others",
    }
)
_ORDER = tuple(State)  # from worst to best
_NO_ANSWER = (502, 503, 504)  # statuses of those that speak for a server that does not
_ENGINES = (Kind.PREFOLD, Kind.VLLM, Kind.SGLANG, Kind.LLAMACPP)  # they know no clients, and so no limits of theirs
_OVERLOADED = (429, 503, 529)


class Replica:
    """One server.

    Attributes:
        table: what the configuration says of it.
        upstream: the way to it.
        load: what it has to do.
        condition: how it is.
        models: names that it serves; empty while it has not said so.
        adapters: those of them that it says are LoRA adapters.
        is_asked: whether it was asked what it serves, whatever came of it.
    """

    def __init__(self, table: ReplicaTable, upstream: Upstream, condition: Condition) -> None:
        self.table = table
        self.upstream = upstream
        self.load = Load(table.name, waiting=0)
        self.condition = condition
        self.models = frozenset(table.models)
        self.adapters: frozenset[str] = frozenset()
        self.models_asked = -math.inf
        self.is_asked = False
        self._role_said: str = table.role
        self._told: Mapping[str, State] = {}  # for all models under "", and for those that fare otherwise

    def states(self, now: float) -> Mapping[str, State]:
        """How it is: under "" to those who ask for the model that fares best, and by model where that is otherwise."""
        each = {model: self.condition.state(now, model) for model in self.models or ("",)}
        best = max(each.values(), key=_ORDER.index)
        return {model: state for model, state in each.items() if state is not best} | {"": best}

    def seconds_left(self, now: float) -> float:
        """How long the state of the model that fares best lasts; infinite where time does not end it."""
        best = self.states(now)[""]
        models = [model for model in self.models or ("",) if self.condition.state(now, model) is best]
        return min(self.condition.seconds_left(now, model) for model in models)

    def tell(self, now: float) -> None:
        """Log how it is, if that has changed since the last time; a rest that it asked for is no change."""
        states = {model: State.UP if state is State.RESTING else state for model, state in self.states(now).items()}
        if states[""] not in _TOLD:
            return
        told, self._told = self._told, states
        state, before = states[""], told.get("", State.UP)
        if has_changed := state is not before:
            _log.warning("The replica %s is %s", self.table.name, _TOLD[state])
        for model in sorted((states.keys() | told.keys()) - {""}):
            own = states.get(model, state)
            if own is not told.get(model, before) and not (has_changed and own is state):
                _log.warning("The replica %s is, for %s, %s", self.table.name, shown(model), _TOLD[own])

    def says_role(self, role: str) -> None:
        """Note the role that its server says it has, and log once where it is not the one that its table names."""
        if role not in (self._role_said, self.table.role):
            _log.warning(
                "The replica %s has the role %s here, but its server says %s: start that with --role %s",
                *(self.table.name, self.table.role, shown(role), self.table.role),
            )
        self._role_said = role

    def is_for(self, group: GroupTable) -> bool:
        """Whether tenants of a group may use it."""
        groups = self.table.groups
        return group.name in groups or (not groups and group.isolation is not Isolation.DEDICATED)


class Lease:
    """A call's place on a replica, from the choice to the end.

    One of `answered`, `failed` and `left` ends it; what comes after that changes nothing.

    Attributes:
        table: what the configuration says of the replica.
        upstream: the way to it.
    """

    __slots__ = (
        "_attempt",
        "_clock",
        "_is_over",
        "_replica",
        "_started",
        "_tokens",
        "_waiting",
        "_wall_clock",
        "_work",
        "table",
        "upstream",
    )

    def __init__(
        self, replica: Replica, model: str, work: Work, clock: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        self.table = replica.table
        self.upstream = replica.upstream
        self._replica = replica
        self._tokens = self._waiting = work.tokens
        self._work = work
        self._clock = clock
        self._wall_clock = wall_clock
        self._started = clock()
        self._is_over = False
        self._attempt = replica.condition.began(model)
        replica.load.pending += 1
        replica.load.wait_for(self._waiting)

    def first_byte(self) -> None:
        """The first byte of a well-begun stream has come.

        It is not for answers that come whole: how long these take is their length.
        """
        now = self._clock()
        self._attempt.outcomes.waited(now, now - self._started, self._tokens)
        self._attempt.begins_well()  # a stream may go on for minutes
        self._is_computed()

    def computed(self, tokens: int) -> None:
        """So many tokens of the prompt were computed: what was not known before is what the replica had already.

        Without it a conversation that is at home somewhere would look like work, and be sent away for it.
        """
        self._work.correct(tokens)

    def answered(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """There was a whole answer; or one that was refused for its status. A wait that it asks for is kept.

        A status of the replica's own, even 500, comes from a server that works: a poisonous request must not open the
        breaker for everybody. If it is more than that, it shows against the other replicas.
        """
        if self._is_over:
            return
        seconds = retry_after(headers, self._wall_clock()) if status in _OVERLOADED else None
        if status in _NO_ANSWER and seconds is None:
            self.failed()
            return
        now = self._clock()
        if seconds is not None and (status != 429 or self._is_for_all()):
            self._replica.condition.rest(now, seconds)
        self._attempt.succeeded()
        self._attempt.outcomes.ended(now, is_failure=status >= 500 and status not in _OVERLOADED)
        self._end()

    def failed(self, *, is_unreachable: bool = False) -> None:
        """There was no answer, or it broke off by the upstream's doing.

        Args:
            is_unreachable: whether there was no way to the replica, whatever it was to be asked.
        """
        if not self._is_over:
            now = self._clock()
            self._attempt.failed(now, is_unreachable=is_unreachable)
            self._attempt.outcomes.ended(now, is_failure=True)
            self._replica.tell(now)
            self._end()

    def left(self) -> None:
        """The client left before the end."""
        if not self._is_over:
            self._attempt.undecided()
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._replica.load.pending -= 1
        self._is_computed()

    def _is_computed(self) -> None:
        """Nothing of the prompt waits any more."""
        self._replica.load.wait_for(-self._waiting)
        self._waiting = 0

    def _is_for_all(self) -> bool:
        """Whether a 429 is about the replica, and not about the key that the client sent along."""
        return self.table.api_key is not None or self.table.kind in _ENGINES


def retry_after(headers: Mapping[bytes, bytes], wall_time: float) -> float | None:
    """Seconds that an answer asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date; None without."""
    try:
        if (value := headers.get(b"retry-after-ms")) is not None:
            seconds = float(value) / 1000
        elif (value := headers.get(b"retry-after")) is None:
            return None
        elif value.strip()[:1].isdigit():
            seconds = float(value)
        else:
            seconds = parsedate_to_datetime(value.decode("latin-1")).timestamp() - wall_time
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
