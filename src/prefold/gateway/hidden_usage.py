"""Answers that do not say what was cached.

Usage says how much of a prompt was read from cache, and some servers add how long they took. Both would tell a tenant
what others have sent before. What is left are the numbers that the tenant knows or is billed for: all input tokens, as
not cached, and output tokens. Answers without such numbers keep their bytes, and so does every event that has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from prefold.gateway.call import Api
from prefold.gateway.translate.sse import LONGEST_EVENT, EventReader
from prefold.gateway.upstream import Headers, UpstreamFailed
from prefold.providers.usage import StreamUsage, Usage, read_usage
from prefold.server.asgi import encode_json

Json = dict[str, Any]

_TELLING_FIELDS = ("timings", "metrics", "time_info", "meta_info", "x_groq", "prompt_progress")
"""Fields that tell times, or hold another usage: of llama.cpp, vLLM, Cerebras, SGLang and Groq."""
# Inside of strings quotes are escaped, so that what is found is never text.
_TELLS = re.compile(rb'"(?:usage|%b)"\s*:\s*[{\[]' % "|".join(_TELLING_FIELDS).encode())
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_OPENING_TYPES = frozenset({"message_start", "ping", "response.created", "response.in_progress", "response.queued"})
"""Events that may come before anything has been computed."""
_KEPT_HEADERS = frozenset({b"content-type", b"cache-control", b"x-accel-buffering", b"retry-after"})
"""Others tell times (`openai-processing-ms`, `server-timing`), or which replica had the prefix."""


def quiet_headers(headers: Headers) -> Headers:
    """Those headers of an answer that say nothing about caches; its length is to be told anew."""
    return [(name, value) for name, value in headers if name in _KEPT_HEADERS]


def hide_in_whole(api: Api, body: bytes) -> tuple[bytes, Usage | None]:
    """A whole answer without what was cached, and the usage that it told."""
    if not _TELLS.search(body):
        return body, None
    value = _object(body)
    if value is None:
        return body, None
    usage = read_usage(value)
    _hide(api, value)
    return encode_json(value), usage


class HiddenStream:
    """A stream of events without what was cached.

    Attributes:
        has_begun: whether an event came that something was computed for.
    """

    def __init__(self, api: Api) -> None:
        self.has_begun = False
        self._api = api
        self._rest = b""
        self._usage = StreamUsage()

    @property
    def usage(self) -> Usage | None:
        """What was told so far."""
        return self._usage.usage

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk, and give the events that it completes.

        Raises:
            UpstreamFailed: if an event has no end.
        """
        text = self._rest + chunk
        done: list[bytes] = []
        start = 0
        for end in _EVENT_END.finditer(text):
            done.append(self._event(text[start : end.end()]))
            start = end.end()
        self._rest = text[start:]
        if len(self._rest) > LONGEST_EVENT:
            raise UpstreamFailed("An event of the upstream has no end", hint="check what is served there")
        return b"".join(done)

    def end(self) -> bytes:
        """What is left when the stream is over."""
        rest, self._rest = self._rest, b""
        return self._event(rest) if rest else b""

    def _event(self, text: bytes) -> bytes:
        tells = _TELLS.search(text) is not None
        if self.has_begun and not tells:
            return text
        reader = EventReader()
        events = [*reader.feed(text), *reader.end()]
        value = _object(events[0].data) if events else None
        if not events or value is None:  # a comment keeps the connection alive; other words are an answer
            self.has_begun = self.has_begun or bool(events)
            return text
        self.has_begun = self.has_begun or not _is_opening(value)
        if not tells:
            return text
        self._usage.feed(value)
        _hide(self._api, value)
        name = f"event: {events[0].name}\n".encode() if events[0].name else b""
        return b"%bdata: %b\n\n" % (name, encode_json(value))


def _object(text: bytes) -> Json | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_opening(event: Json) -> bool:
    """Whether an event of a stream says only that there will be others."""
    if isinstance(event.get("type"), str):
        return event["type"] in _OPENING_TYPES
    choices = event.get("choices")
    return isinstance(choices, list) and all(map(_is_opening_choice, choices))


def _is_opening_choice(choice: Any) -> bool:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(delta, dict) or choice.get("finish_reason"):
        return False
    return not any(value for name, value in delta.items() if name != "role")


def _hide(api: Api, value: Json) -> None:
    """Take out of an answer, or an event, what would tell."""
    for holder in (value, value.get("message"), value.get("response"), *_objects(value.get("choices"))):
        if not isinstance(holder, dict):
            continue
        for name in _TELLING_FIELDS:
            holder.pop(name, None)
        usage = holder.get("usage")
        if isinstance(usage, dict):
            holder["usage"] = _hidden(api, usage)


def _objects(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _hidden(api: Api, told: Mapping[str, Any]) -> Json | None:
    """A usage with nothing in it that depends on caches, in the form of an API."""
    usage = read_usage({"usage": told})
    read, written = (usage.input, usage.output) if usage else (0, _number(told, "output_tokens"))
    match api:
        case Api.MESSAGES:
            counted: Json = {"output_tokens": written}
            if "input_tokens" in told:
                nothing = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
                return {"input_tokens": read, **nothing, **counted}
            return counted
        case Api.RESPONSES:
            return {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": written,
                "output_tokens_details": told.get("output_tokens_details") or {"reasoning_tokens": 0},
                "total_tokens": read + written,
            }
        case _:
            details = told.get("completion_tokens_details")
            return {
                "prompt_tokens": read,
                "completion_tokens": written,
                "total_tokens": read + written,
                "prompt_tokens_details": {"cached_tokens": 0},
                **({"completion_tokens_details": details} if details else {}),
            }


def _number(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name)
    return value if type(value) is int else 0
