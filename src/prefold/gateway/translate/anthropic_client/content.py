"""Anthropic's messages and their blocks, as messages of an OpenAI chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from prefold.errors import InvalidRequest
from prefold.gateway.config import Kind
from prefold.gateway.translate.markers import Markers
from prefold.gateway.translate.shapes import Json, blocks, needed, refused
from prefold.server.fields import Fields, shown

_PDF = "application/pdf"


def arguments_text(value: object) -> str:
    """Arguments of a tool call as OpenAI sends them, with the spaces that models and chat templates write."""
    return json.dumps(value, ensure_ascii=False)


@dataclass(slots=True)
class _Turn:
    """The blocks of one message, sorted into what OpenAI keeps apart."""

    parts: list[Json] = field(default_factory=list)
    calls: list[Json] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MessageWriter:
    """Writes messages for one upstream.

    Attributes:
        kind: what the upstream is.
        markers: what it makes of cache markers.
    """

    kind: Kind
    markers: Markers

    def system(self, body: Fields) -> Iterator[Json]:
        """The message that `system` becomes; none where there is none."""
        if body.get("system") is not None:
            yield {"role": "system", "content": self._texts(body, "system", "system")}

    def messages(self, message: Fields, path: str) -> Iterator[Json]:
        """The messages that one becomes: tool results are messages of their own.

        Raises:
            InvalidRequest: if OpenAI's API cannot say a part of it.
        """
        role = message.get("role")
        content = message.get("content")
        if role == "system":
            # It stays where it is: at the front it would change the prefix of all that was sent before.
            yield {"role": "system", "content": self._texts(message, "content", f"{path}.content")}
        elif role not in ("user", "assistant"):
            message.refuse("role", "user, assistant or system")
        elif isinstance(content, str):
            yield {"role": role, "content": content}
        elif role == "user":
            yield from self._user(message, f"{path}.content")
        else:
            yield self._assistant(message, f"{path}.content")

    def _texts(self, holder: Fields, name: str, path: str) -> str | list[Json]:
        if isinstance(holder.get(name), str):
            return needed(holder, name)
        parts = []
        for block, place in blocks(holder, name, path):
            if block.get("type") != "text":
                raise refused(place, "is no text", "send only text blocks there")
            parts.append(self._text(block))
        return parts

    # What users say

    def _user(self, message: Fields, path: str) -> Iterator[Json]:
        turn = _Turn()
        for block, place in blocks(message, "content", path):
            if block.get("type") == "tool_result":
                # Calls are answered before anything else is said, as OpenAI's API wants it.
                yield self._tool_result(block, place, turn.parts)
            else:
                turn.parts += self._parts(block, place)
        if turn.parts or not message.get("content"):
            yield {"role": "user", "content": turn.parts}

    def _tool_result(self, block: Fields, path: str, others: list[Json]) -> Json:
        """The message of a result; `others` takes what such a message cannot hold: images and files."""
        content = block.get("content")
        if isinstance(content, str):
            texts = [self._text(Fields({"text": content}))]
        else:
            parts = [p for inner, at in blocks(block, "content", f"{path}.content") for p in self._parts(inner, at)]
            texts = [made for made in parts if made["type"] == "text"]
            others += [made for made in parts if made["type"] != "text"]
        marker = self.markers.on_content(block)
        if marker and texts:
            texts[-1] |= marker
        is_plain = len(texts) == 1 and isinstance(content, str) and not marker
        return {
            "role": "tool",
            "tool_call_id": needed(block, "tool_use_id"),
            "content": texts[0]["text"] if is_plain else texts or "",
        }

    def _parts(self, block: Fields, path: str) -> list[Json]:
        """The content parts that a block becomes."""
        match block.get("type"):
            case "text":
                return [self._text(block)]
            case "image":
                return [self._image(block, path)]
            case "document":
                return self._document(block, path)
            case "search_result":
                _refuse_citations(block, path)
                texts = [needed(inner, "text") for inner, _ in blocks(block, "content", f"{path}.content")]
                whole = "\n".join([needed(block, "title"), needed(block, "source"), *texts])
                return [{"type": "text", "text": whole, **self.markers.on_content(block)}]
            case kind:
                raise _refused_type(path, kind)

    def _text(self, block: Fields) -> Json:
        return {"type": "text", "text": needed(block, "text"), **self.markers.on_content(block)}

    def _image(self, block: Fields, path: str) -> Json:
        source = block.part("source") or Fields({})
        match source.get("type"):
            case "base64":
                url = f"data:{needed(source, 'media_type')};base64,{needed(source, 'data')}"
            case "url":
                url = needed(source, "url")
            case kind:
                raise _refused_source(path, kind)
        if block.get("transformations"):
            raise refused(f"{path}.transformations", "cannot be asked of this upstream", "leave it out")
        return {"type": "image_url", "image_url": {"url": url}, **self.markers.on_content(block)}

    def _document(self, block: Fields, path: str) -> list[Json]:
        _refuse_citations(block, path)
        source = block.part("source") or Fields({})
        marker = self.markers.on_content(block)
        about = [words for name in ("title", "context") if (words := block.text(name))]
        match source.get("type"):
            case "text":
                return [{"type": "text", "text": "\n\n".join([*about, needed(source, "data")]), **marker}]
            case "base64":
                file = {
                    "filename": block.text("title") or "document.pdf",
                    "file_data": f"data:{source.text('media_type') or _PDF};base64,{needed(source, 'data')}",
                }
                context = [{"type": "text", "text": words}] if (words := block.text("context")) else []
                return [*context, {"type": "file", "file": file, **marker}]
            case "content":
                inner = self._inner(source, f"{path}.source.content")
                parts = [*({"type": "text", "text": words} for words in about), *inner]
                if marker and parts:
                    parts[-1] = parts[-1] | marker
                return parts
            case kind:
                raise _refused_source(path, kind)

    def _inner(self, source: Fields, path: str) -> list[Json]:
        content = source.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [made for block, place in blocks(source, "content", path) for made in self._parts(block, place)]

    # What models say

    def _assistant(self, message: Fields, path: str) -> Json:
        turn = _Turn()
        for block, place in blocks(message, "content", path):
            match block.get("type"):
                case "text":
                    turn.parts.append(self._text(block))
                case "thinking":
                    turn.thoughts.append(needed(block, "thinking"))
                case "redacted_thinking":
                    pass  # encrypted, for the model that wrote it alone
                case "tool_use":
                    turn.calls.append(self._call(block))
                case kind:
                    raise _refused_type(place, kind)
        written: Json = {"role": "assistant", "content": turn.parts or (None if turn.calls else "")}
        if turn.thoughts and self.kind is not Kind.OPENAI:  # OpenAI's own models take none back
            name = "reasoning" if self.kind is Kind.VLLM else "reasoning_content"
            written[name] = "".join(turn.thoughts)
        if turn.calls:
            written["tool_calls"] = turn.calls
        return written

    def _call(self, block: Fields) -> Json:
        function = {"name": needed(block, "name"), "arguments": arguments_text(block.get("input") or {})}
        call = {"id": needed(block, "id"), "type": "function", "function": function}
        return {**call, **self.markers.elsewhere(block)}


def _refused_type(path: str, kind: object) -> InvalidRequest:
    return refused(
        path, f"is of type {shown(kind)}, which OpenAI's chat API does not have", "send it to an Anthropic upstream"
    )


def _refused_source(path: str, kind: object) -> InvalidRequest:
    return refused(
        f"{path}.source",
        f"is of type {shown(kind)}, which OpenAI's chat API cannot carry here",
        "send the contents themselves",
    )


def _refuse_citations(block: Fields, path: str) -> None:
    citations = block.part("citations")
    if citations is not None and citations.boolean("enabled"):
        raise refused(f"{path}.citations", "cannot be had from this upstream", "switch citations off")
