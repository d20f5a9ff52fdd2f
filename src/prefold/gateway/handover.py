"""Two roles: a long prompt is computed by a prefill replica, and then its call goes to one that writes the answer.

The first half is the same request for one new token, whose answer is thrown away: what counts is that the engine there
has put the prompt's K and V where the engines of all replicas find them (a shared tier). Nothing depends on that it
has: whatever goes wrong, the second half computes the prompt itself. It costs time, and never an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from prefold.errors import InvalidRequest
from prefold.gateway.call import Api, Call
from prefold.gateway.condition import Condition
from prefold.gateway.config import RoutingOptions
from prefold.gateway.dispatch import Dispatcher
from prefold.gateway.handed import Handed, Handing
from prefold.gateway.isolation import effective_salt
from prefold.gateway.meter import CallMeter
from prefold.gateway.replica import Lease
from prefold.gateway.replicas import Fleet
from prefold.gateway.router import BYTES_PER_TOKEN, Router, pieces_of
from prefold.gateway.upstream import UpstreamFailed
from prefold.providers.usage import Usage, read_usage
from prefold.server.asgi import HttpError

_log = logging.getLogger(__name__)

T = TypeVar("T")

_APIS = frozenset({Api.CHAT, Api.COMPLETIONS, Api.MESSAGES})
_LIMITS = ("max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options", "n", "best_of", "echo")
_FORMS = ("logprobs", "top_logprobs", "prompt_logprobs", "response_format", "parallel_tool_calls", "prefold_pin")
_LEFT_OUT = frozenset((*_LIMITS, *_FORMS))
"""Fields that ask for more than one token, or for a form of the answer; none of them is part of the prompt."""

_NO_TOOLS = ("none", {"type": "none"})
"""Choices of tools with which some templates leave the tools out. The others only bind the answer."""

_UNCHAINED = (b'"prefold_chunks"', b'"cache_chunk"')
"""Names of fields that say that the prompt's parts are cached each by itself: nobody finds them behind one another."""

_BLOCK_BYTES = 512
_LONGEST = 4_096  # blocks that are looked at; of what is longer, the end hardly matters
_MOST_BLOCKS = 200_000
_LOOK_SECONDS = 0.5
_MOST_BYTES = 1 << 20
_OK = 200


