"""Opens what answers by meaning need: the store, the embedder, the verifier and the judge, as they are configured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from prefold.core.units import parse_bytes
from prefold.errors import MissingExtra
from prefold.gateway.config import GatewayConfig, MeaningOptions
from prefold.gateway.meaning_checks import MODEL, ONNX
from prefold.gateway.own_model import OwnModel
from prefold.responses.semantic.allowance import Allowance
from prefold.responses.semantic.embedders import make_embedder
from prefold.responses.semantic.embedders.embedding import Embedding
from prefold.responses.semantic.embedders.verifiers import ModelVerifier, OnnxVerifier
from prefold.responses.semantic.entries.guarded_entries import GuardedEntries
from prefold.responses.semantic.entries.records import EntriesOptions
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
from prefold.responses.semantic.judge import Judge
from prefold.responses.semantic.open_cache import ENTRIES_NAME
from prefold.responses.semantic.types import Entries, Verifier
from prefold.responses.store import StoreFailed

_CLOSING_SECONDS = 1.0

asking_tenant: ContextVar[str] = ContextVar("asking_tenant", default="")
"""Whose question is being looked at, for a verifier that is a model behind this gateway."""


class Lent(GuardedEntries):
    """Entries that several caches share: none of them closes them, and what is counted is told to them elsewhere."""

    async def tally(self, news: Mapping[str, int]) -> None:
        """Nothing happens."""

    async def close(self) -> None:
        """Nothing happens."""


class LentEmbedding(Embedding):
    """An embedding that several caches share: none of them closes it."""

    async def close(self) -> None:
        """Nothing happens."""

    async def end(self) -> None:
        """Let go of the embedder."""
        await super().close()


@dataclass(frozen=True, slots=True)
class MeaningParts:
    """What answers by meaning are made with.

    Attributes:
        store: the one truth.
        embedding: of questions.
        judge: compares answers.
        verifier: looks at questions in the path; None for none.
    """

    store: Entries
    embedding: LentEmbedding
    judge: Judge
    verifier: Verifier | None

    async def close(self) -> None:
        """Let go of all of it; what hangs is left behind."""
        endings = [self.embedding.end(), self.store.close()]
        if isinstance(self.verifier, OnnxVerifier):
            endings.append(self.verifier.close())
        for ending in endings:
            with suppress(TimeoutError, StoreFailed):
                async with asyncio.timeout(_CLOSING_SECONDS / len(endings)):
                    await ending


async def open_parts(
    config: GatewayConfig,
    environ: Mapping[str, str],
    folder: Path,
    *,
    own_model: Callable[[str], OwnModel],
    clock: Callable[[], float],
    monotonic: Callable[[], float],
) -> MeaningParts:
    """Open all of it.

    Args:
        config: the gateway's.
        environ: where secrets are.
        folder: of the SQLite file, where the configuration names no other.
        own_model: makes what asks a model behind the gateway, by its name.
        clock: Unix seconds.
        monotonic: seconds that only grow.

    Raises:
        UsageError, MissingExtra, ModelError: if a part cannot be had.
    """
    options = config.meaning
    # Both take a while, and the gateway may be running.
    embedder = await asyncio.to_thread(make_embedder, options.embedder, environ)
    verifier: Verifier | None = None
    if options.verifier.startswith(ONNX):
        verifier = await asyncio.to_thread(_onnx_verifier, options)
    elif options.verifier:
        model = own_model(options.verifier.removeprefix(MODEL))
        verifier = ModelVerifier(
            lambda messages: model(messages, asking_tenant.get()), budget_seconds=options.verify_seconds
        )
    per_minute = options.judgements_per_minute
    return MeaningParts(
        store=_store(config, environ, folder, clock),
        embedding=LentEmbedding(embedder, options.embed_seconds),
        judge=Judge(
            own_model(options.judge) if options.judge else None,
            Allowance(per_minute, max(2.0, per_minute), monotonic),
        ),
        verifier=verifier,
    )


def _onnx_verifier(options: MeaningOptions) -> OnnxVerifier:
    folder = Path(options.verifier.removeprefix(ONNX)).expanduser()
    return OnnxVerifier(folder, budget_seconds=options.verify_seconds)


def _store(config: GatewayConfig, environ: Mapping[str, str], folder: Path, clock: Callable[[], float]) -> Entries:
    options = config.meaning
    bounds = EntriesOptions(bytes=parse_bytes(options.max_bytes))
    try:
        if options.store == "redis" and config.redis is not None:
            from prefold.responses.semantic.entries.redis_entries import RedisEntries  # noqa: PLC0415 - not there everywhere

            return RedisEntries(config.redis.address(environ), bounds, clock, options.store_seconds)
        if options.store == "postgres" and options.postgres is not None:
            from prefold.responses.semantic.entries.postgres_entries import PostgresEntries  # noqa: PLC0415 - likewise

            return PostgresEntries(options.postgres.read(environ), bounds, clock, options.store_seconds)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"meaning.store is {options.store}, which needs the package {error.name}.",
            hint=f"pip install {error.name}",
        ) from None
    return SqliteEntries(Path(options.path).expanduser() if options.path else folder / ENTRIES_NAME, bounds, clock)
