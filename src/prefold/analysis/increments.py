"""What one request adds to an attribution."""

from __future__ import annotations

from dataclasses import replace

from prefold.analysis.attribution import Attribution, Row
from prefold.analysis.caches.base import Served
from prefold.analysis.request import Request

_Key = tuple[str, str, str]


class Increments:
    """An attribution that also says what became of each request.

    Args:
        attribution: runs along.
    """

    def __init__(self, attribution: Attribution) -> None:
        self.attribution = attribution
        self._before: dict[_Key, Row] = {}

    def add(self, request: Request, served: Served) -> list[Row]:
        """Attribute a request; returns the rows that grew, with what they grew by."""
        self.attribution.add(request, served)
        now: dict[_Key, Row] = {(row.reason, row.cause, row.path): row for row in self.attribution.rows()}
        grown = [
            replace(row, tokens=row.tokens - before.tokens, requests=1) if before else row
            for key, row in now.items()
            if row.tokens and (before := self._before.get(key)) != row
        ]
        self._before = now
        return grown
