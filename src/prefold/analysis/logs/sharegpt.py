"""Reading conversations as they are published for training: ShareGPT and its kin.

One conversation is an object, in a list or a line of its own:

    {"id": "x_0", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
    {"conversation_id": "x", "model": "...", "conversation": [{"role": "user", "content": "..."}, ...]}    as of LMSYS
    {"id": "x", "items": [{"from": "human", "value": "..."}, ...]}
    {"messages": [{"role": "user", "content": "..."}, ..., {"role": "assistant", "content": "..."}]}

The last form is that of files for fine-tuning at OpenAI, too. A log of requests without a model whose first ones end
in words that the assistant has begun looks just so: then the format must be named.

Each answer is one request. Neither times nor counts are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefold.analysis.logs.reader import BadLine, Head, Reader, Source
from prefold.analysis.logs.turns import answered
from prefold.analysis.logs.values import loaded, moment, name
from prefold.analysis.record import Record
from prefold.errors import InvalidRequest
from prefold.prompts.dialects import ANSWERING_ROLES

_LISTS = ("conversations", "conversation", "items", "messages")
_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function_response": "tool",
    "function": "tool",
}


class ShareGpt:
    """Conversations of people with assistants."""

    name = "sharegpt"

    def recognises(self, head: Head, /) -> bool:
        """Whether each object holds a conversation, and is not the body of a request."""
        return bool(head.objects) and all(_is_conversation(value) for value in head.objects)

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """One request for each answer."""
        for number, content in source.values():
            place = source.place(number)
            try:
                value = loaded(content)
                if not isinstance(value, dict) or (said := _said(value)) is None:
                    yield BadLine(place, "There is no conversation.")
                    continue
                yield from answered(
                    [_message(turn) for turn in said if isinstance(turn, dict)],
                    place,
                    model=name(value.get("model")),
                    session=name(value.get("id"), value.get("conversation_id")),
                    time=moment(value.get("timestamp")),
                )
            except InvalidRequest as error:
                yield BadLine(place, error.message)


def _said(value: Mapping[str, Any]) -> list[Any] | None:
    return next((found for field in _LISTS if isinstance(found := value.get(field), list)), None)


def _is_conversation(value: Mapping[str, Any]) -> bool:
    said = _said(value)
    if said is None or not all(isinstance(turn, dict) for turn in said):
        return False
    if "items" in value:
        return bool(said) and all("from" in turn and "value" in turn for turn in said)
    if "messages" not in value:
        return all("from" in turn or "role" in turn for turn in said)
    # A body is to be answered; a conversation has been.
    return bool(said) and "model" not in value and said[-1].get("role") in ANSWERING_ROLES


def _message(turn: Mapping[str, Any]) -> dict[str, Any]:
    if "from" not in turn:
        return dict(turn)
    role = name(turn["from"]).lower()
    return {"role": _ROLES.get(role, role), "content": turn.get("value") or ""}


READERS: tuple[Reader, ...] = (ShareGpt(),)
