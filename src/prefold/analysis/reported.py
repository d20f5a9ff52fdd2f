"""What a provider reported, beside what was simulated: its word is the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.request import Request
from prefold.providers.usage import Usage

_Why = TypeVar("_Why", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Reported:
    """What providers reported, beside what was simulated for the same requests.

    Attributes:
        requests: those whose usage says what was read from the cache.
        input_tokens: as reported.
        hit_tokens: as reported.
        simulated_input_tokens: as counted here.
        simulated_hit_tokens: as simulated.
    """

    requests: int = 0
    input_tokens: int = 0
    hit_tokens: int = 0
    simulated_input_tokens: int = 0
    simulated_hit_tokens: int = 0

    @property
    def difference_tokens(self) -> int:
        """Tokens that were read beyond what was simulated; negative where fewer were."""
        return self.hit_tokens - self.simulated_hit_tokens

    def plus(self, request: Request, served: Served) -> Reported:
        """With one more request, if its usage was reported.

        Args:
            request: the next one.
            served: what was simulated for it.
        """
        usage = reported_usage(request)
        if usage is None:
            return self
        return Reported(
            self.requests + 1,
            self.input_tokens + usage.input,
            self.hit_tokens + usage.read,
            self.simulated_input_tokens + request.tokens,
            self.simulated_hit_tokens + min(served.hit, request.tokens),
        )


def reported_usage(request: Request) -> Usage | None:
    """What the provider counted; None where it did not say what was read from its cache, or cannot have meant it."""
    usage = request.record.usage
    if usage is None or not usage.is_reported:
        return None
    return usage if usage.input > 0 and min(usage.uncached, usage.read, usage.write) >= 0 else None


def fitted(request: Request, served: Served) -> Served:
    """What was simulated, made to agree with what was reported.

    What was read is taken from the report, as a share of its input, for that may hold text that no log shows. What was
    simulated beyond it was not kept.

    Args:
        request: what was sent.
        served: what the cache that is simulated did for it.
    """
    usage = reported_usage(request)
    if usage is None:
        return served
    simulated = min(served.hit, request.tokens)
    hit = usage.read * request.tokens // usage.input
    lost = (Loss(Reason.NOT_KEPT, simulated), *served.lost) if hit < simulated else served.lost
    return served._replace(hit=hit, lost=lost)


def fit(lost: Mapping[_Why, int], counted: int, reported: int, target: int, gone: _Why) -> Counter[_Why]:
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
