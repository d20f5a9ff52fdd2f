"""Chunks that a client marks in its prompt, and their tokens. Pure.

A chunk must have the same tokens wherever it stands, or it would not be found again. So a prompt with chunks is
tokenised piece by piece: what stands before a chunk, the chunk, what follows it. White space at a chunk's edges does
not belong to it, since templates take it away at the edges of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

from prefold.core.tokens import count
from prefold.engine.request import MAX_CHUNKS, fault_of_chunk
from prefold.errors import InvalidRequest
from prefold.server.fields import Fields, shown

FIELD = "prefold_chunks"

MARK = "cache_chunk"

_MARKERS = [chr(code) for code in range(0xE000, 0xF8FF)]
"""Private characters: no text that people write has a meaning for them."""


@dataclass(frozen=True, slots=True)
class Range:
    """A chunk as `start..stop`, in characters of a text or in tokens."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """The tokens of a prompt with chunks.

    Attributes:
        run: all of them, packed.
        chunks: which tokens are chunks; one that has no token at all is left out.
    """

    run: bytes
    chunks: tuple[tuple[int, int], ...]


def ranges_of_prompt(fields: Fields, prompt: str | Sequence[int]) -> list[Range]:
    """The chunks that `prefold_chunks` marks in a single prompt: `[[start, stop], ...]`, in characters or token ids.

    Raises:
        InvalidRequest: naming the one that is empty, overlaps the one before it, or lies outside.
    """
    ranges = []
    for index, value in enumerate(_listed(fields)):
        match value:
            case [int(start), int(stop)] if bool not in (type(start), type(stop)):
                ranges.append(Range(start, stop))
            case _:
                raise _refused(index, value, "[start, stop] in characters of the prompt, or in its token ids")
    return _checked(ranges, len(prompt), FIELD)


def ranges_of_messages(fields: Fields, messages: Sequence[Mapping[str, Any]]) -> list[list[Range]]:
    """The chunks in each message's content, in characters of its text (parts are joined by a line's end).

    They are those that `prefold_chunks` marks, `{"message": index, "start": from, "stop": to}`, and the parts that say
    `cache_chunk: true`.

    Args:
        fields: the body.
        messages: as the client sent them, their contents checked.

    Raises:
        InvalidRequest: naming the one that is empty, overlaps another, or lies outside.
    """
    by_message: list[list[Range]] = [[] for _ in messages]
    lengths = [0] * len(messages)
    for index, message in enumerate(messages):
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        lengths[index] = len(content) if isinstance(content, str) else 0
        for at, part in enumerate(parts):
            start = lengths[index] + bool(at)  # behind the line's end that joins it
            lengths[index] = start + len(part["text"])
            if _is_marked(part, f"messages[{index}].content[{at}]."):
                by_message[index].append(Range(start, lengths[index]))
    for index, value in enumerate(_listed(fields)):
        match value:
            case {"message": int(number), "start": int(start), "stop": int(stop), **rest} if not rest and _are_in(
                len(messages), number, start, stop
            ):
                by_message[number].append(Range(start, stop))
            case _:
                last = len(messages) - 1
                raise _refused(index, value, f'{{"message": 0 to {last}, "start": ..., "stop": ...}} and no more')
    return [
        _checked(sorted(ranges, key=lambda chunk: chunk.start), length, f"messages[{index}].content")
        for index, (ranges, length) in enumerate(zip(by_message, lengths, strict=True))
    ]


class Encode(Protocol):
    """Tokenises a text."""

    def __call__(self, text: str, *, add_special: bool) -> bytes:
        """Its tokens, packed, with those that the model expects around a text where asked for."""


def tokens_of_text(text: str, ranges: Sequence[Range], encode: Encode, *, begins_itself: bool) -> Pieces:
    """Tokenise a text piece by piece.

    Args:
        text: the prompt.
        ranges: the chunks in it, ascending; none for a text without.
        encode: see `Encode`.
        begins_itself: the text holds the token that the model expects before it, as rendered templates do.

    Raises:
        InvalidRequest: for a chunk of nothing but white space.
    """
    run, chunks, at = b"", [], 0
    for given in ranges:
        chunk = _stripped(text, given)
        run += encode(text[at : chunk.start], add_special=not at and not begins_itself)
        begin = count(run)
        run += encode(text[chunk.start : chunk.stop], add_special=False)
        if begin < count(run):
            chunks.append((begin, count(run)))
        at = chunk.stop
    run += encode(text[at:], add_special=not at and not begins_itself)
    return Pieces(run, tuple(chunks))


def ranges_in_rendered(
    messages: Sequence[Mapping[str, Any]],
    ranges: Sequence[Sequence[Range]],
    text: str,
    render: Callable[[Sequence[Mapping[str, Any]]], str],
) -> list[Range]:
    """Where the chunks of messages stand in the text that a chat template makes of them.

    Found by rendering the messages once more with a private character at each end of each chunk. These must come out
    in order, and without them the text must be what it was.

    Args:
        messages: each with its content as one text.
        ranges: the chunks in each content.
        text: the rendered messages.
        render: the template.

    Raises:
        InvalidRequest: if the template does something else with a content than to put it in.
    """
    contents = [str(message.get("content") or "") for message in messages]
    used = set(text).union(*contents)
    begin, end = [character for character in _MARKERS if character not in used][:2]
    marked = [
        {**message, "content": _with_markers(content, chunks, begin, end)} if chunks else message
        for message, content, chunks in zip(messages, contents, ranges, strict=True)
    ]
    rendered = render(marked)
    found: list[Range] = []
    position, start, is_regular = 0, None, True
    for character in rendered:
        if character == begin:
            is_regular &= start is None
            start = position
        elif character == end and start is not None:
            found.append(Range(start, position))
            start = None
        elif character == end:
            is_regular = False
        else:
            position += 1
    plain = rendered.replace(begin, "").replace(end, "")
    if plain != text or not is_regular or start is not None or len(found) != sum(map(len, ranges)):
        raise InvalidRequest(
            "This model's chat template changes the contents of messages, so that chunks cannot be told in it",
            hint=f"send the messages without {FIELD} and {MARK}, or use /v1/completions",
            param="messages",
        )
    return found


def _with_markers(content: str, ranges: Sequence[Range], begin: str, end: str) -> str:
    parts, at = [], 0
    for given in ranges:
        chunk = _stripped(content, given)
        parts += [content[at : chunk.start], begin, content[chunk.start : chunk.stop], end]
        at = chunk.stop
    return "".join([*parts, content[at:]])


def _stripped(text: str, chunk: Range) -> Range:
    """A chunk without the white space at its edges."""
    inside = text[chunk.start : chunk.stop]
    if not inside.strip():
        raise InvalidRequest(
            f"The chunk of characters {chunk.start} to {chunk.stop} is nothing but white space",
            hint="mark text",
            param=FIELD,
        )
    return Range(chunk.start + len(inside) - len(inside.lstrip()), chunk.stop - len(inside) + len(inside.rstrip()))


def _listed(fields: Fields) -> list[Any]:
    values = fields.get(FIELD)
    if values is None:
        return []
    if not isinstance(values, list):
        fields.refuse(FIELD, "a list of chunks")
    if len(values) > MAX_CHUNKS:
        raise InvalidRequest(f"{FIELD} marks {len(values)} chunks", hint=f"mark up to {MAX_CHUNKS}", param=FIELD)
    return values


def _checked(ranges: list[Range], length: int, where: str) -> list[Range]:
    if len(ranges) > MAX_CHUNKS:
        raise InvalidRequest(f"{where} has {len(ranges)} chunks", hint=f"mark up to {MAX_CHUNKS}", param=FIELD)
    end = 0
    for chunk in ranges:
        if fault := fault_of_chunk(chunk.start, chunk.stop, end, length):
            raise InvalidRequest(
                f"A chunk in {where} from {chunk.start} to {chunk.stop} {fault}",
                hint="give chunks in order, as start and stop, with stop exclusive",
                param=FIELD,
            )
        end = chunk.stop
    return ranges


def _is_marked(part: Mapping[str, Any], where: str) -> bool:
    """Whether a part is a chunk. Parts may have fields that others know, but none that must be this one misspelt."""
    for name in part.keys() - {"type", "text", MARK}:
        if get_close_matches(name, [MARK], cutoff=0.8):
            raise InvalidRequest(f"{where}{name} is no field of a part", hint=f"call it {MARK}", param=f"{where}{name}")
    return Fields(part, where).boolean(MARK)


def _are_in(messages: int, number: int, *positions: int) -> bool:
    """Whether these are numbers, which truth values are not, and the first is one of a message."""
    return 0 <= number < messages and bool not in map(type, (number, *positions))


def _refused(index: int, value: object, allowed: str) -> InvalidRequest:
    return InvalidRequest(f"{FIELD}[{index}] is {shown(value)}", hint=f"it must be {allowed}", param=FIELD)
