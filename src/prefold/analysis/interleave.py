"""Sessions that were logged one by one, mixed as they run side by side on a server."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from prefold.analysis.record import Record
from prefold.errors import UsageError


def interleave(records: Iterable[Record], concurrent: int) -> Iterator[Record]:
    """Sessions with clocks of their own on one clock, so many of them at a time.

    The first ones start at second 0, every other one when one of those before it ends: after its last request, or after
    the answer to it where the log says how long that took. Requests at the same time keep the order of the log.

    Args:
        records: a log that is grouped by session. It is read as sessions begin, and the records of running sessions are
            held. What comes of a session after another one began is a session of its own.
        concurrent: how many run at a time.

    Raises:
        UsageError: if `concurrent` is not positive, or a record has no session or no time.
    """
    if concurrent < 1:
        raise UsageError(f"{concurrent} sessions cannot run at a time.", hint="Give a number of at least 1.")
    return _interleaved(records, concurrent)


def _interleaved(records: Iterable[Record], concurrent: int) -> Iterator[Record]:
    sessions = groupby(records, key=lambda record: record.session)
    # The next request of each running session: its time, the session's number, and the requests after it. A number is
    # there once, so that the rest is never compared.
    running: list[tuple[float, int, Record, Iterator[Record]]] = []
    number = 0

    def start(at: float) -> None:
        nonlocal number
        for _, session in sessions:
            timed = iter(_timed(session, at))
            heapq.heappush(running, (at, number, next(timed), timed))
            number += 1
            return

    for _ in range(concurrent):
        start(0.0)
    while running:
        time, serial, record, later = running[0]
        following = next(later, None)
        if following is None:
            heapq.heappop(running)
            start(time + (record.duration or 0.0))
        else:
            heapq.heapreplace(running, (following.time or 0.0, serial, following, later))
        yield record


def _timed(session: Iterable[Record], start: float) -> list[Record]:
    """A session from `start` on; a clock that runs backwards stands still."""
    timed: list[Record] = []
    first = latest = 0.0
    for record in session:
        if not record.session or record.time is None:
            missing = "time" if record.session else "session"
            raise UsageError(
                f"{record.place} has no {missing}.", hint="Only a log with sessions and times can be interleaved."
            )
        if not timed:
            first = latest = record.time
        latest = max(latest, record.time)
        timed.append(replace(record, time=start + (latest - first)))
    return timed
