"""Positions as a read counts them that walks back from a marker: segments, but for runs of tool calls and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise

from prefold.prompts.prompt import Section, Segment
from prefold.providers.rules import CacheRules


class Run(StrEnum):
    """What may follow each other within one position."""

    CALLS = "calls"
    RESULTS = "results"


_RUNS_OF_TYPES = {
    "tool_use": Run.CALLS,
    "function": Run.CALLS,
    "function_call": Run.CALLS,
    "tool_result": Run.RESULTS,
    "function_call_output": Run.RESULTS,
}
_RUNS_OF_FIELDS = {
    "toolUse": Run.CALLS,
    "functionCall": Run.CALLS,
    "toolResult": Run.RESULTS,
    "functionResponse": Run.RESULTS,
}


def run_of(segment: Segment) -> Run | None:
    """The kind of run that a segment can belong to, in any dialect; None for all but tool calls and their results."""
    if segment.section is not Section.MESSAGES:
        return None
    if segment.role == "tool":  # a message of its own for each result, as OpenAI has it
        return Run.RESULTS
    block = segment.content
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type")
    if isinstance(kind, str) and kind in _RUNS_OF_TYPES:
        return _RUNS_OF_TYPES[kind]
    return next((run for field, run in _RUNS_OF_FIELDS.items() if field in block), None)


def numbered(runs: Iterable[Run | None]) -> tuple[int, ...]:
    """The number of the position that each segment is in, from the runs that they belong to."""
    return tuple(accumulate(int(run is None or run is not before) for before, run in pairwise([None, *runs])))


def positions_of(segments: Sequence[Segment], rules: CacheRules) -> tuple[int, ...]:
    """The number of the position that each segment is in, as some rules count."""
    return numbered(run_of(segment) if rules.runs_count_once else None for segment in segments)
