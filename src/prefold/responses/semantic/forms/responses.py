"""OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefold.responses.semantic.forms.form import Event, Hit, Said, has_only, name_of, pieces_of
from prefold.responses.semantic.types import Answer

_REPEATED: Mapping[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""What a response repeats of its request, and says where the request does not."""

_ITEM = ("id", "type", "status", "role", "phase", "content")
_PART = ("type", "text")


class Responses:
    """`/v1/responses`. An answer with an item of reasoning is not read, even if that is empty: clients send it back."""

    last_data = b""

    def read(self, document: Mapping[str, Any]) -> Said | None:
        """What a response says."""
        match document.get("output"):
            case [
                {
                    "type": "message",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": str(text)} as part],
                } as item
            ] if document.get("status") == "completed" and has_only(item, _ITEM) and has_only(part, _PART):
                return Said(name_of(document), (text,))
        return None

    def read_events(self, events: Sequence[Mapping[str, Any]]) -> Said | None:
        """What the response in the last event says, in the pieces in which it came."""
        match events:
            case [*_, {"type": "response.completed", "response": dict() as response}]:
                said = self.read(response)
            case _:
                return None
        deltas = [event.get("delta") for event in events if event.get("type") == "response.output_text.delta"]
        pieces = tuple(piece for piece in deltas if isinstance(piece, str))
        return said and (Said(said.model, pieces) if "".join(pieces) == "".join(said.pieces) else None)

    def document(self, answer: Answer, hit: Hit) -> dict[str, Any]:
        """A response."""
        is_whole = answer.finish == "stop"
        status = "completed" if is_whole else "incomplete"
        return {
            **_response(answer, hit, status),
            "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
            "output": [_item(hit, status, _part(answer.text))],
            "usage": {
                "input_tokens": answer.input_tokens,
                "input_tokens_details": {"cached_tokens": answer.input_tokens},
                "output_tokens": answer.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.input_tokens + answer.output_tokens,
            },
        }

    def events(self, answer: Answer, hit: Hit) -> Iterator[Event]:
        """A response as it grows, each event with its number."""
        for number, (kind, members) in enumerate(self._steps(answer, hit)):
            yield kind, {"type": kind, "sequence_number": number, **members}

    def _steps(self, answer: Answer, hit: Hit) -> Iterator[Event]:
        response = _response(answer, hit, "in_progress")
        whole = {**self.document(answer, hit), "prefold": hit.mark}
        (item,) = whole["output"]
        here = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        yield "response.created", {"response": response}
        yield "response.in_progress", {"response": response}
        yield "response.output_item.added", {"output_index": 0, "item": _item(hit, "in_progress")}
        yield "response.content_part.added", {**here, "part": _part("")}
        for piece in pieces_of(answer):
            yield "response.output_text.delta", {**here, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**here, "text": answer.text, "logprobs": []}
        yield "response.content_part.done", {**here, "part": _part(answer.text)}
        yield "response.output_item.done", {"output_index": 0, "item": item}
        yield f"response.{whole['status']}", {"response": whole}


def _response(answer: Answer, hit: Hit, status: str) -> dict[str, Any]:
    return {
        "id": "resp_" + hit.id,
        "object": "response",
        "created_at": hit.created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": answer.model,
        "output": [],
        "previous_response_id": None,
        "usage": None,
        **{name: hit.request.get(name, default) for name, default in _REPEATED.items()},
    }


def _item(hit: Hit, status: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "msg_" + hit.id, "type": "message", "status": status, "role": "assistant", "content": list(parts)}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
