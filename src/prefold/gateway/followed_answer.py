"""A replica's answer on its way, of which the meter, the fleet and the client's headers are told."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from prefold.gateway.handed import Handed
from prefold.gateway.meter import CallMeter, Outcome
from prefold.gateway.replica import Lease
from prefold.gateway.router import Decision
from prefold.gateway.upstream import Answer, Headers, UpstreamFailed
from prefold.responses.cache import Source
from prefold.responses.endings import Ending, has_last_event

_log = logging.getLogger(__name__)
_EVENT_STREAM = b"text/event-stream"


class FollowedAnswer:
    """An `Answer` that others hear of.

    Args:
        answer: the replica's.
        decision: why it was asked.
        lease: of its place there.
        meter: of the call.
        source: what the response cache did.
        settle: puts the tenant's budget right, where the client has left before.
        handed: who computed the prompt before, if anybody did.
    """

    def __init__(
        self,
        answer: Answer,
        decision: Decision,
        lease: Lease,
        meter: CallMeter,
        source: Source,
        settle: Callable[[], Awaitable[None]],
        handed: Handed | None,
    ) -> None:
        self.status = answer.status
        self.headers: Headers = [
            *answer.headers,
            (b"x-prefold-replica", decision.name.encode()),
            (b"x-prefold-reason", decision.why.encode()),
        ]
        if decision.matched is not None:
            self.headers.append((b"x-prefold-matched-tokens", str(decision.matched).encode()))
        if handed is not None:
            self.headers.append((b"x-prefold-prefill", handed.replica.encode()))
        self._answer = answer
        self._name = decision.name
        self._lease = lease
        self._meter = meter
        self._source = source
        self._settle = settle
        self._own_headers = dict(answer.headers)
        self._is_stream = answer.status < 400 and self._own_headers.get(b"content-type", b"").startswith(_EVENT_STREAM)
        if self._is_stream and b"content-length" in self._own_headers:  # an event that tells of an error may follow
            self.headers = [header for header in self.headers if header[0] != b"content-length"]
        self._is_over = False
        self._is_guess = decision.matched is None

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `Answer`."""
        try:
            is_first = True
            is_stream = self._is_stream
            chunk = b""
            async for chunk in self._answer.chunks():
                if is_first:
                    is_first = False
                    self._meter.first_byte()
                    if is_stream:
                        self._lease.first_byte()
                self._meter.chunk(chunk)
                yield chunk
            outcome = self._told_outcome() if is_stream and not has_last_event(chunk) else Outcome.DONE
        except UpstreamFailed as error:
            _log.warning("%s broke off: %s", self._name, error.message)
            self._is_over = True
            self._lease.failed()
            raise
        self._end(outcome)

    async def close(self) -> None:
        """See `Answer`. Some clients leave with the last event, before the stream ends: they have all there is."""
        if not self._is_over and self._meter.has_last_event():
            self._end()
        self._lease.left()
        await self._answer.close()
        if self._meter.asked(self.status):
            await self._settle()

    def _told_outcome(self) -> Outcome:
        """What came of a stream whose connection has ended.

        Raises:
            UpstreamFailed: if nothing in it says that it was to end there.
        """
        if self._own_headers.get(b"content-encoding", b"identity") != b"identity":
            return Outcome.DONE  # nobody here can read it
        match self._meter.ending():
            case Ending.WHOLE:
                return Outcome.DONE
            case Ending.ERROR:
                return Outcome.FAILED
        raise UpstreamFailed("The stream ended without its last event", hint="check what is served there")

    def _end(self, outcome: Outcome = Outcome.DONE) -> None:
        """Nothing more is to come."""
        self._is_over = True
        self._meter.answered(self.status, outcome, self._source.value)
        if usage := self._meter.usage:
            self._lease.computed(usage.input - usage.read)
        elif self._is_guess:  # nobody knows; as work it would drive away a conversation that is at home there
            self._lease.computed(0)
        self._lease.answered(self.status, self._own_headers)
