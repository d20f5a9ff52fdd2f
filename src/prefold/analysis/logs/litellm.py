"""LiteLLM's logs: its standard logging payload, and rows of its spend logs.

Fields of the payload are those of LiteLLM's page `docs/proxy/logging_spec`, seen on 2026-11-30. Those of rows of the
table `LiteLLM_SpendLogs`, and of what it keeps in `metadata`, are from memory, and checked against no schema. Requests
that LiteLLM answered from its own cache never reached a provider, and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefold.analysis.logs.answers import read_answer
from prefold.analysis.logs.contents import body_of, object_of, value_of
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.values import first, loaded, moment, name, usage_of
from prefold.analysis.record import Body, Place, Record
from prefold.errors import InvalidRequest
from prefold.providers.usage import Usage

_PAYLOAD = frozenset({"startTime", "endTime", "call_type"})
_HOLDERS = ("standard_logging_object", "standard_logging_payload", "payload", "kwargs")
_USAGE_FIELDS = ("prompt_tokens", "completion_tokens", "total_tokens")


class LiteLLM:
    """Reads LiteLLM's payloads and spend logs, one in each line or as a JSON list."""

    name = "litellm"

    def recognises(self, head: Head, /) -> bool:
        """Whether one of the first objects is a payload, or holds one."""
        return any(_payload(item) is not None for item in head.objects)

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file."""
        for number, content in source.values():
            place = source.place(number)
            try:
                payload = _payload_in(content)
                if str(payload.get("cache_hit")).lower() != "true":
                    yield _record(payload, place, source)
            except InvalidRequest as error:
                yield BadLine(place, error.message)


def _payload_in(content: bytes) -> dict[str, Any]:
    payload = _payload(loaded(content))
    if payload is None:
        raise InvalidRequest("This is no payload of LiteLLM.", hint="It has startTime and call_type.")
    return payload


def _payload(value: object, depth: int = 0) -> dict[str, Any] | None:
    """The payload in a JSON value; None where there is none."""
    if not isinstance(value, dict):
        return None
    if value.keys() >= _PAYLOAD:
        return value
    inner = (_payload(value.get(holder), depth + 1) for holder in _HOLDERS) if depth < 3 else ()
    return next((payload for payload in inner if payload is not None), None)


def _record(payload: dict[str, Any], place: Place, source: Source) -> Record:
    metadata = object_of(payload.get("metadata"))
    answer = read_answer(value_of(payload.get("response")), source)
    usage = _usage(payload, metadata, source) or answer.usage
    begun, ended = moment(payload.get("startTime")), moment(payload.get("endTime"))
    first_token = moment(payload.get("completionStartTime"))
    return Record(
        content=_content(payload),
        place=place,
        time=begun,
        model=name(payload.get("model"), payload.get("model_group")),
        provider=name(payload.get("custom_llm_provider")),
        tenant=_tenant(payload, metadata),
        session=name(payload.get("session_id"), metadata.get("session_id"), payload.get("trace_id")),
        replica=name(payload.get("model_id"), payload.get("api_base")),
        usage=usage,
        answer=answer.text,
        output_tokens=usage.output if usage else None,
        stop=answer.stop,
        duration=_between(begun, ended),
        # Without streaming the first token is said to come with the last.
        ttft=_between(begun, first_token) if first_token != ended else None,
        request_id=name(payload.get("request_id"), payload.get("id"), answer.response_id),
        miss_reason=answer.miss_reason,
    )


def _content(payload: Mapping[str, Any]) -> Body:
    """What was sent: the request as the proxy received it where that is kept, else the messages.

    Raises:
        InvalidRequest: if the payload keeps neither.
    """
    model = name(payload.get("model"))
    request = object_of(payload.get("proxy_server_request"))
    request = object_of(request.get("body")) or request
    parameters = object_of(payload.get("model_parameters"))
    for prompt in (request, value_of(payload.get("messages"))):
        try:
            return body_of(prompt, model, tools=parameters.get("tools"))
        except InvalidRequest:
            continue
    raise InvalidRequest(
        "The payload holds no messages.", hint="Set store_prompts_in_spend_logs, or log standard payloads."
    )


def _tenant(payload: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    return name(
        payload.get("end_user"),
        metadata.get("user_api_key_end_user_id"),
        payload.get("team_id"),
        metadata.get("user_api_key_team_id"),
        payload.get("user"),
        metadata.get("user_api_key_user_id"),
        metadata.get("user_api_key_hash"),
        payload.get("api_key"),
    )


def _usage(payload: Mapping[str, Any], metadata: Mapping[str, Any], source: Source) -> Usage | None:
    """Usage as the provider gave it, where the payload keeps that; else its totals, which say nothing of a cache."""
    given = metadata.get("usage_object")
    if not isinstance(given, dict):
        totals = {field: payload[field] for field in _USAGE_FIELDS if field in payload}
        given = {**totals, **object_of(metadata.get("additional_usage_values"))} if totals else None
    details = first(given or {}, ("prompt_tokens_details", "cache_read_input_tokens", "cached_tokens"))
    if details is None and isinstance(value_of(payload.get("response")), dict):
        return None  # the response knows more
    return usage_of(given, source)


def _between(begun: float | None, ended: float | None) -> float | None:
    return ended - begun if begun is not None and ended is not None and ended >= begun else None
