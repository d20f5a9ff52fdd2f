"""A prompt of any dialect as the messages and tools that chat templates take: those of OpenAI's chat format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from prefold.errors import InvalidRequest
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect, Prompt, Section, Segment

Write = Callable[[Path, Any], Any]
"""What to write for a text, or for a JSON value such as a tool, that comes from a path in the body."""


_ROOT = Path()


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a chat template is given.

    Attributes:
        messages: in the OpenAI chat format; a content of several texts is one text, joined by line ends.
        tools: function definitions in the same format; None where there are none.
        paths: where each message comes from in the body, such as `messages[2]` or `system`.
    """

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    paths: list[Path]


def conversation_of(prompt: Prompt, write: Write = lambda _, value: value) -> Conversation:
    """The conversation of a prompt.

    Args:
        prompt: in any dialect but plain completions.
        write: what stands for each part of the body.

    Raises:
        InvalidRequest: if the prompt is a plain text, or as `Prompt.segments`.
    """
    if prompt.dialect is Dialect.COMPLETION:
        raise InvalidRequest(
            "A plain prompt has no messages for a chat template.", hint="Give the body of a chat, or no template."
        )
    segments = prompt.segments  # says what is wrong with the body, if anything is
    if prompt.dialect is Dialect.OPENAI:
        return _openai(prompt.value, write)
    tools = [tool for segment in segments if segment.section is Section.TOOLS for tool in _tool(segment, write)]
    turns = list(_turns([segment for segment in segments if segment.section is not Section.TOOLS], write))
    return Conversation([turn.message() for turn in turns], tools or None, [turn.path for turn in turns])


def _openai(body: Mapping[str, Any], write: Write) -> Conversation:
    tools = [_with_function(tool, path, write) for path, tool in _listed(body, "tools")]
    tools += [{"type": "function", "function": write(path, tool)} for path, tool in _listed(body, "functions")]
    messages = _listed(body, "messages")
    return Conversation(
        [_openai_message(message, path, write) for path, message in messages],
        tools or None,
        [path for path, _ in messages],
    )


def _listed(value: Mapping[str, Any], name: str, parent: Path = _ROOT) -> list[tuple[Path, Any]]:
    """The items of a list with their paths; nothing where there is no list."""
    items = value.get(name)
    return [(parent / name / index, item) for index, item in enumerate(items)] if isinstance(items, list) else []


