"""What two texts or lists have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_STEP = 4096  # slices compare far faster than items


def common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two texts or lists share at their beginning."""
    low, high = 0, min(len(one), len(other))
    step = _STEP
    while low < high:
        middle = min(low + step, high)
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high, step = middle - 1, max(1, (middle - low) // 2)
    return low
