"""How each dialect spells a prompt: its fields, read into segments in the order in which the model reads them.

Every dialect reads tools, then system, then messages: Anthropic documents it so, OpenAI places tools before the
developer's words too, and for the others it is the assumption that loses nothing: a change in tools or system is at the
front either way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NoReturn

from prefold.errors import InvalidRequest
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect, Section, Segment, Stability

PROMPT_FIELDS: Mapping[Dialect, frozenset[str]] = MappingProxyType(
    {
        Dialect.ANTHROPIC: frozenset({"tools", "system", "messages"}),
        Dialect.OPENAI: frozenset({"tools", "functions", "messages"}),
        Dialect.RESPONSES: frozenset({"tools", "instructions", "input"}),
        Dialect.GEMINI: frozenset({"tools", "systemInstruction", "system_instruction", "contents"}),
        Dialect.BEDROCK: frozenset({"toolConfig", "system", "messages"}),
        Dialect.COMPLETION: frozenset({"prompt"}),
    }
)
"""Top-level fields that are read into segments."""

MARKERS = ("cache_control", "cachePoint", "prompt_cache_breakpoint")
"""Fields that mark the end of a cached prefix and are no part of what the model reads."""

FUNCTION_LISTS = ("functionDeclarations", "function_declarations")
"""Where a tool of Gemini's holds its functions."""

SYSTEM_ROLES = ("system", "developer")
ANSWERING_ROLES = ("assistant", "model")

_NAMED_PARTS = ("function", "custom", "toolSpec", "systemTool")  # of a tool, where its name is
_BLOCK_TEXTS = ("text", "thinking", "content", "output", "arguments")  # the words in a block, to be shown as they are
_TEXT_BLOCK_FIELDS = frozenset({"type", "text", "annotations", *MARKERS})
_TEXT_TYPES = (None, "text", "input_text", "output_text")
_MESSAGE_FIELDS = frozenset({"role", "content", "parts", "tool_calls", *MARKERS})
# Of what an API returns with an answer, these never reach the model when the answer is sent back.
_UNREAD_FIELDS = frozenset({"id", "status", "object", "created_at"})


def tool_name(tool: Any) -> str:
    """The name of a tool definition in any dialect; for a provider's own tool its type, or its only field."""
    if not isinstance(tool, dict):
        return str(tool)
    named = next((tool[part] for part in _NAMED_PARTS if isinstance(tool.get(part), dict)), tool)
    for name in FUNCTION_LISTS:
        if isinstance(functions := tool.get(name), list) and functions and isinstance(functions[0], dict):
            named = functions[0]
    parts = [named.get("name")] if named.get("name") else [tool.get("type"), tool.get("server_label")]
    return " ".join(part for part in parts if isinstance(part, str)) or min(tool.keys() - {*MARKERS}, default="")


def recognise(body: Mapping[str, Any]) -> Dialect:
    """The dialect of a body, by its fields.

    Raises:
        InvalidRequest: if it is none that is known.
    """
    if "contents" in body:
        return Dialect.GEMINI
    messages = body.get("messages")
    if not isinstance(messages, list):
        if "input" in body or "instructions" in body:
            return Dialect.RESPONSES
        if "prompt" in body:
            return Dialect.COMPLETION
        if "messages" in body:
            _refuse(Path.of("messages"), "a list of messages", messages)
        known = ", ".join(Dialect)
        raise InvalidRequest(
            "The body has none of messages, input, contents or prompt, so its dialect is unknown.",
            hint=f"Name it with --dialect; known dialects: {known}.",
        )
    if _is_bedrock(body, messages):
        return Dialect.BEDROCK
    return Dialect.ANTHROPIC if _is_anthropic(body, messages) else Dialect.OPENAI


