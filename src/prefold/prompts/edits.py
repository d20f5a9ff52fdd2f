"""Edits of request bodies that every dialect spells in its own way; all are functional, and share what stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefold.prompts.dialects import ANSWERING_ROLES, MARKERS
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect


def message_field(dialect: Dialect) -> str:
    """Name of the field that holds the messages."""
    return {Dialect.RESPONSES: "input", Dialect.GEMINI: "contents"}.get(dialect, "messages")


def text_block(text: str, dialect: Dialect) -> dict[str, Any]:
    """A text as a block of a user's message."""
    match dialect:
        case Dialect.GEMINI | Dialect.BEDROCK:
            return {"text": text}
        case Dialect.RESPONSES:
            return {"type": "input_text", "text": text}
        case _:
            return {"type": "text", "text": text}


def with_text_behind(value: Any, dialect: Dialect, text: str) -> Any:
    """The body with a text behind the user's newest words, or behind the tool results that came after them.

    Returns:
        `value` itself if there is no user message.
    """
    name = message_field(dialect)
    messages = value.get(name)
    if isinstance(messages, str):
        return {**value, name: f"{messages}\n\n{text}"}
    if not isinstance(messages, list):
        return value
    users = [index for index, message in enumerate(messages) if _role(message) == "user"]
    if not users:
        return value
    if users[-1] == len(messages) - 1 or _role(messages[-1]) in ANSWERING_ROLES:
        changed = list(messages)
        changed[users[-1]] = _message_with(messages[users[-1]], dialect, text)
        return {**value, name: changed}
    return {**value, name: [*messages, _message_of(dialect, text)]}


def without_element(value: Any, path: Path) -> Any:
    """The body without the block or message that a text is of; its cache marker goes to the block before.

    Returns:
        None if there is no list that could be shortened, or if it would be empty.
    """
    element = element_of(path)
    if element is None:
        return None
    items = list(element.parent.get(value))
    place = int(element.steps[-1])
    removed = items.pop(place)
    if place == 0 and items and isinstance(items[0], Mapping) and items[0].keys() == {"cachePoint"}:
        items.pop(0)  # it would mark nothing
    if not items:
        return None
    if place and isinstance(removed, Mapping) and isinstance(before := items[place - 1], Mapping):
        markers = {key: removed[key] for key in MARKERS if key in removed}
        if markers and not any(key in before for key in MARKERS):
            items[place - 1] = {**before, **markers}
    return element.parent.set(value, items)


def element_of(path: Path) -> Path | None:
    """The item of a list that a path leads through last: a block or a message."""
    for length in range(len(path.steps), 0, -1):
        if isinstance(path.steps[length - 1], int):
            return Path(path.steps[:length])
    return None


def _role(message: Any) -> str:
    """Whose words a message is; Gemini's may leave it out, or be a text."""
    if isinstance(message, str):
        return "user"
    if "role" in message:
        return str(message["role"])
    return "user" if "parts" in message else "tool"  # a call or its output in the Responses API


def _message_with(message: Any, dialect: Dialect, text: str) -> Any:
    if isinstance(message, str):
        return f"{message}\n\n{text}"
    name = "parts" if dialect is Dialect.GEMINI else "content"
    content = message.get(name)
    if isinstance(content, str):
        return {**message, name: f"{content}\n\n{text}"}
    return {**message, name: [*(content or []), text_block(text, dialect)]}


def _message_of(dialect: Dialect, text: str) -> dict[str, Any]:
    if dialect is Dialect.GEMINI:
        return {"role": "user", "parts": [text_block(text, dialect)]}
    return {"role": "user", "content": [text_block(text, dialect)] if dialect is Dialect.BEDROCK else text}
