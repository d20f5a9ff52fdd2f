"""Requests on their way to another process: all that caches look at, and nothing else.

Both ends must run the same version of Python, as `marshal` wants it; a batch is written and read at memory speed.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence

from prefold.analysis.record import Body, Place, Record
from prefold.analysis.request import Marker, Request

_NOTHING = Body(b"")
_NOWHERE = Place("", 0)


def pack_requests(requests: Sequence[Request]) -> bytes:
    """A batch of requests as bytes, without content, answers and usage."""
    return marshal.dumps(
        [
            (
                (one.run, one.unit, one.tokens, one.time),
                (one.ends, one.positions, one.system_end, one.salt),
                [(marker.end, marker.ttl) for marker in one.markers],
                (one.output, one.output_tokens),
                (one.record.model, one.record.provider, one.record.tenant, one.record.session),
                (one.record.duration, one.record.ttft, one.record.stop, one.record.replica),
            )
            for one in requests
        ]
    )


def unpack_requests(batch: bytes) -> list[Request]:
    """The requests of a batch."""
    requests = []
    for prompt, places, markers, answer, names, times in marshal.loads(batch):  # noqa: S302 - from our own process
        run, unit, tokens, time = prompt
        ends, positions, system_end, salt = places
        output, output_tokens = answer
        model, provider, tenant, session = names
        duration, ttft, stop, replica = times
        record = Record(
            content=_NOTHING,
            place=_NOWHERE,
            model=model,
            provider=provider,
            tenant=tenant,
            session=session,
            replica=replica,
            stop=stop,
            duration=duration,
            ttft=ttft,
        )
        requests.append(
            Request(
                run=run,
                unit=unit,
                tokens=tokens,
                time=time,
                record=record,
                ends=ends,
                positions=positions,
                markers=tuple(Marker(end, ttl) for end, ttl in markers),
                system_end=system_end,
                salt=salt,
                output=output,
                output_tokens=output_tokens,
            )
        )
    return requests
