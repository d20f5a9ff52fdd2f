"""What `prefold serve --config` does: a gateway, with an embedded engine where the file has one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefold.engine.worker import EngineWorker
    from prefold.gateway.config import EngineTable
    from prefold.providers.prices import Prices
    from prefold.server.app import PrefoldApp


def serve_gateway(path: Path, *, host: str | None, port: int | None, log_level: str) -> None:
    """Serve until a signal ends it.

    Args:
        path: of the configuration.
        host: to listen at, in place of the file's.
        port: likewise.
        log_level: of messages on standard error.

    Raises:
        UsageError, ModelError: what is wrong with the configuration.
        KeyboardInterrupt: if it was SIGINT that ended it.
    """
    import os
    import time

    import click

    from prefold.cli.session import current_cache_folder
    from prefold.gateway import run
    from prefold.gateway.assembly import Gateway
    from prefold.gateway.load_config import load_config
    from prefold.server.run import bind, url_of

    config = load_config(path, os.environ)
    server = config.server
    listener = bind(server.host if host is None else host, server.port if port is None else port)
    operator = None if server.operator_port is None else bind(server.operator_host, server.operator_port)
    engine = _engine(config.engine) if config.has_engine else None
    gateway = Gateway(
        path,
        os.environ,
        engine=engine and (engine[1], engine[2]),
        state_folder=current_cache_folder(),
        prices=_prices(),
        clock=time.monotonic,
        now=time.time,
    )

    def tell() -> None:
        names = ", ".join(replica.table.name for replica in gateway.app.parts.fleet.replicas)
        click.echo(f"Serving {names} at {url_of(listener)}/v1", err=True)
        if operator is not None:
            click.echo(f"The operator's pages are at {url_of(operator)}/metrics and /prefold/replicas", err=True)

    try:
        run.serve(
            gateway,
            listener,
            operator,
            drain_seconds=server.drain_seconds,
            log_level=log_level,
            on_ready=tell,
        )
    finally:
        if engine is not None:
            engine[0].stop(drain=True, timeout=server.drain_seconds)  # its calls have ended; it saves what tiers keep


def _prices() -> Prices | None:
    """What models cost, where there is a list: a gateway counts tokens as well without one."""
    import logging
    from datetime import UTC, datetime

    from prefold.errors import MissingExtra
    from prefold.providers.prices import Prices

    try:
        return Prices.load(now=datetime.now(UTC))
    except MissingExtra:
        logging.getLogger(__name__).warning("No costs are counted: genai-prices is not installed")
        return None


def _engine(table: EngineTable | None) -> tuple[EngineWorker, PrefoldApp, tuple[str, ...]]:
    """The embedded engine, loaded: its worker, its application and its names."""
    from prefold.cli.display import LoadingDisplay
    from prefold.cli.session import console, current_cache_folder
    from prefold.core.units import parse_bytes
    from prefold.engine.checkpoint import resolve
    from prefold.engine.loading import load_engine
    from prefold.engine.options import EngineOptions
    from prefold.engine.worker import EngineWorker
    from prefold.gateway.config import EngineTable
    from prefold.server.app import PrefoldApp

    wanted = table or EngineTable()
    options = EngineOptions(
        dtype=wanted.dtype,
        kv_memory=parse_bytes(wanted.kv_memory),
        kv_dtype=wanted.kv_dtype,
        threads=wanted.threads,
        blend=wanted.blend,
        blend_recompute=wanted.blend_recompute,
        blend_memory=parse_bytes(wanted.blend_memory),
        kernel=wanted.kernel,
        policy=wanted.policy,
        pin_limit=wanted.pin_limit,
        tiers=wanted.tiers,
        tier_write=wanted.tier_write,
    )
    with LoadingDisplay(console(stderr=True)) as progress:
        folder = current_cache_folder()
        checkpoint = resolve(wanted.model or None, cache_dir=folder, progress=progress)
        progress(f"Loading {checkpoint.name}", 0, 0)
        worker = EngineWorker(lambda: load_engine(checkpoint, options, cache_folder=folder, progress=progress))
        worker.start()
        names = tuple(dict.fromkeys(name for name in (checkpoint.name, wanted.model) if name))
        app = PrefoldApp(worker, names)
        if wanted.pin_file:
            app.pin(Path(wanted.pin_file), progress)
    return worker, app, names
