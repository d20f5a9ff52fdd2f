"""Attention of some tokens of one sequence, that need not adjoin, as items of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prefold.engine.plan import Item
from prefold.engine.slots import Runs, cut

GROUP = 32
"""Rows that do not adjoin which attend in one item to all that stands before the first of them."""

SPAN = 512
"""Most positions from the first of a group to its last, since each row attends to those in between by itself."""

RUN_MIN = 16
"""Adjoining rows from which on they attend to each other in one causal item."""


def items_of(positions: Sequence[int], slots: Runs) -> tuple[Item, ...]:
    """Let each token attend to all that stands before it, and to itself.

    Args:
        positions: of the batch's rows, ascending.
        slots: of the positions from 0 up to the last of them.

    Returns:
        Items in the order in which they are to be merged.
    """
    own: list[Item] = []
    merged: list[Item] = []
    for start, stop in _groups(positions):
        first = positions[start]
        if stop - start > 1 and positions[stop - 1] - first == stop - 1 - start:
            own.append(Item(((start, stop),), cut(slots, first, first + stop - start), causal=True, first=True))
        else:
            own += [
                Item(((row, row + 1),), cut(slots, first, positions[row] + 1), causal=False, first=True)
                for row in range(start, stop)
            ]
        if first:
            merged.append(Item(((start, stop),), cut(slots, 0, first), causal=False, first=False))
    return (*own, *merged)


def _groups(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Rows that attend together, as half-open intervals: long adjoining ones, and up to `GROUP` others."""
    first = 0
    for start, stop in _adjoining(positions):
        if stop - start >= RUN_MIN:
            if first < start:
                yield first, start
            yield start, stop
            first = stop
            continue
        for row in range(start, stop):
            if row - first == GROUP or positions[row] - positions[first] >= SPAN:
                yield first, row
                first = row
    if first < len(positions):
        yield first, len(positions)


def _adjoining(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """All rows, as intervals whose positions follow each other without a gap."""
    start = 0
    for row in range(1, len(positions) + 1):
        if row == len(positions) or positions[row] != positions[row - 1] + 1:
            yield start, row
            start = row
