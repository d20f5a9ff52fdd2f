"""What prefold needs to know of a model: its shape, its special tokens, whether a prefix cache can serve it exactly.

Read from a Hugging Face `config.json` alone, in the spelling of any transformers release; imports no model library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.engine.attention_kind import RECURRENT_TYPES, why_not_full_attention
from prefold.errors import ModelError, UnsupportedModel

_USE_FULL_ATTENTION = "Use a model with full attention in every layer, such as a Llama, SmolLM2, Qwen2 or Qwen3."

LEAN_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})

# Older decoders spell the same things in their own way.
_SPELLINGS = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "intermediate_size": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    "norm_eps": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "hidden_act": ("hidden_act", "hidden_activation", "activation_function", "activation"),
    "dtype": ("dtype", "torch_dtype"),
}


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: one compressed vector per token and layer, shared by all heads.

    Args:
        kv_lora_rank: width of the latent from which K and V are rebuilt.
        qk_rope_head_dim: width of the rotated key part kept beside it.
    """

    kv_lora_rank: int
    qk_rope_head_dim: int


@dataclass(frozen=True)
class ModelConfig:
    """A model's shape, as its `config.json` states it.

    Args:
        model_type: family name, such as `llama`.
        layers: number of decoder layers.
        hidden_size: width of the residual stream.
        heads: query heads per layer.
        kv_heads: K/V heads per layer.
        head_dim: width of one head.
        intermediate_size: width of the feed-forward layer.
        vocab_size: rows of the embedding table.
        context_length: most positions the model was made for.
        norm_eps: epsilon of the normalisation layers.
        rope: rotary parameters in today's spelling: `rope_type`, `rope_theta` and what the type needs besides.
        qkv_bias: whether the Q, K and V projections have a bias (lean families).
        output_bias: whether the attention's output projection has one (lean families).
        mlp_bias: whether the feed-forward projections have one (lean families).
        qk_norm: whether Q and K are normalised per head before rotation (lean families).
        tied_embeddings: whether the output projection is the embedding table.
        hidden_act: activation of the feed-forward layer.
        eos_token_ids: tokens that end a generation; those of `generation_config.json` where it has any.
        bos_token_id: the token that begins a text, where there is one.
        torch_dtype: name of the dtype the weights were saved in, such as `bfloat16`.
        mla: latent attention widths, or None for ordinary heads.
        partial_attention: empty when every layer attends to every earlier token; otherwise which do not, and how.
        raw: the `config.json` dictionary itself.
    """

    model_type: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    norm_eps: float
    rope: dict[str, Any]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied_embeddings: bool
    hidden_act: str
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    torch_dtype: str
    mla: LatentAttention | None
    partial_attention: str
    raw: dict[str, Any]

    @property
    def is_lean(self) -> bool:
        """Whether the family is one that prefold's own forward pass covers."""
        return self.model_type in LEAN_FAMILIES

    @property
    def full_attention(self) -> bool:
        """Whether every layer attends to every earlier token, which an exact prefix cache relies on."""
        return not self.partial_attention

    @property
    def attention_span(self) -> float:
        """Position at which attention to all earlier tokens takes as many multiplications as all the rest of a token.

        Read from the shape of a dense decoder with a gated feed-forward part; for others it is near enough to weigh
        tokens against each other.
        """
        attention = self.heads * self.head_dim
        width = 2 * attention + 2 * self.kv_heads * self.head_dim + 3 * self.intermediate_size
        return self.hidden_size * width / (2 * attention)

    def require_full_attention(self) -> None:
        """Refuse a model whose K/V of a prefix could not be reused exactly.

        Raises:
            UnsupportedModel: naming the layers concerned.
        """
        if self.partial_attention:
            raise UnsupportedModel(
                f"This {self.model_type} model cannot be served from an exact prefix cache: {self.partial_attention}.",
                hint=_USE_FULL_ATTENTION,
            )

    @classmethod
    def from_dict(
        cls,
        config: dict[str, Any],
        generation_config: dict[str, Any] | None = None,
        *,
        source: str = "config.json",
    ) -> ModelConfig:
        """Read a `config.json` dictionary.

        Args:
            config: the parsed `config.json`.
            generation_config: the parsed `generation_config.json`, where there is one.
            source: what to call `config.json` in error messages.

        Raises:
            ModelError: if a field is missing or has the wrong type, naming file and field.
            UnsupportedModel: if the model has no attention at all.
        """
        # Multi-modal models keep the language model's shape in a section of its own.
        text = config.get("text_config")
        fields = _Fields({**config, **text} if isinstance(text, dict) else config, source)
        model_type = fields.text("model_type")
        if model_type in RECURRENT_TYPES:
            raise UnsupportedModel(
                f"{source} describes a {model_type} model, whose layers keep one running state and no K and V.",
                hint=_USE_FULL_ATTENTION,
            )
        hidden_size = fields.positive("hidden_size")
        heads = fields.positive("num_attention_heads")
        layers = fields.positive("num_hidden_layers")
        context_length = fields.positive("max_position_embeddings")
        kv_heads = fields.positive("num_key_value_heads", default=1 if fields.flag("multi_query") else heads)
        rope = _rope(fields, context_length)
        attention_bias = fields.flag("attention_bias")
        return cls(
            model_type=model_type,
            layers=layers,
            hidden_size=hidden_size,
            heads=heads,
            kv_heads=kv_heads,
            # Qwen3's width of 128 is a default of its own, not a quotient.
            head_dim=fields.positive("head_dim", default=128 if model_type == "qwen3" else hidden_size // heads),
            intermediate_size=fields.positive("intermediate_size", default=4 * hidden_size),
            vocab_size=fields.positive("vocab_size"),
            context_length=context_length,
            norm_eps=fields.number("norm_eps", default=1e-6),
            rope=rope,
            # Qwen2 has these biases by construction, without a field that says so.
            qkv_bias=attention_bias or model_type == "qwen2",
            output_bias=attention_bias and model_type != "qwen2",
            mlp_bias=fields.flag("mlp_bias"),
            qk_norm=model_type == "qwen3",
            tied_embeddings=fields.flag("tie_word_embeddings", default=model_type not in LEAN_FAMILIES),
            hidden_act=fields.text("hidden_act", default="silu"),
            eos_token_ids=_eos_token_ids(fields, generation_config, source),
            bos_token_id=fields.token_ids("bos_token_id")[0] if fields.token_ids("bos_token_id") else None,
            torch_dtype=fields.text("dtype", default="float32"),
            mla=_latent_attention(fields),
            partial_attention=why_not_full_attention(
                config,
                {**fields.values, "model_type": model_type},
                layers=layers,
                context_length=context_length,
                rope=rope,
            ),
            raw=config,
        )

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        """Read `config.json`, and `generation_config.json` where present, of a Hugging Face folder.

        Raises:
            ModelError: if a file is missing, unreadable or not as expected, naming file and field.
        """
        path = folder / "config.json"
        generation_path = folder / "generation_config.json"
        generation = read_json_object(generation_path) if generation_path.exists() else None
        return cls.from_dict(read_json_object(path), generation, source=str(path))


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file's object.

    Raises:
        ModelError: if the file is missing, unreadable, not UTF-8, not JSON, or not an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{path} does not exist.",
            hint="A model folder holds config.json, tokenizer.json and *.safetensors, as Hugging Face saves them.",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be read as JSON: {error}.",
            hint="The file is damaged or incomplete; download or export the model again.",
        ) from error
    if not isinstance(value, dict):
        raise ModelError(
            f"{path} holds a JSON {type(value).__name__} where an object is expected.",
            hint="Download or export the model again.",
        )
    return value


