"""The prompt of OpenAI's Responses API in the words of its chat completions.

Engines turn a response's instructions, tools and input into a chat and render that by the model's template (vLLM 0.32,
`entrypoints/openai/responses/utils.py`). So does this, for whoever has to know the tokens of the prompt. Nothing that
is made here goes upstream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

ELSEWHERE = ("previous_response_id", "conversation", "prompt")
"""Fields by which part of the prompt is not in the request: the engine has it, or nobody."""

_ALIKE = ("chat_template_kwargs", "cache_salt", "cache_salt_from")
_TEXTS = frozenset({"input_text", "output_text", "text"})


def as_chat(fields: Mapping[str, Any]) -> Json | None:
    """The fields of the chat that a response's prompt is rendered from.

    Thoughts of earlier turns are left out, as templates do; so are tools that the provider runs.

    Args:
        fields: the body of a request to `/v1/responses`.

    Returns:
        None where the prompt is not in the request, or holds something else than text.
    """
    if any(fields.get(name) is not None for name in ELSEWHERE):
        return None
    messages: list[Json] = []
    try:
        if fields.get("instructions"):
            messages.append({"role": "system", "content": _text(fields["instructions"])})
        given = fields["input"]
        for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
            _add(messages, item)
        tools = [_tool(tool) for tool in fields.get("tools") or () if tool["type"] == "function"]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    alike = {name: fields[name] for name in _ALIKE if name in fields}
    return {"messages": messages, **({"tools": tools} if tools else {}), **alike}


def _add(messages: list[Json], item: Json) -> None:
    """Add an item of the input: as a message, or to the message of the assistant before it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: if nobody knows what it becomes.
    """
    last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    match item.get("type", "message"):
        case "message" if item["role"] == "assistant" and last is not None and last.get("content") is None:
            last["content"] = _text(item["content"])
        case "message":
            messages.append({"role": item["role"], "content": _text(item["content"])})
        case "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            if last is None:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            else:
                last.setdefault("tool_calls", []).append(call)
        case "function_call_output":
            messages.append({"role": "tool", "content": _text(item["output"]), "tool_call_id": item["call_id"]})
        case "reasoning":
            pass
        case _:
            raise ValueError("nobody knows what this becomes")


def _tool(tool: Json) -> Json:
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _text(content: object) -> str:
    """The text of a content, whose parts engines put into lines of their own."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or any(part["type"] not in _TEXTS for part in content):
        raise ValueError("not a text")
    return "\n".join(part["text"] for part in content)
