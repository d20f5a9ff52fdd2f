"""The prices and the memory of a token, as options of several commands give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefold.providers.prices import Prices

BYTES_PER_TOKEN = 131_072
"""K/V of a token where nothing is said: Llama 3 8B, 2 x 32 layers x 8 heads x 128 numbers of 2 bytes."""


def load_prices(given: str | None, file: str | None, currency: str, rate: float | None) -> Prices | None:
    """Prices; None if none are given and none are installed.

    Raises:
        UsageError: as `Prices.load`.
    """
    from datetime import UTC, datetime
    from pathlib import Path

    from prefold.errors import MissingExtra
    from prefold.providers.prices import Prices

    overrides = Path(file) if file else None
    try:
        return Prices.load(overrides=overrides, given=given, currency=currency, rate=rate, now=datetime.now(UTC))
    except MissingExtra:
        return None


def bytes_per_token(given: int | None, model: str | None) -> int:
    """What keys and values of a token take.

    Args:
        given: that many bytes; None to take those of the model.
        model: as `prefold size` takes it; None for `BYTES_PER_TOKEN`.

    Raises:
        UsageError: both are given.
        ModelError: nothing is known of that model.
    """
    from prefold.cli.session import console, current_cache_folder
    from prefold.errors import UsageError

    if given is not None and model is not None:
        raise UsageError("--kv-bytes-per-token and --kv-model exclude each other.", hint="Give one of them.")
    if model is None:
        return given or BYTES_PER_TOKEN
    from prefold.cli.display import LoadingDisplay
    from prefold.engine.checkpoint import resolve_config
    from prefold.engine.size import KVShape, canonical_dtype

    with LoadingDisplay(console(stderr=True)) as progress:
        config = resolve_config(model, cache_dir=current_cache_folder(), progress=progress)
    return KVShape.of_model(config).bytes_per_token(canonical_dtype(config.torch_dtype))
