"""What a node of the flame tree counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Label:
    """What is shown for a frame.

    Attributes:
        text: an excerpt, from where the frame begins; it opens with an ellipsis within a text.
        path: where the text stands in the request body, such as `messages[2]`; empty where the log does not say.
    """

    text: str
    path: str


@dataclass(slots=True)
class Counts:
    """What a node counts.

    Attributes:
        unit: tokens of an id of the run.
        ended: requests that end here, or below in a part that was merged.
        tail: tokens of theirs that follow the last whole unit.
        hits: for each number of tokens of this run from 1 up, how many requests' hits end there.
        merged_tokens: tokens of parts below that were merged.
        merged_hit: those of them that were hits.
        merged_nodes: how many nodes they were.
        label: what is shown for it, once known.
    """

    unit: int
    ended: int = 0
    tail: int = 0
    hits: dict[int, int] = field(default_factory=dict)
    merged_tokens: int = 0
    merged_hit: int = 0
    merged_nodes: int = 0
    label: Label | None = None


def split_counts(counts: Counts, units: int) -> tuple[Counts, Counts]:
    """Cut a node's counts after so many units; requests end at the end of a node, so those go with the second part."""
    cut = units * counts.unit
    first = Counts(counts.unit, label=counts.label)
    second = Counts(
        counts.unit,
        counts.ended,
        counts.tail,
        merged_tokens=counts.merged_tokens,
        merged_hit=counts.merged_hit,
        merged_nodes=counts.merged_nodes,
    )
    for stop, requests in counts.hits.items():
        if stop <= cut:
            first.hits[stop] = requests
        else:
            second.hits[stop - cut] = requests
    return first, second
