"""A whole answer of OpenAI's chat completions as a message of Anthropic's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from prefold.gateway.translate import usage
from prefold.gateway.translate.shapes import Json, items, part, text
from prefold.gateway.upstream import UpstreamFailed
from prefold.providers.usage import read_usage

_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "length": "max_tokens",
        "tool_calls": "tool_use",
        "function_call": "tool_use",
        "content_filter": "refusal",
    }
)
_REASONING = ("reasoning_content", "reasoning")  # of SGLang, DeepSeek, older vLLM; of vLLM and OpenRouter


def to_anthropic(answer: Json) -> Json:
    """The body for a client of `/v1/messages`.

    Raises:
        UpstreamFailed: if it is no chat completion.
    """
    choices = items(answer, "choices")
    if not choices:
        raise UpstreamFailed("The upstream's answer holds no choice.", hint="check that its URL is an OpenAI API")
    message = part(choices[0], "message")
    calls = items(message, "tool_calls")
    content: list[Json] = []
    if thoughts := reasoning(message):
        content.append({"type": "thinking", "thinking": thoughts, "signature": ""})
    if words := content_text(message):
        content.append({"type": "text", "text": words})
    content += [_tool_use(call, index, answer) for index, call in enumerate(calls)]
    return {
        "id": text(answer, "id"),
        "type": "message",
        "role": "assistant",
        "model": text(answer, "model"),
        "content": content,
        **ending(choices[0], has_calls=bool(calls), is_refusal=bool(text(message, "refusal"))),
        "usage": usage.to_anthropic(read_usage(answer), part(answer, "usage")),
    }


def reasoning(message: Json) -> str:
    """The reasoning in a message or in a delta of one."""
    return next((thoughts for name in _REASONING if (thoughts := text(message, name))), "")


def content_text(message: Json) -> str:
    """The words in a message or in a delta of one; a refusal is words too."""
    words = text(message, "content") or "".join(text(piece, "text") for piece in items(message, "content"))
    return words + text(message, "refusal")


def ending(choice: Json, *, has_calls: bool, is_refusal: bool) -> Json:
    """Why an answer ended.

    Engines say which stop sequence they found: vLLM as `stop_reason`, SGLang as `matched_stop`; both have numbers there
    for stop tokens. Some servers say "stop" where the model called tools.
    """
    reason = text(choice, "finish_reason")
    sequence = text(choice, "stop_reason") or text(choice, "matched_stop") if reason == "stop" else ""
    if is_refusal:
        named = "refusal"
    elif has_calls and reason not in ("length", "content_filter"):
        named = "tool_use"
    elif sequence:
        named = "stop_sequence"
    else:
        named = _REASONS.get(reason, "end_turn")
    return {"stop_reason": named, "stop_sequence": sequence if named == "stop_sequence" else None}


def call_id(call: Json, index: int, answer: Json) -> str:
    """The id of a tool call; made from the answer's where the upstream gives none, since results refer to it."""
    return text(call, "id") or f"toolu_{text(answer, 'id')}_{index}"


def _tool_use(call: Json, index: int, answer: Json) -> Json:
    function = part(call, "function")
    return {
        "type": "tool_use",
        "id": call_id(call, index, answer),
        "name": text(function, "name"),
        "input": _arguments(text(function, "arguments")),
    }


def _arguments(written: str) -> dict[str, Any]:
    """What the model wrote as arguments; where that is no JSON object, its text under `arguments`.

    Anthropic's clients get an object in any case, and the tool that reads it can say what is wrong.
    """
    if not written.strip():
        return {}
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": written}
