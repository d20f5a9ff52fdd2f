"""The opening of a log, from which a better order of its prompts is learned."""

from __future__ import annotations

from typing import Any

from prefold.analysis.record import Body, Record
from prefold.prompts.logged import Logged
from prefold.prompts.ordering.proposal import propose
from prefold.prompts.ordering.variation import analyse

_ORDERED_BYTES = 4_000_000
"""Bodies that are kept."""


class Opening:
    """The first bodies of a log, from which a better order is learned."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._left = _ORDERED_BYTES

    def add(self, record: Record) -> None:
        """Keep a record while there is room."""
        if isinstance(record.content, Body) and self._left > 0:
            self._left -= len(record.content.content)
            self._records.append(record)

    def as_json(self) -> dict[str, Any] | None:
        """The proposed order; None for a log without content."""
        if not self._records:
            return None
        logged = [
            Logged(record.content.prompt, record.time, record.session, record.usage)
            for record in self._records
            if isinstance(record.content, Body)
        ]
        proposal = propose(analyse(logged), logged)
        return {
            "requests": len(self._records),
            "share_before": proposal.share_before,
            "share_after": proposal.share_after,
            "moves": [
                {"path": span.path, "text": span.text, "to": span.goes_to, "tokens": span.tokens}
                for span in proposal.moves
            ],
        }
