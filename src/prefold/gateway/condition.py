"""Whether a replica should be asked: a state machine over health checks and the outcomes of calls.

Pure: every method is given the time, in monotonic seconds, and no clock is read.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
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
    """Calls failed in a row (the circuit breaker is open): nobody is sent there, but one trial after a time."""
    EJECTED = "ejected"
    """It fails, or is slow, far more often than the others."""
    RESTING = "resting"
    """It asked to be left alone for a time (Retry-After)."""
    UP = "up"


class Condition:
    """What is known of one replica.

    Args:
        health: when checks make it down and up.
        upstream: when failures open the circuit breaker, and for how long.

    Attributes:
        is_checked: whether a health check has been made.
    """

    def __init__(self, health: HealthOptions, upstream: UpstreamOptions) -> None:
        self.health = health
        self.upstream = upstream
        self.outcomes = Outcomes()
        self.is_removed = False
        self.is_gone = False
        self.failures = 0
        self._is_down = False
        self.is_checked = False
        self._streak = 0  # checks in a row that contradict `_is_down`
        self._open_until: float | None = None
        self._is_tried = False
        self._ejected_until = -math.inf
        self._ejections = 0
        self._rests_until = -math.inf

    def state(self, now: float) -> State:
        """How it is."""
        if self.is_removed:
            return State.GONE if self.is_gone else State.DRAINING
        if self._is_down:
            return State.DOWN
        if self._open_until is not None:
            return State.OPEN
        if now < self._ejected_until:
            return State.EJECTED
        return State.RESTING if now < self._rests_until else State.UP

    def seconds_left(self, now: float) -> float:
        """How long the present state lasts; infinite where time does not end it."""
        until = {
            State.OPEN: self._open_until,
            State.EJECTED: self._ejected_until,
            State.RESTING: self._rests_until,
        }.get(self.state(now))
        return math.inf if until is None else max(0.0, until - now)

    def may_be_tried(self, now: float) -> bool:
        """Whether its breaker is open, and it is time for the one call that may close it."""
        return self._open_until is not None and now >= self._open_until and not self._is_tried

    # Checks

    def checked(self, *, is_well: bool) -> None:
        """Take a health check's outcome. The first one decides at once."""
        if is_well != self._is_down:
            self._streak = 0
        else:
            self._streak += 1
            if not self.is_checked or self._streak >= (self.health.rise if is_well else self.health.fall):
                self._is_down = not is_well
                self._streak = 0
                self._open_until = None
                self.failures = 0
        self.is_checked = True

    # Calls

    def began(self) -> bool:
        """A call goes there. Returns whether it is the trial of an open breaker."""
        is_trial = self._open_until is not None and not self._is_tried
        self._is_tried = self._is_tried or is_trial
        return is_trial

    def succeeded(self, *, is_trial: bool) -> None:
        """A call was answered. Those from before the breaker opened do not close it."""
        if self._open_until is None or is_trial:
            self.failures = 0
            self._open_until = None
        self._is_tried = self._is_tried and not is_trial

    def failed(self, now: float, *, is_trial: bool) -> None:
        """A call was not answered, or by a proxy that could not reach anybody."""
        self.failures += 1
        if is_trial or (self._open_until is None and self.failures >= self.upstream.breaker_failures):
            self._open_until = now + self.upstream.breaker_seconds
        self._is_tried = self._is_tried and not is_trial

    def undecided(self, *, is_trial: bool) -> None:
        """A call ended before it could tell anything."""
        self._is_tried = self._is_tried and not is_trial

    def rest(self, now: float, seconds: float) -> None:
        """It asked to be left alone for so long."""
        self._rests_until = max(self._rests_until, now + min(seconds, LONGEST_REST_SECONDS))

    def eject(self, now: float) -> None:
        """Leave it out for a time, longer each time; then its outcomes count anew."""
        if now > self._ejected_until + LONGEST_EJECTION_SECONDS:
            self._ejections = 0
        self._ejected_until = now + min(EJECTION_SECONDS * 2**self._ejections, LONGEST_EJECTION_SECONDS)
        self._ejections = min(self._ejections + 1, 10)
        self.outcomes = Outcomes()


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