def _is_bedrock(body: Mapping[str, Any], messages: list[Any]) -> bool:
    if {"modelId", "inferenceConfig", "toolConfig", "additionalModelRequestFields"} & body.keys():
        return True
    blocks = [block for message in messages[:4] for block in _list(message, "content")]
    return bool(blocks) and all(isinstance(block, dict) and "type" not in block for block in blocks)


def _is_anthropic(body: Mapping[str, Any], messages: list[Any]) -> bool:
    roles = [message.get("role") for message in messages if isinstance(message, dict)]
    if any(role in roles for role in (*SYSTEM_ROLES, "tool", "function")) or any(
        _list(message, "tool_calls") for message in messages
    ):
        return False
    tools = [tool for tool in _list(body, "tools") if isinstance(tool, dict)]
    if any("function" in tool for tool in tools):
        return False
    if {"system", "anthropic_version"} & body.keys() or any("input_schema" in tool for tool in tools):
        return True
    blocks = [block for message in messages for block in _list(message, "content") if isinstance(block, dict)]
    if any(block.get("type") in ("tool_use", "tool_result", "thinking", "redacted_thinking") for block in blocks):
        return True
    return "claude" in str(body.get("model", ""))


def read_plain(text: str) -> tuple[Segment, ...]:
    """The one segment of a prompt that is nothing but text."""
    return (
        Segment(Path.of("prompt"), Section.MESSAGES, "", text, text, stability=Stability.REQUEST, text_path=Path()),
    )


def read_segments(body: Mapping[str, Any], dialect: Dialect) -> tuple[Segment, ...]:
    """A body's segments, in the order in which the model reads them.

    Raises:
        InvalidRequest: naming the field whose form is not that of the dialect.
    """
    try:
        return tuple(_with_stability(list(_READERS[dialect](body))))
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply.", hint="No provider accepts such a body.") from None


def _with_stability(segments: list[Segment]) -> Iterator[Segment]:
    """Tools and system are meant to stay, the history lasts a session, what follows the last answer is new."""
    answers = [index for index, segment in enumerate(segments) if segment.role in ANSWERING_ROLES]
    last_answer = answers[-1] if answers else -1
    for index, segment in enumerate(segments):
        stability = _stability(segment.section)
        if stability is Stability.SESSION and index > last_answer:
            stability = Stability.REQUEST
        yield segment if segment.stability is stability else replace(segment, stability=stability)


def _anthropic(body: Mapping[str, Any]) -> Iterator[Segment]:
    yield from _tools(body, "tools")
    yield from _system(body, "system")
    yield from _messages(body, "messages", "content")


def _openai(body: Mapping[str, Any]) -> Iterator[Segment]:
    yield from _tools(body, "tools")
    yield from _tools(body, "functions")
    yield from _messages(body, "messages", "content")


def _responses(body: Mapping[str, Any]) -> Iterator[Segment]:
    yield from _tools(body, "tools")
    yield from _system(body, "instructions")
    if isinstance(text := body.get("input"), str):
        path = Path.of("input")
        yield Segment(path, Section.MESSAGES, "user", text, text, text_path=path)
    else:
        yield from _messages(body, "input", "content")


def _gemini(body: Mapping[str, Any]) -> Iterator[Segment]:
    for index, tool in enumerate(_list(body, "tools")):
        path = Path.of("tools", index)
        name = next((name for name in FUNCTION_LISTS if _list(tool, name)), None)
        if name is None:
            yield _tool(tool, path)
            continue
        for position, declaration in enumerate(_list(tool, name)):
            yield _tool(declaration, path / name / position)
        if rest := {key: value for key, value in tool.items() if key != name}:
            yield _tool(rest, path)
    for name in ("systemInstruction", "system_instruction"):
        if name in body:
            value = body[name]
            if isinstance(value, Mapping):
                yield from _blocks(value.get("parts"), Path.of(name, "parts"), Section.SYSTEM, "system")
            else:
                yield from _system(body, name)
    if isinstance(text := body.get("contents"), str):
        yield Segment(Path.of("contents"), Section.MESSAGES, "user", text, text, text_path=Path.of("contents"))
    else:
        yield from _messages(body, "contents", "parts")


