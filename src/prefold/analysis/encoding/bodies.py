"""Bodies of requests, cut into parts that were read before and parts that were not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from prefold.analysis.encoding.memo import Memo
from prefold.analysis.encoding.parts import Part, Texts, joined
from prefold.analysis.encoding.settings import setting_fields
from prefold.analysis.record import Body
from prefold.errors import InvalidRequest
from prefold.prompts.dialects import SYSTEM_ROLES, read_segments
from prefold.prompts.prompt import Dialect, Section

# Fields that are read into segments, in the order in which the model reads them; the last is the list of messages.
_FIELDS: Mapping[Dialect, tuple[str, ...]] = MappingProxyType(
    {
        Dialect.ANTHROPIC: ("tools", "system", "messages"),
        Dialect.OPENAI: ("tools", "functions", "messages"),
        Dialect.RESPONSES: ("tools", "instructions", "input"),
        Dialect.GEMINI: ("tools", "systemInstruction", "system_instruction", "contents"),
        Dialect.BEDROCK: ("toolConfig", "system", "messages"),
    }
)
CONTENT_FIELDS = frozenset({"prompt", *chain.from_iterable(_FIELDS.values())})
"""Fields that hold what is said, in any dialect."""
_LEADING = "leading messages"
_PARAMETERS = ("model", "modelId", "cache_salt", "cache_control", "prompt_cache_options")
_FIRST_MESSAGE = {"role": "user"}  # behind it no message belongs to the system section


@dataclass(frozen=True, slots=True)
class Form:
    """What a body says.

    Attributes:
        dialect: its form.
        part: all of its segments.
        parameters: some of its other fields: those that decide what is cached.
    """

    dialect: Dialect
    part: Part
    parameters: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The model asked for; empty if the body does not say."""
        name = self.parameters.get("model") or self.parameters.get("modelId") or ""
        return name if isinstance(name, str) else ""


class _Unusual(Exception):
    """A body that is not cut into parts."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A message, encoded; and whether a system message behind it still belongs to the system section."""

    part: Part
    is_leading: bool


class _PlainMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message that is one text, as most are: it is one segment."""

    role: Annotated[str, msgspec.Meta(min_length=1)]
    content: str


class BodyReader:
    """Reads bodies, each distinct part of them once.

    Args:
        capacity: bytes that are remembered of each field, for each tokenizer and dialect.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._parameters = (*_PARAMETERS, *setting_fields())
        self._memos: dict[tuple[str, Dialect, str], Memo[int, _Message]] = {}
        self._plain = msgspec.json.Decoder(_PlainMessage).decode
        self._fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        self._items = msgspec.json.Decoder(list[msgspec.Raw]).decode

    def read(self, body: Body, texts: Texts) -> Form:
        """What a body says, by the same rules as `Prompt`.

        Raises:
            InvalidRequest: as `Prompt.parse` and `Prompt.segments`.
        """
        if body.dialect is not None and body.dialect in _FIELDS:
            try:
                return self._in_parts(body.content, body.dialect, texts)
            except (msgspec.MsgspecError, ValueError, RecursionError, InvalidRequest):
                pass  # the general reader takes it, or says what is wrong and where
        prompt = body.prompt
        return Form(prompt.dialect, texts.part(prompt.segments), prompt.parameters)

    def _in_parts(self, content: bytes, dialect: Dialect, texts: Texts) -> Form:
        fields = self._fields(content)
        *fixed, messages = _FIELDS[dialect]
        parts = [self._field(name, bytes(fields[name]), dialect, texts) for name in fixed if name in fields]
        if (raw := fields.get(messages)) is not None:
            parts += self._messages(messages, raw, dialect, texts)
        parameters = {name: msgspec.json.decode(fields[name]) for name in self._parameters if name in fields}
        return Form(dialect, joined(parts), parameters)

    def _field(self, name: str, raw: bytes, dialect: Dialect, texts: Texts) -> Part:
        memo = self._memo(texts, dialect, name)
        known = memo.get(hash(raw))
        if known is None:
            part = texts.part(read_segments({name: json.loads(raw)}, dialect), remember=False)
            known = _Message(part, False)
            memo.put(hash(raw), known)
        return known.part

    def _messages(self, name: str, raw: msgspec.Raw, dialect: Dialect, texts: Texts) -> Iterator[Part]:
        is_leading = True
        memo = self._memo(texts, dialect, _LEADING)
        for item in self._items(raw):
            content = bytes(item)
            known = memo.get(hash(content))
            if known is None:
                known = self._message(name, content, dialect, texts, is_leading)
                memo.put(hash(content), known)
            yield known.part
            if is_leading and not known.is_leading:
                is_leading = False
                memo = self._memo(texts, dialect, name)

    def _message(self, name: str, raw: bytes, dialect: Dialect, texts: Texts, is_leading: bool) -> _Message:
        """A message, behind others that do or do not all belong to the system section."""
        if dialect is not Dialect.GEMINI:
            try:
                plain = self._plain(raw)
            except msgspec.MsgspecError:
                pass  # not as plain as that
            else:
                is_system = is_leading and plain.role in SYSTEM_ROLES
                return _Message(texts.message(plain.role, plain.content, is_system=is_system), is_system)
        before = [] if is_leading else [_FIRST_MESSAGE]
        segments = read_segments({name: [*before, json.loads(raw)]}, dialect)[len(before) :]
        return _Message(texts.part(segments, remember=False), is_leading and segments[0].section is Section.SYSTEM)

    def _memo(self, texts: Texts, dialect: Dialect, name: str) -> Memo[int, _Message]:
        """What is known of one field under one tokenizer, by the hash of its bytes, so that no text is kept.

        Of a million distinct messages two have one hash of 64 bits with a probability of 3 in 100 million.
        """
        key = texts.counter.name, dialect, name
        memo = self._memos.get(key)
        if memo is None:
            memo = self._memos[key] = Memo(self._capacity, lambda _, message: message.part.size)
        return memo
