"""Whether a replica should be asked: a state machine over health checks and the outcomes of calls.

Pure: every method is given the time, in monotonic seconds, and no clock is read.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import msgspec

from prefold.gateway.config import HealthOptions, UpstreamOptions

WINDOW_SECONDS = 30.0
"""What lies further back says nothing about a replica's present outcomes."""

EJECTION_SECONDS = 30.0
LONGEST_EJECTION_SECONDS = 600.0
"""A replica is out for so long the first time, twice as long each further time, up to the second; as long without an
ejection makes it forgotten."""

LONGEST_REST_SECONDS = 3_600.0
"""An upstream that asks for more is not believed."""

_FEWEST_CALLS = 10  # within the window, before anything is concluded from them
_MOST_CALLS = 512  # that are remembered
_ERROR_SHARE = 0.5
_ERROR_FACTOR = 3.0
_PACE_FACTOR = 5.0
_SLOW_SECONDS = 1.0  # waits below this are never too long, however fast the others are


class State(StrEnum):
    """How a replica is, in the order in which they matter: the first that holds is told."""

    GONE = "gone"
    """Removed, and nothing runs on it any more."""
    DRAINING = "draining"
    """Removed; what runs on it may end."""
    DOWN = "down"
    """Its health checks fail."""
    OPEN = "open"
    """Calls failed in a row (a circuit breaker is open): nobody is sent there, but one trial after a time."""
    EJECTED = "ejected"
    """It fails, or is slow, far more often than the others with the same model."""
    RESTING = "resting"
    """It asked to be left alone for a time (Retry-After)."""
    UP = "up"


class Breaker:
    """A circuit breaker: failures in a row open it, and then a single call decides whether it closes.

    Attributes:
        failures: in a row.
        open_until: when the next trial may be; None while it is closed.
    """

    __slots__ = ("_is_tried", "failures", "open_until")

    def __init__(self) -> None:
        self.failures = 0
        self.open_until: float | None = None
        self._is_tried = False

    def may_be_tried(self, now: float) -> bool:
        """Whether it is closed, or it is time for the one call that may close it."""
        return self.open_until is None or (now >= self.open_until and not self._is_tried)

    def began(self) -> bool:
        """A call goes there. Returns whether it is the trial of an open breaker."""
        is_trial = self.open_until is not None and not self._is_tried
        self._is_tried = self._is_tried or is_trial
        return is_trial

    def succeeded(self, *, is_trial: bool) -> None:
        """A call was answered. Those from before it opened do not close it."""
        if self.open_until is None or is_trial:
            self.failures = 0
            self.open_until = None
        self._is_tried = self._is_tried and not is_trial

    def failed(self, now: float, options: UpstreamOptions, *, is_trial: bool) -> None:
        """A call was not answered."""
        self.failures += 1
        if is_trial or (self.open_until is None and self.failures >= options.breaker_failures):
            self.open_until = now + options.breaker_seconds
        self._is_tried = self._is_tried and not is_trial

    def undecided(self, *, is_trial: bool) -> None:
        """A call ended before it could tell anything."""
        self._is_tried = self._is_tried and not is_trial


class Service:
    """How a replica serves one of its models.

    A model that is broken, or a prompt that makes its engine drop connections, says nothing about the other models.
    """

    __slots__ = ("_ejections", "breaker", "ejected_until", "outcomes")

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.outcomes = Outcomes()
        self.ejected_until = -math.inf
        self._ejections = 0

    def eject(self, now: float) -> None:
        """Leave it out for a time, longer each time; then its outcomes count anew."""
        if now > self.ejected_until + LONGEST_EJECTION_SECONDS:
            self._ejections = 0
        self.ejected_until = now + min(EJECTION_SECONDS * 2**self._ejections, LONGEST_EJECTION_SECONDS)
        self._ejections = min(self._ejections + 1, 10)
        self.outcomes = Outcomes()


class Condition:
    """What is known of one replica.

    Calls that cannot reach it count against the replica, all other failures against the model that was asked for.

    Args:
        health: when checks make it down and up.
        upstream: when failures open circuit breakers, and for how long.

    Attributes:
        is_down: whether its health checks fail.
        is_checked: whether a health check has been made.
        breaker: of the way there.
        services: by model, of those that were asked for.
    """

    def __init__(self, health: HealthOptions, upstream: UpstreamOptions) -> None:
        self.health = health
        self.upstream = upstream
        self.breaker = Breaker()
        self.services: dict[str, Service] = {}
        self.is_removed = False
        self.is_gone = False
        self.is_down = False
        self.is_checked = False
        self._streak = 0  # checks in a row that contradict `is_down`
        self._rests_until = -math.inf

    def service(self, model: str) -> Service:
        """How it serves a model; one that was never asked for is well."""
        return self.services.get(model) or Service()

    def state(self, now: float, model: str) -> State:
        """How it is to those who ask for a model."""
        if self.is_removed:
            return State.GONE if self.is_gone else State.DRAINING
        if self.is_down:
            return State.DOWN
        service = self.service(model)
        if self.breaker.open_until is not None or service.breaker.open_until is not None:
            return State.OPEN
        if now < service.ejected_until:
            return State.EJECTED
        return State.RESTING if now < self._rests_until else State.UP

    def seconds_left(self, now: float, model: str) -> float:
        """How long the present state lasts; infinite where time does not end it."""
        service = self.service(model)
        match self.state(now, model):
            case State.OPEN:
                until = max(each.open_until or -math.inf for each in (self.breaker, service.breaker))
            case State.EJECTED:
                until = service.ejected_until
            case State.RESTING:
                until = self._rests_until
            case _:
                return math.inf
        return max(0.0, until - now)

    def may_be_tried(self, now: float, model: str) -> bool:
        """Whether it is time for the one call that may close whichever breaker is open."""
        return self.breaker.may_be_tried(now) and self.service(model).breaker.may_be_tried(now)

    # Checks

    def checked(self, *, is_well: bool) -> None:
        """Take a health check's outcome. The first one decides at once."""
        if is_well != self.is_down:
            self._streak = 0
        else:
            self._streak += 1
            if not self.is_checked or self._streak >= (self.health.rise if is_well else self.health.fall):
                self.is_down = not is_well
                self._streak = 0
                self.breaker = Breaker()
                for service in self.services.values():
                    service.breaker = Breaker()
        self.is_checked = True

    def keep(self, models: Collection[str]) -> None:
        """Forget how it served others: so what is kept is bounded by what it serves."""
        for model in self.services.keys() - models:
            del self.services[model]

    # Calls

    def began(self, model: str) -> Attempt:
        """A call for a model goes there."""
        return Attempt(self, self.services.setdefault(model, Service()))

    def rest(self, now: float, seconds: float) -> None:
        """It asked to be left alone for so long."""
        self._rests_until = max(self._rests_until, now + min(seconds, LONGEST_REST_SECONDS))


