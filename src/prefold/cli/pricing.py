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
