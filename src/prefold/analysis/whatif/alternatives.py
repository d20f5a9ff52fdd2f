"""What a log would have been if requests had been made in another way.

An alternative changes the requests of a log and nothing else: they come at the same times and get the same answers. So
it says what caches would do with them, not whether the model would answer as well; what changes the words that a model
reads (another order, a shorter history, another model) has to be judged by its answers too. What the provider counted
belongs to what was really sent, so it is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from types import MappingProxyType

from prefold.analysis.record import Blocks, Body, Record
from prefold.analysis.traced import TracedPrompt
from prefold.analysis.whatif.histories import Kept, summarised, truncated
from prefold.analysis.whatif.standins import Names, is_named, restored, stand_in
from prefold.errors import InvalidRequest, UsageError
from prefold.prompts.breakpoints.markers import Form, with_markers
from prefold.prompts.breakpoints.plan import plan_breakpoints, rules_to_plan
from prefold.prompts.canonical.canonicalize import DEFAULT_STEPS, Step, canonicalize
from prefold.prompts.canonical.documents import count_uses
from prefold.prompts.logged import Conversations, Logged
from prefold.prompts.ordering.proposal import propose
from prefold.prompts.ordering.variation import analyse
from prefold.prompts.prompt import Dialect, Prompt
from prefold.prompts.tokens import TokenCounter, counter_for

_MINUTES, _HOUR = 300, 3600
_Edit = Callable[[Record, Prompt], Prompt]


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way in which requests could have been made.

    Attributes:
        text: what it is, one sentence.
        apply: changes a log, given the number behind its name.
        number: that number where none is given; None if it takes none.
    """

    text: str
    apply: Callable[[Iterable[Record], int], Iterator[Record]]
    number: int | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A changed log, which is made anew each time that it is iterated.

    Attributes:
        name: of the alternative.
        records: the log.
    """

    name: str
    records: Iterable[Record]

    def __iter__(self) -> Iterator[Record]:
        """The changed records.

        Raises:
            UsageError: where it changes texts, for the first record without any.
        """
        name, _, number = self.name.partition(":")
        alternative = ALTERNATIVES[name]
        return alternative.apply(self.records, int(number) if number else alternative.number or 0)


def what_if(name: str, records: Iterable[Record]) -> WhatIf:
    """A log as it would have been.

    Args:
        name: a name in `ALTERNATIVES`, with `:N` behind it where it takes a number; or several joined by `+`, done one
            after the other, such as `breakpoints_planned+markers_1h`.
        records: the log. Some alternatives learn from it before they change it, so it must be one that can be iterated
            more than once.

    Raises:
        UsageError: if there is no such alternative, or it takes no such number.
        TypeError: if `records` is an iterator.
    """
    if iter(records) is records:
        raise TypeError("a log is read more than once; give a list or a Log, not an iterator")
    first, *rest = name.split("+")
    known, colon, number = first.partition(":")
    if known not in ALTERNATIVES:
        raise UsageError(f"There is no alternative {first!r}.", hint=f"Known ones: {', '.join(ALTERNATIVES)}.")
    if colon and (ALTERNATIVES[known].number is None or not re.fullmatch(r"0*[1-9]\d{0,5}", number, re.ASCII)):
        takes = f"{known}:{ALTERNATIVES[known].number}" if ALTERNATIVES[known].number else known
        raise UsageError(f"The alternative {first!r} cannot be read.", hint=f"Write it like {takes}.")
    changed = WhatIf(first, records)
    return what_if("+".join(rest), changed) if rest else changed


# ---------------------------------------------------------------------------------------------- changes of each body


def _body(record: Record) -> Body:
    if not isinstance(record.content, Body):
        raise UsageError(f"{record.place} has ids instead of text.", hint="Only requests with text can be changed so.")
    return record.content


def _movable(record: Record) -> Body:
    """The request, or a text for its ids; for changes that move parts of prompts and alter none of them."""
    content = record.content
    return stand_in(content, record.model) if isinstance(content, TracedPrompt) and is_named(content) else _body(record)


def _edited(records: Iterable[Record], edit: _Edit, body_of: Callable[[Record], Body] = _body) -> Iterator[Record]:
    """Records with another prompt each; bodies that cannot be read stay for others to complain of."""
    for record in records:
        body = body_of(record)
        try:
            prompt = edit(record, body.prompt)
        except InvalidRequest:
            yield record
            continue
        content: Body | Blocks = record.content
        if prompt is not body.prompt:
            if isinstance(content, TracedPrompt):
                content = restored(content, prompt)
            else:
                content = Body(prompt.render(), prompt.dialect)
        yield replace(record, content=content, usage=None, ttft=None, miss_reason="")


def _each(edit: Callable[[Prompt], Prompt]) -> Callable[[Iterable[Record], int], Iterator[Record]]:
    return lambda records, _number: _edited(records, lambda _record, prompt: edit(prompt))


def _readable(records: Iterable[Record]) -> Iterator[Logged]:
    for record in records:
        try:
            prompt = _movable(record).prompt
            _ = prompt.segments
        except InvalidRequest:
            continue
        yield Logged(prompt, record.time, record.session)


@dataclass(frozen=True, slots=True)
class _Prompts(Iterable[Logged]):
    """The readable requests of a log, as what proposes an order takes them."""

    records: Iterable[Record]

    def __iter__(self) -> Iterator[Logged]:
        return _readable(self.records)


def _reordered(records: Iterable[Record], _number: int) -> Iterator[Record]:
    log = _Prompts(records)
    is_trace = any(isinstance(record.content, Blocks) for record in islice(records, 1))
    proposal = propose(analyse(log), log, Names() if is_trace else None)
    yield from _edited(records, lambda _record, prompt: proposal.apply(prompt), _movable)


class _Asked(Mapping[str, int]):
    """Notes the documents whose popularity is asked for: those that could be put in order."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def __getitem__(self, identifier: str) -> int:
        self.ids.add(identifier)
        return 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return True


