"""A request as caches see it: a run of units, and where a cache entry may end."""

from __future__ import annotations

from dataclasses import dataclass

from prefold.analysis.record import Record
from prefold.core.tokens import count


@dataclass(frozen=True, slots=True)
class Marker:
    """A cache marker in a request.

    Attributes:
        end: units before it.
        ttl: lifetime that it asks for, in seconds; None for the cache's default.
    """

    end: int
    ttl: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request as caches see it.

    Attributes:
        run: the prompt as packed ids (see `prefold.core.tokens`): token ids, pseudo-tokens where they are estimated,
            or ids of blocks. Equal beginnings of two prompts are equal beginnings of their runs.
        unit: tokens that an id stands for; 1 but in traces of blocks.
        tokens: input tokens; `count(run) * unit`, and what follows the last whole block of a trace.
        time: seconds; never smaller than that of the request before it.
        record: where it came from.
        ends: units before the end of each content block, ascending, the last one being the whole run; empty where the
            log does not say.
        positions: the number of the position that each of them is in, as providers count that take a run of tool calls,
            or of their results, for one; empty where each end is a position of its own.
        markers: cache markers, ascending.
        system_end: units of tools and system prompt, which come first; 0 where the log does not say.
        salt: what keeps it apart from requests with another salt; None to share.
        output: the answer as ids of the same kind; empty where the log does not say.
        output_tokens: length of the answer in tokens; 0 where the log does not say.
    """

    run: bytes
    unit: int
    tokens: int
    time: float
    record: Record
    ends: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    markers: tuple[Marker, ...] = ()
    system_end: int = 0
    salt: str | None = None
    output: bytes = b""
    output_tokens: int = 0

    @property
    def units(self) -> int:
        """Number of ids in the prompt."""
        return count(self.run)

    @property
    def scope(self) -> tuple[str, str | None]:
        """Model and salt: requests in different scopes share nothing."""
        return self.record.model, self.salt
