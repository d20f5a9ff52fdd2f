"""Work done beside the caller, on one thread that exists only while there is something to do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_Job = TypeVar("_Job")

IDLE_SECONDS = 5.0
"""How long the thread waits for another job before it ends: a client that is no longer used leaves no thread behind."""
DELAY_SECONDS = 0.05
"""How long a job waits where nothing is in hand. A job is left while its request is being built and sent, which would
have to wait for the interpreter; a moment later the caller waits for the network, and nobody for the interpreter."""


class Worker(Generic[_Job]):
    """Handles jobs one after another.

    Args:
        handle: does a job; must not raise.
        capacity: how many jobs may wait; more are refused.
    """

    def __init__(self, handle: Callable[[_Job], None], capacity: int) -> None:
        self._handle = handle
        self._capacity = capacity
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._is_running = False
        self._is_busy = False
        self._waiting = 0

    def submit(self, job: _Job) -> bool:
        """Leave a job; False, at once, if too many wait already."""
        with self._changed:
            if len(self._jobs) >= self._capacity:
                return False
            self._jobs.append(job)
            self._changed.notify_all()
            if not self._is_running:
                threading.Thread(target=self._run, name="prefold-watch", daemon=True).start()
                self._is_running = True
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until every job is done, which is begun at once; False if it takes longer than this many seconds."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._jobs and not self._is_busy, seconds)
            finally:
                self._waiting -= 1

    def _run(self) -> None:
        was_idle = True
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                was_idle = was_idle or not self._jobs
                if not self._changed.wait_for(lambda: self._jobs, IDLE_SECONDS):
                    self._is_running = False
                    return
                if was_idle:
                    self._changed.wait_for(lambda: self._waiting, DELAY_SECONDS)
                    was_idle = False
                job = self._jobs.popleft()
                self._is_busy = True
            self._handle(job)
            del job  # it holds a prompt, and may be the last for a while