def _openai_message(message: Any, path: Path, write: Write) -> dict[str, Any]:
    if isinstance(message, str):
        return {"role": "user", "content": write(path, message)}
    written: dict[str, Any] = dict(message)
    content = message.get("content")
    if isinstance(content, str):
        written["content"] = write(path, content)
    elif isinstance(content, list):
        parts = [_openai_part(part, place, write) for place, part in _listed(message, "content", path)]
        texts = [part["text"] for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        # Templates of models that see pictures take the parts themselves.
        written["content"] = "\n".join(texts) if len(texts) == len(parts) else parts
    for name in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(text := message.get(name), str):
            written[name] = write(path / name, text)
    if calls := _listed(message, "tool_calls", path):
        written["tool_calls"] = [_with_function(call, place, write) for place, call in calls]
    return written


def _with_function(value: Any, path: Path, write: Write) -> Any:
    """A tool or a call; what is the request's own in it is the function."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        return {**value, "function": write(path, value["function"])}
    return write(path, value)


def _openai_part(part: Any, path: Path, write: Write) -> Any:
    if isinstance(part, str):
        return {"type": "text", "text": write(path, part)}
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {**part, "text": write(path, part["text"])}
    return part


def _tool(segment: Segment, write: Write) -> Iterator[dict[str, Any]]:
    """A function definition; tools that a provider runs itself have no place in a template."""
    tool = segment.content
    tool = tool.get("toolSpec", tool) if isinstance(tool, dict) else {}
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return
    schema = _first(tool, ("input_schema", "inputSchema", "parameters"), {})
    if isinstance(schema, dict) and schema.keys() == {"json"}:  # Bedrock
        schema = schema["json"]
    function = {"name": tool["name"], "description": tool.get("description", ""), "parameters": schema}
    yield {"type": "function", "function": write(segment.path, function)}


@dataclass
class _Turn:
    """A message while its parts are put together."""

    role: str
    path: Path
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    other: list[Any] = field(default_factory=list)
    call_id: str = ""

    def message(self) -> dict[str, Any]:
        content: Any = "\n".join(self.texts)
        if self.other:
            content = [*({"type": "text", "text": text} for text in self.texts), *self.other]
        written: dict[str, Any] = {"role": self.role, "content": content}
        if self.reasoning:
            written["reasoning_content"] = "\n".join(self.reasoning)
        if self.calls:
            written["tool_calls"] = self.calls
        if self.call_id:
            written["tool_call_id"] = self.call_id
        return written


def _turns(segments: list[Segment], write: Write) -> Iterator[_Turn]:
    """Messages: one for each result of a tool, and otherwise one for what one side says at a time."""

    def side(segment: Segment) -> tuple[str, Path | None]:
        role = _role(segment)
        # The Responses API lists reasoning, calls and words of one answer as items of their own.
        return (role, None) if role in ("system", "assistant") else (role, segment.message)

    for (role, _), group in groupby(segments, side):
        parts = list(group)
        turn = _Turn(role, parts[0].message or Path(parts[0].path.steps[:1]))
        for segment in parts:
            if (result := _result(segment.content)) is not None:
                call_id, content = result
                text = write(segment.path, _plain(content))
                yield _Turn("tool", turn.path, [text], call_id=call_id)
            else:
                _add(turn, segment, write)
        if turn.texts or turn.reasoning or turn.calls or turn.other:
            yield turn


def _role(segment: Segment) -> str:
    content = segment.content
    if segment.section is Section.SYSTEM:
        return "system"
    if isinstance(content, dict) and content.get("type") in ("function_call", "reasoning"):
        return "assistant"
    return {"model": "assistant", "developer": "system", "": "user"}.get(segment.role, segment.role)


def _add(turn: _Turn, segment: Segment, write: Write) -> None:
    content = segment.content
    if not isinstance(content, dict):
        turn.texts.append(write(segment.path, content if isinstance(content, str) else segment.text))
    elif (call := _call(content)) is not None:
        turn.calls.append(_with_function(call, segment.path, write))
    elif (reasoning := _reasoning(content)) is not None:
        turn.reasoning += [write(segment.path, reasoning)] if reasoning else []
    elif isinstance(text := content.get("text"), str):  # with citations or the like
        turn.texts.append(write(segment.path, text))
    else:
        turn.other.append(content)


def _call(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """A call of a tool: Anthropic's, Bedrock's, Gemini's or that of the Responses API."""
    call = _inner(block, ("toolUse", "functionCall", "function_call"), ("tool_use", "function_call"))
    if call is None:
        return None
    function = {"name": call.get("name", ""), "arguments": _first(call, ("input", "args", "arguments"), {})}
    return {"id": _first(call, ("call_id", "toolUseId", "id"), ""), "type": "function", "function": function}


def _result(block: Any) -> tuple[str, Any] | None:
    """The call that a tool's result answers, and what it says."""
    if not isinstance(block, dict):
        return None
    names = ("toolResult", "functionResponse", "function_response")
    result = _inner(block, names, ("tool_result", "function_call_output"))
    if result is None:
        return None
    call = _first(result, ("tool_use_id", "toolUseId", "call_id", "id"), "")
    return str(call), _first(result, ("content", "output", "response"), "")


def _inner(block: Mapping[str, Any], names: Sequence[str], types: Sequence[str]) -> Mapping[str, Any] | None:
    """What a block of a kind holds: under the kind's name, or in the block itself with the kind as its type."""
    found = _first(block, names, block if block.get("type") in types else None)
    return found if isinstance(found, dict) else None


def _first(value: Mapping[str, Any], names: Sequence[str], default: Any) -> Any:
    return next((value[name] for name in names if name in value), default)


def _reasoning(block: Mapping[str, Any]) -> str | None:
    if block.get("type") == "thinking":
        return str(block.get("thinking", ""))
    if block.get("thought") is True:
        return str(block.get("text", ""))
    if block.get("type") == "reasoning":
        return _plain([*(block.get("content") or []), *(block.get("summary") or [])])
    if isinstance(inner := block.get("reasoningContent"), dict):
        text = inner.get("reasoningText")
        return str(text.get("text", "")) if isinstance(text, dict) else ""
    return None


def _plain(content: Any) -> str:
    """The words of a result, which some dialects give in blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_plain(item) for item in content)
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return str(content["text"])
    return json.dumps(content, ensure_ascii=False)
