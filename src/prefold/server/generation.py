"""From the engine's thread to the event loop: the outputs of one HTTP request."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from prefold.engine.pins import Pinned
from prefold.engine.request import Output, Request, Usage
from prefold.engine.ticket import Ticket
from prefold.engine.worker import EngineWorker
from prefold.errors import EngineFailed, EngineStopped, PrefoldError
from prefold.server.metrics import Meter
from prefold.server.openai_requests import Call, Prompt

T = TypeVar("T")


async def result_of(future: Future[T]) -> T:
    """Wait for the engine's thread. Shielded: to cancel the waiting must not cancel what the engine is about to do."""
    return await asyncio.shield(asyncio.wrap_future(future))


class Generation:
    """The answers to one call, on their way. Made and used in the event loop.

    Args:
        worker: runs the engine.
        call: what is wanted.
        new_meter: makes the meter of each prompt.

    Attributes:
        usages: of the prompts that have ended, by index.
        pins: what became of their wishes to pin, by index, of those that had one and were computed.
    """

    def __init__(self, worker: EngineWorker, call: Call, new_meter: Callable[[], Meter]) -> None:
        self.usages: dict[int, Usage] = {}
        self.pins: dict[int, Pinned | PrefoldError] = {}
        self._worker = worker
        self._call = call
        self._new_meter = new_meter
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._outputs: deque[tuple[int, Output]] = deque()
        self._unfinished = len(call.prompts)
        self._tickets: list[Future[Ticket]] = []
        self._fault: BaseException | None = None

    def start(self) -> None:
        """Hand the prompts to the engine.

        Raises:
            InvalidTokens, PromptTooLong: if one of them could never run; then none does.
            EngineStopped: if the engine is stopping.
        """
        requests = (self._request(index, prompt) for index, prompt in enumerate(self._call.prompts))
        self._tickets = self._worker.submit(*requests)
        for ticket in self._tickets:
            ticket.add_done_callback(self._submitted)

    async def batches(self) -> AsyncIterator[list[tuple[int, Output]]]:
        """Outputs as they come, each with the number of its choice; all at once if they are not streamed.

        The choices of the first prompt come first, then those of the second.

        Raises:
            EngineFailed, NoRoom, EngineStopped: if the engine gave an answer up.
        """
        while len(self.usages) < len(self._call.prompts):
            await self._news.wait()
            self._news.clear()
            if self._fault is not None:
                raise self._fault
            batch = []
            while self._outputs:
                prompt, output = self._outputs.popleft()
                if output.finish == "error":
                    raise output.error or EngineFailed("The engine failed")
                if output.finish == "cancelled":
                    raise EngineStopped("The engine stopped before the answer was complete", hint="send it again")
                if output.usage is not None:
                    self.usages[prompt] = output.usage
                if output.pin is not None:
                    self.pins[prompt] = output.pin
                batch.append((prompt * self._call.sampling.choices + output.choice, output))
            yield batch

    async def share(self, seconds: float) -> None:
        """Wait until other engines find the prompts in the tiers. If that takes too long, they compute them again.

        Args:
            seconds: to wait at most.
        """
        engine = self._worker.engine
        with contextlib.suppress(EngineStopped, TimeoutError):
            async with asyncio.timeout(seconds):
                for prompt in self._call.prompts:
                    share = partial(engine.share, prompt.run, prompt.scope)
                    for _ in range(2):  # the second one brings what others have removed
                        shared = asyncio.wrap_future(await result_of(self._worker.call(share)))
                        await asyncio.wait((shared,))  # whatever comes of it
                        if shared.cancelled() or shared.result():
                            break

    def cancel(self) -> None:
        """Stop whatever still runs, and free its memory."""
        if self._unfinished:
            for ticket in self._tickets:
                self._worker.cancel(ticket)

    def _request(self, index: int, prompt: Prompt) -> Request:
        meter = self._new_meter()

        def take(output: Output) -> None:  # in the engine's thread
            meter.observe(output)
            self._outputs.append((index, output))
            if output.usage is not None:
                self._unfinished -= 1
            # A client that wants the whole answer need not be told of each token.
            if self._call.stream or not self._unfinished or output.finish in ("error", "cancelled"):
                self._tell()

        return Request(prompt.run, self._call.sampling, take, prompt.scope, prompt.pin, prompt.chunks)

    def _submitted(self, ticket: Future[Ticket]) -> None:  # in the engine's thread
        """Pass on why the engine did not take a request."""
        self._fault = self._fault or ticket.exception()
        if self._fault is not None:
            self._tell()

    def _tell(self) -> None:  # in the engine's thread
        with contextlib.suppress(RuntimeError):  # the event loop has ended, and so has whoever waited
            self._loop.call_soon_threadsafe(self._news.set)
