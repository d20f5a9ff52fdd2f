"""The opening of a log, from which a better order of its prompts is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefold.analysis.record import Body, Record
from prefold.analysis.traced import TracedPrompt
from prefold.analysis.whatif.standins import Names, is_named, shown, stand_in
from prefold.prompts.logged import Logged
from prefold.prompts.ordering.proposal import Proposal, propose
from prefold.prompts.ordering.variation import analyse

_ORDERED_BYTES = 4_000_000
"""Bodies that are kept."""


class Opening:
    """The first bodies of a log, from which a better order is learned; of a trace, the texts that stand for its ids."""

    def __init__(self) -> None:
        self._records: list[Record] = []  # with a body each
        self._left = _ORDERED_BYTES
        self._is_trace = False

    def add(self, record: Record) -> None:
        """Keep a record while there is room; of traces and texts in one log, those that are what the first one is."""
        if self._left <= 0:
            return
        content = record.content
        is_trace = isinstance(content, TracedPrompt) and is_named(content)
        if not self._records:
            self._is_trace = is_trace
        if is_trace != self._is_trace:
            return
        if isinstance(content, TracedPrompt) and is_trace:
            content = stand_in(content, record.model)
            record = replace(record, content=content)
        if isinstance(content, Body):
            self._left -= len(content.content)
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
        proposal = propose(analyse(logged), logged, Names() if self._is_trace else None)
        return {
            "requests": len(logged),
            "share_before": proposal.share_before,
            "share_after": proposal.share_after,
            "moves": self._moves(proposal),
        }

    def _moves(self, proposal: Proposal) -> list[dict[str, Any]]:
        if not self._is_trace:
            return [
                {"path": span.path, "text": span.text, "to": span.goes_to, "tokens": span.tokens}
                for span in proposal.moves
            ]
        return [
            {"path": str(span.section), "text": shown(span.text), "to": span.goes_to, "tokens": span.tokens}
            for span in proposal.moves_in(Names().size)
        ]
