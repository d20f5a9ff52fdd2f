"""Bodies for prompts that a log keeps in another form: a list of messages, the parts of a span, a plain text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from prefold.analysis.logs.bodies import holds_prompt
from prefold.analysis.logs.values import dumped, loaded
from prefold.analysis.record import Body
from prefold.errors import InvalidRequest
from prefold.prompts.dialects import recognise
from prefold.prompts.prompt import Dialect

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
"""Roles by the types of LangChain's messages."""


def body_of(prompt: object, model: str = "", *, tools: object = None) -> Body:
    """The body that asks for what a log calls a prompt.

    Args:
        prompt: a body, a list of messages, or either as the text of JSON; any other text is the prompt itself.
        model: put into a body that names none.
        tools: definitions of tools, put into a body that has none.

    Raises:
        InvalidRequest: if it is none of these.
    """
    if isinstance(prompt, str) and prompt.lstrip()[:1] in ("{", "["):
        with suppress(InvalidRequest):  # words that only look like JSON
            prompt = loaded(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(message, dict) for message in prompt):
        prompt = {"messages": [_message(message) for message in prompt]}
    if isinstance(prompt, str) and prompt:
        return Body(dumped({**_named(model), "prompt": prompt}), Dialect.COMPLETION)
    if not isinstance(prompt, dict) or not holds_prompt(prompt):
        raise InvalidRequest("The record holds no prompt.", hint="Have the tool that wrote the log keep prompts.")
    body = dict(prompt) if prompt.get("model") else {**_named(model), **prompt}
    if isinstance(tools, list) and tools and "tools" not in body:
        body["tools"] = tools
    return Body(dumped(body), recognise(body))


def _named(model: str) -> dict[str, str]:
    return {"model": model} if model else {}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with a role; what is null in it, as in rows of tables, is left out."""
    kept = {field: value for field, value in message.items() if value is not None}
    if "role" not in kept and kept.get("type") in _ROLES:
        kept["role"] = _ROLES[kept.pop("type")]
    return kept


def value_of(value: object) -> Any:
    """A value that may be the text of a JSON object or list, as some exports write them; else the value itself."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return loaded(value)
        except InvalidRequest:
            return value
    return value


def object_of(value: object) -> dict[str, Any]:
    """A value that must be an object, or the text of one; empty where it is none."""
    value = value_of(value)
    return value if isinstance(value, dict) else {}
