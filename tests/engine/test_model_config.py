"""Reading config.json, in the spellings of several transformers releases."""

import json
from pathlib import Path
from typing import Any

import pytest

from prefold.engine.model_config import LatentAttention, ModelConfig
from prefold.errors import ModelError, UnsupportedModel

MINIMAL: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 300,
    "max_position_embeddings": 8192,
}


def config(**fields: Any) -> ModelConfig:
    return ModelConfig.from_dict({"model_type": "llama", **MINIMAL, **fields})


def test_reads_a_llama() -> None:
    found = config(eos_token_id=[2, 7], bos_token_id=1, rms_norm_eps=1e-5, dtype="bfloat16", rope_theta=5e5)
    assert ("llama", 4, 64, 4, 2, 16, 96, 300, 8192) == (
        found.model_type,
        found.layers,
        found.hidden_size,
        found.heads,
        found.kv_heads,
        found.head_dim,
        found.intermediate_size,
        found.vocab_size,
        found.context_length,
    )
    assert (1e-5, (2, 7), 1, "bfloat16", "silu") == (
        found.norm_eps,
        found.eos_token_ids,
        found.bos_token_id,
        found.torch_dtype,
        found.hidden_act,
    )
    assert {"rope_type": "default", "rope_theta": 5e5} == found.rope
    assert found.is_lean
    assert found.full_attention
    found.require_full_attention()


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    """A config.json may leave out what equals the family's default, so ours must equal theirs."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.CONFIG_MAPPING[model_type](**MINIMAL)
    ours = ModelConfig.from_dict({"model_type": model_type, **MINIMAL})
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert (head_dim, theirs.num_key_value_heads, theirs.rms_norm_eps, theirs.tie_word_embeddings) == (
        ours.head_dim,
        ours.kv_heads,
        ours.norm_eps,
        ours.tied_embeddings,
    )
    assert (theirs.rope_parameters, theirs.hidden_act) == (ours.rope, ours.hidden_act)
    assert theirs.sliding_window is None if model_type.startswith("qwen") else True
    assert (model_type == "mistral") == (not ours.full_attention)  # its default window is 4,096


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ],
)
def test_rope_in_old_and_new_spelling(rope: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    new = config(rope_parameters={**rope, "rope_theta": 2e4})
    old = config(rope_scaling=rope, rope_theta=2e4)
    oldest = config(
        rope_scaling={("type" if key == "rope_type" else key): v for key, v in rope.items()}, rope_theta=2e4
    )
    theirs = transformers.LlamaConfig(**MINIMAL, rope_scaling=dict(rope), rope_theta=2e4)
    assert theirs.rope_parameters == new.rope
    assert new.rope == old.rope == oldest.rope


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("attention_bias", [False, True])
def test_biases_and_norms_are_those_of_the_layers(model_type: str, attention_bias: bool) -> None:
    """What the configuration says must be what transformers builds."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    fields = {**MINIMAL, "num_hidden_layers": 1, "head_dim": 16}
    if model_type in {"llama", "qwen3"}:
        fields["attention_bias"] = attention_bias
    if model_type == "llama":
        fields["mlp_bias"] = attention_bias
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.CONFIG_MAPPING[model_type](**fields))
    layer = model.model.layers[0]
    ours = ModelConfig.from_dict({"model_type": model_type, **fields})
    assert (layer.self_attn.q_proj.bias is not None) == ours.qkv_bias
    assert (layer.self_attn.o_proj.bias is not None) == ours.output_bias
    assert (layer.mlp.down_proj.bias is not None) == ours.mlp_bias
    assert hasattr(layer.self_attn, "q_norm") == ours.qk_norm


def test_older_spellings_of_other_families() -> None:
    found = ModelConfig.from_dict(
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    )
    assert (12, 768, 12, 64, 1024, 3072) == (
        found.layers,
        found.hidden_size,
        found.kv_heads,
        found.head_dim,
        found.context_length,
        found.intermediate_size,
    )
    assert found.tied_embeddings
    assert not found.is_lean


