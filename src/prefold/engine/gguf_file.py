"""GGUF files: their metadata as a `ModelConfig`, and their one-time conversion to a Hugging Face folder.

The weights are saved in bfloat16, whatever the GGUF's own quantisation. Both dtypes of the engine then load the same
file: bfloat16 without any work, float32 by widening, and transformers reading the same folder computes with the very
same numbers. It also halves the size on disk and the time to load.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefold.engine.model_config import ModelConfig, read_json_object
from prefold.engine.progress import Progress
from prefold.errors import MissingExtra, ModelError, UnsupportedModel

if TYPE_CHECKING:
    from gguf import GGUFReader

CONVERTER_VERSION = 1
"""Part of the name of every converted folder; raise it when a conversion's result changes."""

# Faults in a GGUF surface from its reader as any of these.
_READ_ERRORS = (OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError, AttributeError)

_DAMAGED = "The file is damaged or incomplete; download it again."

# Architectures whose name in GGUF differs from the one in config.json.
_MODEL_TYPES = {"deepseek2": "deepseek_v3", "gemma3": "gemma3_text", "gpt-oss": "gpt_oss", "phi2": "phi"}

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2: dict[str, Any] = {"normalizer": None, "pre_tokenizer": {**_BYTE_LEVEL, "use_regex": True}}
# GPT-2's words, with every digit a word of its own.
_SMOLLM: dict[str, Any] = {
    "normalizer": None,
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**_BYTE_LEVEL, "use_regex": True}],
    },
}
_QWEN2: dict[str, Any] = {
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": _QWEN2_WORDS}, "behavior": "Isolated", "invert": False},
            {**_BYTE_LEVEL, "use_regex": False},
        ],
    },
}
# How text is cut into words before merging, by the name GGUF gives it (`tokenizer.ggml.pre`). transformers takes
# GPT-2's way for names it does not know (for `smollm`: numbers in one piece, which the model never saw), so the
# ways are spelled out here and an unknown one is refused.
_PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "qwen2": _QWEN2,
}


def read_config(path: Path) -> ModelConfig:
    """The shape of the model in a GGUF file, from its metadata alone.

    Raises:
        ModelError: if the file is damaged, or lacks a field.
        MissingExtra: if the package gguf is not installed.
    """
    return _config(_open(path), path)


def convert(path: Path, folder: Path, *, source: str, sha256: str, progress: Progress) -> None:
    """Write the model in a GGUF file to `folder` in the Hugging Face layout, with its provenance in `prefold.json`.

    Args:
        path: the GGUF file.
        folder: an empty folder.
        source: where the file is from, for the record.
        sha256: hex SHA-256 of the file, for the record.
        progress: told of each of three steps.

    Raises:
        ModelError: if the file is damaged or cannot be converted faithfully.
        MissingExtra: if a package that converting needs is not installed.
    """
    stage = f"Converting {path.name}"
    progress(stage, 0, 3)
    reader = _open(path)
    _require_convertible(reader, path)
    try:
        import torch  # noqa: PLC0415 - seconds to import, needed once per model
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415 - the same
    except ImportError as error:
        raise MissingExtra(
            f"Converting a GGUF file needs torch and a recent transformers ({error}).",
            hint='pip install --upgrade "prefold[engine]"',
        ) from None
    try:
        with _quiet():
            AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)
        progress(stage, 1, 3)
        with _quiet():
            model, loaded = AutoModelForCausalLM.from_pretrained(
                path.parent,
                gguf_file=path.name,
                dtype=torch.bfloat16,
                quantization_config=GgufConfig(dequantize=True),
                output_loading_info=True,
            )
        if loaded["missing_keys"] or loaded["mismatched_keys"]:  # which transformers fills with random numbers
            raise ValueError(f"tensors are missing or misshapen: {loaded['missing_keys']} {loaded['mismatched_keys']}")
        progress(stage, 2, 3)
        # The weights are plain now, but transformers refuses to save a model that still says it is quantised.
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        with _quiet():
            model.save_pretrained(folder)
    except ImportError as error:  # transformers asks for some packages only when it needs them
        hint = 'pip install --upgrade "prefold[engine]"'
        raise MissingExtra(f"Converting {path} needs another package: {error}", hint=hint) from error
    except (*_READ_ERRORS, RuntimeError) as error:
        raise ModelError(f"{path} cannot be converted: {error}", hint=_DAMAGED) from error
    _forget_versions(folder)
    _correct_tokenizer(reader, folder)
    _add_end_of_turn(reader, folder)
    record = {"source": source, "sha256": sha256, "converter_version": CONVERTER_VERSION}
    _write_json(folder / "prefold.json", record)
    progress(stage, 3, 3)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' own bars and warnings off the terminal: `Progress` says how far a conversion is."""
    with redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _open(path: Path) -> GGUFReader:
    try:
        from gguf import GGUFReader  # noqa: PLC0415 - brings numpy, and is seldom needed
    except ImportError:
        hint = 'pip install "prefold[engine]"'
        raise MissingExtra("Reading a GGUF file needs the package gguf.", hint=hint) from None
    try:
        return GGUFReader(path)
    except _READ_ERRORS as error:
        raise ModelError(f"{path} is not a complete GGUF file: {error}.", hint=_DAMAGED) from error


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()