def _bedrock(body: Mapping[str, Any]) -> Iterator[Segment]:
    tools = body.get("toolConfig")
    yield from _with_cache_points(
        _tool(tool, Path.of("toolConfig", "tools", index)) for index, tool in enumerate(_list(tools, "tools"))
    )
    yield from _system(body, "system")
    yield from _messages(body, "messages", "content")


def _completion(body: Mapping[str, Any]) -> Iterator[Segment]:
    prompt = body.get("prompt")
    path = Path.of("prompt")
    if isinstance(prompt, str):
        yield Segment(path, Section.MESSAGES, "", prompt, prompt, text_path=path)
    elif isinstance(prompt, list) and prompt and all(isinstance(item, str) for item in prompt):
        for index, text in enumerate(prompt):
            yield Segment(path / index, Section.MESSAGES, "", text, text, text_path=path / index)
    elif prompt is not None:  # token ids
        yield Segment(path, Section.MESSAGES, "", prompt, _dumped(prompt))


_READERS = MappingProxyType(
    {
        Dialect.ANTHROPIC: _anthropic,
        Dialect.OPENAI: _openai,
        Dialect.RESPONSES: _responses,
        Dialect.GEMINI: _gemini,
        Dialect.BEDROCK: _bedrock,
        Dialect.COMPLETION: _completion,
    }
)


def _tools(body: Mapping[str, Any], name: str) -> Iterator[Segment]:
    if body.get(name) is not None and not isinstance(body[name], list):
        _refuse(Path.of(name), "a list of tools", body[name])
    for index, tool in enumerate(_list(body, name)):
        yield _tool(tool, Path.of(name, index))


def _tool(tool: Any, path: Path) -> Segment:
    return Segment(path, Section.TOOLS, "tool", tool, _dumped(unmarked(tool)), marker=_marker(tool))


def _system(body: Mapping[str, Any], name: str) -> Iterator[Segment]:
    value = body.get(name)
    path = Path.of(name)
    if isinstance(value, str):
        yield Segment(path, Section.SYSTEM, "system", value, value, text_path=path)
    elif value is not None:
        yield from _blocks(value, path, Section.SYSTEM, "system")


def _messages(body: Mapping[str, Any], name: str, content: str) -> Iterator[Segment]:
    messages = body.get(name)
    if messages is None:
        return
    if not isinstance(messages, list):
        _refuse(Path.of(name), "a list of messages", messages)
    leading = True  # system messages before the conversation are the system section
    for index, message in enumerate(messages):
        path = Path.of(name, index)
        if isinstance(message, str):  # Gemini's client library takes texts for messages
            leading = False
            yield Segment(path, Section.MESSAGES, "user", message, message, text_path=path)
            continue
        if not isinstance(message, dict):
            _refuse(path, "a message", message)
        role = message.get("role", "")
        if not isinstance(role, str):
            _refuse(path / "role", "a text", role)
        leading = leading and role in SYSTEM_ROLES
        section = Section.SYSTEM if leading else Section.MESSAGES
        yield from _message(message, path, section, role or ("user" if content == "parts" else ""), content)


def _message(message: dict[str, Any], path: Path, section: Section, role: str, content: str) -> Iterator[Segment]:
    if "role" not in message and "type" in message:  # an item of the Responses API: a call, its output, reasoning
        yield _block(
            {key: value for key, value in message.items() if key not in _UNREAD_FIELDS},
            path,
            section,
            role,
            begins_message=True,
        )
        return
    segments = _message_parts(message, path, section, role, content)
    first = next(segments, None) or Segment(path, section, role, "", "")
    yield replace(first, begins_message=True)
    yield from segments


