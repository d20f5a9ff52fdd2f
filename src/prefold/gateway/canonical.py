"""Requests that mean the same, made the same on their way.

A client sends the same tools, rules and messages again and again. So a body is cut where they begin, each piece is
brought into canonical form by itself, and what became of it is remembered: what is new in a request is what costs time.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import msgspec

from prefold.errors import InvalidRequest
from prefold.gateway.call import Api, Call
from prefold.gateway.config import CanonicalOptions
from prefold.prompts.canonical.canonicalize import DEFAULT_STEPS, Step, canonicalize
from prefold.prompts.dialects import SYSTEM_ROLES
from prefold.prompts.prompt import Dialect, Prompt

_DIALECTS: Mapping[Api, Dialect] = MappingProxyType(
    {
        Api.CHAT: Dialect.OPENAI,
        Api.COMPLETIONS: Dialect.COMPLETION,
        Api.RESPONSES: Dialect.RESPONSES,
        Api.MESSAGES: Dialect.ANTHROPIC,
        Api.COUNT_TOKENS: Dialect.ANTHROPIC,
    }
)
_TALKS: Mapping[Api, str] = MappingProxyType(
    {Api.CHAT: "messages", Api.RESPONSES: "input", Api.MESSAGES: "messages", Api.COUNT_TOKENS: "messages"}
)
"""The field with the conversation."""
_FRONTS = frozenset(
    {"tools", "functions", "system", "instructions", "response_format", "text", "output_format", "output_config"}
)
"""Fields that stay the same from request to request, and that models read first."""
_BETWEEN = frozenset({Step.JSON_WHITESPACE, Step.JSON_ESCAPES})
"""Steps that, once done, leave nothing between two pieces that would have to be kept."""
_ACROSS = frozenset({Step.DOCUMENT_ORDER})
"""Steps that look at more than one piece at a time."""
_USER = b'{"role":"user"}'  # a message behind it is none of those that the system's section begins with

_INLINE_BYTES = 2_048  # up to this many new ones are worked on in the event loop, more in a thread
_PIECE_OVERHEAD = 300  # bytes that Python takes for the objects around a remembered piece, roughly

_members_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items_of = msgspec.json.Decoder(list[msgspec.Raw]).decode
_fields_of = msgspec.json.Decoder(dict[str, Any]).decode


class _Role(msgspec.Struct):
    """What is looked at in a message."""

    role: str = ""


_role_of = msgspec.json.Decoder(_Role).decode


@dataclass(frozen=True, slots=True)
class _Canonical:
    """What became of a piece.

    Attributes:
        body: a body with nothing but the piece, in canonical form; None where it was already.
        steps: that changed it.
    """

    body: bytes | None
    steps: frozenset[Step]


@dataclass(slots=True)
class _Cut:
    """A body in pieces, each a body of its own.

    Attributes:
        names: of the fields, in order.
        talk: the field with the conversation, where it is a list; empty where it is not.
        front: the fields that stay, and the system's messages before the conversation.
        rest: the other fields.
        messages: the others, each behind `_USER`.
    """

    names: list[str]
    talk: str
    front: bytes
    rest: bytes
    messages: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, body: bytes, talk: str) -> _Cut:
        """Cut a body.

        Raises:
            msgspec.DecodeError: if its messages are not objects with a role.
        """
        members = _members_of(body)
        conversation = bytes(members.get(talk, b""))
        if not conversation.startswith(b"["):
            talk = ""
        messages = _items_of(conversation) if talk else []
        leading = 0
        while leading < len(messages) and _role_of(messages[leading]).role in SYSTEM_ROLES:
            leading += 1
        front: dict[str, bytes] = {name: bytes(raw) for name, raw in members.items() if name in _FRONTS}
        if talk:
            front[talk] = _list(messages[:leading])
        rest = {name: bytes(raw) for name, raw in members.items() if name not in front}
        behind = [_object({talk: _list([_USER, message])}) for message in messages[leading:]]
        return cls(list(members), talk, _object(front), _object(rest), behind)

    @property
    def pieces(self) -> list[bytes]:
        """All of them; the messages last."""
        return [self.front, self.rest, *self.messages]

    def joined(self, pieces: Sequence[bytes]) -> bytes:
        """A body of pieces such as those that it was cut into."""
        fields: dict[str, bytes] = {
            name: bytes(raw) for piece in pieces[:2] for name, raw in _members_of(piece).items()
        }
        if self.talk:
            messages = _items_of(fields[self.talk])
            messages += (_items_of(_members_of(piece)[self.talk])[1] for piece in pieces[2:])
            fields[self.talk] = _list(messages)
        return _object({name: fields[name] for name in self.names})


class Canonicalizer:
    """Brings the bodies of calls into canonical form.

    A body that cannot be brought there goes on as it is: its replica will say what is wrong with it. A field that is
    there twice keeps its last value, which is the one that the gateway reads.

    Args:
        options: whether, and by which steps; the names are checked.
        capacity: bytes of pieces that are remembered.
    """

    def __init__(self, options: CanonicalOptions, capacity: int = 16 << 20) -> None:
        self._steps = (frozenset(map(Step, options.steps)) or DEFAULT_STEPS) if options.on else frozenset[Step]()
        self._by_piece = self._steps >= _BETWEEN and not self._steps & _ACROSS
        self._capacity = capacity
        self._known: OrderedDict[bytes, _Canonical] = OrderedDict()
        self._size = 0

    async def apply(self, call: Call) -> None:
        """Bring a call's body into canonical form: `body` and `fields` change together, and `fired` names the steps."""
        if not self._steps or call.api not in _DIALECTS:
            return
        try:
            body, steps = await (self._by_pieces(call) if self._by_piece else self._as_a_whole(call))
            fields = call.fields if body == call.body else _fields_of(body)
        except (InvalidRequest, msgspec.DecodeError, UnicodeError, RecursionError):
            return
        if body != call.body:
            call.body = body
            call.fields = fields
            call.fired += [step.value for step in Step if step in steps]

    async def _as_a_whole(self, call: Call) -> tuple[bytes, frozenset[Step]]:
        [made] = await self._made([call.body], _DIALECTS[call.api])
        return call.body if made.body is None else made.body, made.steps

    async def _by_pieces(self, call: Call) -> tuple[bytes, frozenset[Step]]:
        cut = _Cut.of(call.body, _TALKS.get(call.api, ""))
        pieces = cut.pieces
        # What one tenant sends must not make another one's request faster, where they share nothing.
        scope = f"{call.tenant.salt or ''}\0{call.api}\0".encode()
        keys = [blake2b(scope + piece, digest_size=24).digest() for piece in pieces]
        results = {key: known for key in keys if (known := self._recall(key)) is not None}
        new = {key: piece for key, piece in zip(keys, pieces, strict=True) if key not in results}
        for key, made in zip(new, await self._made(list(new.values()), _DIALECTS[call.api]), strict=True):
            results[key] = made
            self._remember(key, made)
        whole = cut.joined([results[key].body or piece for key, piece in zip(keys, pieces, strict=True)])
        steps = frozenset[Step]().union(*(made.steps for made in results.values()))
        return whole, steps or frozenset({Step.JSON_WHITESPACE})  # between the pieces, where they are as they were

    async def _made(self, pieces: Sequence[bytes], dialect: Dialect) -> list[_Canonical]:
        """Pieces that are not known yet, in canonical form.

        Raises:
            InvalidRequest: if one of them has not the form of its dialect.
        """
        if sum(map(len, pieces)) <= _INLINE_BYTES:
            return [_canonical(piece, dialect, self._steps) for piece in pieces]
        return await asyncio.to_thread(lambda: [_canonical(piece, dialect, self._steps) for piece in pieces])

    def _recall(self, key: bytes) -> _Canonical | None:
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    def _remember(self, key: bytes, made: _Canonical) -> None:
        if key in self._known:  # another request brought it meanwhile
            return
        self._known[key] = made
        self._size += _size_of(made)
        while self._size > self._capacity:
            _, gone = self._known.popitem(last=False)
            self._size -= _size_of(gone)


def _canonical(body: bytes, dialect: Dialect, steps: frozenset[Step]) -> _Canonical:
    done = canonicalize(Prompt.parse(body, dialect), steps)
    new = done.prompt.render()
    return _Canonical(None if new == body else new, frozenset(change.step for change in done.changes))


def _size_of(made: _Canonical) -> int:
    return _PIECE_OVERHEAD + len(made.body or b"")


def _object(members: Mapping[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(
        b"%b:%b" % (json.dumps(name, ensure_ascii=False).encode(), raw) for name, raw in members.items()
    )


def _list(items: Sequence[bytes | msgspec.Raw]) -> bytes:
    return b"[%b]" % b",".join([bytes(item) for item in items])
