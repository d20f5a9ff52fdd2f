"""The request log of prefold's own gateway.

Calls that no replica read are left out: those that were refused or failed, and those that were answered from the
response cache. Where bodies were not written, what a replica reported is all that is known, and no prompt matches
another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from prefold.analysis.logs.bodies import packed_ids, token_blocks
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.values import moment, name, seconds, usage_of
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.errors import InvalidRequest
from prefold.prompts.prompt import Dialect
from prefold.providers.usage import Usage

MARK = "prefold_log"
"""The field of each line that holds the version of the format."""

VERSION = 1
"""Of the format that is read here."""

_DIALECTS = {
    "/v1/chat/completions": Dialect.OPENAI,
    "/v1/completions": Dialect.COMPLETION,
    "/v1/responses": Dialect.RESPONSES,
    "/v1/messages": Dialect.ANTHROPIC,
}


class _Line(msgspec.Struct):
    """What is read of a line; all else in it is for others."""

    prefold_log: int
    api: str = ""
    time: Any = None
    model: Any = None
    tenant: Any = None
    session: Any = None
    request_id: Any = None
    replica: str = ""
    status: int = 0
    cache: str = ""
    duration: Any = None
    ttft: Any = None
    usage: Any = None
    request: msgspec.Raw = msgspec.Raw(b"")


class _Tokens(msgspec.Struct):
    prompt: list[int]


_line_of = msgspec.json.Decoder(_Line).decode
_tokens_of = msgspec.json.Decoder(_Tokens).decode


class Gateway:
    """Reads its lines."""

    name = "gateway"

    def recognises(self, head: Head, /) -> bool:
        """Whether the first line has the mark."""
        return any(MARK in item for item in head.objects[:1])

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file."""
        for number, content in source.lines():
            place = source.place(number)
            try:
                record = _record(content, place, source)
            except InvalidRequest as error:
                yield BadLine(place, error.message)
            else:
                if record is not None:
                    yield record


def _record(content: bytes, place: Place, source: Source) -> Record | None:
    """The record of a line; None where no replica read a prompt."""
    try:
        line = _line_of(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"The line is none of a gateway's log: {error}.", hint="Check the file.") from None
    if line.prefold_log != VERSION:
        raise InvalidRequest(
            f"The line has version {line.prefold_log}.", hint=f"This version of prefold reads {VERSION}."
        )
    dialect = _DIALECTS.get(line.api)
    was_read = 200 <= line.status < 300 and line.replica and line.cache not in ("hit", "shared", "semantic")
    if dialect is None or not was_read:
        return None
    usage = usage_of(line.usage, source)
    return Record(
        content=_content(bytes(line.request), dialect, usage),
        place=place,
        time=moment(line.time),
        model=name(line.model),
        tenant=name(line.tenant),
        session=name(line.session),
        replica=line.replica,
        usage=usage,
        output_tokens=usage.output if usage else None,
        duration=seconds(line.duration),
        ttft=seconds(line.ttft),
        request_id=name(line.request_id),
    )


def _content(request: bytes, dialect: Dialect, usage: Usage | None) -> Body | Blocks:
    """What was sent: a body, token ids, or no more than a number of tokens."""
    if not request:
        return Blocks(b"", block_tokens=1, tokens=usage.input if usage else 0)
    if dialect is Dialect.COMPLETION:
        try:
            return token_blocks(packed_ids(_tokens_of(request).prompt))
        except msgspec.DecodeError:  # a text
            pass
    return Body(request, dialect)
