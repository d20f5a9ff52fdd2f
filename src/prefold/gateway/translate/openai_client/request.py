"""A request of OpenAI's chat completions as one of Anthropic's Messages API.

A field that Anthropic's API lacks is left out where only speed, price or bookkeeping depends on it, and refused by name
where the answer does. Other fields go on as they are: Anthropic's own (`thinking`, `top_k`, `cache_control`) can be
used, and those that nobody knows are refused by Anthropic.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from prefold.gateway.translate.markers import as_cache_control
from prefold.gateway.translate.openai_client.content import system_and_messages
from prefold.gateway.translate.shapes import Json, blocks, needed, refused
from prefold.server.fields import Fields, shown

DEFAULT_MAX_TOKENS = 4096
"""Most tokens of an answer whose request does not say; Anthropic's API wants a number, and every Claude can do this."""

_TRANSLATED = frozenset(
    {
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "stream",
        "stream_options",
        "user",
        "safety_identifier",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "response_format",
        "output_config",
        "prompt_cache_options",
        "temperature",
    }
)
_LEFT_OUT = frozenset(
    {"metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "seed", "service_tier", "store"}
)
# Fields that are refused, with the values beside null that say nothing.
_REFUSED: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "audio": (),
        "frequency_penalty": (0,),
        "function_call": ("none",),
        "functions": ([],),
        "logit_bias": ({},),
        "logprobs": (False,),
        "modalities": (["text"],),
        "moderation": (),
        "n": (1,),
        "presence_penalty": (0,),
        "top_logprobs": (0,),
        "verbosity": ("medium",),
        "web_search_options": (),
    }
)


def to_anthropic(body: Mapping[str, Any]) -> Json:
    """The body for `/v1/messages`.

    Raises:
        InvalidRequest: naming the field that has the wrong form, or that Anthropic's API cannot say.
    """
    fields = Fields(body)
    for name, neutral in _REFUSED.items():
        if fields.get(name) is not None and fields.get(name) not in neutral:
            raise refused(name, "has no counterpart in Anthropic's API", "leave it out")
    request: Json = {"model": needed(fields, "model"), "max_tokens": _most_tokens(fields)}
    request |= _tools(fields)
    request |= system_and_messages(fields)
    request |= _options(fields)
    request |= _output(fields)
    passed = body.keys() - _TRANSLATED - _LEFT_OUT - _REFUSED.keys()
    return request | {name: value for name, value in body.items() if name in passed and value is not None}


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Whether a stream is to end with its usage."""
    options = Fields(body).part("stream_options")
    return options is not None and options.boolean("include_usage")


def _most_tokens(fields: Fields) -> int:
    most = fields.integer("max_completion_tokens")
    most = fields.integer("max_tokens") if most is None else most
    return DEFAULT_MAX_TOKENS if most is None else most


def _options(fields: Fields) -> Json:
    request: Json = {}
    if (stop := fields.get("stop")) not in (None, []):
        request["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if fields.get("temperature") is not None:
        if fields.number("temperature", 1.0) > 1:
            raise refused("temperature", "is above 1, the highest that Anthropic's API has", "lower it")
        request["temperature"] = fields.get("temperature")
    if fields.boolean("stream"):
        request["stream"] = True
    user = fields.text("safety_identifier") or fields.text("user")
    if user:
        request["metadata"] = {"user_id": user}
    caching = fields.part("prompt_cache_options")
    if caching is not None and caching.get("mode") == "implicit" and fields.get("cache_control") is None:
        request["cache_control"] = {"type": "ephemeral"}  # at the newest message, as with OpenAI
    return request


def _output(fields: Fields) -> Json:
    request: Json = {}
    fields.part("output_config")  # checked: it is an object
    options: Json = dict(fields.get("output_config") or {})
    match fields.text("reasoning_effort"):
        case None:
            pass
        case "none":
            request["thinking"] = {"type": "disabled"}
        case "minimal":
            options.setdefault("effort", "low")
        case effort:
            options.setdefault("effort", effort)
    chosen = fields.part("response_format")
    if chosen is not None and chosen.get("type") != "text":
        wanted = chosen.part("json_schema")
        if chosen.get("type") != "json_schema" or wanted is None or wanted.part("schema") is None:
            raise refused("response_format", "is no JSON schema, and Anthropic's API has nothing else", "send a schema")
        options.setdefault("format", {"type": "json_schema", "schema": wanted.get("schema")})
    return {**request, "output_config": options} if options else request


def _tools(fields: Fields) -> Json:
    tools = [_tool(tool, path) for tool, path in blocks(fields, "tools", "tools")]
    if not tools:
        return {}
    choice = _tool_choice(fields)
    if fields.get("parallel_tool_calls") is not None and not fields.boolean("parallel_tool_calls"):
        choice = choice or {"type": "auto"}
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
    return {"tools": tools, "tool_choice": choice} if choice else {"tools": tools}


def _tool_choice(fields: Fields) -> Json | None:
    match fields.get("tool_choice"):
        case None:
            return None
        case "auto" | "none" as same:
            return {"type": same}
        case "required":
            return {"type": "any"}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "tool", "name": name}
    choice = shown(fields.get("tool_choice"))
    raise refused("tool_choice", f"is {choice}", "it must be auto, none, required or the name of one function")


def _tool(tool: Fields, path: str) -> Json:
    function = tool.part("function")
    if tool.get("type") != "function" or function is None:
        raise refused(path, "is no function", "Anthropic's API has no other tools that clients run")
    written: Json = {"name": needed(function, "name")}
    if (description := function.text("description")) is not None:
        written["description"] = description
    written["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict") is not None:
        written["strict"] = function.boolean("strict")
    return {**written, **as_cache_control(tool)}
