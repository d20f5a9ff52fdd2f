"""What the form of each API offers, and what they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prefold.responses.semantic.types import Answer

Event = tuple[str, dict[str, Any]]
"""Name, "" for none, and data of a server-sent event."""


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer says.

    Attributes:
        model: that it names.
        pieces: of its text, in order.
    """

    model: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rendered answer says beside the answer.

    Attributes:
        id: without a prefix.
        created: Unix seconds.
        mark: that it comes from this cache.
        include_usage: whether a stream of OpenAI's is to end with usage.
        request: fields of the request.
    """

    id: str
    created: int
    mark: Mapping[str, Any]
    include_usage: bool
    request: Mapping[str, Any]


class Form(Protocol):
    """Reads and writes the answers of one API. What they read ended well: see `usage_if_whole`."""

    @property
    def last_data(self) -> bytes:
        """Data of the event that ends a stream and is no JSON; empty where there is none."""

    def read(self, document: Mapping[str, Any]) -> Said | None:
        """What a whole answer says; None where it is not just one text that ended by itself."""

    def read_events(self, events: Sequence[Mapping[str, Any]]) -> Said | None:
        """The same for a stream."""

    def document(self, answer: Answer, hit: Hit) -> dict[str, Any]:
        """A whole answer."""

    def events(self, answer: Answer, hit: Hit) -> Iterator[Event]:
        """A stream, without `last_data`."""


def has_only(holder: Mapping[str, Any], known: Iterable[str]) -> bool:
    """Whether nothing is said in an object but in known members: others are null, false, or empty."""
    return not any(value for name, value in holder.items() if name not in known)


def name_of(holder: Mapping[str, Any]) -> str:
    """The model that an answer names."""
    model = holder.get("model")
    return model if isinstance(model, str) else ""


def pieces_of(answer: Answer) -> Iterator[str]:
    """The text as it came; never empty pieces, and all of it whatever the lengths say."""
    start = 0
    for length in answer.deltas:
        if piece := answer.text[start : start + max(0, length)]:
            yield piece
            start += len(piece)
    if start < len(answer.text):
        yield answer.text[start:]