def _config(reader: GGUFReader, path: Path) -> ModelConfig:
    """The metadata in the words of a `config.json`, read like one."""
    architecture = _value(reader, "general.architecture")

    def value(key: str) -> Any:
        return _value(reader, f"{architecture}.{key}")

    tokens = reader.get_field("tokenizer.ggml.tokens")
    kv_heads = value("attention.head_count_kv")
    config = {
        "model_type": _MODEL_TYPES.get(str(architecture), architecture),
        "num_hidden_layers": value("block_count"),
        "hidden_size": value("embedding_length"),
        "num_attention_heads": value("attention.head_count"),
        "num_key_value_heads": kv_heads,
        "head_dim": value("attention.key_length") or value("rope.dimension_count"),
        "intermediate_size": value("feed_forward_length"),
        "vocab_size": value("vocab_size") or (len(tokens.data) if tokens else None),
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "rope_theta": value("rope.freq_base"),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
        "eos_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "bos_token_id": _value(reader, "tokenizer.ggml.bos_token_id"),
        "dtype": "bfloat16",  # of the weights once converted
        "sliding_window": value("attention.sliding_window"),
        "ssm_cfg": value("ssm.state_size"),
        "kv_lora_rank": value("attention.kv_lora_rank"),
    }
    if isinstance(kv_heads, list):  # one number per layer; layers without K/V heads are recurrent or convolutions
        config["num_key_value_heads"] = max(kv_heads)
        config["layer_types"] = ["full_attention" if heads else "recurrent" for heads in kv_heads]
    if config["kv_lora_rank"] is not None:
        # With latent attention GGUF counts one K/V head and gives the widths of the compressed form.
        config["qk_rope_head_dim"] = value("rope.dimension_count")
    return ModelConfig.from_dict(config, source=f"{path} (GGUF metadata as config.json)")


def _require_convertible(reader: GGUFReader, path: Path) -> None:
    """Refuse what would come out subtly wrong: unknown word splitting, and rotary scaling that conversion drops.

    Raises:
        UnsupportedModel: naming what the file holds.
    """
    use_folder = "Use the model's Hugging Face folder or hub id instead of its GGUF file."
    model = _value(reader, "tokenizer.ggml.model")
    pre = _value(reader, "tokenizer.ggml.pre")
    if model not in {"gpt2", "llama"} or (model == "gpt2" and pre not in _PRE_TOKENIZERS):
        raise UnsupportedModel(f"{path} has a tokenizer of kind {model}/{pre}, unknown to prefold.", hint=use_folder)
    scaling = _value(reader, f"{_value(reader, 'general.architecture')}.rope.scaling.type")
    factors = next((tensor for tensor in reader.tensors if tensor.name.startswith("rope_f")), None)
    if scaling not in {None, "none"} or (factors is not None and (factors.data != 1).any()):
        raise UnsupportedModel(f"{path} scales its rotary positions, which conversion would lose.", hint=use_folder)


def _forget_versions(folder: Path) -> None:
    """Drop what only says who wrote config.json, so that the same GGUF gives the same fingerprint everywhere."""
    path = folder / "config.json"
    config = read_json_object(path)
    for field in ("transformers_version", "_name_or_path", "_model_name_or_path"):
        config.pop(field, None)
    _write_json(path, config)


def _correct_tokenizer(reader: GGUFReader, folder: Path) -> None:
    if _value(reader, "tokenizer.ggml.model") != "gpt2":
        return
    path = folder / "tokenizer.json"
    tokenizer = read_json_object(path)
    tokenizer.update(_PRE_TOKENIZERS[_value(reader, "tokenizer.ggml.pre")])
    _write_json(path, tokenizer)


def _add_end_of_turn(reader: GGUFReader, folder: Path) -> None:
    """GGUF names the tokens that end a text and a turn apart; a generation ends at either."""
    end_of_text = _value(reader, "tokenizer.ggml.eos_token_id")
    end_of_turn = _value(reader, "tokenizer.ggml.eot_token_id")
    if end_of_turn is None or end_of_turn == end_of_text:
        return
    path = folder / "generation_config.json"
    generation = read_json_object(path) if path.exists() else {}
    generation["eos_token_id"] = [token for token in (end_of_text, end_of_turn) if token is not None]
    _write_json(path, generation)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
