"""Prompts put together so that their prefix stays.

Each part is given with its stability, and the builder finds its place: what changes least comes first. Tools stand in
front, sorted by name; then the system's texts and standing documents, from static to session; then the messages, whose
order is never touched. What belongs to one request alone goes into the newest user message, so that a clock or a
retrieved passage breaks nothing in front of it: passages before the question, other words after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any
from uuid import UUID
from xml.sax.saxutils import quoteattr

from prefold.errors import InvalidRequest
from prefold.prompts.canonical.documents import order_documents
from prefold.prompts.canonical.sorting import content_rank
from prefold.prompts.canonical.values import canonical_json, plain
from prefold.prompts.dialects import SYSTEM_ROLES, tool_name
from prefold.prompts.edits import message_field, text_block
from prefold.prompts.liveness import find_live
from prefold.prompts.ordering.expectation import value_stability
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect, Prompt, Segment, Stability
from prefold.prompts.volatile import Kind


@dataclass(frozen=True)
class BuiltPrompt(Prompt):
    """A prompt that knows how stable its parts are, because a builder was told.

    Attributes:
        stabilities: of parts and messages, by their paths.
    """

    stabilities: Mapping[Path, Stability] = field(default_factory=dict)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Its parts, with the stability that each was given."""
        return tuple(replace(segment, stability=self._stability_of(segment)) for segment in super().segments)

    def _stability_of(self, segment: Segment) -> Stability:
        for path in (segment.path, segment.message):
            if path is not None and path in self.stabilities:
                return self.stabilities[path]
        return segment.stability


