"""Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefold.responses.semantic.forms.form import Event, Hit, Said, has_only, name_of, pieces_of
from prefold.responses.semantic.types import Answer

_STOPS = {"stop": "end_turn", "length": "max_tokens"}
_HARMLESS = ("ping", "content_block_stop", "message_stop")


class Messages:
    """`/v1/messages`. One that was ended by a stop sequence is not read: which one it was would be lost."""

    last_data = b""

    def read(self, document: Mapping[str, Any]) -> Said | None:
        """What a message says."""
        match document:
            case {"stop_reason": "end_turn", "content": [{"type": "text", "text": str(text)} as block]} if _is_bare(
                block
            ):
                return Said(name_of(document), (text,))
        return None

    def read_events(self, events: Sequence[Mapping[str, Any]]) -> Said | None:
        """What the events of a message say."""
        model = ""
        pieces: list[str] = []
        stop = None
        for event in events:
            match event:
                case {"type": "message_start", "message": {"content": []} as message}:
                    model = name_of(message)
                case {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "text", "text": str(text)} as block,
                }:
                    if not _is_bare(block):
                        return None
                    pieces.append(text)
                case {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": str(text)}}:
                    pieces.append(text)
                case {"type": "message_delta", "delta": {"stop_reason": reason}}:
                    stop = reason
                case {"type": kind} if kind in _HARMLESS:
                    pass
                case _:
                    return None
        return Said(model, tuple(pieces)) if stop == "end_turn" else None

    def document(self, answer: Answer, hit: Hit) -> dict[str, Any]:
        """A message."""
        return {
            **_message(answer, hit),
            "content": [{"type": "text", "text": answer.text}],
            "stop_reason": _STOPS[answer.finish],
            "usage": _usage(answer),
        }

    def events(self, answer: Answer, hit: Hit) -> Iterator[Event]:
        """A message in events, input in the first and output in the last."""
        usage = {**_usage(answer), "output_tokens": 0}
        yield _event("message_start", message={**_message(answer, hit), "usage": usage})
        yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in pieces_of(answer):
            yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield _event("content_block_stop", index=0)
        delta = {"stop_reason": _STOPS[answer.finish], "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=_usage(answer))
        yield _event("message_stop")


def _is_bare(block: Mapping[str, Any]) -> bool:
    return has_only(block, ("type", "text"))


def _event(kind: str, **members: object) -> Event:
    return kind, {"type": kind, **members}


def _message(answer: Answer, hit: Hit) -> dict[str, Any]:
    return {
        "id": "msg_" + hit.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _usage(answer: Answer) -> dict[str, int]:
    """The parts of Anthropic's input add up to it."""
    return {
        "input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
    }
