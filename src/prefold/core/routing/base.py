"""What policies are asked, what they know of a fleet, and what they answer."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

LOAD_BOUND = 1.25
"""Load of a replica, relative to the mean, up to which affinity costs nothing."""

_BATCH = 8
"""Requests that a replica works on at once without any of them noticing: fewer never count as too many."""

REQUEST_TOKENS = 1024
"""What a request under way counts as: it slows others about as much as so many tokens to be computed would.

Between an answer of some hundred tokens and a prompt of some thousand. Traces do not say how long requests are under
way, so this one is not measured.
"""

_WINDOW = 100  # requests per replica


class Why(StrEnum):
    """Why a replica was chosen."""

    ROUND_ROBIN = "round_robin"
    LEAST_PENDING = "least_pending"
    STICKY = "sticky"
    PREFIX_HASH = "prefix_hash"
    EXACT = "exact"
    OVERLOADED = "overloaded"
    """The one that affinity named had too much to do, so another one was taken."""
    ONLY_ONE = "only_one"
    FALLBACK = "fallback"
    """Affinity could not say anything about this request."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What policies look at.

    Attributes:
        beginning: bytes that stand for the first tokens of the prompt and for who may share it; equal for prompts that
            should go to one place. Empty where nothing is known.
        session: what names the conversation (a client's `prompt_cache_key`, a session header); empty for none.
        tokens: input tokens, estimated where they were not counted.
        matched: tokens of the prompt's beginning that each replica holds, by its index; none for indexes behind the
            last one, so empty where nobody knows.
    """

    beginning: bytes = b""
    session: str = ""
    tokens: int = 0
    matched: Sequence[int] = ()

    @property
    def affinity(self) -> bytes:
        """What names the place that the request belongs to; empty where nothing does."""
        return self.session.encode() + b"\0" + self.beginning if self.session or self.beginning else b""


@dataclass(slots=True)
class Load:
    """What a replica has to do.

    Attributes:
        name: stays the same for as long as the replica lives; a ring places it by this.
        pending: requests under way.
        tokens: prompt tokens that it has to compute for them, and lately computed where the host says so.
        waiting: prompt tokens that it has to compute for them alone; None where the host does not know what is under
            way at once (as a trace played without times), so that only what lies behind counts.
    """

    name: str
    pending: int = 0
    tokens: int = 0
    waiting: int | None = None

    def is_hardly_busy(self, tokens: int) -> bool:
        """Whether it has less under way than a few prompts of so many tokens, of which none would notice the others."""
        if self.waiting is None:
            return False
        return self.waiting + REQUEST_TOKENS * self.pending < _BATCH * (tokens + REQUEST_TOKENS)

    def wait_for(self, tokens: int) -> None:
        """So many more tokens are to be computed for what is under way; fewer where negative."""
        self.waiting = (self.waiting or 0) + tokens


@dataclass(frozen=True, slots=True)
class Choice:
    """A replica by its index, and why it was chosen."""

    replica: int
    why: Why


class Policy(Protocol):
    """Decides which replica serves a request."""

    def choose(self, ask: Ask, loads: Sequence[Load], allowed: Sequence[int]) -> Choice:
        """One of the allowed replicas.

        Args:
            ask: the request.
            loads: of all replicas, by index.
            allowed: indexes of those that may serve it, ascending; at least one.
        """


@dataclass(slots=True)
class Work:
    """What a request adds to a load, while that remembers it.

    Attributes:
        load: of the replica that serves it; None once it is forgotten.
        tokens: input tokens that are computed for it.
    """

    load: Load | None
    tokens: int

    def correct(self, tokens: int) -> None:
        """So many tokens were computed, and not what was thought."""
        if self.load is not None:
            self.load.tokens += tokens - self.tokens
            self.tokens = tokens

    def forget(self) -> None:
        """Take it off the load."""
        self.correct(0)
        self.load = None


class Lately:
    """Keeps in the loads of a fleet what its replicas computed for the latest requests.

    Only what lies behind shows who gets too much: where a fleet is hardly busy, nothing is ever under way for long. It
    counts requests and not time, so that it needs no clock, and quiet hours change nothing.

    Args:
        window: requests per replica that are remembered.
    """

    def __init__(self, window: int = _WINDOW) -> None:
        self._window = window
        self._latest: deque[Work] = deque()

    def add(self, load: Load, tokens: int, replicas: int) -> Work:
        """Add a request to a load, and take off those that are no longer among the latest.

        Args:
            load: of the replica that serves it.
            tokens: input tokens that it computes for it.
            replicas: how many there are.

        Returns:
            What was added, which may be put right when it is known.
        """
        load.tokens += tokens
        work = Work(load, tokens)
        self._latest.append(work)
        while len(self._latest) > self._window * replicas:
            self._latest.popleft().forget()
        return work


@dataclass(frozen=True, slots=True)
class Limits:
    """Load above which a replica has more than its share.

    Both are measured against the mean, each by itself: tokens tell of replicas that are given more, requests under way
    also of those that are slow.

    Attributes:
        tokens: as in `Load`.
        pending: requests under way, the one to be placed included.
    """

    tokens: float
    pending: int

    @classmethod
    def of(cls, loads: Sequence[Load], allowed: Sequence[int], bound: float, tokens: int) -> Limits:
        """The limits for the next request, at `bound` times the mean of the allowed replicas.

        Whoever did no more than compute this one prompt did not do too much: so a fleet that has just begun keeps its
        first conversations where they are.

        Args:
            loads: of all replicas.
            allowed: those that may serve the request.
            bound: load relative to the mean.
            tokens: of the request.
        """
        share = bound / len(allowed)
        computed = share * sum([loads[index].tokens for index in allowed])
        pending = share * (sum([loads[index].pending for index in allowed]) + 1)
        return cls(max(computed, tokens), max(_BATCH, math.ceil(pending)))
