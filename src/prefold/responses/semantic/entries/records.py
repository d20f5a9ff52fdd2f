"""What every place for entries shares: keys, bytes with a check, and when an entry lives.

Texts are kept as UTF-8 in which lone surrogates stand as they are ("surrogatepass"), as bytes everywhere, so that every
text comes back as it was, NUL included. Partitions, principals and rejected texts are kept as hashes only.
"""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from sys import byteorder

import msgspec

from prefold.responses.semantic.types import POLICY_VERSION, Answer, Question
from prefold.responses.store import StoreFailed

_SEAL_BYTES = 16
_DEFLATE_LEVEL = 1
CLOCK_SKEW_SECONDS = 5.0
"""That the clocks of two hosts may disagree; an entry from further in the future lives again when its time comes."""
COUNTED_PRINCIPALS = 64
"""More than these are neither told apart nor kept, for one entry."""


@dataclass(frozen=True, slots=True)
class EntriesOptions:
    """How much is kept.

    Attributes:
        entries: most of them; beyond that those go first whose answers cost least, for their size and use.
        bytes: likewise, of texts, vectors and answers as they are kept.
        wordings: most of one entry; further ones are not kept.
        samples: the newest this many.
        index_vectors: most that lie in memory; the index of the context that was asked least recently goes first.
    """

    entries: int = 100_000
    bytes: int = 1 << 30
    wordings: int = 256
    samples: int = 200_000
    index_vectors: int = 200_000


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One act of an administrator. Deleting an entry blanks the notes about it.

    Attributes:
        number: rises.
        at: Unix seconds.
        act: "quarantine", "vet", "share", "delete" or "invalidate".
        subject: id of the entry, or the tag.
        note: what was said about it.
        entries: how many it concerned.
    """

    number: int
    at: float
    act: str
    subject: str
    note: str
    entries: int


class Damaged(Exception):
    """What was read is not what was written."""


def text_bytes(text: str) -> bytes:
    """See the module."""
    return text.encode("utf-8", "surrogatepass")


def text_of(data: bytes) -> str:
    """The inverse of `text_bytes`.

    Raises:
        Damaged: for bytes that it did not make.
    """
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Damaged from None


def _digest(purpose: bytes, *parts: bytes) -> bytes:
    """SHA-256 over parts of any length, none of which can pass for a piece of another."""
    digest = sha256(b"prefold answers %d %b" % (POLICY_VERSION, purpose))
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def room_of(question: Question) -> bytes:
    """Whose entries a question may meet: those of the same policy version, context and partition."""
    return _digest(b"room", question.context, text_bytes(question.partition))


def space_of(room: bytes, embedder: str) -> bytes:
    """Which vectors of a room can be compared with each other: those of one embedder; empty for no room."""
    return _digest(b"space", room, text_bytes(embedder)) if room else b""


def key_of(text: str) -> bytes:
    """What stands for a text."""
    return _digest(b"text", text_bytes(text))


def principal_key(entry: str, principal: str) -> bytes:
    """What stands for a principal at one entry, and cannot be matched with the same one at another; empty for none."""
    return _digest(b"principal", text_bytes(entry), text_bytes(principal)) if principal else b""


def lives(created: float, expires: float, now: float) -> bool:
    """Whether an entry may be used; after a jump of the clock, one from the future may not."""
    return created - CLOCK_SKEW_SECONDS <= now < expires


def seal(place: bytes, *parts: bytes) -> bytes:
    """Check over parts that belong to a place, so that neither damage nor a mix-up goes unseen."""
    digest = blake2b(digest_size=_SEAL_BYTES, key=sha256(place).digest())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def unseal(expected: bytes, place: bytes, *parts: bytes) -> None:
    """Verify a check.

    Raises:
        Damaged: if it does not fit.
    """
    if expected != seal(place, *parts):
        raise Damaged


class _Kept(msgspec.Struct, array_like=True):
    """An `Answer` with its texts as bytes, since those of MessagePack cannot hold lone surrogates."""

    text: bytes
    model: bytes
    finish: bytes
    input_tokens: int
    output_tokens: int
    deltas: tuple[int, ...]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Kept)


def pack_answer(entry: str, answer: Answer) -> bytes:
    """An answer as bytes that `unpack_answer` accepts for this entry alone."""
    kept = _Kept(
        text_bytes(answer.text),
        text_bytes(answer.model),
        text_bytes(answer.finish),
        answer.input_tokens,
        answer.output_tokens,
        answer.deltas,
    )
    payload = zlib.compress(_ENCODER.encode(kept), _DEFLATE_LEVEL)
    return seal(text_bytes(entry), payload) + payload


def unpack_answer(entry: str, data: bytes) -> Answer:
    """The answer of an entry.

    Raises:
        Damaged: if it is another's, or not whole.
    """
    check, payload = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    unseal(check, text_bytes(entry), payload)
    try:
        kept = _DECODER.decode(zlib.decompress(payload))
    except (zlib.error, msgspec.MsgspecError):
        raise Damaged from None
    return Answer(
        text_of(kept.text),
        text_of(kept.model),
        text_of(kept.finish),
        kept.input_tokens,
        kept.output_tokens,
        kept.deltas,
    )


def pack_features(features: tuple[float, ...]) -> bytes:
    """Features of a sample: float64, little-endian."""
    return struct.pack(f"<{len(features)}d", *features)


def unpack_features(data: bytes) -> tuple[float, ...]:
    """The inverse of `pack_features`."""
    return struct.unpack(f"<{len(data) // 8}d", data)


@dataclass(frozen=True, slots=True)
class Wording:
    """A question as it is kept.

    Attributes:
        room: see `room_of`.
        open_room: where its entry is found once it is shared with everybody; empty if it may not be.
        space: see `space_of`.
        open_space: that of the open room.
        text_key: see `key_of`.
        text: see `text_bytes`.
        vector: of it.
    """

    room: bytes
    open_room: bytes
    space: bytes
    open_space: bytes
    text_key: bytes
    text: bytes
    vector: bytes

    @property
    def size(self) -> int:
        """Bytes that it counts for."""
        return len(self.text) + len(self.vector)

    def seal(self, entry: str) -> bytes:
        """Check over what is served of it, for this entry alone."""
        return seal(text_bytes(entry), self.text, self.vector)


def wording_of(question: Question, vector: bytes, embedder: str) -> Wording:
    """What is kept of a question.

    Raises:
        StoreFailed: if its vector is empty, cut off or not finite.
    """
    values = array("f")
    if len(vector) % 4 == 0:
        values.frombytes(vector)
    if byteorder == "big":
        values.byteswap()
    if not values or not all(map(math.isfinite, values)):
        raise StoreFailed("A vector is empty, cut off or not finite.", hint="look at the embedder")
    room, open_room = room_of(question), b""
    if question.open_context:
        open_room = room_of(replace(question, context=question.open_context, partition=""))
    return Wording(
        room,
        open_room,
        space_of(room, embedder),
        space_of(open_room, embedder),
        key_of(question.text),
        text_bytes(question.text),
        vector,
    )


def belongs(wording: Wording, room: bytes, open_room: bytes) -> bool:
    """Whether a wording may be added to an entry of these rooms.

    It may not where the entry was found because it is shared: texts of one partition are not shown to others.

    Raises:
        StoreFailed: if it is of another context altogether.
    """
    if wording.room == room:
        return True
    if open_room and wording.open_room == open_room:
        return False
    raise StoreFailed("A wording is of another context than its entry.")