class Handover:
    """Has long prompts computed by replicas whose role that is.

    Args:
        router: chooses among these.
        fleet: the replicas.
        dispatcher: how they are asked.
        options: how long a prompt has to be, and how long that may take.
        is_on: whether there are such replicas.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        router: Router,
        fleet: Fleet,
        dispatcher: Dispatcher,
        options: RoutingOptions,
        *,
        is_on: bool,
        clock: Callable[[], float],
    ) -> None:
        self._router = router
        self._fleet = fleet
        self._dispatcher = dispatcher
        self._options = options
        self._least_blocks = max(1, options.prefill_tokens * BYTES_PER_TOKEN // _BLOCK_BYTES)
        self._is_on = is_on
        self._clock = clock
        self._known: OrderedDict[int, None] = OrderedDict()

    async def run(self, call: Call, meter: CallMeter) -> Handed | None:
        """Have a prompt computed, if so much of it is new that a prefill replica should do it.

        What was sent before is not new: it is at home somewhere, or in the tier that all share. Bytes stand for tokens,
        since a wrong guess costs a little time only.

        Returns:
            Who did it; None where nobody did.
        """
        if len(call.body) < _BLOCK_BYTES or not self._may_be_due(call):
            return None
        keys = _keys_of(call)
        handed = await self._have_computed(call, meter) if self._is_due(keys) else None
        self._learn(keys)  # if nobody did, who answers the call now does
        return handed

    async def explain(self, call: Call) -> dict[str, Any] | None:
        """What `run` would do, as JSON: nobody is called. None where it never would."""
        if not self._may_be_due(call):
            return None
        if not self._is_due(_keys_of(call)):
            return {"replica": None, "reason": "short"}
        try:
            decision = await self._router.route(call, is_explained=True)
        except HttpError:
            return {"replica": None, "reason": Handing.NOBODY.value}
        return {"replica": decision.name, "reason": decision.why.value, "matched_tokens": decision.matched}

    def _may_be_due(self, call: Call) -> bool:
        return self._is_on and call.api in _APIS and not any(name in call.body for name in _UNCHAINED)

    def _is_due(self, keys: Sequence[int]) -> bool:
        known = next((number for number, key in enumerate(keys) if key not in self._known), len(keys))
        return len(keys) - known >= self._least_blocks

    def _learn(self, keys: Sequence[int]) -> None:
        for key in reversed(keys):  # so that ends are forgotten first
            self._known[key] = None
            self._known.move_to_end(key)
        while len(self._known) > _MOST_BLOCKS:
            self._known.popitem(last=False)

    async def _have_computed(self, call: Call, meter: CallMeter) -> Handed | None:
        try:
            decision = await self._router.route(call)
        except HttpError:
            return meter.hand_over("", Handing.NOBODY)
        meter.sent(decision.name, decision.matched, decision.why)
        lease = self._fleet.begin(decision.replica, decision.tokens - (decision.matched or 0), call.model)
        self._router.sent(decision)
        condition = self._fleet.replicas[decision.replica].condition
        handing, usage = Handing.DONE, None
        begun = self._clock()
        try:
            usage = await self._in_time(self._ask(first_half(call), lease), condition)
        except TimeoutError:
            handing = Handing.LATE
            lease.failed()
        except UpstreamFailed as error:
            handing = Handing.FAILED
            lease.failed(is_unreachable=error.is_safe)
            _log.warning("%s did not compute a prompt: %s", decision.name, error.message)
        except (HttpError, InvalidRequest):  # what is wrong with the call, its client hears from the next one
            handing = Handing.REFUSED
        finally:  # also where the client left
            lease.left()
        return meter.hand_over(decision.name, handing, self._clock() - begun, usage.read if usage is not None else 0)

    async def _ask(self, call: Call, lease: Lease) -> Usage | None:
        """Ask for the one token. Returns the usage that the answer tells.

        Raises:
            UpstreamFailed: if there is no whole answer.
            HttpError, InvalidRequest: if the replica, or the way to it, would not have the call.
        """
        answer = await self._dispatcher.ask(call, lease.table, lease.upstream)
        body = b""
        try:
            async for chunk in answer.chunks():
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise UpstreamFailed("The answer of one token is endless", hint="check what is served there")
        finally:
            await answer.close()
        lease.answered(answer.status, dict(answer.headers))
        if answer.status != _OK:
            raise HttpError(answer.status, f"{lease.table.name} answered {answer.status}")
        try:
            usage = read_usage(msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if usage is not None:
            lease.computed(usage.input - usage.read)
        return usage

    async def _in_time(self, work: Coroutine[Any, Any, T], condition: Condition) -> T:
        """What comes of work at a replica.

        Raises:
            TimeoutError: if it takes too long, or its replica goes down meanwhile.
        """
        task = asyncio.ensure_future(work)
        end = self._clock() + self._options.prefill_seconds
        try:
            while not task.done():
                left = end - self._clock()
                if left <= 0 or condition.is_down:
                    raise TimeoutError
                await asyncio.wait((task,), timeout=min(left, _LOOK_SECONDS))
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def first_half(call: Call) -> Call:
    """The same prompt, with one new token to follow it, in one piece."""
    fields = {
        name: value
        for name, value in call.fields.items()
        if name not in _LEFT_OUT and (name != "tool_choice" or value in _NO_TOOLS)
    }
    fields |= {"max_tokens": 1, "stream": False}
    return replace(call, body=msgspec.json.encode(fields), fields=fields, stream=False, fired=[])


def _keys_of(call: Call) -> list[int]:
    """Keys of a prompt's beginnings, each `_BLOCK_BYTES` longer than the one before it; none where nobody can say.

    Those of calls that may not share a prefix differ.
    """
    try:
        key = hash((call.model, effective_salt(call)))
    except InvalidRequest:  # the salt is no text, as whoever answers will say
        return []
    text = b"".join(pieces_of(call))[: _LONGEST * _BLOCK_BYTES]
    keys = []
    for start in range(0, len(text) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
        key = hash((key, text[start : start + _BLOCK_BYTES]))
        keys.append(key)
    return keys
