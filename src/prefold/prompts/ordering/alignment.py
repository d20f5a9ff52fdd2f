"""Two lists side by side: which items of one stand in the other, in the same order.

Items that occur once in both are what is aligned by, as in patience diff (Bram Cohen), so that the time is linear but
for a logarithm, whatever the lists hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence


def align(wanted: Sequence[str], found: Sequence[str]) -> list[int | None]:
    """For each item of one list its place in another, in increasing order; None for those left out.

    What both begin and end with is matched first, then items that occur once in both, as far as they are in order, and
    then what surrounds those.
    """
    places: list[int | None] = [None] * len(wanted)
    bounds = _match_ends(wanted, found, (0, len(wanted), 0, len(found)), places)
    low, high, first, last = bounds
    theirs = Counter(found[first:last])
    ours = Counter(wanted[low:high])
    where = {found[index]: index for index in range(first, last)}
    pairs = [
        (index, where[wanted[index]]) for index in range(low, high) if ours[wanted[index]] == 1 == theirs[wanted[index]]
    ]
    for here, there in [*_increasing(pairs), (high, last)]:
        _match_ends(wanted, found, (low, here, first, there), places)
        if here < high:
            places[here] = there
        low, first = here + 1, there + 1
    return places


def _match_ends(
    wanted: Sequence[str], found: Sequence[str], bounds: tuple[int, int, int, int], places: list[int | None]
) -> tuple[int, int, int, int]:
    """Match what two stretches begin and end with; returns the bounds of what is left of them."""
    low, high, first, last = bounds
    while low < high and first < last and wanted[low] == found[first]:
        places[low] = first
        low, first = low + 1, first + 1
    while low < high and first < last and wanted[high - 1] == found[last - 1]:
        high, last = high - 1, last - 1
        places[high] = last
    return low, high, first, last


def _increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs whose second members increase; the first ones do already. O(n log n)."""
    tails: list[int] = []  # second members that end the best run of each length
    ends: list[int] = []  # the pairs they belong to
    before: list[int | None] = []
    for number, (_, there) in enumerate(pairs):
        length = bisect_left(tails, there)
        before.append(ends[length - 1] if length else None)
        tails[length : length + 1] = [there]
        ends[length : length + 1] = [number]
    run: list[tuple[int, int]] = []
    last = ends[-1] if ends else None
    while last is not None:
        run.append(pairs[last])
        last = before[last]
    return run[::-1]


def gaps_of(found: Sequence[str], places: Sequence[int | None]) -> list[int | None]:
    """For each item how many of those wanted come before it; None for the wanted ones themselves.

    Args:
        found: the items.
        places: what `align` returned.
    """
    gaps: list[int | None] = []
    anchored = {place: number for number, place in enumerate(places) if place is not None}
    gap = 0
    for index in range(len(found)):
        if index in anchored:
            gap = anchored[index] + 1
            gaps.append(None)
        else:
            gaps.append(gap)
    return gaps
