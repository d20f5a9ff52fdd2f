"""K/V memory of known models."""

import pytest

from prefold.engine.model_config import ModelConfig
from prefold.engine.size import KVShape, canonical_dtype
from prefold.errors import UsageError

GIB = 1 << 30


def test_a_70b_with_128k_tokens_takes_40_gib() -> None:
    shape = KVShape.of_heads(layers=80, kv_heads=8, head_dim=128, heads=64)
    assert shape.attention == "GQA"
    assert 40 * GIB == shape.bytes_for(131_072, "bf16")
    assert 2 == shape.requests_in(80 * GIB, 131_072, "bf16")
    assert 1 == shape.requests_in(80 * GIB - 1, 131_072, "bf16")
    assert 0 == shape.requests_in(40 * GIB - 1, 131_072, "bf16")


def test_llama_2_7b_with_ordinary_heads() -> None:
    shape = KVShape.of_heads(layers=32, kv_heads=32, head_dim=128, heads=32)
    assert shape.attention == "MHA"
    assert 512 * 1024 == shape.bytes_per_token("bfloat16")
    assert 2 * GIB == shape.bytes_for(4096, "bfloat16")


def test_deepseek_v3_with_latent_attention() -> None:
    shape = KVShape.of_latent(layers=61, kv_lora_rank=512, rope_head_dim=64)
    assert shape.attention == "MLA"
    assert 70_272 == shape.bytes_per_token("bf16")


@pytest.mark.parametrize(
    ("expected", "dtype"),
    [(512, "fp32"), (256, "bf16"), (256, "float16"), (136, "fp8"), (136, "float8_e4m3fn"), (136, "int8"), (72, "INT4")],
)
def test_every_dtype(expected: int, dtype: str) -> None:
    assert expected == KVShape.of_heads(layers=1, kv_heads=1, head_dim=64).bytes_per_token(dtype)


def test_half_bytes_are_rounded_up() -> None:
    """12 bits, and 16 of a scale."""
    assert 4 == KVShape.of_latent(layers=1, kv_lora_rank=2, rope_head_dim=1).bytes_per_token("int4")


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(UsageError, match="'int3'") as caught:
        canonical_dtype("int3")
    assert "bfloat16" in caught.value.hint


def _config(**fields: object) -> ModelConfig:
    shape = {
        "model_type": "llama",
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "num_attention_heads": 9,
        "vocab_size": 49_152,
        "max_position_embeddings": 8192,
    }
    return ModelConfig.from_dict({**shape, **fields})


def test_shape_of_a_model() -> None:
    assert 23_040 == KVShape.of_model(_config(num_key_value_heads=3)).bytes_per_token("bf16")
    assert "MHA" == KVShape.of_model(_config()).attention
    assert "MQA" == KVShape.of_model(_config(num_key_value_heads=1)).attention
    latent = KVShape.of_model(_config(kv_lora_rank=512, qk_rope_head_dim=64))
    assert ("MLA", 30 * 576 * 2) == (latent.attention, latent.bytes_per_token("bf16"))