class _Fields:
    """Typed access to a configuration dictionary, with errors that name the file and the field."""

    def __init__(self, values: dict[str, Any], source: str) -> None:
        self.values = values
        self.source = source

    def get(self, name: str) -> Any:
        """The value under any spelling of `name`; null counts as absent, as it does in transformers."""
        for spelling in _SPELLINGS.get(name, (name,)):
            if self.values.get(spelling) is not None:
                return self.values[spelling]
        return None

    def positive(self, name: str, default: int | None = None) -> int:
        value = self.get(name)
        if value is None and default is not None:
            return default
        if type(value) is not int or value < 1:
            raise self.wrong(name, value, "a whole number of at least 1")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value

    def section(self, name: str) -> dict[str, Any]:
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return value

    def token_ids(self, name: str) -> tuple[int, ...]:
        value = self.get(name)
        if value is None:
            return ()
        ids = value if isinstance(value, list) else [value]
        if any(type(item) is not int or item < 0 for item in ids):
            raise self.wrong(name, value, "a token id or a list of them")
        return tuple(ids)

    def wrong(self, name: str, value: Any, expected: str) -> ModelError:
        if value is None:
            return ModelError(
                f"{self.source} has no field {name!r}.",
                hint=f"It should be {expected}; prefold reads language models in the Hugging Face layout.",
            )
        return ModelError(
            f"{self.source}: field {name!r} is {value!r}.",
            hint=f"It should be {expected}.",
        )


def _rope(fields: _Fields, context_length: int) -> dict[str, Any]:
    """Rotary parameters in the spelling of transformers 5 (`rope_parameters`), whatever the file's own.

    Up to transformers 4 the base frequency stood beside an optional `rope_scaling`, whose kind was once called `type`.
    """
    rope = dict(fields.section("rope_parameters") or fields.section("rope_scaling"))
    rope.setdefault("rope_type", rope.pop("type", "default"))
    rope.setdefault("rope_theta", fields.number("rope_theta", default=10_000.0))
    partial = fields.get("partial_rotary_factor")
    if partial is not None:
        rope.setdefault("partial_rotary_factor", partial)
    if rope["rope_type"] in {"llama3", "yarn", "longrope"}:
        trained_length = fields.get("original_max_position_embeddings")
        rope.setdefault("original_max_position_embeddings", trained_length or context_length)
    theta = rope["rope_theta"]
    if isinstance(theta, bool) or not isinstance(theta, int | float) or theta <= 0:
        raise fields.wrong("rope_theta", theta, "a positive number")
    return rope


def _eos_token_ids(fields: _Fields, generation_config: dict[str, Any] | None, source: str) -> tuple[int, ...]:
    if generation_config is not None:
        generation_source = str(Path(source).with_name("generation_config.json"))
        ids = _Fields(generation_config, generation_source).token_ids("eos_token_id")
        if ids:
            return ids
    return fields.token_ids("eos_token_id")


def _latent_attention(fields: _Fields) -> LatentAttention | None:
    if fields.get("kv_lora_rank") is None:
        return None
    return LatentAttention(fields.positive("kv_lora_rank"), fields.positive("qk_rope_head_dim"))
