"""Requests on their way to another process: all that caches look at, and nothing else.

Both ends must run the same version of Python, as `marshal` wants it; a batch is written and read at memory speed.
"""

from __future__ import annotations

import functools
import marshal
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from prefold.analysis.record import Body, Place, Record
from prefold.analysis.request import Marker, Request

_OF_REQUEST = (
    *("run", "unit", "tokens", "time", "ends", "positions", "system_end", "salt"),
    *("output", "output_tokens"),
)
_OF_MARKER = ("end", "ttl")
_OF_RECORD = ("model", "provider", "tenant", "session", "replica", "stop", "duration", "ttft")
"""What is sent of each; content, answers and usage are not."""

_NOTHING = Body(b"")
_NOWHERE = Place("", 0)
_SHARED_RECORDS = 4_096

_request_values = attrgetter(*_OF_REQUEST)
_marker_values = attrgetter(*_OF_MARKER)
_record_values = attrgetter(*_OF_RECORD)


def pack_requests(requests: Sequence[Request]) -> bytes:
    """A batch of requests as bytes, without content, answers and usage."""
    return marshal.dumps(
        [(_request_values(one), [*map(_marker_values, one.markers)], _record_values(one.record)) for one in requests]
    )


def unpack_requests(batch: bytes) -> list[Request]:
    """The requests of a batch."""
    return [
        Request(
            record=_record(record),
            markers=tuple([Marker(*marker) for marker in markers]),
            **dict(zip(_OF_REQUEST, values, strict=True)),
        )
        for values, markers, record in marshal.loads(batch)  # noqa: S302 - from our own process
    ]


@functools.lru_cache(_SHARED_RECORDS)
def _record(values: tuple[Any, ...]) -> Record:
    """A record without content; requests of one conversation mostly share theirs.

    Pure and of a few short fields, and remembered for the whole process, which is the second one: it ends with the log.
    """
    return Record(_NOTHING, _NOWHERE, **dict(zip(_OF_RECORD, values, strict=True)))
