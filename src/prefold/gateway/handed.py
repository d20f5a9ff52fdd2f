"""What came of a prompt that one replica computes for another one."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import msgspec

from prefold.providers.usage import Usage


class Handing(StrEnum):
    """What came of having a prompt computed by a prefill replica, before its call goes on."""

    DONE = "done"
    FAILED = "failed"
    """The prefill replica gave no answer, or broke off."""
    REFUSED = "refused"
    """It, or the gateway, would not do this one: it is busy, for example, or has another limit."""
    LATE = "late"
    """It took too long, or went down meanwhile."""
    NOBODY = "nobody"
    """No prefill replica is up."""


class Handed(msgspec.Struct, frozen=True, gc=False):
    """A prompt that a prefill replica has computed.

    Attributes:
        replica: that did it.
        cached: tokens that it had already. What the next replica finds beyond those was computed for this call.
    """

    replica: str
    cached: int

    def corrected(self, usage: Usage) -> Usage:
        """The usage of the whole call, from that of its second half."""
        found = max(0, usage.read - self.cached)
        return replace(usage, read=usage.read - found, uncached=usage.uncached + found)
