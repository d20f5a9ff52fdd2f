"""Error bodies in the words of the API that the client called. The HTTP status stays as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prefold.gateway.translate.shapes import Json, part, text

# https://platform.claude.com/docs/en/api/errors
_ANTHROPIC_TYPES: Mapping[int, str] = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        408: "timeout_error",
        409: "conflict_error",
        413: "request_too_large",
        422: "invalid_request_error",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
)
_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "billing_error": 402,
        "permission_error": 403,
        "not_found_error": 404,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "timeout_error": 504,
        "overloaded_error": 529,
    }
)
_TOO_LONG = "prompt is too long"
"""How Anthropic's message begins where the context is exceeded; coding agents look for it and compact."""
_TOO_LONG_CODE = "context_length_exceeded"
_LONGEST_TEXT = 2_000  # characters kept of a body that is no JSON, such as a proxy's page


@dataclass(frozen=True, slots=True)
class _Fault:
    message: str
    kind: str = ""
    code: str | None = None
    request_id: str | None = None


def to_anthropic(status: int, body: bytes | Json) -> Json:
    """Anthropic's envelope for an error of an upstream with OpenAI's API.

    Args:
        status: of the response.
        body: of the response, or the event of a stream that holds an error.
    """
    fault = _read(body)
    message = fault.message or f"The upstream answered {status}"
    if fault.code == _TOO_LONG_CODE and not message.startswith(_TOO_LONG):
        message = f"{_TOO_LONG}: {message}"
    return {"type": "error", "error": {"type": anthropic_type(status), "message": message}}


def to_openai(status: int, body: bytes | Json) -> Json:
    """OpenAI's envelope for an error of an upstream with Anthropic's API; arguments as above."""
    fault = _read(body)
    message = fault.message or f"The upstream answered {status}"
    if fault.request_id:
        message = f"{message} (request {fault.request_id})"
    code = _TOO_LONG_CODE if message.startswith(_TOO_LONG) else fault.kind or None
    return {"error": {"message": message, "type": openai_type(status), "param": None, "code": code}}


def status_of(event: Json) -> int:
    """The status that an error in a stream would have had: by Anthropic's type, or by OpenAI's numeric code."""
    error = part(event, "error") or event
    code = error.get("code")
    if type(code) is int and 400 <= code < 600:
        return code
    return _STATUSES.get(text(error, "type"), 500)


def anthropic_type(status: int) -> str:
    """Anthropic's name for errors of a status."""
    return _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def openai_type(status: int) -> str:
    """OpenAI's name for errors of a status."""
    return "invalid_request_error" if status < 500 else "server_error"


def _read(body: bytes | Json) -> _Fault:
    """An error in any of the forms that servers use: within `error`, flat, or as FastAPI's `detail`."""
    if isinstance(body, bytes):
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return _Fault(body[: 4 * _LONGEST_TEXT].decode(errors="replace")[:_LONGEST_TEXT].strip())
    else:
        value = body
    if not isinstance(value, dict):
        return _Fault("")
    error = part(value, "error") or value
    message = text(error, "message") or text(value, "error") or text(value, "detail")
    if not message and (detail := value.get("detail")):
        message = json.dumps(detail, ensure_ascii=False)[:_LONGEST_TEXT]
    return _Fault(
        message,
        text(error, "type"),
        text(error, "code") or None,
        text(value, "request_id") or None,
    )
