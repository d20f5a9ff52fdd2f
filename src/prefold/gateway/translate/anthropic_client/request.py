"""A request of Anthropic's Messages API as one of OpenAI's chat completions.

A field that OpenAI's API lacks is left out where only speed, price or bookkeeping depends on it, and refused by name
where the answer does. A field that neither API has goes on as it is: engines have many of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from prefold.gateway.config import Kind
from prefold.gateway.translate.anthropic_client.content import MessageWriter
from prefold.gateway.translate.markers import Markers
from prefold.gateway.translate.shapes import Json, blocks, needed, refused
from prefold.server.fields import Fields, shown

_TRANSLATED = frozenset(
    {
        "model",
        "messages",
        "system",
        "max_tokens",
        "stop_sequences",
        "stream",
        "stream_options",
        "metadata",
        "tools",
        "tool_choice",
        "top_k",
        "thinking",
        "output_config",
        "output_format",
        "cache_control",
        "chat_template_kwargs",
    }
)
_LEFT_OUT = frozenset(
    {
        "anthropic_beta",
        "anthropic_version",
        "betas",
        "context_management",
        "diagnostics",
        "service_tier",
        "speed",
        "user_profile_id",
        "workspace_id",
    }
)
_REFUSED = ("container", "inference_geo", "mcp_servers")
_ENGINES = (Kind.VLLM, Kind.SGLANG, Kind.LLAMACPP)  # those whose chat templates take arguments
_LONGEST_USER = 64  # characters of `user` that OpenAI's API takes for sure


def to_openai(body: Mapping[str, Any], kind: Kind) -> Json:
    """The body for `/v1/chat/completions`.

    Args:
        body: of `/v1/messages`, or of `/v1/messages/count_tokens`.
        kind: what the upstream is.

    Raises:
        InvalidRequest: naming the field that has the wrong form, or that the upstream's API cannot say.
    """
    fields = Fields(body)
    for name in _REFUSED:
        if fields.get(name):
            raise refused(name, "is not to be had from this upstream", "leave it out, or use an Anthropic upstream")
    model = needed(fields, "model")
    markers = Markers.of(kind, model)
    writer = MessageWriter(kind, markers)
    places = blocks(fields, "messages", "messages")
    messages = list(writer.system(fields))
    for message, path in places:
        messages += writer.messages(message, path)
    request: Json = {"model": model, "messages": messages}
    request |= _tools(fields, markers)
    request |= _limits(fields, kind)
    request |= _thinking(fields, kind)
    request |= _format(fields)
    request |= markers.elsewhere(fields)
    if markers is Markers.BREAKPOINTS and _has_breakpoint(messages) and fields.get("cache_control") is None:
        request["prompt_cache_options"] = {"mode": "explicit"}  # OpenAI adds one of its own otherwise
    if places and places[-1][0].get("role") == "assistant":
        request |= _continued(kind, places[-1][1])
    passed = body.keys() - _TRANSLATED - _LEFT_OUT - frozenset(_REFUSED)
    return request | {name: value for name, value in body.items() if name in passed and value is not None}


def _limits(fields: Fields, kind: Kind) -> Json:
    request: Json = {}
    most = fields.integer("max_tokens")
    if most == 0:
        raise refused("max_tokens", "is 0, and this upstream always writes a token", "send 1 to fill its cache")
    if most is not None:
        request["max_completion_tokens" if kind is Kind.OPENAI else "max_tokens"] = most
    if fields.get("stop_sequences"):
        request["stop"] = fields.get("stop_sequences")
    if (top_k := fields.integer("top_k")) is not None:
        if kind is Kind.OPENAI:
            raise refused("top_k", "is unknown to OpenAI", "leave it out")
        request["top_k"] = top_k
    if fields.boolean("stream"):
        request["stream"] = True
        request["stream_options"] = {**(fields.get("stream_options") or {}), "include_usage": True}
    metadata = fields.part("metadata")
    if metadata is not None and (user := metadata.text("user_id")):
        request["user"] = user if len(user) <= _LONGEST_USER else hashlib.sha256(user.encode()).hexdigest()
    return request


def _tools(fields: Fields, markers: Markers) -> Json:
    request: Json = {}
    if tools := [_tool(tool, path, markers) for tool, path in blocks(fields, "tools", "tools")]:
        request["tools"] = tools
    choice = fields.part("tool_choice")
    if choice is None:
        return request
    match choice.get("type"):
        case "auto" | "none" as same:
            request["tool_choice"] = same
        case "any":
            request["tool_choice"] = "required"
        case "tool":
            request["tool_choice"] = {"type": "function", "function": {"name": needed(choice, "name")}}
        case _:
            choice.refuse("type", "auto, any, tool or none")
    if choice.boolean("disable_parallel_tool_use"):
        request["parallel_tool_calls"] = False
    return request


def _tool(tool: Fields, path: str, markers: Markers) -> Json:
    if tool.get("type") not in (None, "custom"):
        raise refused(path, f"is {shown(tool.get('type'))}, which only Anthropic runs", "leave it out of tools")
    for name in ("defer_loading", "input_examples"):
        if tool.get(name):
            raise refused(f"{path}.{name}", "is unknown to OpenAI's chat API", "leave it out")
    if tool.get("allowed_callers") not in (None, ["direct"]):
        raise refused(f"{path}.allowed_callers", "names callers that only Anthropic runs", "leave it out")
    function: Json = {"name": needed(tool, "name")}
    if (description := tool.text("description")) is not None:
        function["description"] = description
    function["parameters"] = tool.get("input_schema") or {"type": "object", "properties": {}}
    if tool.get("strict") is not None:
        function["strict"] = tool.boolean("strict")
    return {"type": "function", "function": function, **markers.elsewhere(tool)}


def _thinking(fields: Fields, kind: Kind) -> Json:
    """Whether to think, where the chat template is ours to tell; how much, by the names that both APIs have."""
    request: Json = {}
    options = fields.part("output_config")
    if options is not None and (effort := options.text("effort")) is not None and kind is not Kind.PREFOLD:
        request["reasoning_effort"] = effort
    given = fields.part("chat_template_kwargs")
    arguments = {} if given is None else fields.get("chat_template_kwargs")
    thinking = fields.part("thinking")
    if thinking is not None and kind in _ENGINES:
        arguments = {"enable_thinking": thinking.get("type") != "disabled", **arguments}
    return {**request, "chat_template_kwargs": arguments} if arguments else request


def _format(fields: Fields) -> Json:
    options = fields.part("output_config")
    chosen = (options and options.part("format")) or fields.part("output_format")
    if chosen is None:
        return {}
    if chosen.get("type") != "json_schema" or chosen.part("schema") is None:
        raise refused("output_config.format", "is no JSON schema", 'send {"type": "json_schema", "schema": {...}}')
    schema = {"name": "answer", "schema": chosen.get("schema"), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _continued(kind: Kind, path: str) -> Json:
    """What makes an upstream go on with the last message, where that is the model's, instead of answering it."""
    match kind:
        case Kind.VLLM:
            return {"add_generation_prompt": False, "continue_final_message": True}
        case Kind.SGLANG:
            return {"continue_final_message": True}
        case Kind.LLAMACPP:
            return {}  # it does so by itself
        case _:
            raise refused(
                path, "is the beginning of an answer, which this upstream does not continue", "end with a user"
            )


def _has_breakpoint(messages: list[Json]) -> bool:
    lists = (message["content"] for message in messages if isinstance(message["content"], list))
    return any("prompt_cache_breakpoint" in part for parts in lists for part in parts)
