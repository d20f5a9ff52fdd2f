"""Questions into vectors within a deadline, whatever the embedder does."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from prefold.errors import MissingExtra, ModelError, PrefoldError
from prefold.responses.semantic.embedders.faults import Failed, Late, NoVector
from prefold.responses.semantic.embedders.token_vectors import PackedTokens, TokenEmbedder, TokenVectors
from prefold.responses.semantic.embedders.vectors import Vector
from prefold.responses.semantic.embedders.worker import Busy, Worker
from prefold.responses.semantic.types import Embedder, Reason

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


@dataclass(frozen=True, slots=True)
class _Known:
    """What is remembered of a text; no tokens where the embedder gives none."""

    vector: Vector
    tokens: PackedTokens | None

    @property
    def rows(self) -> int:
        return 0 if self.tokens is None else len(self.tokens.rows)


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
        remembered: recent texts whose vectors are kept; with 384 numbers each, 4,096 take some 8 MB.
        remembered_tokens: tokens, of all of these together, whose vectors are kept beside them, where the embedder
            gives any. 4,096 questions have some 40,000, and take 25 MB in all; 72,000 tokens take 28 MB themselves.
        characters: of the longest text that is embedded.
    """

    def __init__(
        self,
        embedder: Embedder,
        deadline_seconds: float = 0.05,
        *,
        queue: int = 8,
        remembered: int = 4_096,
        remembered_tokens: int = 72_000,
        characters: int = 2_000,
    ) -> None:
        self._embedder = embedder
        self._deadline = deadline_seconds
        self._remembered = remembered
        self._remembered_tokens = remembered_tokens
        self._characters = characters
        self._worker = Worker("prefold-embedder", queue)
        self._recent: OrderedDict[str, _Known] = OrderedDict()
        self._rows = 0
        self._running: dict[str, asyncio.Future[_Known]] = {}

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
            return known.vector
        running = self._running.get(text) or self._start(text)
        await asyncio.wait((running,), timeout=self._deadline)
        if not running.done():
            raise Late(f"The embedder took longer than {self._deadline:g} s.")
        if running.cancelled():
            raise Late("The embedder was closed.")
        return running.result().vector

    def tokens(self, text: str) -> TokenVectors | None:
        """The vectors of a text's tokens, if they are remembered."""
        known = self._recent.get(text)
        if known is None or known.tokens is None:
            return None
        self._recent.move_to_end(text)
        return known.tokens.unpack(text)

    def prepare(self, text: str) -> None:
        """Have a text's tokens the next time, if the embedder gives any and has nothing else to do; nobody waits."""
        if self._running or text in self._recent or not isinstance(self._embedder, TokenEmbedder):
            return
        with suppress(NoVector):
            self._start(text)

    async def close(self) -> None:
        """Let go of the embedder and end the thread, after what it is at."""
        if isinstance(self._embedder, Closing):
            self._embedder.close()
        await self._worker.close()

    def _start(self, text: str) -> asyncio.Future[_Known]:
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

    def _landed(self, text: str, finished: asyncio.Future[_Known]) -> None:
        del self._running[text]
        if finished.cancelled() or finished.exception() is not None:
            return
        known = self._recent[text] = finished.result()
        self._rows += known.rows
        while len(self._recent) > self._remembered or self._rows > self._remembered_tokens:
            self._rows -= self._recent.popitem(last=False)[1].rows

    def _embed(self, text: str) -> _Known:
        """In the thread."""
        embedder = self._embedder
        tokens: PackedTokens | None = None
        found: Any = None
        try:
            refusal = embedder.refusal(text) if isinstance(embedder, Refusing) else None
            if refusal is None and isinstance(embedder, TokenEmbedder):
                one, all_tokens = embedder.embed_tokens(text)
                found, tokens = [one], PackedTokens.of(all_tokens)
            elif refusal is None:
                found = embedder.embed([text])
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
        return _Known(vector, tokens)
