"""Questions into vectors within a deadline, whatever the embedder does."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from prefold.errors import MissingExtra, ModelError, PrefoldError
from prefold.responses.semantic.embedders.faults import Failed, Late, NoVector
from prefold.responses.semantic.embedders.vectors import Vector
from prefold.responses.semantic.types import Embedder, Reason
from prefold.responses.semantic.worker import Busy, Worker

_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters and halves of characters: tokenizers drop them, or end there, each in a way of its own."""

_UNIT_TOLERANCE = 1e-3


@runtime_checkable
class Refusing(Protocol):
    """An embedder that knows for which texts its vectors do not stand."""

    def refusal(self, text: str) -> Reason | None:
        """Why a text should have no vector; None where it may."""


@runtime_checkable
class Closing(Protocol):
    """An embedder that holds something."""

    def close(self) -> None:
        """Let go of it, and end a call that is under way in another thread."""


class Embedding:
    """An embedder behind a deadline, a bounded queue, and a memory of recent texts.

    A text of which a vector would hold only a part gets none, since a question that differs in the other part would
    look the same: longer than `characters` or than the model reads, with control characters or halves of characters,
    with characters that the model's vocabulary lacks, or blank.

    Args:
        embedder: called in a thread of its own, one text at a time.
        deadline_seconds: longest that a caller waits. What was begun is finished, so that the same text later has its
            vector at once.
        queue: texts that may be waiting or under way.
        remembered: recent vectors that are kept; with 384 numbers each, 4,096 take some 8 MB with their texts.
        characters: of the longest text that is embedded.
    """

    def __init__(
        self,
        embedder: Embedder,
        deadline_seconds: float = 0.05,
        *,
        queue: int = 8,
        remembered: int = 4_096,
        characters: int = 2_000,
    ) -> None:
        self._embedder = embedder
        self._deadline = deadline_seconds
        self._remembered = remembered
        self._characters = characters
        self._worker = Worker("prefold-embedder", queue)
        self._recent: OrderedDict[str, Vector] = OrderedDict()
        self._running: dict[str, asyncio.Future[Vector]] = {}

    @property
    def fingerprint(self) -> str:
        """Of the embedder; of an endpoint, final once it gave its first vector."""
        return self._embedder.fingerprint

    async def __call__(self, text: str) -> Vector:
        """The vector of a text: float32, shape [size], unit length, not to be written to.

        Raises:
            Late: if it is not there in time, or too many are waited for.
            Failed: if the embedder fails, or a vector would not stand for the text.
        """
        known = self._recent.get(text)
        if known is not None:
            self._recent.move_to_end(text)
            return known
        running = self._running.get(text) or self._start(text)
        await asyncio.wait((running,), timeout=self._deadline)
        if not running.done():
            raise Late(f"The embedder took longer than {self._deadline:g} s.")
        if running.cancelled():
            raise Late("The embedder was closed.")
        return running.result()

    async def close(self) -> None:
        """Let go of the embedder and end the thread, after what it is at."""
        if isinstance(self._embedder, Closing):
            self._embedder.close()
        await self._worker.close()

    def _start(self, text: str) -> asyncio.Future[Vector]:
        if len(text) > self._characters:
            raise Failed(f"The text has more than {self._characters} characters.", reason=Reason.TOO_LONG)
        if not text.strip() or _UNREADABLE.search(text):
            raise Failed("The text is blank, or holds control characters.", reason=Reason.UNREADABLE)
        try:
            running = self._worker.start(partial(self._embed, text))
        except Busy:
            raise Late("Too many texts wait for the embedder.") from None
        self._running[text] = running
        running.add_done_callback(partial(self._landed, text))
        return running

    def _landed(self, text: str, finished: asyncio.Future[Vector]) -> None:
        del self._running[text]
        if finished.cancelled() or finished.exception() is not None:
            return
        self._recent[text] = finished.result()
        if len(self._recent) > self._remembered:
            self._recent.popitem(last=False)

    def _embed(self, text: str) -> Vector:
        """In the thread."""
        embedder = self._embedder
        try:
            refusal = embedder.refusal(text) if isinstance(embedder, Refusing) else None
            found = embedder.embed([text]) if refusal is None else None
            vector: Vector = np.array(found, dtype=np.float32)
        except NoVector:
            raise
        except (MissingExtra, ModelError) as error:
            raise Failed(error.message, hint=error.hint, reason=Reason.EMBEDDER_MISSING) from error
        except PrefoldError as error:
            raise Failed(error.message, hint=error.hint) from error
        except Exception as error:  # whatever an embedder of somebody else's raises is a miss
            raise Failed(f"The embedder failed: {type(error).__name__}.") from error
        if refusal is not None:
            raise Failed("The embedder does not read the whole text.", reason=refusal)
        if vector.shape != (1, embedder.size):
            raise Failed(f"The embedder gave vectors of shape {list(vector.shape)}; it has {embedder.size} numbers.")
        if not abs(float(np.linalg.norm(vector)) - 1.0) < _UNIT_TOLERANCE:  # which not a number is not, either
            raise Failed("The embedder gave a vector that is not of unit length.")
        vector = vector[0]
        vector.flags.writeable = False
        return vector
