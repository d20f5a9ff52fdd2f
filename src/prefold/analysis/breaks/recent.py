"""The latest request of each conversation, to compare a broken one with."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import NamedTuple

from prefold.analysis.record import Body, Place
from prefold.analysis.request import Request
from prefold.prompts.prompt import Dialect

_CAPACITY = 16 * 1024 * 1024  # bytes of bodies
_CONVERSATIONS = 1 << 16
_HISTORY = 24  # units behind the system prompt that are more than what begins any message


class Earlier(NamedTuple):
    """What is kept of a request.

    Attributes:
        place: where it stands in the log.
        session: the one that the log says it belongs to.
        units: its length.
        content: bytes of its body; empty for a trace, and where they are too many to be kept.
        dialect: form of the body; None to recognise it by content.
    """

    place: Place
    session: str
    units: int
    content: bytes
    dialect: Dialect | None

    @property
    def body(self) -> Body | None:
        """What it sent, to be read anew; None where that is not kept."""
        return Body(self.content, self.dialect) if self.content else None


class Turn(NamedTuple):
    """A request as a turn of a conversation.

    Attributes:
        conversation: its number, from 1 on.
        lost: units at the end of what was sent last in it that the request does not begin with; 0 where it goes on.
    """

    conversation: int
    lost: int = 0


class Recent:
    """The latest request of each conversation; conversations that went on least recently are forgotten first."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._latest: OrderedDict[int, Earlier] = OrderedDict()
        self._by_session: dict[str, int] = {}
        self._size = 0
        self._count = 0

    def get(self, number: int | None) -> Earlier | None:
        """The latest request of a conversation; None where it is not known any more."""
        return None if number is None else self._latest.get(number)

    def turn(self, request: Request, known: int, sender: int | None) -> Turn:
        """Which conversation a request belongs to.

        It is that of what it begins with, if it begins with all that was sent last there; or, in the same session, at
        least with a message of that, or a sentence. Where several begin alike, that of the session is meant. Otherwise
        it begins another one.

        Args:
            request: the next one of the log.
            known: units at its beginning that were sent before.
            sender: the conversation that sent the last of these.
        """
        before = self.get(sender)
        if sender is not None and before is not None and before.units <= known:
            return Turn(sender)
        has_message = bisect_right(request.ends, known) > bisect_right(request.ends, request.system_end)
        if has_message or (request.ends and known - request.system_end >= _HISTORY):
            session = request.record.session
            for number in (sender, self._by_session.get(session)):
                before = self.get(number)
                if number is not None and before is not None and before.session == session:
                    return Turn(number, max(0, before.units - known))
        self._count += 1
        return Turn(self._count)

    def put(self, number: int, request: Request) -> None:
        """Keep a request as the latest of a conversation."""
        record = request.record
        content, dialect = b"", None
        if isinstance(record.content, Body) and len(record.content.content) <= self._capacity // 4:
            content, dialect = record.content.content, record.content.dialect
        replaced = self._latest.pop(number, None)
        self._latest[number] = Earlier(record.place, record.session, request.units, content, dialect)
        if record.session:
            self._by_session[record.session] = number
        self._size += len(content) - (len(replaced.content) if replaced else 0)
        while self._size > self._capacity or len(self._latest) > _CONVERSATIONS:
            old, forgotten = self._latest.popitem(last=False)
            self._size -= len(forgotten.content)
            if self._by_session.get(forgotten.session) == old:
                del self._by_session[forgotten.session]