def _ordered_documents(prompt: Prompt, popularity: Mapping[str, int] | None) -> Prompt:
    return canonicalize(prompt, {Step.DOCUMENT_ORDER}, popularity=popularity).prompt


def _document_ids(prompt: Prompt) -> set[str]:
    asked = _Asked()
    _ordered_documents(prompt, asked)
    return asked.ids


def _by_popularity(records: Iterable[Record], _number: int) -> Iterator[Record]:
    uses = count_uses(_document_ids(logged.prompt) for logged in _readable(records))
    yield from _edited(records, lambda _record, prompt: _ordered_documents(prompt, uses), _movable)


def _kept(records: Iterable[Record], _number: int) -> Iterator[Record]:
    kept, conversations = Kept(), Conversations()

    def edit(record: Record, prompt: Prompt) -> Prompt:
        return kept.whole(prompt, conversations.of(Logged(prompt, record.time, record.session)))

    return _edited(records, edit)


def _truncated(records: Iterable[Record], messages: int) -> Iterator[Record]:
    return _edited(records, lambda _record, prompt: truncated(prompt, messages))


def _summarised(records: Iterable[Record], turns: int) -> Iterator[Record]:
    return _edited(records, lambda _record, prompt: summarised(prompt, turns))


# ----------------------------------------------------------------------------------------------- markers, model, salt