class Attempt:
    """A call on its way, as far as breakers are concerned; one of the last three methods ends it."""

    __slots__ = ("_condition", "_is_trial", "_is_trial_of_model", "_of_model", "_of_replica", "_service")

    def __init__(self, condition: Condition, service: Service) -> None:
        self._condition = condition
        self._service = service
        self._of_replica = condition.breaker
        self._of_model = service.breaker
        self._is_trial = self._of_replica.began()
        self._is_trial_of_model = self._of_model.began()

    @property
    def outcomes(self) -> Outcomes:
        """See `Service`."""
        return self._service.outcomes

    def begins_well(self) -> None:
        """The answer has begun. If it is a trial, others need not wait for its end."""
        if self._is_trial:
            self._of_replica.succeeded(is_trial=True)
        if self._is_trial_of_model:
            self._of_model.succeeded(is_trial=True)
        self._is_trial = self._is_trial_of_model = False

    def succeeded(self) -> None:
        """It was answered."""
        self._of_replica.succeeded(is_trial=self._is_trial)
        self._of_model.succeeded(is_trial=self._is_trial_of_model)

    def failed(self, now: float, *, is_unreachable: bool) -> None:
        """It was not answered, or by a proxy that could not reach anybody."""
        options = self._condition.upstream
        if is_unreachable:
            self._of_replica.failed(now, options, is_trial=self._is_trial)
            self._of_model.undecided(is_trial=self._is_trial_of_model)
        else:
            self._of_replica.succeeded(is_trial=self._is_trial)
            self._of_model.failed(now, options, is_trial=self._is_trial_of_model)

    def undecided(self) -> None:
        """It ended before it could tell anything."""
        self._of_replica.undecided(is_trial=self._is_trial)
        self._of_model.undecided(is_trial=self._is_trial_of_model)


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    when: float
    is_failure: bool


class _Wait(msgspec.Struct, frozen=True, gc=False):
    when: float
    seconds: float
    pace: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A replica's calls of late.

    Attributes:
        calls: that ended.
        failures: among them.
        wait: median seconds to the first byte of a stream; 0 where there were too few.
        pace: median of those seconds per prompt token to be computed; 0 where there were too few.
    """

    calls: int
    failures: int
    wait: float
    pace: float


class Outcomes:
    """How calls to one replica ended, and how long they waited, of late."""

    def __init__(self) -> None:
        self._ends: deque[_Outcome] = deque(maxlen=_MOST_CALLS)
        self._waits: deque[_Wait] = deque(maxlen=_MOST_CALLS)

    def ended(self, now: float, *, is_failure: bool) -> None:
        """A call ended."""
        self._ends.append(_Outcome(now, is_failure))

    def waited(self, now: float, seconds: float, tokens: int) -> None:
        """A stream's first byte came after so many seconds, with so many prompt tokens to be computed."""
        # The constant stands for what does not grow with the prompt.
        self._waits.append(_Wait(now, seconds, seconds / (tokens + 500)))

    def summary(self, now: float) -> Summary:
        """The window up to now."""
        since = now - WINDOW_SECONDS
        while self._ends and self._ends[0].when < since:
            self._ends.popleft()
        while self._waits and self._waits[0].when < since:
            self._waits.popleft()
        failures = sum(end.is_failure for end in self._ends)
        if len(self._waits) < _FEWEST_CALLS:
            return Summary(len(self._ends), failures, 0.0, 0.0)
        wait, pace = median(one.seconds for one in self._waits), median(one.pace for one in self._waits)
        return Summary(len(self._ends), failures, wait, pace)


def is_outlier(name: int, peers: Mapping[int, Summary]) -> bool:
    """Whether one of several replicas with the same work stands out by errors or by slowness.

    Errors are held against the best of the others, and waits against the middle one. Where all are alike, the fault is
    in the requests or behind the replicas, and leaving some out would not help.
    """
    own = peers[name]
    others = [peer for other, peer in peers.items() if other != name]
    shares = [peer.failures / peer.calls for peer in others if peer.calls >= _FEWEST_CALLS]
    if shares and own.calls >= _FEWEST_CALLS:
        share = own.failures / own.calls
        if share >= _ERROR_SHARE and share >= _ERROR_FACTOR * min(shares):
            return True
    paces = [peer.pace for peer in others if peer.pace]
    return bool(paces) and own.wait >= _SLOW_SECONDS and own.pace >= _PACE_FACTOR * median(paces)
