"""A transformer encoder in an ONNX file with its tokenizer, on one thread."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from prefold.errors import ModelError, UnsupportedModel

_INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids"))
_WITHOUT_LIMIT = 1_000_000  # tokenizers without a length of their own say 1e30
_USUAL_TOKENS = 256
_READ_BYTES = 1 << 20
_ERRORS_ONLY = 3  # of onnxruntime's levels


@dataclass(frozen=True, slots=True)
class OnnxFiles:
    """Where a model lies.

    Attributes:
        model: the ONNX file; weights kept beside it have names that begin with its name.
        tokenizer: tokenizer.json.
        max_tokens: that the model reads of a text, or a pair of texts, special tokens included.
    """

    model: Path
    tokenizer: Path
    max_tokens: int

    @classmethod
    def of_folder(cls, folder: Path, most_tokens: int) -> OnnxFiles:
        """The files in a folder as it comes from a model hub.

        Args:
            folder: with tokenizer.json, and model.onnx in itself or in its folder onnx.
            most_tokens: bound on `max_tokens`, whatever the model can read.

        Raises:
            ModelError: if one of them is not there.
        """
        model = next((path for path in (folder / "model.onnx", folder / "onnx" / "model.onnx") if path.is_file()), None)
        if model is None:
            raise ModelError(
                f"{folder} holds neither model.onnx nor onnx/model.onnx.", hint="export the model to ONNX first"
            )
        limits = [
            read_object(folder / "sentence_bert_config.json").get("max_seq_length"),
            read_object(folder / "tokenizer_config.json").get("model_max_length"),
        ]
        stated = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit < _WITHOUT_LIMIT]
        return cls(model, folder / "tokenizer.json", min(stated[0] if stated else _USUAL_TOKENS, most_tokens))

    def digest(self) -> str:
        """SHA-256, in hex, over all bytes of model, weights and tokenizer."""
        hashed = hashlib.sha256()
        for path in (*sorted(self.model.parent.glob(f"{self.model.name}*")), self.tokenizer):
            hashed.update(sha256_of(path).encode())
        return hashed.hexdigest()


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text, or a pair of them, as a model reads it.

    Attributes:
        ids: with special tokens; not longer than the model reads.
        types: 1 for tokens of the second text of a pair.
        spans: where each stands in its text: first character and the one behind its last, the same for special tokens.
        cut: whether there were more.
        unknown: whether the vocabulary lacks some of it.
        empty: whether only special tokens are left.
    """

    ids: Sequence[int]
    types: Sequence[int]
    spans: Sequence[tuple[int, int]]
    cut: bool
    unknown: bool
    empty: bool


class OnnxModel:
    """Runs one text at a time, so that what comes out does not depend on what else is in a batch.

    Args:
        files: the model.

    Raises:
        ModelError: if the files cannot be read.
        UnsupportedModel: if the model asks for other inputs than token ids, mask and types.
    """

    def __init__(self, files: OnnxFiles) -> None:
        self._tokenizer = _load_tokenizer(files)
        self._unknown = _unknown_id(self._tokenizer)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        try:
            self._session = onnxruntime.InferenceSession(
                files.model, sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no base of their own
            raise ModelError(
                f"{files.model} cannot be read as an ONNX model: {type(error).__name__}.", hint="fetch it again"
            ) from error
        self._inputs = frozenset(each.name for each in self._session.get_inputs())
        if "input_ids" not in self._inputs or self._inputs - _INPUTS:
            raise UnsupportedModel(
                f"{files.model} takes {', '.join(sorted(self._inputs))}; prefold gives {', '.join(sorted(_INPUTS))}.",
                hint="export the encoder alone, with these inputs",
            )
        self.outputs: dict[str, int] = {each.name: len(each.shape) for each in self._session.get_outputs()}
        """Names of the outputs with their number of dimensions, batch included."""

    def tokens(self, text: str, second: str | None = None) -> Tokens:
        """What the model reads of a text or pair.

        Raises:
            ModelError: if a text holds half a character.
        """
        try:
            encoding = self._tokenizer.encode(text, second)
        except (TypeError, UnicodeEncodeError):
            raise ModelError("The text holds half a character.", hint="remove lone surrogates") from None
        return Tokens(
            ids=encoding.ids,
            types=encoding.type_ids,
            spans=encoding.offsets,
            cut=bool(encoding.overflowing),
            unknown=self._unknown in encoding.ids,
            empty=all(encoding.special_tokens_mask),
        )

    def run(self, tokens: Tokens, output: str) -> Any:
        """One output, without the batch dimension, as numpy gives it.

        Raises:
            ModelError: if the model fails.
        """
        ids = np.array([tokens.ids], dtype=np.int64)
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.array([tokens.types], dtype=np.int64),
        }
        try:
            found = self._session.run([output], {name: feeds[name] for name in self._inputs})
        except Exception as error:  # as above
            raise ModelError(f"The ONNX model failed: {type(error).__name__}.") from error
        return np.asarray(found[0])[0]


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object in a file; an empty one where there is no such file.

    Raises:
        ModelError: if it is there, but no JSON object.
    """
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {type(error).__name__}.", hint="fetch the model again") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds no JSON object.", hint="fetch the model again")
    return found


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex.

    Raises:
        ModelError: if it cannot be read.
    """
    hashed = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(_READ_BYTES):
                hashed.update(part)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {type(error).__name__}.", hint="install the model again") from None
    return hashed.hexdigest()


def _load_tokenizer(files: OnnxFiles) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(files.tokenizer.read_text("utf-8"))
    except Exception as error:  # the package raises plain Exception
        raise ModelError(
            f"{files.tokenizer} cannot be read as a tokenizer: {type(error).__name__}.", hint="fetch it with its model"
        ) from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(files.max_tokens)
    return tokenizer


def _unknown_id(tokenizer: Tokenizer) -> int:
    """Id that stands for what the vocabulary lacks; -1 where it lacks nothing."""
    model = json.loads(tokenizer.to_str())["model"]
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    token = model.get("unk_token")
    found = tokenizer.token_to_id(token) if token else None
    return -1 if found is None else found