def _with_lifetime(prompt: Prompt, ttl: int) -> Prompt:
    """The request with this lifetime on its markers; those of a form without lifetimes stay."""
    form = Form.CACHE_POINT if prompt.dialect is Dialect.BEDROCK else Form.CACHE_CONTROL
    marked = [segment for segment in prompt.segments if segment.marker is not None]
    if marked and not any(isinstance(segment.marker, dict) and "mode" in segment.marker for segment in marked):
        prompt = with_markers(prompt, form, {segment.path: ttl for segment in marked}, _MINUTES)
    automatic = prompt.parameters.get(Form.CACHE_CONTROL.value)
    if isinstance(automatic, dict):
        wanted = {key: value for key, value in automatic.items() if key != "ttl"} | (
            {"ttl": "1h"} if ttl == _HOUR else {}
        )
        if wanted != automatic:
            prompt = prompt.with_value({**prompt.value, Form.CACHE_CONTROL.value: wanted})
    return prompt


def _planned(records: Iterable[Record], _number: int) -> Iterator[Record]:
    counters: dict[str, TokenCounter] = {}

    def edit(record: Record, prompt: Prompt) -> Prompt:
        model = record.model or prompt.model
        if (rules := rules_to_plan(model)) is None:
            return prompt
        if model not in counters:
            counters[model] = counter_for(model)
        return plan_breakpoints(prompt, rules, counter=counters[model]).apply(prompt)

    return _edited(records, edit)


def _one_model(records: Iterable[Record], _number: int) -> Iterator[Record]:
    models = Counter((record.model, record.provider) for record in records)
    for (model, provider), _ in models.most_common(1):
        for record in records:
            if record.model == model:
                yield record
                continue
            content = record.content
            if isinstance(content, Body):
                content = _asking(content, model)
            yield replace(
                record, content=content, model=model, provider=provider, usage=None, ttft=None, miss_reason=""
            )


def _asking(body: Body, model: str) -> Body:
    try:
        prompt = body.prompt
    except InvalidRequest:
        return body
    fields = [field for field in ("model", "modelId") if field in prompt.parameters]
    if not fields:
        return body
    return Body(prompt.with_value({**prompt.value, fields[0]: model}).render(), prompt.dialect)


def _salted(record: Record, prompt: Prompt) -> Prompt:
    if not record.tenant or prompt.document is None:
        return prompt
    salt = sha256(record.tenant.encode(errors="surrogatepass")).hexdigest()[:16]  # a tenant may hold any character
    return prompt.with_value({**prompt.value, "cache_salt": salt})


ALTERNATIVES: Mapping[str, Alternative] = MappingProxyType(
    {
        "canonicalised": Alternative(
            "Requests that mean the same are written the same: keys, tools, numbers and spaces.",
            _each(lambda prompt: canonicalize(prompt, DEFAULT_STEPS).prompt),
        ),
        "reordered": Alternative(
            "Each prompt is in the order that `prefold order` proposes: what never changes first.", _reordered
        ),
        "documents_by_id": Alternative(
            "Retrieved documents that stand next to each other are sorted by id.",
            lambda records, _number: _edited(
                records, lambda _record, prompt: _ordered_documents(prompt, None), _movable
            ),
        ),
        "documents_by_popularity": Alternative(
            "Retrieved documents that stand next to each other come in order of how many requests have them.",
            _by_popularity,
        ),
        "history_kept": Alternative("No message of a conversation is ever dropped.", _kept),
        "history_truncated": Alternative("Only the newest N messages of a conversation are sent.", _truncated, 10),
        "history_summarised": Alternative("The history is replaced by a summary every N turns.", _summarised, 10),
        "markers_5m": Alternative(
            "Cache markers ask for 5 minutes.", _each(lambda prompt: _with_lifetime(prompt, _MINUTES))
        ),
        "markers_1h": Alternative("Cache markers ask for 1 hour.", _each(lambda prompt: _with_lifetime(prompt, _HOUR))),
        "breakpoints_planned": Alternative(
            "Each request has the cache markers that `prefold breakpoints` plans for it.", _planned
        ),
        "one_model": Alternative("All requests go to the model that most of them go to.", _one_model),
        "salts_by_tenant": Alternative(
            "Tenants share nothing: each has a cache salt of its own.",
            lambda records, _number: _edited(records, _salted),
        ),
    }
)
"""Every alternative by the name that options use."""
