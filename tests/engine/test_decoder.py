"""Our forward pass against transformers', on small random models of every family."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from prefold.engine.adapter import TransformersDecoder  # noqa: E402 - after the checks that torch is there
from prefold.engine.attention import TorchPool  # noqa: E402
from prefold.engine.decoder import LeanDecoder, is_lean  # noqa: E402
from prefold.engine.model_config import ModelConfig  # noqa: E402
from prefold.engine.plan import Batch, Item  # noqa: E402
from prefold.engine.weights import load_weights  # noqa: E402
from prefold.errors import ModelError, UnsupportedModel  # noqa: E402

SHAPE = {
    "vocab_size": 160,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LEAN = {
    "llama": ("Llama", {}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama 3 rope": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama linear rope": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama one head": ("Llama", {"num_key_value_heads": 6}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
}
OTHERS = {
    "gpt_neox": ("GPTNeoX", {"rotary_pct": 0.5, "num_key_value_heads": None}),
    "olmo2": ("Olmo2", {}),
    "phi3": ("Phi3", {"pad_token_id": 0, "sliding_window": None}),
    "starcoder2": ("Starcoder2", {"sliding_window": None}),
    "granite": ("Granite", {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5}),
    "glm": ("Glm", {"head_dim": 16, "pad_token_id": 0}),
    "llama yarn": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
}


def make(folder, name, changes):
    """Save a random model."""
    torch.manual_seed(3)
    fields = {k: v for k, v in {**SHAPE, **changes}.items() if v is not None or k == "sliding_window"}
    config = getattr(transformers, name + "Config")(**fields)
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)  # biases and norms start at constants
    model.save_pretrained(folder)


def load(folder):
    """The model as transformers runs it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    for weight in model.parameters():
        weight.data = weight.data.clone()  # as ours: how weights are aligned, in the file or not, shows in the last bit
    return model


def run(decoder, config, tokens, cuts):
    """Logits of every position, the prompt run in chunks that end at `cuts`."""
    pool = TorchPool(
        config.layers, len(tokens), config.kv_heads, config.head_dim, dtype=torch.float32, device=torch.device("cpu")
    )
    rows, start = [], 0
    for stop in (*cuts, len(tokens)):
        size = stop - start
        items = [Item(((0, size),), ((start, stop),), causal=True, first=True)]
        if start:
            items.append(Item(((0, size),), ((0, start),), causal=False, first=False))
        place = torch.arange(start, stop)
        plan = pool.prepare(tuple(items))
        rows.append(decoder.forward(Batch(tokens[start:stop], place, place, torch.arange(size), plan), pool))
        start = stop
    return torch.cat(rows)


@pytest.mark.parametrize("case", LEAN)
def test_lean_logits_equal_transformers_to_the_bit(tmp_path, case):
    make(tmp_path, *LEAN[case])
    model = load(tmp_path)
    config = ModelConfig.from_folder(tmp_path)
    assert is_lean(config)
    decoder = LeanDecoder(config, load_weights(tmp_path, torch.float32, "cpu"))
    for length in (1, 5, 80):
        tokens = torch.randint(0, 160, (length,), generator=torch.Generator().manual_seed(length))
        with torch.inference_mode():
            expected = model(tokens[None]).logits[0].float()
        assert torch.equal(expected, run(decoder, config, tokens, ()))
        if length > 1:
            torch.testing.assert_close(expected, run(decoder, config, tokens, (length // 2,)), atol=1e-5, rtol=1e-5)


def test_the_default_model_equals_transformers_to_the_bit(default_checkpoint, default_decoders):
    model = transformers.AutoModelForCausalLM.from_pretrained(default_checkpoint.folder, dtype=torch.float32)
    tokens = torch.randint(0, 49152, (150,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = model(tokens[None]).logits[0].float()
    assert torch.equal(expected, run(default_decoders("float32"), default_checkpoint.config, tokens, ()))


@pytest.mark.parametrize("case", OTHERS)
def test_other_decoders_run_through_transformers_attention_interface(tmp_path, case):
    make(tmp_path, *OTHERS[case])
    model = load(tmp_path)
    config = ModelConfig.from_folder(tmp_path)
    assert not is_lean(config)
    decoder = TransformersDecoder(tmp_path, config, torch.float32, torch.device("cpu"))
    tokens = torch.randint(0, 160, (60,), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        expected = model(tokens[None]).logits[0].float()
    torch.testing.assert_close(expected, run(decoder, config, tokens, (17, 40)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Mistral", {"sliding_window": 32}),
        ("Gemma2", {"head_dim": 16, "sliding_window": 32}),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}),
    ],
)
def test_sliding_windows_are_refused(tmp_path, name, changes):
    make(tmp_path, name, changes)
    config = ModelConfig.from_folder(tmp_path)
    with pytest.raises(UnsupportedModel, match="sliding"):
        config.require_full_attention()
    with pytest.raises(UnsupportedModel):
        TransformersDecoder(tmp_path, config, torch.float32, torch.device("cpu"))


def test_a_model_whose_logits_would_differ_is_refused(tmp_path):
    # ALiBi adds a bias to the scores, outside of what the attention interface sees.
    make(tmp_path, "Bloom", {"n_layer": 2, "n_head": 6})
    with pytest.raises((UnsupportedModel, ModelError)):
        TransformersDecoder(tmp_path, ModelConfig.from_folder(tmp_path), torch.float32, torch.device("cpu"))


def test_weights_that_do_not_belong_to_the_config_are_named(tmp_path):
    make(tmp_path, "Llama", {})
    config = ModelConfig.from_folder(tmp_path)
    state = load_weights(tmp_path, torch.float32, "cpu")
    del state["model.layers.1.mlp.down_proj.weight"]
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.down_proj\.weight"):
        LeanDecoder(config, state)
