"""A whole message of Anthropic's as an answer of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from prefold.gateway.translate import usage
from prefold.gateway.translate.anthropic_client.content import arguments_text
from prefold.gateway.translate.shapes import Json, items, part, text
from prefold.gateway.upstream import UpstreamFailed
from prefold.providers.usage import read_usage

_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
    }
)
THINKING = ("thinking", "redacted_thinking")
"""Blocks that Anthropic takes back only as they were."""


def to_openai(message: Json, created: int) -> Json:
    """The body for a client of `/v1/chat/completions`.

    Args:
        message: the upstream's body.
        created: Unix time in seconds, which Anthropic's API does not say.

    Raises:
        UpstreamFailed: if it is no message.
    """
    if not isinstance(message.get("content"), list):
        raise UpstreamFailed("The upstream's answer holds no content.", hint="check that its URL is an Anthropic API")
    content = items(message, "content")
    words = "".join(text(block, "text") for block in content if block.get("type") == "text")
    calls = [_call(block) for block in content if block.get("type") == "tool_use"]
    answer: Json = {"role": "assistant", "content": words if words or not calls else None, "refusal": None}
    if thoughts := [block for block in content if block.get("type") in THINKING]:
        answer["reasoning_content"] = "".join(text(block, "thinking") for block in thoughts)
        answer["thinking_blocks"] = thoughts
    if calls:
        answer["tool_calls"] = calls
    choice = {"index": 0, "message": answer, "logprobs": None, "finish_reason": finish_reason(message)}
    return {
        "id": text(message, "id"),
        "object": "chat.completion",
        "created": created,
        "model": text(message, "model"),
        "choices": [choice],
        "usage": usage.to_openai(read_usage(message), part(message, "usage")),
    }


def finish_reason(message: Json) -> str:
    """OpenAI's name for why a message ended."""
    return _REASONS.get(text(message, "stop_reason"), "stop")


def _call(block: Json) -> Json:
    function = {"name": text(block, "name"), "arguments": arguments_text(block.get("input") or {})}
    return {"id": text(block, "id"), "type": "function", "function": function}
