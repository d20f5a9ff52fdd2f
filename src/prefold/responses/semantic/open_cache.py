"""Opens a semantic cache for an application of one's own: everything in one folder, everything else by name."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from prefold.errors import UsageError
from prefold.responses.cache import AnswerCache, AnswerCacheOptions
from prefold.responses.cache import Mode as ExactMode
from prefold.responses.semantic.allowance import Allowance
from prefold.responses.semantic.cache import SemanticCache
from prefold.responses.semantic.decision.decision import DecisionOptions
from prefold.responses.semantic.embedders import make_embedder
from prefold.responses.semantic.embedders.embedding import Embedding
from prefold.responses.semantic.entries.records import EntriesOptions
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
from prefold.responses.semantic.judge import AskModel, Judge
from prefold.responses.semantic.options import Mode, SemanticOptions
from prefold.responses.semantic.report import require_proof
from prefold.responses.semantic.types import Embedder, Verifier
from prefold.responses.sqlite_store import SqliteStore

ENTRIES_NAME = "answers-by-meaning.sqlite"
"""Of the file with entries, in a folder."""
_EXACT_NAME = "answers.sqlite"
_EXACT_BYTES = 256 << 20


def entries_file(place: Path) -> Path:
    """The file with entries: that of a folder, or the file itself."""
    return place / ENTRIES_NAME if place.is_dir() else place


@asynccontextmanager
async def open_cache(
    folder: Path,
    *,
    mode: Mode | str = Mode.SHADOW,
    force: bool = False,
    embedder: str | Embedder = "minilm",
    judge: AskModel | None = None,
    judged_per_minute: float = 30.0,
    verifier: Verifier | None = None,
    options: SemanticOptions | None = None,
    decision: DecisionOptions | None = None,
    entries: EntriesOptions | None = None,
    exact_seconds: float = 3_600.0,
    deadline_seconds: float = 0.05,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[SemanticCache]:
    """A cache with its entries in SQLite, beside a store of exact answers, until the block ends.

        async with open_cache(Path("answers"), judge=ask_a_model) as cache:
            document = await cache.ask(request, call_model)

    Args:
        folder: of its files; made where it is not there. Several processes may share it.
        mode: "off", "shadow" (watch, learn, serve only what is the same), or "on".
        force: go "on" without a passing report. Nothing is served before it is proven even then; it is only not an
            error to wait for it.
        embedder: one, or the name of one: see `make_embedder`.
        judge: asks a language model whether two answers say the same; None to take only equal words for the same.
        judged_per_minute: how often it is asked at most.
        verifier: looks at two questions before one is answered for the other.
        options: see there.
        decision: see there.
        entries: how much is kept.
        exact_seconds: how long the same request gets the same answer.
        deadline_seconds: longest that a vector is waited for.
        environ: where keys of embedding endpoints are looked up.

    Raises:
        UsageError: if there is no such mode, it is "on" and the report does not pass, or no embedder has this name.
        MissingExtra, ModelError: if the embedder cannot be loaded.
        StoreFailed: if the mode is "on" and the entries cannot be read.
    """
    if mode not in list(Mode):
        raise UsageError(f"There is no mode {mode!r}.", hint=f"Name one of: {', '.join(Mode)}.")
    wanted = Mode(mode)
    kept = SqliteEntries(folder / ENTRIES_NAME, entries or EntriesOptions(), time.time)
    try:
        if wanted is Mode.ON and not force:
            await require_proof(kept, decision or DecisionOptions())
        loaded = await asyncio.to_thread(make_embedder, embedder, environ) if isinstance(embedder, str) else embedder
    except BaseException:  # whatever ends the start, what is open is let go of
        await kept.close()
        raise
    cache = SemanticCache(
        wanted,
        kept,
        Embedding(loaded, deadline_seconds),
        Judge(judge, Allowance(judged_per_minute, max(2.0, judged_per_minute), time.monotonic)),
        verifier=verifier,
        options=options,
        decision=decision,
        clock=time.time,
        monotonic=time.monotonic,
        draw=random.SystemRandom().random,
        new_id=lambda: secrets.token_hex(16),
        exact=AnswerCache(
            ExactMode.ON,
            SqliteStore(folder / _EXACT_NAME, _EXACT_BYTES, time.time),
            AnswerCacheOptions(ttl_seconds=exact_seconds, by_credentials=False),
            time.time,
        ),
    )
    try:
        yield cache
    finally:
        await cache.close()
