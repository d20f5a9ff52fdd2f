"""What a watcher counts, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from prefold.prompts.divergence.compare import Divergence
from prefold.providers.usage import Usage


@dataclass(frozen=True, slots=True)
class Break:
    """A request that lost what an earlier one had built.

    Attributes:
        label: of the request.
        model: of the request.
        divergence: where and why.
    """

    label: str
    model: str
    divergence: Divergence


@dataclass(frozen=True, slots=True)
class Counters:
    """Requests and tokens; counters can be added.

    Attributes:
        requests: how many were sent, each counted once however often the client retried it.
        answered: those whose answer was read to its end.
        failed: those that ended in an exception.
        silent: those answered without any usage.
        breaks: those that lost a prefix.
        usage: tokens of all answers.
    """

    requests: int = 0
    answered: int = 0
    failed: int = 0
    silent: int = 0
    breaks: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def unfinished(self) -> int:
        """Requests that are running, and streams that were not read to their end."""
        return self.requests - self.answered - self.failed

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            self.requests + other.requests,
            self.answered + other.answered,
            self.failed + other.failed,
            self.silent + other.silent,
            self.breaks + other.breaks,
            self.usage + other.usage,
        )
