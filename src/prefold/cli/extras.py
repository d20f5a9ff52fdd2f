"""Telling an absent optional package from a fault."""

from __future__ import annotations

from prefold.errors import MissingExtra

ENGINE_MODULES = frozenset(
    {
        "accelerate",
        "gguf",
        "httptools",
        "numpy",
        "prometheus_client",
        "safetensors",
        "tokenizers",
        "torch",
        "transformers",
        "uvicorn",
    }
)
"""Top-level modules of the packages that the extra `engine` brings."""

INSTALL_HINT = "pip install 'prefold[engine]', or '.[engine]' in a clone"


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """What to tell the user about a module that cannot be found; None if no extra would bring it."""
    module = (error.name or "").partition(".")[0]
    if module not in ENGINE_MODULES:
        return None
    return MissingExtra(
        f"This needs the package {module.replace('_', '-')}, which is not installed.", hint=INSTALL_HINT
    )
