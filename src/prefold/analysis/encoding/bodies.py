"""Bodies of requests, cut into parts that were read before and parts that were not."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
# What tells conversations apart where the log does not: the first words of the first question.
_QUESTION = b'"user"'
_QUESTION_BYTES = 300


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


@dataclass(frozen=True, slots=True)
class _Message:
    """A message, encoded; and whether a system message behind it still belongs to the system section."""

    part: Part
    is_leading: bool


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages that follow each other, encoded.

    Attributes:
        text: their JSON list up to the end of the last one; a longer list that begins so holds the same messages.
        part: all of them.
        is_leading: whether a system message behind them still belongs to the system section.
    """

    text: bytes
    part: Part
    is_leading: bool


_NO_MESSAGES = _Messages(b"[", joined([]), True)


class _PlainMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message that is one text, as most are: it is one segment."""

    role: Annotated[str, msgspec.Meta(min_length=1)]
    content: str


class BodyReader:
    """Reads bodies, each distinct part of them once.

    Args:
        capacity: bytes that are remembered of each field, for each tokenizer and dialect; and of conversations.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._parameters = frozenset((*_PARAMETERS, *setting_fields()))
        self._memos: dict[tuple[str, Dialect, str], Memo[int, _Message]] = {}
        self._conversations: Memo[int, _Messages] = Memo(
            capacity, lambda _, messages: len(messages.text) + messages.part.size
        )
        self._plain = msgspec.json.Decoder(_PlainMessage).decode
        self._fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        self._items = msgspec.json.Decoder(list[msgspec.Raw]).decode

    def read(self, body: Body, texts: Texts, session: str = "") -> Form:
        """What a body says, by the same rules as `Prompt`.

        Args:
            body: any body.
            texts: encode what it says.
            session: the conversation that it belongs to, if that is known: where to look for one that it goes on from.

        Raises:
            InvalidRequest: as `Prompt.parse` and `Prompt.segments`.
        """
        if body.dialect is not None and body.dialect in _FIELDS:
            try:
                return self._in_parts(body, body.dialect, texts, session)
            except (msgspec.MsgspecError, ValueError, RecursionError, InvalidRequest):
                pass  # the general reader takes it, or says what is wrong and where
        prompt = body.prompt
        return Form(prompt.dialect, texts.part(prompt.segments), prompt.parameters)

    def _in_parts(self, body: Body, dialect: Dialect, texts: Texts, session: str) -> Form:
        fields = self._fields(body.content) if body.fields is None else body.fields
        *fixed, messages = _FIELDS[dialect]
        parts = [self._field(name, bytes(fields[name]), dialect, texts) for name in fixed if name in fields]
        if (raw := fields.get(messages)) is not None:
            parts.append(self._messages(messages, raw, dialect, texts, session))
        parameters = {name: msgspec.json.decode(raw) for name, raw in fields.items() if name in self._parameters}
        return Form(dialect, joined(parts), parameters)

    def _field(self, name: str, raw: bytes, dialect: Dialect, texts: Texts) -> Part:
        memo = self._memo(texts, dialect, name)
        known = memo.get(hash(raw))
        if known is None:
            part = texts.part(read_segments({name: json.loads(raw)}, dialect), remember=False)
            known = _Message(part, False)
            memo.put(hash(raw), known)
        return known.part

    def _messages(self, name: str, raw: msgspec.Raw, dialect: Dialect, texts: Texts, session: str) -> Part:
        """A list of messages; where it goes on from a list that was read before, only what is new in it is read."""
        text = bytes(memoryview(raw)[:-1]).rstrip()  # without the closing bracket
        conversation = hash((texts.counter.name, dialect, session or text[: text.find(_QUESTION) + _QUESTION_BYTES]))
        before = self._conversations.get(conversation)
        if before is not None and text.startswith(before.text):
            # The 0 stands for all messages before, so that what is left is a list again.
            _, *items = self._items(b"".join((b"[0", text[len(before.text) :], b"]")))
        else:
            before = _NO_MESSAGES
            items = self._items(raw)
        parts, is_leading = [before.part], before.is_leading
        memo = self._memo(texts, dialect, _LEADING if is_leading else name)
        for item in items:
            content = bytes(item)
            message = memo.get(hash(content))
            if message is None:
                message = self._message(name, content, dialect, texts, is_leading)
                memo.put(hash(content), message)
            parts.append(message.part)
            if is_leading and not message.is_leading:
                is_leading = False
                memo = self._memo(texts, dialect, name)
        part = joined(parts)
        if text.endswith(b"}"):  # only the end of an object cannot also be the middle of something longer
            self._conversations.put(conversation, _Messages(text, part, is_leading))
        return part

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
