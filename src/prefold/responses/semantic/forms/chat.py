"""OpenAI's chat completions and legacy completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefold.responses.semantic.forms.form import Event, Hit, Said, has_only, name_of, pieces_of
from prefold.responses.semantic.types import Answer

_LOST = ("citations", "search_results", "images", "related_questions", "references", "prompt_logprobs")
"""What some servers say beside the choices."""

# How an answer ended, in the words of vLLM, SGLang, Azure and OpenRouter: nothing that a client needs.
_ENDINGS = ("index", "finish_reason", "stop_reason", "matched_stop", "content_filter_results", "native_finish_reason")


class _Choices(ABC):
    """Answers with choices, of which there is one."""

    last_data = b"[DONE]"
    prefix: str
    kind: str
    kind_of_events: str

    @abstractmethod
    def _text(self, choice: Mapping[str, Any]) -> str | None:
        """Text of a whole choice, or of one in an event; None where there is anything else in it."""

    def read(self, document: Mapping[str, Any]) -> Said | None:
        match document.get("choices"):
            case [{"finish_reason": "stop"} as choice] if has_only(choice, self._known) and not _loses(document):
                text = self._text(choice)
                return None if text is None else Said(name_of(document), (text,))
        return None

    def read_events(self, events: Sequence[Mapping[str, Any]]) -> Said | None:
        pieces: list[str] = []
        finish = None
        for event in events:
            if _loses(event):
                return None
            match event.get("choices"):
                case [dict() as choice] if choice.get("index", 0) == 0 and has_only(choice, self._known):
                    piece = self._text(choice)
                    if piece is None:
                        return None
                    pieces.append(piece)
                    finish = choice.get("finish_reason") or finish
                case [] | None:  # usage, or what Azure's filter says of the prompt
                    pass
                case _:
                    return None
        named = next((name for event in events if (name := name_of(event))), "")
        return Said(named, tuple(pieces)) if finish == "stop" else None

    @property
    @abstractmethod
    def _known(self) -> tuple[str, ...]:
        """Members of a choice that may say something."""

    def _head(self, answer: Answer, hit: Hit, kind: str) -> dict[str, Any]:
        return {"id": self.prefix + hit.id, "object": kind, "created": hit.created, "model": answer.model}


class Chat(_Choices):
    """`/v1/chat/completions`."""

    prefix = "chatcmpl-"
    kind = "chat.completion"
    kind_of_events = "chat.completion.chunk"
    _known = (*_ENDINGS, "message", "delta")

    def _text(self, choice: Mapping[str, Any]) -> str | None:
        message = choice.get("message") or choice.get("delta") or {}
        if not isinstance(message, dict) or not has_only(message, ("role", "content")):
            return None
        text = message.get("content")
        return text if isinstance(text, str) else None if text is not None or "message" in choice else ""

    def document(self, answer: Answer, hit: Hit) -> dict[str, Any]:
        """A whole answer."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
        return {**self._head(answer, hit, self.kind), "choices": [choice], "usage": _usage(answer)}

    def events(self, answer: Answer, hit: Hit) -> Iterator[Event]:
        """The role, the pieces, the reason for the end, and usage if asked for."""
        head = self._head(answer, hit, self.kind_of_events)
        # With usage asked for, all events have it, and all but the last have null.
        usage = {"usage": None} if hit.include_usage else {}

        def event(delta: dict[str, str], finish: str | None = None) -> Event:
            return "", {
                **head,
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
                **usage,
            }

        yield event({"role": "assistant", "content": ""})
        for piece in pieces_of(answer):
            yield event({"content": piece})
        yield event({}, answer.finish)
        if hit.include_usage:
            yield "", {**head, "choices": [], "usage": _usage(answer)}


class Completions(_Choices):
    """`/v1/completions`."""

    prefix = "cmpl-"
    kind = kind_of_events = "text_completion"
    _known = (*_ENDINGS, "text")

    def _text(self, choice: Mapping[str, Any]) -> str | None:
        text = choice.get("text")
        return text if isinstance(text, str) else None

    def document(self, answer: Answer, hit: Hit) -> dict[str, Any]:
        """A whole answer."""
        choice = _completion(answer.text, answer.finish)
        return {**self._head(answer, hit, self.kind), "choices": [choice], "usage": _usage(answer)}

    def events(self, answer: Answer, hit: Hit) -> Iterator[Event]:
        """The pieces, the last with the reason for the end, and usage if asked for."""
        head = self._head(answer, hit, self.kind_of_events)
        usage = {"usage": None} if hit.include_usage else {}
        for piece in pieces_of(answer):
            yield "", {**head, "choices": [_completion(piece, None)], **usage}
        yield "", {**head, "choices": [_completion("", answer.finish)], **usage}
        if hit.include_usage:
            yield "", {**head, "choices": [], "usage": _usage(answer)}


def _completion(text: str, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def _loses(holder: Mapping[str, Any]) -> bool:
    return any(holder.get(name) for name in _LOST)


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.input_tokens},
    }
