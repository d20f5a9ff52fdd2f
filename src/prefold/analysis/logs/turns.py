"""Conversations as the requests that they were made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prefold.analysis.logs.answers import text_of
from prefold.analysis.logs.reader import LONGEST_LINE
from prefold.analysis.logs.values import dumped
from prefold.analysis.record import Body, Place, Record
from prefold.errors import InvalidRequest
from prefold.prompts.dialects import ANSWERING_ROLES
from prefold.prompts.prompt import Dialect


class Turns:
    """The messages of a conversation, joined as they come.

    A message is rendered once. A request copies what was said before it once, which is what its body takes up anyway,
    so that reading a conversation costs no more than writing its requests down.

    Args:
        dialect: form of the bodies.
        fields: of the body, before its messages.
        messages: name of the field that holds them.
    """

    def __init__(self, dialect: Dialect, fields: Mapping[str, Any], messages: str = "messages") -> None:
        head = dumped(fields)[:-1] + (b"," if fields else b"")
        self._dialect = dialect
        self._text = bytearray(head + dumped(messages) + b":[")
        self._ends = [len(self._text)]  # of the text before each message, and of the whole

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, message: bytes) -> None:
        """Append a message, or another item of the list, given as JSON.

        Raises:
            InvalidRequest: if the conversation would be larger than any provider takes.
        """
        if len(self._text) + len(message) > LONGEST_LINE:
            raise InvalidRequest(
                f"The conversation is longer than {LONGEST_LINE // 1024**2} MiB.", hint="No provider takes such a body."
            )
        if len(self._ends) > 1:
            self._text += b","
        self._text += message
        self._ends.append(len(self._text))

    def cut(self, length: int) -> None:
        """Keep the first messages only."""
        del self._ends[length + 1 :]
        del self._text[self._ends[-1] :]

    def body(self) -> Body:
        """The request that sends all messages so far."""
        return Body(b"".join((self._text, b"]}")), self._dialect)


def answered(
    messages: Iterable[Mapping[str, Any]],
    place: Place,
    *,
    model: str = "",
    session: str = "",
    time: float | None = None,
) -> Iterator[Record]:
    """The requests of a conversation in OpenAI's form: one for each answer in it, sending all that came before.

    What a conversation begins with was not asked for, even if an assistant says it.

    Raises:
        InvalidRequest: if the conversation is larger than any provider takes.
    """
    turns = Turns(Dialect.OPENAI, {"model": model} if model else {})
    for message in messages:
        if len(turns) and message.get("role") in ANSWERING_ROLES:
            yield Record(
                turns.body(),
                place,
                time=time,
                model=model,
                session=session,
                answer=text_of(message.get("content")),
                stop="tool_calls" if message.get("tool_calls") else "",
            )
        turns.add(dumped(message))
