"""Embeddings by the package sentence-transformers, for what ONNX does not cover."""

from __future__ import annotations

import hashlib
from importlib import import_module
from typing import Any

from prefold.errors import MissingExtra, ModelError
from prefold.responses.semantic.embedders.faults import Failed
from prefold.responses.semantic.embedders.vectors import Vector, unit_rows
from prefold.responses.semantic.types import Reason

_PIPELINE = "sentence-transformers 1"


class SentenceTransformerEmbedder:
    """A model by its id on a hub, or by its folder; on the CPU, with as many threads as torch takes.

    The prefix is the model's default prompt, else its prompt "query", else none.

    Args:
        name: id or folder.

    Attributes:
        fingerprint: over weights, tokenizer, modules, prefix, length, and the package's version.
        size: numbers in a vector.

    Raises:
        MissingExtra: if the package is not installed.
        ModelError: if the model cannot be loaded.
    """

    def __init__(self, name: str) -> None:
        try:
            package = import_module("sentence_transformers")
        except ImportError:
            raise MissingExtra(
                f"The embedder {name} needs the package sentence-transformers.",
                hint="pip install sentence-transformers",
            ) from None
        try:
            self._model = package.SentenceTransformer(name, device="cpu")
        except Exception as error:  # what it raises depends on the model, the hub and the network
            raise ModelError(
                f"The model {name} cannot be loaded: {type(error).__name__}.",
                hint="give an id that sentence-transformers knows, or a folder that it saved",
            ) from error
        prompts = self._model.prompts or {}
        self._prompt = str(prompts.get(self._model.default_prompt_name or "query") or "")
        self.fingerprint = self._fingerprint(package.__version__)
        self.size: int = self.embed(["What is the capital of France?"]).shape[1]

    def refusal(self, text: str) -> Reason | None:
        """Why a vector would not stand for a text: the model reads only its beginning, or not all of its characters."""
        tokenizer = self._model.tokenizer
        ids = tokenizer(self._prompt + text, truncation=False, verbose=False)["input_ids"]
        longest = self._model.max_seq_length
        if longest is not None and len(ids) > longest:
            return Reason.TOO_LONG
        unknown = tokenizer.unk_token_id
        if unknown is not None and unknown != tokenizer.eos_token_id and unknown in ids:
            return Reason.UNREADABLE
        return None

    def embed(self, texts: list[str]) -> Vector:
        """See `Embedder.embed`; each text by itself, so that no batch changes it.

        Raises:
            Failed: if the model fails, or makes what is no vector.
        """
        try:
            found = self._model.encode(texts, prompt=self._prompt, batch_size=1, show_progress_bar=False)
        except Exception as error:  # a model may run code of its own
            raise Failed(f"The model failed: {type(error).__name__}.") from error
        return unit_rows(found)

    def _fingerprint(self, version: str) -> str:
        hashed = hashlib.sha256()
        for part in (_PIPELINE, version, repr(self._model), self._prompt, str(self._model.max_seq_length)):
            hashed.update(part.encode() + b"\0")
        hashed.update(_tokenizer_bytes(self._model.tokenizer))
        for name, values in sorted(self._model.state_dict().items()):
            hashed.update(name.encode() + b"\0")
            hashed.update(values.contiguous().view(-1).float().numpy().tobytes())
        return hashed.hexdigest()


def _tokenizer_bytes(tokenizer: Any) -> bytes:
    """What decides about tokens; slow tokenizers have no form of their own, but a vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    text = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return str(text).encode()