def test_latent_attention() -> None:
    found = config(model_type="deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64)
    assert LatentAttention(512, 64) == found.mla
    assert config().mla is None


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4096},
        {"model_type": "qwen2", "sliding_window": 4096},
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "mistral", "sliding_window": 8192},
        {"model_type": "qwen3", "layer_types": ["full_attention"] * 4, "sliding_window": None},
        {"model_type": "gemma2", "sliding_window": 8192, "layer_types": ["sliding_attention", "full_attention"] * 2},
        {"model_type": "phi3", "rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 8192},
        {"architectures": ["LlamaForCausalLM"]},
        {"architectures": ["GPT2LMHeadModel"]},
    ],
)
def test_full_attention_is_accepted(fields: dict[str, Any]) -> None:
    assert "" == config(**fields).partial_attention


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        (
            "layers 0-3 of 4 attend to a sliding window of 4096 tokens",
            {"model_type": "mistral", "sliding_window": 4096},
        ),
        ("layers 0-3 of 4 attend to a sliding window of 4096 tokens", {"model_type": "mistral"}),
        (
            "layers 2-3 of 4 attend to a sliding window of 1024",
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 1024, "max_window_layers": 2},
        ),
        (
            "layers 0, 2 of 4 use sliding_attention",
            {"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"] * 2},
        ),
        ("layers 0-2 of 4 use linear_attention", {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}),
        ("layer 3 of 4 use mamba", {"layer_types": ["attention"] * 3 + ["mamba"]}),
        ("chunked attention", {"model_type": "llama4_text", "attention_chunk_size": 8192}),
        ("linear attention", {"model_type": "qwen3_next", "full_attention_interval": 4}),
        ("linear attention", {"model_type": "olmo_hybrid", "linear_num_key_heads": 4}),
        ("state-space layers", {"model_type": "jamba", "mamba_d_state": 16}),
        ("sparse attention", {"model_type": "deepseek_v32", "index_topk": 2048}),
        ("convolution layers", {"model_type": "lfm2", "conv_L_cache": 3}),
        ("encoder-decoder", {"model_type": "t5", "is_encoder_decoder": True}),
        ("not a causal language model", {"model_type": "bert", "architectures": ["BertModel"]}),
        ("rope_type dynamic", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        (
            "beyond 4096 tokens",
            {"model_type": "phi3", "rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096},
        ),
    ],
)
def test_what_an_exact_prefix_cache_cannot_serve_is_refused(reason: str, fields: dict[str, Any]) -> None:
    found = config(**fields)
    assert not found.full_attention
    with pytest.raises(UnsupportedModel, match="exact prefix cache") as caught:
        found.require_full_attention()
    assert reason in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("model_type", ["mamba", "rwkv"])
def test_a_model_without_attention_is_refused_at_once(model_type: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"a {model_type} model, whose layers keep one running state"):
        ModelConfig.from_dict({"model_type": model_type, "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 300})


def test_a_model_that_sees_images_is_sized_by_its_text_part_and_refused() -> None:
    found = ModelConfig.from_dict({"model_type": "llava", "text_config": {"model_type": "llama", **MINIMAL}})
    assert ("llama", 4) == (found.model_type, found.layers)
    assert "images" in found.partial_attention


# Families whose layers are not all full attention, as transformers 5 describes them.
PARTIAL = ["gemma2", "gemma3_text", "gpt_oss", "cohere2", "mistral", "llama4_text", "qwen3_next", "qwen3_5_text"]
PARTIAL += ["deepseek_v32", "falcon_h1", "jamba", "bamba", "zamba2", "recurrent_gemma", "minimax", "exaone4"]
# And some whose layers are.
FULL = ["llama", "qwen2", "qwen3", "mixtral", "phi3", "gemma", "gpt2", "gpt_neox", "olmo2", "granite", "starcoder2"]
FULL += ["deepseek_v3", "smollm3", "stablelm", "opt", "qwen3_moe", "cohere", "glm4"]


@pytest.mark.parametrize(
    ("model_type", "full"), [*((name, False) for name in PARTIAL), *((name, True) for name in FULL)]
)
def test_families_as_transformers_describes_them(model_type: str, full: bool) -> None:
    transformers = pytest.importorskip("transformers")
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {model_type}")
    described = transformers.CONFIG_MAPPING[model_type]().to_dict()
    described["max_position_embeddings"] = 131_072  # longer than every window
    assert full == ModelConfig.from_dict(described).full_attention


def test_generation_config_wins_for_the_end_of_a_generation(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **MINIMAL, "eos_token_id": 2}))
    assert (2,) == ModelConfig.from_folder(tmp_path).eos_token_ids
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 2]}))
    assert (7, 2) == ModelConfig.from_folder(tmp_path).eos_token_ids
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.6}))
    assert (2,) == ModelConfig.from_folder(tmp_path).eos_token_ids


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", None),
        ("num_hidden_layers", None),
        ("num_hidden_layers", 0),
        ("hidden_size", "64"),
        ("vocab_size", 3.5),
        ("num_attention_heads", True),
        ("rms_norm_eps", "small"),
        ("eos_token_id", "</s>"),
        ("eos_token_id", [2, -1]),
        ("rope_theta", -1),
        ("rope_scaling", "linear"),
        ("attention_bias", 1),
    ],
)
def test_missing_and_wrong_fields_are_named_with_their_file(tmp_path: Path, field: str, value: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", **MINIMAL, field: value}))
    with pytest.raises(ModelError) as caught:
        ModelConfig.from_folder(tmp_path)
    assert str(path) in caught.value.message
    expected = "norm_eps" if field == "rms_norm_eps" else field
    assert repr(expected) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe{}", b"[" * 100_000, None])
def test_a_file_that_is_no_json_object_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        ModelConfig.from_folder(tmp_path)
    assert str(path) in caught.value.message
    assert caught.value.hint
