"""Token counts between the APIs: Anthropic's three input numbers are disjoint, OpenAI's total holds the other two."""

from __future__ import annotations

from prefold.gateway.translate.shapes import Json, integer, part
from prefold.providers.usage import Usage


def to_anthropic(usage: Usage | None, payload: Json) -> Json:
    """Anthropic's usage object.

    Args:
        usage: read from the payload, or from a whole stream; None where nobody said anything.
        payload: OpenAI's usage object, for what `Usage` does not hold.

    Returns:
        What was read from cache is null where the upstream does not say.
    """
    usage = usage or Usage()
    thinking = integer(part(payload, "completion_tokens_details"), "reasoning_tokens")
    return {
        "input_tokens": usage.uncached,
        "cache_creation_input_tokens": usage.write if usage.is_reported else None,
        "cache_read_input_tokens": usage.read if usage.is_reported else None,
        "output_tokens": usage.output,
        **({} if thinking is None else {"output_tokens_details": {"thinking_tokens": thinking}}),
    }


def to_openai(usage: Usage | None, payload: Json) -> Json:
    """OpenAI's usage object; arguments as above, with Anthropic's usage object as payload."""
    usage = usage or Usage()
    thinking = integer(part(payload, "output_tokens_details"), "thinking_tokens")
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.read, "cache_write_tokens": usage.write},
        **({} if thinking is None else {"completion_tokens_details": {"reasoning_tokens": thinking}}),
    }