@dataclass(frozen=True, slots=True)
class _Tool:
    definition: dict[str, Any]
    stability: Stability


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of the system, or a document; `document` is its id."""

    text: str
    stability: Stability
    document: str | None = None


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    content: str | list[Any]
    stability: Stability | None


@dataclass(frozen=True, slots=True)
class PromptBuilder:
    """Parts of a prompt. Each method gives a new builder, so one with the shared parts serves for many requests.

    Attributes:
        popularity: in how many requests each document is, from `count_uses`; documents of one stability then stand in
            that order instead of that of their ids.

    A static or daily part that holds the clock, or an id of a request, is refused with the span and what to do. Give
    `fixed=True` for one that never changes, such as the date of a law.
    """

    popularity: Mapping[str, int] | None = None
    _tools: tuple[_Tool, ...] = ()
    _texts: tuple[_Text, ...] = ()
    _messages: tuple[_Message, ...] = ()

    def tool(
        self, definition: Mapping[str, Any], stability: Stability | str = Stability.STATIC, *, fixed: bool = False
    ) -> PromptBuilder:
        """Add a tool, defined as the dialect wants it.

        Raises:
            InvalidRequest: if it changes more often than its stability says, or cannot be written as JSON.
        """
        level = _level(stability)
        value = plain(definition)
        if not isinstance(value, dict):
            raise InvalidRequest("A tool's definition is not an object.", hint="Give a dictionary with its name.")
        if not fixed:
            name = f"tool {tool_name(value)}"
            _refuse_live_object(definition, level, name)
            _refuse_live_text(canonical_json(definition), level, name)
        return replace(self, _tools=(*self._tools, _Tool(value, level)))

    def system(
        self, content: Any, stability: Stability | str = Stability.STATIC, *, fixed: bool = False
    ) -> PromptBuilder:
        """Add a text of the system. A value that is no text is written as canonical JSON.

        Raises:
            InvalidRequest: if it changes more often than its stability says, or cannot be written as JSON.
        """
        level = _level(stability)
        value = plain(content)
        text = value if isinstance(value, str) else canonical_json(content)
        if not fixed:
            _refuse_live_object(content, level, "system text")
            _refuse_live_text(text, level, "system text")
        return replace(self, _texts=(*self._texts, _Text(text, level)))

    def document(self, identifier: str, text: str, stability: Stability | str = Stability.REQUEST) -> PromptBuilder:
        """Add a document; its dates and ids are its own and not looked at."""
        element = f"<document id={quoteattr(identifier)}>\n{text}\n</document>"
        return replace(self, _texts=(*self._texts, _Text(element, _level(stability), identifier)))

    def message(
        self,
        role: str,
        content: str | Sequence[Any],
        stability: Stability | str | None = None,
        *,
        fixed: bool = False,
    ) -> PromptBuilder:
        """Add a message of the conversation, or of an example that goes before it.

        Args:
            role: `user`, `assistant` or, where the dialect has it, `tool`.
            content: its text, or its blocks as the dialect wants them.
            stability: `static` for examples; None for the usual: session up to the last answer, request after it.
            fixed: see the class.

        Raises:
            InvalidRequest: if it changes more often than its stability says, comes behind a message that changes more
                often, or has a role of the system's.
        """
        if role in SYSTEM_ROLES:
            raise InvalidRequest(f"A message has the role {role}.", hint="Add it with system(), which finds its place.")
        level = None if stability is None else _level(stability)
        value = content if isinstance(content, str) else plain(content)
        if level is not None and not fixed:
            _refuse_live_text(value if isinstance(value, str) else canonical_json(value), level, f"{role} message")
        messages = (*self._messages, _Message(role, value, level))
        declared = [message.stability for message in messages if message.stability is not None]
        for before, after in pairwise(declared):
            if after.rank < before.rank:
                raise InvalidRequest(
                    f"A {after} message comes behind a {before} one.",
                    hint=f"Messages keep their order, so add it earlier, or give it stability={before.value!r}.",
                )
        return replace(self, _messages=messages)

    def build(self, dialect: Dialect | str, *, model: str = "", **parameters: Any) -> BuiltPrompt:
        """The prompt, with its parts in order.

        Args:
            dialect: the form of the request.
            model: the model, where the body names it.
            parameters: all other fields of the body.

        Raises:
            InvalidRequest: for an unknown dialect, or a part that the dialect has no place for.
        """
        dialect = Dialect.named(dialect)
        draft = _Draft({"modelId" if dialect is Dialect.BEDROCK else "model": model} if model else {}, {})
        tools = sorted(self._tools, key=_tool_rank)
        _add_tools(draft, dialect, tools)
        if dialect is Dialect.COMPLETION:
            texts = [part.text for part in self._standing_texts()]
            draft.body["prompt"] = "\n\n".join([*texts, *map(_text_of, self._conversation(dialect))])
        else:
            _add_system(draft, dialect, self._standing_texts())
            _add_messages(draft, dialect, self._conversation(dialect))
        value = {**draft.body, **plain(parameters)}
        document = Prompt.of(value, dialect).document
        return BuiltPrompt(dialect, document, stabilities=MappingProxyType(draft.stabilities))

    def _standing_texts(self) -> list[_Text]:
        """What stands in front of the messages, in order."""
        return [text for stability in list(Stability)[:-1] for text in self._texts_of(stability)]

    def _texts_of(self, stability: Stability) -> list[_Text]:
        return [*self._plain_texts_of(stability), *self._documents_of(stability)]

    def _plain_texts_of(self, stability: Stability) -> list[_Text]:
        return [text for text in self._texts if text.stability is stability and text.document is None]

    def _documents_of(self, stability: Stability) -> list[_Text]:
        documents = [text for text in self._texts if text.stability is stability and text.document is not None]
        documents.sort(key=lambda document: document.text)  # those of one id
        return order_documents(documents, popularity=self.popularity, id_of=lambda text: text.document or "")

    def _conversation(self, dialect: Dialect) -> list[_Message]:
        """The messages, with what belongs to this request in the newest one of the user's."""
        before, after = self._documents_of(Stability.REQUEST), self._plain_texts_of(Stability.REQUEST)
        messages = list(self._messages)
        if not before and not after:
            return messages
        newest = next((index for index in reversed(range(len(messages))) if messages[index].role == "user"), None)
        if newest is None:
            newest = len(messages)
            messages.append(_Message("user", [], None))
        message = messages[newest]
        content = [text_block(message.content, dialect)] if isinstance(message.content, str) else message.content
        words = [[text_block(part.text, dialect) for part in parts] for parts in (before, after)]
        content = [*words[0], *content, *words[1]]
        messages[newest] = _Message(message.role, content, Stability.REQUEST)
        return messages


@dataclass(frozen=True, slots=True)
class _Draft:
    """A body that is being written."""

    body: dict[str, Any]
    stabilities: dict[Path, Stability]


def _tool_rank(tool: _Tool) -> tuple[int, str, str, str]:
    return tool.stability.rank, tool_name(tool.definition), *content_rank(tool.definition)


