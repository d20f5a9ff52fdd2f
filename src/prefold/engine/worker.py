"""The engine in a thread of its own, so that no event loop waits for a model.

Everything that touches the engine's state runs in that thread, between two steps. Other threads hand it closures.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from prefold.engine.engine import Engine
from prefold.engine.request import Request
from prefold.engine.ticket import Ticket
from prefold.errors import EngineFailed, EngineStopped

_log = logging.getLogger(__name__)

T = TypeVar("T")


class EngineWorker:
    """Runs an engine until told to stop.

    Args:
        load: makes the engine. It is called in the engine's thread, and nothing else in the process should compute with
            torch: each thread that does gets threads of its own from OpenMP, and once there are more of them than
            cores, libgomp stops spinning at barriers, which costs a tenth of the speed and more.

    Attributes:
        engine: there from `start` on; its state belongs to the thread.
    """

    engine: Engine

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._loaded: Future[None] = Future()
        self._inbox: deque[tuple[Future[Any], Callable[[], None]]] = deque()
        self._wake = threading.Condition()
        self.failed = False
        """Whether the thread ended by a fault of its own."""
        self._stopping = False
        self._draining = False
        self._ended = False
        self._idle: float | None = None  # seconds that nothing but a tier can give the engine something to do
        self._thread = threading.Thread(target=self._run, name="prefold-engine", daemon=True)

    def start(self) -> None:
        """Start the thread and wait until the engine is loaded.

        Raises:
            PrefoldError: whatever `load` raised.
        """
        self._thread.start()
        self._loaded.result()

    def stop(self, *, drain: bool, timeout: float | None = None) -> None:
        """Stop the thread.

        Args:
            drain: let running and waiting requests finish first; else they end as cancelled.
            timeout: seconds to wait for that; afterwards they are cancelled.
        """
        with self._wake:
            self._draining = True
            self._stopping = self._stopping or not drain
            self._wake.notify()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.stop(drain=False)

    def submit(self, *requests: Request) -> list[Future[Ticket]]:
        """Queue requests; their outputs come through `request.on_output`.

        Raises:
            InvalidTokens, PromptTooLong: if one of them could never run, and then none does; checked here, in the
                caller's thread.
            EngineStopped: if the worker is stopping.
        """
        for request in requests:
            self.engine.validate(request)
        self._refuse_if_stopping()
        return [self._post(partial(self.engine.enqueue, request)) for request in requests]

    def cancel(self, ticket: Future[Ticket]) -> None:
        """Stop a request, however far it is. Does nothing if it was refused or has ended."""
        self._post(lambda: None if ticket.exception() else self.engine.cancel(ticket.result()))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a function in the engine's thread, between two steps.

        Raises:
            EngineStopped: if the worker is stopping or has failed.
        """
        self._refuse_if_stopping()
        return self._post(function)

    def _refuse_if_stopping(self) -> None:
        with self._wake:
            if self._draining:
                raise _stopped()

    def _post(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - handed to whoever asked; the engine goes on
                future.set_exception(error)

        with self._wake:
            if self._ended:
                future.set_exception(_stopped())
            else:
                self._inbox.append((future, run))
                self._wake.notify()
        return future

    def _rouse(self) -> None:
        """Let the thread see whether there is anything to do."""
        self._post(_nothing)

    def _run(self) -> None:
        try:
            self.engine = self._load()
            if self.engine.ladder is not None:
                self.engine.ladder.told = self._rouse
        except BaseException as error:  # noqa: BLE001 - handed to whoever called start()
            self._ended = True
            self._loaded.set_exception(error)
            return
        self._loaded.set_result(None)
        try:
            while self._turn():
                pass
            self.engine.cancel_all()
        except BaseException:  # whatever it was, those who wait must hear of it; it goes on from here
            _log.exception("The engine has failed")
            self.failed = True
            self.engine.abandon(EngineFailed("The engine has failed", hint="its log says why"))
            raise
        finally:
            self.engine.close(lambda: self._stopping or self.failed)
            with self._wake:
                self._draining = self._ended = True
            for future, _ in self._inbox:
                if not future.done():
                    future.set_exception(_stopped())

    def _turn(self) -> bool:
        """Do whatever there is to do now; False when the thread is to end."""
        with self._wake:
            while not (self._inbox or self.engine.busy or self._draining):
                self._wake.wait()
            if self._idle and not (self._inbox or self._stopping):
                self._wake.wait(self._idle)  # for K/V from a tier, whose arrival is a task of its own
            self._idle = None
            tasks = [run for _, run in self._inbox]
            self._inbox.clear()
        for task in tasks:
            task()
        if self._stopping:
            return False
        if self.engine.busy:
            if not self.engine.step():
                self._idle = self.engine.loading
        elif self._draining and not self._inbox:
            return False
        return True


def _nothing() -> None:
    """A task that only wakes the engine."""


def _stopped() -> EngineStopped:
    return EngineStopped("The engine is stopping", hint="send the request to another server")
