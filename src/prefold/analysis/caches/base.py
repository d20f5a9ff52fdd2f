"""What the simulator asks of a cache, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from prefold.analysis.request import Request


class Reason(StrEnum):
    """Why an input token was read from a cache, or was not. Each goes to exactly one."""

    HIT = "hit"
    COLD = "cold"
    """It was never sent before."""
    BLOCK_TAIL = "block_tail"
    """It lies behind the last whole block, or is the last token, which must always be computed."""
    BELOW_MINIMUM = "below_minimum"
    EXPIRED = "expired"
    EVICTED = "evicted"
    OTHER_REPLICA = "other_replica"
    OTHER_MODEL = "other_model"
    OTHER_TENANT = "other_tenant"
    BREAKPOINT = "breakpoint"
    """No marker ends where the prefix does."""
    LOOKBACK = "lookback"
    """A marker of an earlier request ends there, further back than is looked."""
    NOT_KEPT = "not_kept"
    """A cache that promises nothing did not have it."""
    CHANGED_PREFIX = "changed_prefix"
    """It was sent before, behind another prefix."""
    UNEXPLAINED = "unexplained"


class Loss(NamedTuple):
    """A stretch of tokens that were sent before and yet are computed, from the end of the one before it.

    Attributes:
        reason: why.
        stop: the position in tokens where it ends.
    """

    reason: Reason
    stop: int


_NOTHING: Mapping[int, int] = MappingProxyType({})


class Served(NamedTuple):
    """What a cache did for a request.

    Attributes:
        hit: tokens read from the cache: the first ones of the prompt.
        written: tokens written that the provider bills as such, by lifetime in seconds.
        lost: the stretches behind the hit that the cache can explain, ascending.
        otherwise: why the rest was lost, up to what was ever sent in this scope.
        replica: which of several served it.
    """

    hit: int
    written: Mapping[int, int] = _NOTHING
    lost: tuple[Loss, ...] = ()
    otherwise: Reason = Reason.UNEXPLAINED
    replica: int = 0


class CacheModel(Protocol):
    """A cache that requests are sent to, one by one, in order of time."""

    def serve(self, request: Request) -> Served:
        """Look the request up, answer it, and keep what the cache would keep."""