def _message_parts(message: dict[str, Any], path: Path, section: Section, role: str, content: str) -> Iterator[Segment]:
    stability = _stability(section)
    for key in sorted(message.keys() - _MESSAGE_FIELDS - _UNREAD_FIELDS):
        if (key, value := message[key]) and value and not (key == "type" and value == "message"):
            yield Segment(path / key, section, role, value, f"{key}: {_dumped(value)}", False, stability)
    value = message.get(content)
    marker = _marker(message)
    if isinstance(value, str):
        yield Segment(path, section, role, value, value, False, stability, marker, path / content)
    elif value is not None:
        yield from _blocks(value, path / content, section, role)
    for index, call in enumerate(_list(message, "tool_calls")):
        yield Segment(path / "tool_calls" / index, section, role, call, _dumped(call), False, stability)


def _blocks(blocks: Any, path: Path, section: Section, role: str) -> Iterator[Segment]:
    if not isinstance(blocks, list):
        _refuse(path, "a text or a list of blocks", blocks)
    is_system = section is Section.SYSTEM
    yield from _with_cache_points(
        _block(block, path / index, section, role, begins_message=is_system and not index)
        for index, block in enumerate(blocks)
    )


def _with_cache_points(segments: Iterator[Segment]) -> Iterator[Segment]:
    """Bedrock marks a prefix by an entry of its own: take it for a marker on what comes before it."""
    last: Segment | None = None
    for segment in segments:
        if isinstance(segment.content, dict) and segment.content.keys() == {"cachePoint"}:
            if last is not None:
                last = replace(last, marker=segment.content["cachePoint"])
            continue
        if last is not None:
            yield last
        last = segment
    if last is not None:
        yield last


def _block(block: Any, path: Path, section: Section, role: str, *, begins_message: bool) -> Segment:
    text, text_path = block, path
    if isinstance(block, dict):
        text, text_path = block.get("text"), path / "text"
        fields = {key for key, value in block.items() if value not in (None, [], {})} - _TEXT_BLOCK_FIELDS
        if not isinstance(text, str) or fields or block.get("type") not in _TEXT_TYPES:
            text = None
    elif not isinstance(block, str):
        _refuse(path, "a block", block)
    return Segment(
        path,
        section,
        role,
        block if text is None else text,
        _block_text(block) if text is None else text,
        begins_message,
        _stability(section),
        _marker(block),
        None if text is None else text_path,
    )


def _stability(section: Section) -> Stability:
    return Stability.SESSION if section is Section.MESSAGES else Stability.STATIC


def _block_text(block: Mapping[str, Any]) -> str:
    """A structured block as JSON, with its long texts behind it as they are."""
    head = {key: value for key, value in block.items() if key not in MARKERS}
    texts: list[str] = []
    for key in _BLOCK_TEXTS:
        value = head.get(key)
        if isinstance(value, str):
            texts.append(value)
            del head[key]
        elif key == "content" and isinstance(value, list):
            texts.extend(
                _block_text(item) if isinstance(item, dict) and item.get("type") != "text" else _inner_text(item)
                for item in value
            )
            del head[key]
    return "\n".join([_dumped(head), *texts])


def _inner_text(item: Any) -> str:
    return item["text"] if isinstance(item, dict) and isinstance(item.get("text"), str) else _dumped(unmarked(item))


def _marker(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in MARKERS if value.get(name) is not None), None)


def unmarked(value: Any) -> Any:
    """An object without its own cache markers; any other value as it is."""
    if isinstance(value, dict) and any(name in value for name in MARKERS):
        return {key: item for key, item in value.items() if key not in MARKERS}
    return value


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _list(value: Any, key: str) -> list[Any]:
    """A list in an object; an empty one where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _refuse(path: Path, expected: str, found: Any) -> NoReturn:
    raise InvalidRequest(
        f"{path} is not {expected}, but {_kind(found)}.",
        hint="Check the body, or name another dialect.",
        param=str(path),
    )


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"
