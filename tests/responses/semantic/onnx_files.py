"""Folders with small real ONNX models, written byte by byte: what they compute can be computed by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ("[UNK]", "[CLS]", "[SEP]")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_FLOAT, _INT64 = 1, 7


def write_encoder(
    folder: Path, vectors: Mapping[str, Sequence[float]], *, outputs: Sequence[str] = ("last_hidden_state",)
) -> Path:
    """A model whose token vectors are looked up in a table; `sentence_embedding` is their mean."""
    table = np.array([vectors[word] for word in vectors], dtype=np.float32)
    nodes = [
        _node("Gather", ["table", "input_ids"], ["last_hidden_state"]),
        _node("ReduceMean", ["last_hidden_state"], ["sentence_embedding"], axes=[1], keepdims=0),
    ]
    dimensions = {"last_hidden_state": 3, "sentence_embedding": 2}
    _write(folder, nodes, [_tensor("table", table)], {name: dimensions[name] for name in outputs})
    _write_tokenizer(folder, list(vectors))
    return folder


def write_pair_model(
    folder: Path,
    first: Mapping[str, Sequence[float]],
    second: Mapping[str, Sequence[float]],
    labels: Mapping[str, str] | None = None,
) -> Path:
    """A model whose logits are the sums over the words of a pair, which count otherwise in the second text."""
    table = np.array([*first.values(), *second.values()], dtype=np.float32)
    nodes = [
        _node("Mul", ["token_type_ids", "words"], ["offset"]),
        _node("Add", ["input_ids", "offset"], ["row"]),
        _node("Gather", ["table", "row"], ["parts"]),
        _node("ReduceSum", ["parts", "axis"], ["logits"], keepdims=0),
    ]
    constants = [
        _tensor("table", table),
        _tensor("words", np.array([len(first)], dtype=np.int64)),
        _tensor("axis", np.array([1], dtype=np.int64)),
    ]
    _write(folder, nodes, constants, {"logits": 2})
    _write_tokenizer(folder, list(first))
    if labels is not None:
        (folder / "config.json").write_text(json.dumps({"id2label": labels}))
    return folder


def words(numbers: int, **values: Sequence[float]) -> dict[str, Sequence[float]]:
    """A table with zeros for the special tokens."""
    return {**{token: [0.0] * numbers for token in SPECIAL}, **values}


def _write_tokenizer(folder: Path, vocabulary: list[str]) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary.index("[CLS]")), ("[SEP]", vocabulary.index("[SEP]"))],
    )
    tokenizer.enable_padding(length=32)  # as packaged tokenizers often have: nobody should see the padding
    tokenizer.save(str(folder / "tokenizer.json"))


def _write(folder: Path, nodes: list[bytes], constants: list[bytes], outputs: Mapping[str, int]) -> None:
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, b"g")
    graph += b"".join(_field(5, constant) for constant in constants)
    graph += b"".join(_field(11, _value(name, _INT64, 2)) for name in INPUTS)
    graph += b"".join(_field(12, _value(name, _FLOAT, dimensions)) for name, dimensions in outputs.items())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(_field(1, 8) + _field(7, graph) + _field(8, _field(1, b"") + _field(2, 17)))


# What follows is protocol buffers, with the field numbers of onnx.proto.


def _node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: int | list[int]) -> bytes:
    made = b"".join(_field(1, name.encode()) for name in inputs) + b"".join(_field(2, o.encode()) for o in outputs)
    made += _field(4, kind.encode())
    for name, value in attributes.items():
        given = _field(3, value) + _field(20, 2) if isinstance(value, int) else b"".join(_field(8, v) for v in value)
        made += _field(5, _field(1, name.encode()) + given + (b"" if isinstance(value, int) else _field(20, 7)))
    return made


def _tensor(name: str, values: np.ndarray) -> bytes:
    kind = _FLOAT if values.dtype == np.float32 else _INT64
    dimensions = b"".join(_field(1, size) for size in values.shape)
    return dimensions + _field(2, kind) + _field(8, name.encode()) + _field(9, values.tobytes())


def _value(name: str, kind: int, dimensions: int) -> bytes:
    shape = b"".join(_field(1, _field(2, f"d{number}".encode())) for number in range(dimensions))
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, kind) + _field(2, shape)))


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += struct.pack("B", value & 0x7F | 0x80)
        value >>= 7
    return made + struct.pack("B", value)
