"""A stream of Anthropic's messages as one of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Iterator

from prefold.gateway.translate import errors, usage
from prefold.gateway.translate.anthropic_client.content import arguments_text
from prefold.gateway.translate.openai_client.answer import THINKING, finish_reason
from prefold.gateway.translate.shapes import Json, part, text
from prefold.gateway.translate.sse import openai_event
from prefold.gateway.translate.stream import StreamTranslator
from prefold.providers.usage import StreamUsage

_DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"  # a comment, which keeps the connection alive


class ChatStream(StreamTranslator):
    """Writes the stream that a client of `/v1/chat/completions` reads.

    Args:
        created: Unix time in seconds.
        include_usage: whether it ends with the usage.
    """

    def __init__(self, created: int, *, include_usage: bool) -> None:
        super().__init__()
        self._head: Json = {"id": "", "object": "chat.completion.chunk", "created": created, "model": ""}
        self._include_usage = include_usage
        self._calls = -1  # OpenAI's index of the tool call that is being written
        self._has_arguments = False
        self._thoughts = 0  # blocks of thinking so far
        self._block: Json = {}  # the one that is open, as far as it has come
        self._is_finished = False
        self._usage = StreamUsage()
        self._usage_object: Json = {}

    def _event(self, value: Json) -> Iterator[bytes]:
        match value.get("type"):
            case "ping":
                yield _PING
            case "error":
                yield from self._failed(errors.status_of(value), value)
            case "message_start":
                message = part(value, "message")
                self._count(message)
                self._head |= {"id": text(message, "id"), "model": text(message, "model")}
                yield self._chunk({"role": "assistant", "content": ""})
            case "content_block_start":
                yield from self._begin(part(value, "content_block"))
            case "content_block_delta":
                yield from self._delta(part(value, "delta"))
            case "content_block_stop":
                yield from self._finish_block()
            case "message_delta":
                self._count(value)
                if text(part(value, "delta"), "stop_reason"):
                    self._is_finished = True
                    yield self._chunk({}, finish_reason(part(value, "delta")))
            case "message_stop":
                yield from self._ended()
                self._is_over = True

    def _begin(self, block: Json) -> Iterator[bytes]:
        self._block = dict(block)
        match block.get("type"):
            case "text" if words := text(block, "text"):
                yield self._chunk({"content": words})
            case "thinking" if thoughts := text(block, "thinking"):
                yield self._chunk({"reasoning_content": thoughts})
            case "tool_use":
                self._calls += 1
                # Anthropic begins with an empty input; others send it whole.
                written = arguments_text(block["input"]) if block.get("input") else ""
                self._has_arguments = bool(written)
                function = {"name": text(block, "name"), "arguments": written}
                yield self._call({"id": text(block, "id"), "type": "function", "function": function})

    def _delta(self, delta: Json) -> Iterator[bytes]:
        match delta.get("type"):
            case "text_delta":
                yield self._chunk({"content": text(delta, "text")})
            case "thinking_delta":
                thoughts = text(delta, "thinking")
                self._block["thinking"] = text(self._block, "thinking") + thoughts
                yield self._chunk({"reasoning_content": thoughts})
            case "signature_delta":
                self._block["signature"] = text(delta, "signature")
            case "input_json_delta" if self._block.get("type") == "tool_use" and (
                written := text(delta, "partial_json")
            ):
                self._has_arguments = True
                yield self._call({"function": {"arguments": written}})

    def _finish_block(self) -> Iterator[bytes]:
        block, self._block = self._block, {}
        if block.get("type") in THINKING:
            # OpenAI's SDK puts lists together by the index of their entries.
            yield self._chunk({"thinking_blocks": [{"index": self._thoughts, **block}]})
            self._thoughts += 1
        elif block.get("type") == "tool_use" and not self._has_arguments:
            yield self._call({"function": {"arguments": "{}"}})  # clients read it as JSON

    def _ended(self) -> Iterator[bytes]:
        if not self._is_finished:
            yield from self._stop("The upstream's stream ended before the answer did")
            return
        if self._include_usage:
            counted = usage.to_openai(self._usage.usage, self._usage_object)
            yield openai_event({**self._head, "choices": [], "usage": counted})
        yield _DONE

    def _error(self, status: int, error: Json) -> bytes:
        return openai_event(errors.to_openai(status, error)) + _DONE

    def _count(self, holder: Json) -> None:
        self._usage.feed(holder)
        self._usage_object |= part(holder, "usage")

    def _call(self, call: Json) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._calls, **call}]})

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return openai_event({**self._head, "choices": [choice], **({"usage": None} if self._include_usage else {})})
