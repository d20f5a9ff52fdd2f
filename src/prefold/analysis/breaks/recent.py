"""The latest request of each conversation, to compare a broken one with."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass

from prefold.analysis.record import Body, Place
from prefold.analysis.request import Request

_CAPACITY = 16 * 1024 * 1024  # bytes of bodies
_CONVERSATIONS = 1 << 16
_HISTORY = 24  # units behind the system prompt that are more than what begins any message


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is kept of a request.

    Attributes:
        place: where it stands in the log.
        session: the one that the log says it belongs to.
        units: its length.
        body: what it sent; None for a trace, and where it is too long to be kept.
    """

    place: Place
    session: str
    units: int
    body: Body | None

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return len(self.body.content) if self.body else 0


@dataclass(frozen=True, slots=True)
class Turn:
    """A request as a turn of a conversation.

    Attributes:
        conversation: its number.
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
        has_message = bisect_right(request.ends, known) > bisect_right(request.ends, request.system_end)
        shares_history = has_message or (bool(request.ends) and known - request.system_end >= _HISTORY)
        session = request.record.session
        for number in (sender, self._by_session.get(session)):
            before = self.get(number)
            if number is not None and before is not None:
                lost = max(0, before.units - known)
                if (not lost and number == sender) or (shares_history and before.session == session):
                    return Turn(number, lost)
        self._count += 1
        return Turn(self._count)

    def put(self, number: int, request: Request) -> None:
        """Keep a request as the latest of a conversation."""
        content = request.record.content
        # Another object, for the record's own may hold the body as it was parsed.
        body = Body(content.content, content.dialect) if isinstance(content, Body) else None
        if body is not None and len(body.content) > self._capacity // 4:
            body = None
        replaced = self._latest.pop(number, None)
        session = request.record.session
        self._latest[number] = latest = Earlier(request.record.place, session, request.units, body)
        if session:
            self._by_session[session] = number
        self._size += latest.size - (replaced.size if replaced else 0)
        while self._size > self._capacity or len(self._latest) > _CONVERSATIONS:
            old, forgotten = self._latest.popitem(last=False)
            self._size -= forgotten.size
            if self._by_session.get(forgotten.session) == old:
                del self._by_session[forgotten.session]
