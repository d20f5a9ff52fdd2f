"""The engine in a thread of its own, so that no event loop waits for a model.

Everything that touches the engine's state runs in that thread, between two steps. Other threads hand it closures.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from prefold.engine.engine import Engine, Ticket
from prefold.engine.request import Request
from prefold.errors import EngineStopped, PrefoldError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class EngineWorker:
    """Runs an engine until told to stop.

    Args:
        engine: used by nobody else from now on.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._inbox: deque[Callable[[], object]] = deque()
        self._wake = threading.Condition()
        self.failed = False
        """Whether the thread ended by a fault of its own."""
        self._stopping = False
        self._draining = False
        self._thread = threading.Thread(target=self._run, name="prefold-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

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

    def submit(self, request: Request) -> Future[Ticket]:
        """Queue a request; its outputs come through `request.on_output`.

        Raises:
            InvalidTokens, PromptTooLong: if it could never run; checked here, in the caller's thread.
            EngineStopped: if the worker is stopping.
        """
        self.engine.validate(request)
        return self.call(lambda: self.engine.submit(request))

    def cancel(self, ticket: Future[Ticket]) -> None:
        """Stop a request, however far it is. Does nothing if it was refused or has ended."""
        self._post(lambda: None if ticket.exception() else self.engine.cancel(ticket.result()))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a function in the engine's thread, between two steps.

        Raises:
            EngineStopped: if the worker is stopping or has failed.
        """
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except PrefoldError as error:
                future.set_exception(error)

        self._post(run)
        return future

    def _post(self, function: Callable[[], object]) -> None:
        with self._wake:
            if self._draining:
                raise EngineStopped("The engine is stopping", hint="send the request to another server")
            self._inbox.append(function)
            self._wake.notify()

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException:
            _log.exception("The engine has failed")
            self.failed = True
            self.engine.abandon("The engine has failed; its log says why")
            raise
        finally:
            with self._wake:
                self._draining = True
            self.engine.cancel_all()

    def _turn(self) -> bool:
        """Whatever is to be done now; False when the thread is to end."""
        with self._wake:
            while not (self._inbox or self.engine.busy or self._draining):
                self._wake.wait()
            tasks = list(self._inbox)
            self._inbox.clear()
        for task in tasks:
            task()
        if self._stopping:
            return False
        if self.engine.busy:
            self.engine.step()
        elif self._draining and not self._inbox:
            return False
        return True