def _add_tools(draft: _Draft, dialect: Dialect, tools: list[_Tool]) -> None:
    if not tools:
        return
    definitions = [tool.definition for tool in tools]
    place = Path.of("tools")
    match dialect:
        case Dialect.COMPLETION:
            raise InvalidRequest("A completion has no tools.", hint="Describe them in a system text.", param="tools")
        case Dialect.GEMINI:
            functions = [tool for tool in tools if "name" in tool.definition]
            others = [tool for tool in tools if "name" not in tool.definition]
            tools = functions
            place = place / 0 / "functionDeclarations"
            declared = [{"functionDeclarations": [tool.definition for tool in functions]}] if functions else []
            draft.body["tools"] = [*declared, *(tool.definition for tool in others)]
        case Dialect.BEDROCK:
            place = Path.of("toolConfig", "tools")
            draft.body["toolConfig"] = {"tools": definitions}
        case _:
            draft.body["tools"] = definitions
    draft.stabilities.update({place / index: tool.stability for index, tool in enumerate(tools)})


def _add_system(draft: _Draft, dialect: Dialect, texts: list[_Text]) -> None:
    blocks = [text_block(part.text, dialect) for part in texts]
    match dialect:
        case Dialect.OPENAI | Dialect.RESPONSES:
            field_name = message_field(dialect)
            role = "system" if dialect is Dialect.OPENAI else "developer"
            # One text as a text: not every server that speaks this dialect takes a list.
            content = texts[0].text if len(texts) == 1 else blocks
            draft.body[field_name] = [{"role": role, "content": content}] if texts else []
            place = Path.of(field_name, 0)
            places = [place] if len(texts) == 1 else [place / "content" / index for index in range(len(texts))]
        case Dialect.GEMINI:
            if texts:
                draft.body["systemInstruction"] = {"parts": blocks}
            places = [Path.of("systemInstruction", "parts", index) for index in range(len(texts))]
        case _:
            if texts:
                draft.body["system"] = blocks
            places = [Path.of("system", index) for index in range(len(texts))]
    draft.stabilities.update({place: part.stability for place, part in zip(places, texts, strict=True)})


def _add_messages(draft: _Draft, dialect: Dialect, messages: list[_Message]) -> None:
    field_name = message_field(dialect)
    written = draft.body.setdefault(field_name, [])
    for message in messages:
        if message.stability is not None:
            draft.stabilities[Path.of(field_name, len(written))] = message.stability
        written.append(_written(message, dialect))


def _written(message: _Message, dialect: Dialect) -> dict[str, Any]:
    content = message.content
    match dialect:
        case Dialect.GEMINI:
            role = "model" if message.role == "assistant" else message.role
            return {"role": role, "parts": [{"text": content}] if isinstance(content, str) else content}
        case Dialect.BEDROCK:
            return {"role": message.role, "content": [{"text": content}] if isinstance(content, str) else content}
        case _:
            return {"role": message.role, "content": content}


def _text_of(message: _Message) -> str:
    if isinstance(message.content, str):
        return message.content
    texts = [block.get("text") for block in message.content if isinstance(block, dict)]
    if len(texts) != len(message.content) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("A completion has no content but text.", hint="Give messages as texts.")
    return "\n\n".join(map(str, texts))


# What changes more often than it was said to

_PLACES = frozenset({Kind.USER_PATH, Kind.ADDRESS})
"""What an application may name all its life."""


def _level(stability: Stability | str) -> Stability:
    try:
        return Stability(stability)
    except ValueError:
        known = ", ".join(Stability)
        raise InvalidRequest(f"There is no stability {stability!r}.", hint=f"Give one of {known}.") from None


def _refuse_live_text(text: str, level: Stability, name: str) -> None:
    if level.rank > Stability.DAILY.rank:
        return
    for found in find_live(text):
        if found.kind not in _PLACES:
            right = value_stability(text, found)
            if right.rank > level.rank:
                raise _refusal(f"{text[found.start : found.end]!r} at character {found.start}", right, level, name)


def _refuse_live_object(value: Any, level: Stability, name: str) -> None:
    """Refuse dates and UUIDs that are objects yet: a program has just made them."""
    if level.rank > Stability.DAILY.rank:
        return
    for found in _objects(value):
        is_day = isinstance(found, date) and type(found) is date
        if not (is_day and level is Stability.DAILY):
            right = Stability.DAILY if is_day else Stability.REQUEST
            raise _refusal(f"the {type(found).__name__} {found}", right, level, name)


def _objects(value: Any) -> Iterator[date | UUID]:
    if isinstance(value, date | UUID):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _objects(item)
    elif isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        for item in value:
            yield from _objects(item)


def _refusal(found: str, right: Stability, level: Stability, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"The {level} {name} holds {found}, which changes and ends the shared prefix there.",
        hint=f"Give that part stability={right.value!r}, or fixed=True if it never changes.",
    )
