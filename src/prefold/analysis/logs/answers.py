"""Reading the responses that a log holds beside its requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prefold.analysis.logs.reader import Source
from prefold.analysis.logs.values import first, loaded, moment, name, usage_of
from prefold.errors import InvalidRequest
from prefold.providers.usage import Usage

_TEXT_FIELDS = ("text", "content", "thinking")
_USAGE_FIELDS = ("usage", "usageMetadata", "usage_metadata", "meta_info", "timings", "x_groq")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a response says.

    Attributes:
        text: its words; None where there are none.
        stop: why it ended; else empty.
        response_id: the provider's name for it; else empty.
        model: the model that answered; else empty.
        usage: what was counted; None where it does not say.
        output_tokens: its length; None where it does not say.
        created: when it was made, in seconds since 1970; None where it does not say.
        miss_reason: the provider's own word on why its cache did not hold; else empty.
    """

    text: str | None = None
    stop: str = ""
    response_id: str = ""
    model: str = ""
    usage: Usage | None = None
    output_tokens: int | None = None
    created: float | None = None
    miss_reason: str = ""


NO_ANSWER = Answer()


def read_answer(response: object, source: Source) -> Answer:
    """A response of any provider: a JSON object, its text, or nothing but the words of the answer."""
    if isinstance(response, str):
        if response.lstrip()[:1] != "{":
            return Answer(text=response) if response else NO_ANSWER
        try:
            response = loaded(response)
        except InvalidRequest:
            return NO_ANSWER
    # Records of HTTP traffic hold the body beside status and headers; Anthropic's batches, as result.message.
    for holder in ("body", "result", "message"):
        inner = response.get(holder) if isinstance(response, dict) else None
        if isinstance(inner, dict) and "choices" not in inner and "role" in inner and "usage" not in inner:
            continue
        if isinstance(inner, dict):
            response = inner
    if not isinstance(response, dict):
        return NO_ANSWER
    choice = _first_of(response.get("choices")) or _first_of(response.get("candidates"))
    usage = usage_of({field: response[field] for field in _USAGE_FIELDS if field in response}, source)
    return Answer(
        text=_words(choice, response),
        stop=_stop(choice, response),
        response_id=name(response.get("id"), response.get("responseId")),
        model=name(response.get("model"), response.get("modelVersion")),
        usage=usage,
        output_tokens=usage.output if usage else None,
        created=moment(first(response, ("created", "created_at", "createTime"))),
        miss_reason=miss_reason(response),
    )


def miss_reason(response: dict[str, Any]) -> str:
    """Why the provider says that its cache did not hold.

    Anthropic's responses have `diagnostics.cache_miss_reason`, OpenAI's from GPT-5.6 on `prompt_cache_diagnostics`,
    where the request named an earlier response to compare with (documentation of both, read on 2026-11-30).
    """
    diagnostics = response.get("diagnostics")
    if isinstance(diagnostics, dict):
        return _type_of(diagnostics.get("cache_miss_reason"))
    diagnostics = response.get("prompt_cache_diagnostics")
    if isinstance(diagnostics, dict):
        return _type_of(diagnostics.get("cache_miss_reason") or diagnostics.get("reason"))
    return _type_of(response.get("cache_miss_reason"))


def _type_of(reason: object) -> str:
    return name(reason.get("type"), reason.get("code")) if isinstance(reason, dict) else name(reason)


def text_of(content: object) -> str | None:
    """The words of a content field: a text, or a list of parts with texts; None where there are none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    found = [
        words
        for part in content
        for words in ([part] if isinstance(part, str) else _texts(part) if isinstance(part, dict) else [])
    ]
    return "".join(found) if found else None


def _texts(part: dict[str, Any]) -> Iterable[str]:
    words = next((part[field] for field in _TEXT_FIELDS if isinstance(part.get(field), str)), None)
    if words is not None:
        yield words
    elif isinstance(part.get("content"), list):
        for inner in part["content"]:
            if isinstance(inner, dict) and isinstance(inner.get("text"), str):
                yield inner["text"]


def _words(choice: dict[str, Any], response: dict[str, Any]) -> str | None:
    message = choice.get("message")
    contents = (
        message.get("content") if isinstance(message, dict) else None,
        choice.get("text"),
        _inner(choice, "content", "parts"),
        response.get("content"),
        response.get("output"),
        _inner(response, "output", "message", "content"),
    )
    return next((words for content in contents if (words := text_of(content)) is not None), None)


def _stop(choice: dict[str, Any], response: dict[str, Any]) -> str:
    return name(
        choice.get("finish_reason"),
        choice.get("finishReason"),
        response.get("stop_reason"),
        response.get("stopReason"),
        _inner(response, "incomplete_details", "reason"),
        "tool_call" if _calls_tools(response.get("output")) else None,
        response.get("status"),
    )


def _calls_tools(output: object) -> bool:
    """Whether a response of OpenAI's Responses API ends in calls, which its status does not tell."""
    return isinstance(output, list) and any(
        isinstance(item, dict) and item.get("type") in ("function_call", "custom_tool_call") for item in output
    )


def _inner(value: object, *names: str) -> Any:
    for field in names:
        value = value.get(field) if isinstance(value, dict) else None
    return value


def _first_of(items: object) -> dict[str, Any]:
    return items[0] if isinstance(items, list) and items and isinstance(items[0], dict) else {}
