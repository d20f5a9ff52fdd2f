"""prefold: read every prompt prefix once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefold.clients import watch as watch

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`prefold.watch`, imported when it is used."""
    if name == "watch":
        from prefold.clients import watch  # noqa: PLC0415 - `import prefold` stays light

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
