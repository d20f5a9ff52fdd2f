"""From a record of a log to the request that caches see.

A log repeats itself: each turn of a conversation sends all turns before it. So a body is not read as a whole where that
can be helped: it is cut into its messages without reading them, and each distinct message is parsed and tokenised once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any, Protocol

from prefold.analysis.caches.resolve import rules_of_request
from prefold.analysis.encoding.bodies import BodyReader
from prefold.analysis.encoding.parts import Part, Texts
from prefold.analysis.encoding.settings import setting_fields, with_settings
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.analysis.request import Marker, Request
from prefold.analysis.traced import TracedPrompt
from prefold.core.tokens import count
from prefold.errors import InvalidRequest
from prefold.prompts.breakpoints.markers import entries_asked
from prefold.prompts.breakpoints.positions import numbered
from prefold.prompts.prompt import Dialect
from prefold.prompts.tokens import counter_for
from prefold.providers.rules import Control, rules_for

BLOCK_IDS = "ids of the log"
"""What counts the tokens of a trace of blocks."""

_REMEMBERED_TEXTS = 8 * 1024 * 1024  # bytes, for each tokenizer
_REMEMBERED_MESSAGES = 32 * 1024 * 1024  # bytes, for each tokenizer and dialect
_MOST_MODELS = 1_000  # then they are looked up anew
_ANSWER_HEADERS = {Dialect.GEMINI: "\n<|model|>\n", Dialect.COMPLETION: ""}


class Encoder:
    """Turns records into requests, in the order of the log. Remembers, within bounds, what it has encoded.

    Args:
        tokenizer: as in `counter_for`; None for each model's own.
        isolate_tenants: whether each tenant is kept apart as if it sent a salt.

    Attributes:
        counters: requests by the name of what counted their tokens.
        is_exact: whether all of them were counted exactly.
    """

    def __init__(self, *, tokenizer: str | None = None, isolate_tenants: bool = False) -> None:
        self.counters: Counter[str] = Counter()
        self.is_exact = True
        self._tokenizer = tokenizer
        self._isolate_tenants = isolate_tenants
        self._time: float | None = None
        self._texts_by_counter: dict[str, Texts] = {}
        self._texts_by_model: dict[str, Texts] = {}
        self._implicit: dict[tuple[str, str], bool] = {}
        self._bodies = BodyReader(_REMEMBERED_MESSAGES)

    def encode(self, record: Record) -> Request:
        """The request of a record.

        Its time is never before that of the record before it, and that of the record before it where there is none;
        0 before any. Its answer, if it has a text, begins as the message would that sends it back.

        Raises:
            InvalidRequest: if the record's body is none.
            UsageError, ModelError, MissingExtra: as `counter_for`.
        """
        before = self._time
        time = (before or 0.0) if record.time is None else record.time
        self._time = time = time if before is None else max(before, time)
        if isinstance(record.content, Blocks):
            return self._of_blocks(record, record.content, time)
        return self._of_body(record, record.content, time)

    def _of_blocks(self, record: Record, blocks: Blocks, time: float) -> Request:
        self.counters[BLOCK_IDS] += 1
        answer = record.answer
        same_kind = isinstance(answer, Blocks) and answer.block_tokens == blocks.block_tokens
        request = Request(
            run=blocks.run,
            unit=blocks.block_tokens,
            tokens=blocks.tokens,
            time=time,
            record=record,
            salt=self._salt(record, None),
            output=answer.run if isinstance(answer, Blocks) and same_kind else b"",
            output_tokens=_output_tokens(record, answer.tokens if isinstance(answer, Blocks) else 0),
        )
        return blocks.completed(request) if isinstance(blocks, TracedPrompt) else request

    def _of_body(self, record: Record, body: Body, time: float) -> Request:
        texts = self._texts(record.model)
        form = self._bodies.read(body, texts, record.session)
        if not record.model and form.model:
            texts = self._texts(form.model)
            form = self._bodies.read(body, texts, record.session)
        self.counters[texts.counter.name] += 1
        self.is_exact = self.is_exact and texts.counter.is_exact
        part = form.part
        ends = tuple(accumulate(part.lengths))
        asked = entries_asked(part.markers, len(ends), form.parameters, None, is_implicit=self._is_implicit(record))
        output = b""
        if isinstance(record.answer, str) and record.answer:
            header = _ANSWER_HEADERS.get(form.dialect, "\n<|assistant|>\n")
            output = texts.run(header) + texts.run(record.answer)
        request = Request(
            run=part.run,
            unit=1,
            tokens=count(part.run),
            time=time,
            record=record,
            ends=ends,
            positions=_positions(part),
            markers=tuple(Marker(ends[index], ttl) for index, ttl in asked),
            system_end=part.system_units,
            salt=self._salt(record, form.parameters.get("cache_salt")),
            output=output,
            output_tokens=_output_tokens(record, count(output)),
        )
        if form.parameters.keys().isdisjoint(setting_fields()):
            return request
        return replace(request, run=with_settings(request.run, part, form.parameters, rules_of_request(request)))

    def _texts(self, model: str) -> Texts:
        """What encodes texts for a model; models with one tokenizer share it."""
        texts = self._texts_by_model.get(model)
        if texts is None:
            if len(self._texts_by_model) == _MOST_MODELS:
                self._texts_by_model.clear()
            counter = counter_for(model, self._tokenizer)
            texts = self._texts_by_counter.setdefault(counter.name, Texts(counter, _REMEMBERED_TEXTS))
            self._texts_by_model[model] = texts
        return texts

    def _is_implicit(self, record: Record) -> bool:
        """Whether the cache that the record's model has ends an entry with each request unasked."""
        key = record.provider, record.model
        known = self._implicit.get(key)
        if known is None:
            if len(self._implicit) == _MOST_MODELS:
                self._implicit.clear()
            rules = rules_for(record.model) if record.model else None
            known = self._implicit[key] = rules is not None and rules.control is Control.BREAKPOINT
        return known

    def _salt(self, record: Record, sent: Any) -> str | None:
        salt = sent if isinstance(sent, str) and sent else None
        if not self._isolate_tenants or not record.tenant:
            return salt
        return record.tenant if salt is None else f"{record.tenant}:{salt}"


class Refusing(Protocol):
    """What wants to know of records whose body turned out to be none; a log does."""

    def refuse(self, place: Place, problem: str) -> None:
        """Count the record as a bad line; raises `InvalidRequest` where none are allowed."""


def encoded(records: Iterable[Record], encoder: Encoder, log: Refusing | None) -> Iterator[Request]:
    """The requests of records, but for those whose body is none.

    Args:
        records: in the order of the log.
        encoder: encodes them.
        log: is told of bodies that are none; None to stop at the first.

    Raises:
        InvalidRequest: as `Encoder.encode` or `Refusing.refuse`.
        UsageError, ModelError, MissingExtra: as `Encoder.encode`.
    """
    for record in records:
        try:
            request = encoder.encode(record)
        except InvalidRequest as error:
            if log is None:
                raise
            log.refuse(record.place, error.message)
            continue
        yield request


def _positions(part: Part) -> tuple[int, ...]:
    """The number of each segment's position; none where each segment is one."""
    runs = dict(part.runs)
    return numbered(map(runs.get, range(len(part.lengths)))) if runs else ()


def _output_tokens(record: Record, counted: int) -> int:
    if record.output_tokens is not None:
        return record.output_tokens
    return record.usage.output if record.usage is not None and record.usage.output else counted
