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

GATEWAY_MODULES = frozenset({"jwt", "limits", "opentelemetry", "redis", "zmq"})
"""Top-level modules that only the extra `gateway` brings."""

INSTALL_HINT = "pip install 'prefold[engine]', or '.[engine]' in a clone"
_GATEWAY_HINT = "pip install 'prefold[gateway]', or '.[gateway]' in a clone"


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """What to tell the user about a module that cannot be found; None if no extra would bring it."""
    module = (error.name or "").partition(".")[0]
    if module not in ENGINE_MODULES | GATEWAY_MODULES:
        return None
    hint = _GATEWAY_HINT if module in GATEWAY_MODULES else INSTALL_HINT
    return MissingExtra(f"This needs the package {module.replace('_', '-')}, which is not installed.", hint=hint)
