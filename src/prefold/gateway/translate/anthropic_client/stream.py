"""A stream of OpenAI's chat completions as one of Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator

from prefold.gateway.translate import errors, usage
from prefold.gateway.translate.anthropic_client.answer import call_id, content_text, ending, reasoning
from prefold.gateway.translate.shapes import Json, integer, items, part, text
from prefold.gateway.translate.sse import anthropic_event
from prefold.gateway.translate.stream import StreamTranslator
from prefold.providers.usage import StreamUsage


class MessageStream(StreamTranslator):
    """Writes the stream that a client of `/v1/messages` reads.

    OpenAI's deltas name no blocks, so that a block begins where the kind of delta changes, and ends where the next one
    begins.
    """

    def __init__(self) -> None:
        super().__init__()
        self._head: Json | None = None  # the first chunk
        self._open: tuple[str, int] | None = None  # kind and, of a tool call, OpenAI's index
        self._blocks = 0  # begun so far
        self._block_of_call: dict[int, int] = {}
        self._ending: Json | None = None  # the choice that gave a reason to end
        self._is_refusal = False
        self._usage = StreamUsage()
        self._usage_object: Json = {}

    def _event(self, value: Json) -> Iterator[bytes]:
        if value.get("error") or value.get("object") == "error":
            yield from self._failed(errors.status_of(value), value)
            return
        self._usage.feed(value)
        self._usage_object = part(value, "usage") or self._usage_object
        if self._head is None:
            self._head = value
            yield self._start()
        choice = next((choice for choice in items(value, "choices") if choice.get("index") in (0, None)), None)
        if choice is None:
            return
        delta = part(choice, "delta")
        self._is_refusal = self._is_refusal or bool(text(delta, "refusal"))
        if thoughts := reasoning(delta):
            yield from self._in_block("thinking", {"thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": thoughts})
        if words := content_text(delta):
            yield from self._in_block("text", {"text": ""})
            yield self._delta({"type": "text_delta", "text": words})
        for position, call in enumerate(items(delta, "tool_calls")):
            index = integer(call, "index")
            yield from self._call(call, position if index is None else index)
        if text(choice, "finish_reason"):
            self._ending = choice

    def _call(self, call: Json, index: int) -> Iterator[bytes]:
        function = part(call, "function")
        if index not in self._block_of_call:
            self._block_of_call[index] = self._blocks
            identity = {"id": call_id(call, index, self._head or {}), "name": text(function, "name"), "input": {}}
            yield from self._in_block("tool_use", identity, index)
        if written := text(function, "arguments"):
            # Where calls come interleaved, a late piece still goes to its own block, though that has been closed.
            yield self._delta({"type": "input_json_delta", "partial_json": written}, self._block_of_call[index])

    def _ended(self) -> Iterator[bytes]:
        if self._ending is None or self._head is None:
            yield from self._stop("The upstream's stream ended before the answer did")
            return
        yield from self._close()
        delta = ending(self._ending, has_calls=bool(self._block_of_call), is_refusal=self._is_refusal)
        counted = usage.to_anthropic(self._usage.usage, self._usage_object)
        yield anthropic_event({"type": "message_delta", "delta": delta, "usage": counted})
        yield anthropic_event({"type": "message_stop"})

    def _error(self, status: int, error: Json) -> bytes:
        return anthropic_event(errors.to_anthropic(status, error))

    def _start(self) -> bytes:
        """The first event; its usage is what the first chunk says, which most upstreams leave to the last."""
        message: Json = {
            "id": text(self._head, "id"),
            "type": "message",
            "role": "assistant",
            "model": text(self._head, "model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage.to_anthropic(self._usage.usage, self._usage_object),
        }
        return anthropic_event({"type": "message_start", "message": message})

    def _in_block(self, kind: str, empty: Json, index: int = 0) -> Iterator[bytes]:
        """Begin a block unless it is open already."""
        if self._open == (kind, index):
            return
        yield from self._close()
        self._open = kind, index
        block = {"type": kind, **empty}
        yield anthropic_event({"type": "content_block_start", "index": self._blocks, "content_block": block})
        self._blocks += 1

    def _close(self) -> Iterator[bytes]:
        if self._open is not None:
            self._open = None
            yield anthropic_event({"type": "content_block_stop", "index": self._blocks - 1})

    def _delta(self, delta: Json, index: int | None = None) -> bytes:
        index = self._blocks - 1 if index is None else index
        return anthropic_event({"type": "content_block_delta", "index": index, "delta": delta})
