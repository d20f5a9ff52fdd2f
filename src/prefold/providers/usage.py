"""Usage objects of every provider, read into one `Usage`.

Providers count in two ways. Anthropic and Bedrock *add*: input, read and written tokens are three disjoint numbers.
All others *include*: the prompt's number holds what was read from cache and what was written to it. Mixing the two up
counts tokens twice, so that both end here as three disjoint numbers whose sum is the input.

Field names are those of the official SDKs (openai 3.57, anthropic 2.14, google-genai 3.6, botocore 1.44, groq 1.7,
zai-sdk 0.2, xai-sdk 1.21, read on 2026-11-30) and, where a provider has none, of its documentation:

    OpenAI chat, Groq, xAI, GLM, Doubao, Mistral, vLLM, SGLang   prompt_tokens, prompt_tokens_details.cached_tokens
    OpenAI responses, xAI responses       input_tokens, input_tokens_details.cached_tokens
    OpenAI from GPT-5.6 on                the same, and cache_write_tokens beside cached_tokens
    Qwen                                  the same, and cache_creation_input_tokens beside cached_tokens
    DeepSeek                              prompt_cache_hit_tokens, prompt_cache_miss_tokens
    Groq in streams                       as in the first line, in the last event inside x_groq
    Kimi                                  cached_tokens beside prompt_tokens; in streams inside choices[0]
    xAI over gRPC                         cached_prompt_text_tokens beside prompt_tokens
    Anthropic                             input_tokens, cache_read_input_tokens, cache_creation_input_tokens
    Bedrock Converse                      inputTokens, cacheReadInputTokens, cacheWriteInputTokens
    Gemini                                promptTokenCount, cachedContentTokenCount
    llama.cpp                             timings.prompt_n and timings.cache_n, disjoint
    SGLang's own /generate                meta_info.prompt_tokens, meta_info.cached_tokens
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LARGEST_COUNT = 10**9
"""Most tokens that one number may say. One above it, or below 0, is a fault of its sender and counts as absent."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response, or of many: usages can be added.

    Attributes:
        uncached: input tokens that were neither read from cache nor written to it.
        read: input tokens served from cache.
        write: input tokens written to cache, whatever their time to live.
        write_5m: those of `write` kept for 5 minutes; 0 where the provider does not say.
        write_1h: those of `write` kept for an hour; 0 where the provider does not say.
        output: tokens of the answer, reasoning included.
        is_reported: whether the provider said how many tokens it read. Where it did not, `read` is 0 and means
            nothing. A sum is reported if any part of it is: vLLM leaves the number out when nothing was read, so
            that the silent responses of a provider that sometimes speaks are misses.
    """

    uncached: int = 0
    read: int = 0
    write: int = 0
    write_5m: int = 0
    write_1h: int = 0
    output: int = 0
    is_reported: bool = False

    @property
    def input(self) -> int:
        """All input tokens."""
        return self.uncached + self.read + self.write

    @property
    def hit_rate(self) -> float | None:
        """Input tokens served from cache divided by input tokens; None where the provider does not report them."""
        return self.read / self.input if self.is_reported and self.input else None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.uncached + other.uncached,
            self.read + other.read,
            self.write + other.write,
            self.write_5m + other.write_5m,
            self.write_1h + other.write_1h,
            self.output + other.output,
            self.is_reported or other.is_reported,
        )


def read_usage(payload: Mapping[str, Any] | object) -> Usage | None:
    """Usage of a response.

    Args:
        payload: a response, an event of a stream, or the usage object in it; as JSON value or as the SDK's object.

    Returns:
        None where there is no usage in it, as in most events of a stream.
    """
    fields = _usage_fields(payload)
    return _interpret(fields) if fields else None


class StreamUsage:
    """Usage of a response that arrives in events.

    Numbers in later events replace those in earlier ones: what providers send is cumulative. Anthropic sends input
    in the first event and output in the last.
    """

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}

    def feed(self, event: Mapping[str, Any] | object) -> None:
        """Read an event."""
        self._fields.update(_usage_fields(event))

    @property
    def usage(self) -> Usage | None:
        """What the events so far say; None where none of them has usage."""
        return _interpret(self._fields) if self._fields else None


_NUMBERS = frozenset(
    (
        "prompt_tokens",
        "completion_tokens",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "num_cached_tokens",
        "cached_prompt_text_tokens",
        "prompt_cache_hit_tokens",
        "prompt_cache_miss_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "inputTokens",
        "outputTokens",
        "cacheReadInputTokens",
        "cacheWriteInputTokens",
    )
)
_NUMBERS_OF_DETAILS = frozenset(("cached_tokens", "cache_write_tokens", "cache_creation_input_tokens"))
_NUMBERS_BY_LIFE = frozenset(("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"))
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_GEMINI = {
    "promptTokenCount": "prompt_token_count",
    "cachedContentTokenCount": "cached_content_token_count",
    "toolUsePromptTokenCount": "tool_use_prompt_token_count",
    "candidatesTokenCount": "candidates_token_count",
    "thoughtsTokenCount": "thoughts_token_count",
}
_GEMINI_NAMES = frozenset((*_GEMINI, *_GEMINI.values()))
_READ = (
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "num_cached_tokens",
    "cached_prompt_text_tokens",
    "cache_read_input_tokens",
)
_WRITTEN = ("cache_write_tokens", "cache_creation_input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens", "predicted_n")
_TIMINGS = frozenset(("prompt_n", "cache_n", "predicted_n"))


def _usage_fields(payload: object) -> dict[str, Any]:
    """The known fields of the usage in a payload, by the name that the REST interface gives them."""
    found: dict[str, Any] = {}
    # Gemini, OpenAI and the rest, SGLang's own form; then where events keep it: of OpenAI responses, of Anthropic, of
    # Bedrock, of Groq, and of Kimi.
    for name in ("usageMetadata", "usage_metadata", "usage", "meta_info"):
        if (usage := _get(payload, name)) is not None:
            found = _known_fields(usage)
            break
    else:
        choices = _get(payload, "choices")
        first = choices[0] if isinstance(choices, Sequence) and not isinstance(choices, str) and choices else None
        for holder in (*(_get(payload, name) for name in ("response", "message", "metadata", "x_groq")), first):
            usage = _get(holder, "usage")
            usage = _get(holder, "usageMetadata") if usage is None else usage
            if usage is not None:
                found = _known_fields(usage)
                break
        else:
            found = _known_fields(payload)
    timings = _get(payload, "timings")
    if timings is not None:
        found.update(_numbers(timings, _TIMINGS))
    return found


def _known_fields(usage: object) -> dict[str, Any]:
    fields: dict[str, Any] = _numbers(usage, _NUMBERS)
    # What JSON does not hold need not be looked for: logs have millions of usages.
    if not isinstance(usage, dict) or not _GEMINI_NAMES.isdisjoint(usage):
        for rest, python in _GEMINI.items():
            number = _number(usage, rest)
            number = _number(usage, python) if number is None else number
            if number is not None:
                fields[rest] = number
    for name in _DETAILS:
        details = _get(usage, name)
        # Gemini has a list of modalities under the first of these names.
        if details is not None and not isinstance(details, Sequence):
            fields["details"] = _numbers(details, _NUMBERS_OF_DETAILS)
            if (creation := _get(details, "cache_creation")) is not None:
                fields.update(_split(creation))
    if (creation := _get(usage, "cache_creation")) is not None:
        fields.update(_split(creation))
    kept = _get(usage, "cacheDetails")
    if kept is not None and isinstance(kept, Sequence):
        for entry in kept:
            name = f"ephemeral_{_get(entry, 'ttl')}_input_tokens"
            fields[name] = fields.get(name, 0) + (_number(entry, "inputTokens") or 0)
    return fields


def _split(creation: object) -> dict[str, int]:
    """Written tokens by their time to live."""
    return _numbers(creation, _NUMBERS_BY_LIFE)


def _interpret(fields: Mapping[str, Any]) -> Usage | None:
    """The one place that knows who adds and who includes."""
    split = fields.get("ephemeral_5m_input_tokens", 0), fields.get("ephemeral_1h_input_tokens", 0)
    if "promptTokenCount" in fields:
        return _including(
            fields["promptTokenCount"] + fields.get("toolUsePromptTokenCount", 0),
            # JSON made from protocol buffers leaves zeros out, so that an absent number says 0.
            read=fields.get("cachedContentTokenCount", 0),
            output=fields.get("candidatesTokenCount", 0) + fields.get("thoughtsTokenCount", 0),
        )
    if "inputTokens" in fields:
        read, write = fields.get("cacheReadInputTokens"), fields.get("cacheWriteInputTokens")
        return _adding(fields["inputTokens"], read, write, split, fields.get("outputTokens", 0))

    details: Mapping[str, int] = fields.get("details", {})
    read = details.get("cached_tokens")
    if read is None:
        read = _first(fields, _READ)
    write = _first(details, _WRITTEN)
    if write is None:
        write = fields.get("cache_creation_input_tokens")
    output = _first(fields, _OUTPUT) or 0
    total = fields.get("prompt_tokens")
    if read is None and {"cache_n", "prompt_n"} <= fields.keys():
        read = fields["cache_n"]
        total = read + fields["prompt_n"]
    elif total is None and "prompt_cache_miss_tokens" in fields:
        total = (read or 0) + fields["prompt_cache_miss_tokens"]
    elif total is None and "details" in fields:
        total = fields.get("input_tokens")
    if total is not None:
        return _including(total, read=read, write=write, split=split, output=output)
    return _adding(fields["input_tokens"], read, write, split, output) if "input_tokens" in fields else None


def _adding(uncached: int, read: int | None, write: int | None, split: tuple[int, int], output: int) -> Usage:
    """Three disjoint numbers."""
    return Usage(uncached, read or 0, max(write or 0, sum(split)), *split, output, read is not None)


def _including(
    total: int, *, read: int | None, write: int | None = None, split: tuple[int, int] = (0, 0), output: int
) -> Usage:
    """A total that holds the other two; parts that exceed it are cut, so that they still add up to it."""
    from_cache = min(read or 0, total)
    written = min(max(write or 0, sum(split)), total - from_cache)
    of_5m = min(split[0], written)
    of_1h = min(split[1], written - of_5m)
    return Usage(total - from_cache - written, from_cache, written, of_5m, of_1h, output, read is not None)


def _get(holder: object, name: str) -> Any:
    """A field of a JSON object or of an SDK's object; None where there is none."""
    if isinstance(holder, dict):
        return holder.get(name)
    try:
        # Objects of pydantic, which all three SDKs use: asking them for what they do not have takes microseconds.
        fields, unknown = vars(holder), holder.__pydantic_extra__  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return fields.get(name, unknown.get(name) if unknown else None)


def _number(holder: object, name: str) -> int | None:
    number = _get(holder, name)
    return number if _is_count(number) else None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _numbers(holder: object, names: frozenset[str]) -> dict[str, int]:
    if isinstance(holder, dict):
        # Not by `_is_count`, since calls take most of the time.
        return {
            name: value
            for name, value in holder.items()
            if name in names and type(value) is int and 0 <= value <= LARGEST_COUNT
        }
    return {name: number for name in names if (number := _number(holder, name)) is not None}


def _first(fields: Mapping[str, int], names: Iterable[str]) -> int | None:
    """The first field that is there."""
    for name in names:
        if name in fields:
            return fields[name]
    return None
