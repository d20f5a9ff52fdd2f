"""Messages of an OpenAI chat as Anthropic's."""

from __future__ import annotations

import json
import re
from typing import Any

from prefold.errors import InvalidRequest
from prefold.gateway.translate.markers import as_cache_control
from prefold.gateway.translate.shapes import Json, blocks, needed, refused
from prefold.server.fields import Fields, shown

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)
_BARE_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
_SYSTEM_ROLES = ("system", "developer")


def system_and_messages(body: Fields) -> Json:
    """The fields `system` and `messages`.

    System messages at the front become `system`. Later ones stay where they are, as Anthropic's API allows from Claude
    Opus 4.8 on: moved to the front, they would change the prefix of all that was sent before.

    Raises:
        InvalidRequest: if Anthropic's API cannot say a part of them.
    """
    places = blocks(body, "messages", "messages")
    count = next((i for i, (message, _) in enumerate(places) if message.get("role") not in _SYSTEM_ROLES), len(places))
    system = [_spoken(message, path) for message, path in places[:count]]
    messages: list[Json] = []
    for message, path in places[count:]:
        written = _message(message, path)
        if message.get("role") == "tool" and messages and _is_results(messages[-1]):
            messages[-1]["content"] += written["content"]  # the results of one turn belong to one message
        else:
            messages.append(written)
    if not system:
        return {"messages": messages}
    whole = system[0] if len(system) == 1 else [block for content in system for block in _as_blocks(content)]
    return {"system": whole, "messages": messages}


def _is_results(message: Json) -> bool:
    content = message["content"]
    return isinstance(content, list) and bool(content) and content[-1]["type"] == "tool_result"


def _as_blocks(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message(message: Fields, path: str) -> Json:
    match message.get("role"):
        case "system" | "developer":
            return {"role": "system", "content": _spoken(message, path)}
        case "user":
            return {"role": "user", "content": _spoken(message, path)}
        case "assistant":
            return {"role": "assistant", "content": _assistant(message, path)}
        case "tool":
            return {"role": "user", "content": [_result(message, path)]}
    raise refused(
        f"{path}.role", f"is {shown(message.get('role'))}", "it must be system, developer, user, assistant or tool"
    )


def _spoken(message: Fields, path: str) -> str | list[Json]:
    content = message.get("content")
    marker = as_cache_control(message)
    if isinstance(content, str):
        return [{"type": "text", "text": content, **marker}] if marker else content
    made = [_block(part, place) for part, place in blocks(message, "content", f"{path}.content")]
    if marker and made:
        made[-1] |= marker
    return made


def _block(part: Fields, path: str) -> Json:
    marker = as_cache_control(part)
    match part.get("type"):
        case "text":
            return {"type": "text", "text": needed(part, "text"), **marker}
        case "refusal":
            return {"type": "text", "text": needed(part, "refusal"), **marker}
        case "image_url":
            image = part.part("image_url") or Fields({}, f"{path}.image_url.")
            return {"type": "image", "source": _image_source(needed(image, "url"), path), **marker}
        case "file":
            return {**_document(part.part("file") or Fields({}, f"{path}.file."), path), **marker}
        case kind:
            raise refused(
                path,
                f"is of type {shown(kind)}, which Anthropic's API does not have",
                "send text, images or PDF files",
            )


def _image_source(url: str, path: str) -> Json:
    if found := _DATA_URL.fullmatch(url):
        return {"type": "base64", "media_type": found["type"], "data": found["data"]}
    if url.startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    raise refused(
        f"{path}.image_url.url", "is no image that Anthropic's API takes", "send an https or a base64 data URL"
    )


def _document(file: Fields, path: str) -> Json:
    if file.get("file_id") is not None:
        raise refused(f"{path}.file.file_id", "is known to OpenAI only", "send the file itself as file_data")
    data = needed(file, "file_data")
    found = _DATA_URL.fullmatch(data)
    media_type = found["type"] if found else "application/pdf"
    if media_type != "application/pdf" or not (found or _BARE_BASE64.fullmatch(data)):
        raise refused(f"{path}.file.file_data", "is no PDF in base64", "send other files as text")
    source = {"type": "base64", "media_type": media_type, "data": found["data"] if found else data}
    title = file.text("filename")
    return {"type": "document", "source": source, **({"title": title} if title else {})}


def _assistant(message: Fields, path: str) -> str | list[Json]:
    for name in ("audio", "function_call"):
        if message.get(name) is not None:
            raise refused(f"{path}.{name}", "has no counterpart in Anthropic's API", "leave it out")
    # As our own answers give it: Anthropic takes thinking back only as it wrote it, with its signature.
    thoughts = [
        {name: value for name, value in block.items() if name != "index"}  # which streams need, see `ChatStream`
        for block in message.objects("thinking_blocks") or ()
    ]
    calls = [_call(call, place) for call, place in blocks(message, "tool_calls", f"{path}.tool_calls")]
    declined = message.text("refusal")
    spoken = _spoken(message, path)
    if isinstance(spoken, str) and not (thoughts or calls or declined):
        return spoken
    # Anthropic refuses empty texts, which OpenAI's clients send beside tool calls.
    words = [block for block in _as_blocks(spoken) if block["type"] != "text" or block["text"]]
    return [*thoughts, *words, *([{"type": "text", "text": declined}] if declined else []), *calls]


def _call(call: Fields, path: str) -> Json:
    function = call.part("function")
    if call.get("type") not in (None, "function") or function is None:
        raise refused(path, "is no call of a function", "Anthropic's API has no others")
    written = function.text("arguments") or ""
    return {
        "type": "tool_use",
        "id": needed(call, "id"),
        "name": needed(function, "name"),
        "input": _arguments(written, f"{path}.function.arguments"),
        **as_cache_control(call),
    }


def _arguments(written: str, path: str) -> dict[str, Any]:
    if not written.strip():
        return {}
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _refused_arguments(path, written)
    return value


def _refused_arguments(path: str, written: str) -> InvalidRequest:
    return refused(path, f"is {shown(written)}", "Anthropic's API takes only a JSON object as arguments")


def _result(message: Fields, path: str) -> Json:
    content = message.get("content")
    marker = as_cache_control(message)
    if not isinstance(content, str):
        content = [_block(part, place) for part, place in blocks(message, "content", f"{path}.content")]
        if not marker and content:  # a result's marker is on the result
            marker = {name: content[-1].pop(name) for name in ("cache_control",) if name in content[-1]}
    return {"type": "tool_result", "tool_use_id": needed(message, "tool_call_id"), "content": content, **marker}
