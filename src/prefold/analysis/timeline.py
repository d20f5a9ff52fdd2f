"""Hits over time, by tenant and model, in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from prefold.analysis.request import Request

OTHERS = "(others)"
"""Name of the tenants that have no series of their own."""


class Timeline:
    """Input and hit tokens in slices of time.

    The slices double in width whenever there are too many, so that a log of any length has a few hundred at most.
    Tenants and models get a series each in the order in which they appear, until there are too many.

    Args:
        width: seconds of the first slices.
        most_slices: slices before they double.
        most_series: pairs of tenant and model with a series of their own.
    """

    def __init__(self, width: float = 1.0, most_slices: int = 240, most_series: int = 20) -> None:
        self.width = width
        self._most_slices = most_slices
        self._most_series = most_series
        self._start: float | None = None
        self._series: set[tuple[str, str]] = set()
        self._slices: dict[int, dict[tuple[str, str], list[int]]] = {}

    def add(self, request: Request, hit_tokens: int) -> None:
        """Count a request. Times must not run backwards."""
        if self._start is None:
            self._start = request.time
        number = int((request.time - self._start) / self.width)
        while number >= self._most_slices:
            self._double()
            number = int((request.time - self._start) / self.width)
        series = request.record.tenant, request.record.model
        if series not in self._series:
            if len(self._series) < self._most_series:
                self._series.add(series)
            else:
                series = OTHERS, OTHERS
        counts = self._slices.setdefault(number, {}).setdefault(series, [0, 0])
        counts[0] += request.tokens
        counts[1] += hit_tokens

    def _double(self) -> None:
        merged: dict[int, dict[tuple[str, str], list[int]]] = {}
        for number, slices in self._slices.items():
            target = merged.setdefault(number // 2, defaultdict(lambda: [0, 0]))
            for series, counts in slices.items():
                target[series][0] += counts[0]
                target[series][1] += counts[1]
        self._slices = merged
        self.width *= 2

    def as_json(self) -> list[dict[str, Any]]:
        """One object for each slice and series that has requests, in order of time."""
        return [
            {
                "time": (self._start or 0.0) + number * self.width,
                "tenant": tenant,
                "model": model,
                "input_tokens": counts[0],
                "hit_tokens": counts[1],
            }
            for number, slices in sorted(self._slices.items())
            for (tenant, model), counts in sorted(slices.items())
        ]
