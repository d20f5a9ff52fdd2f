"""When to trust a ranking: as long as it does not lose to what it is measured by."""

from __future__ import annotations

_STAKE = 4
"""Requests of average length that may be lost before anything has been won."""
_LEAVE, _RETURN = 0.004, 0.002
"""How far behind the standard, relative to it, the ranking is left, and taken up again."""
_WINDOW = 64
"""Input looked back on, as a multiple of the capacity: older hits count half, and their half, and so on."""


class Guard:
    """Follows the ranking until its hits fall behind those of a standard, then the standard.

    It is tried again once the loss has become small beside the standard's hits; or else once these have doubled, with
    the loss so far forgiven. So all losses together come to about twice `_LEAVE`, whatever the traffic.

    Args:
        capacity: tokens of the cache.
    """

    def __init__(self, capacity: int) -> None:
        self.follows = False
        """Whether the ranking is to be followed."""
        self._window = _WINDOW * capacity
        self._input = 0.0
        self._lead = 0.0  # hits beyond the standard's, and what was forgiven
        self._standard = 0.0  # hits; discounted, like lead and input
        self._all_hits = 0.0  # of the standard, not discounted
        self._retry = 0.0

    def judge(self, tokens: int, hit: float, standard: float, average: float) -> None:
        """A request was served.

        Args:
            tokens: its length.
            hit: what was hit of it, in tokens or in what they cost; the same for all that follows.
            standard: what the standard would have hit.
            average: of all requests.
        """
        self._input += tokens
        self._lead += hit - standard
        self._standard += standard
        self._all_hits += standard
        if self._input > self._window:
            self._input /= 2
            self._lead /= 2
            self._standard /= 2
        if self.follows and self._lead + _STAKE * average < -_LEAVE * self._standard:
            self.follows = False
            self._retry = 2 * self._all_hits

    def may_follow(self, average: float) -> bool:
        """Take up the ranking if it has not lost too much; says whether it is taken up now."""
        if self.follows:
            return False
        if self._lead + _STAKE / 2 * average < -_RETURN * self._standard:
            if self._all_hits < self._retry:
                return False
            self._lead = 0.0
        self.follows = True
        return True
