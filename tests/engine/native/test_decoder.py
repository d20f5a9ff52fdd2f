"""The loop over the layers in the kernel against transformers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from prefold.engine.attention import TorchPool  # noqa: E402 - after the checks that torch is there
from prefold.engine.decoder import LeanDecoder  # noqa: E402
from prefold.engine.model_config import ModelConfig  # noqa: E402
from prefold.engine.native.decoder import NativeDecoder, covers  # noqa: E402
from prefold.engine.native.pool import NativePool  # noqa: E402
from prefold.engine.plan import Batch, Item  # noqa: E402
from prefold.engine.weights import load_weights  # noqa: E402

SHAPE = {
    "vocab_size": 157,  # no multiple of anything
    "hidden_size": 96,
    "intermediate_size": 176,
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
FAMILIES = {
    "llama": ("Llama", {}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama 3 rope": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama wide heads": ("Llama", {"head_dim": 48, "num_key_value_heads": 6}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
}


def make(folder, name, changes):
    """Save a random model."""
    torch.manual_seed(3)
    config = getattr(transformers, name + "Config")(**{**SHAPE, **changes})
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)  # biases and norms start at constants
    model.save_pretrained(folder)
    return model


def run(decoder, pool, tokens, cuts):
    """Logits of every position, the prompt run in chunks that end at `cuts`, in slots that begin inside a page."""
    rows, start = [], 0
    for stop in (*cuts, len(tokens)):
        size = stop - start
        items = [Item(((0, size),), ((start + 3, stop + 3),), causal=True, first=True)]
        if start:
            items.append(Item(((0, size),), ((3, start + 3),), causal=False, first=False))
        place = torch.arange(start, stop)
        batch = Batch(tokens[start:stop], place, place + 3, torch.arange(size), pool.prepare(tuple(items)))
        rows.append(decoder.forward(batch, pool))
        start = stop
    return torch.cat(rows)


def native_pool(kernel, config, dtype, slots=400):
    return NativePool(kernel, config.layers, slots, config.kv_heads, config.head_dim, dtype=dtype)


def random_tokens(count, vocabulary, seed=5):
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("case", FAMILIES)
def test_every_family_gives_transformers_logits(any_kernel, tmp_path, case):
    model = make(tmp_path, *FAMILIES[case])
    config = ModelConfig.from_folder(tmp_path)
    assert covers(config)
    decoder = NativeDecoder(any_kernel, config, load_weights(tmp_path, torch.float32, "cpu"))
    for length in (1, 5, 80):
        tokens = random_tokens(length, 157, length)
        with torch.inference_mode():
            expected = model(tokens[None]).logits[0]
        for cuts in ((), (length // 2,)) if length > 1 else ((),):
            logits = run(decoder, native_pool(any_kernel, config, torch.float32), tokens, cuts)
            torch.testing.assert_close(expected, logits, atol=2e-5, rtol=2e-5)
            assert torch.equal(expected.argmax(-1), logits.argmax(-1))


@pytest.mark.parametrize("case", ["llama biases", "qwen2", "qwen3"])
def test_layer_by_layer_on_any_pool_it_gives_the_same(kernel, tmp_path, case):
    make(tmp_path, *FAMILIES[case])
    config = ModelConfig.from_folder(tmp_path)
    native = NativeDecoder(kernel, config, load_weights(tmp_path, torch.float32, "cpu"))
    lean = LeanDecoder(config, load_weights(tmp_path, torch.float32, "cpu"))
    shape = (config.layers, 400, config.kv_heads, config.head_dim)
    torch_pool = TorchPool(*shape, dtype=torch.float32, device=torch.device("cpu"))
    tokens = random_tokens(60, 157)
    expected = run(native, native_pool(kernel, config, torch.float32), tokens, (20,))
    torch.testing.assert_close(expected, run(native, torch_pool, tokens, (20,)), atol=2e-5, rtol=2e-5)
    lean_logits = run(lean, native_pool(kernel, config, torch.float32), tokens, (20,))
    torch.testing.assert_close(expected, lean_logits, atol=2e-5, rtol=2e-5)


def test_only_the_sampled_rows_are_answered(kernel, tmp_path):
    make(tmp_path, *FAMILIES["llama"])
    config = ModelConfig.from_folder(tmp_path)
    decoder = NativeDecoder(kernel, config, load_weights(tmp_path, torch.float32, "cpu"))
    tokens, place = random_tokens(30, 157), torch.arange(30)
    everything = run(decoder, native_pool(kernel, config, torch.float32), tokens, ())
    for wanted in ([29], [3, 17, 29], []):
        pool = native_pool(kernel, config, torch.float32)
        items = (Item(((0, 30),), ((0, 30),), causal=True, first=True),)
        samples = torch.tensor(wanted, dtype=torch.int64)
        logits = decoder.forward(Batch(tokens, place, place, samples, pool.prepare(items)), pool)
        torch.testing.assert_close(everything[samples], logits, atol=2e-5, rtol=2e-5)


def test_a_row_is_the_same_to_the_bit_whatever_else_is_in_the_product(kernel):
    from prefold.engine.native.library import Packed  # noqa: PLC0415 - torch is there

    for dtype in (torch.float32, torch.bfloat16):
        weight = torch.randn(70, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
        packed = Packed(kernel, [weight], [None])
        x = torch.randn(400, 64, generator=torch.Generator().manual_seed(2)).to(dtype)
        together = packed(x)
        assert torch.equal(together, torch.cat([packed(x[i : i + 7]) for i in range(0, 400, 7)]))
        torch.testing.assert_close((x.float() @ weight.float().T).to(dtype), together, atol=1e-4, rtol=1e-2)


def test_the_default_model_in_float32_answers_as_transformers(kernel, default_checkpoint):
    config = default_checkpoint.config
    model = transformers.AutoModelForCausalLM.from_pretrained(default_checkpoint.folder, dtype=torch.float32)
    decoder = NativeDecoder(kernel, config, load_weights(default_checkpoint.folder, torch.float32, "cpu"))
    tokens = random_tokens(150, 49152, 1)
    with torch.inference_mode():
        expected = model(tokens[None]).logits[0]
    logits = run(decoder, native_pool(kernel, config, torch.float32), tokens, (70,))
    assert torch.equal(expected.argmax(-1), logits.argmax(-1))
    torch.testing.assert_close(expected, logits, atol=1e-3, rtol=1e-3)


def test_bfloat16_is_no_further_from_float32_than_transformers_bfloat16(kernel, default_checkpoint):
    config, folder = default_checkpoint.config, default_checkpoint.folder
    tokens = random_tokens(150, 49152, 2)

    def transformers_logits(dtype):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        with torch.inference_mode():
            return model(tokens[None]).logits[0].float()

    exact = transformers_logits(torch.float32)
    decoder = NativeDecoder(kernel, config, load_weights(folder, torch.bfloat16, "cpu"))
    logits = run(decoder, native_pool(kernel, config, torch.bfloat16), tokens, (70,))
    assert (logits - exact).norm() <= (transformers_logits(torch.bfloat16) - exact).norm()


def test_what_the_kernel_does_not_take_is_known(tmp_path):
    for number, (changes, taken) in enumerate(
        [({}, True), ({"head_dim": 24}, False), ({"intermediate_size": 100}, False), ({"hidden_act": "gelu"}, False)]
    ):
        make(tmp_path / str(number), "Llama", changes)
        assert taken == covers(ModelConfig.from_folder(tmp_path / str(number)))
