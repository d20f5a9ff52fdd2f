"""A tiny random model with heads of 32, and engines on it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tokenizers  # noqa: E402 - after the checks that the engine's packages are there

from prefold.engine.decoder import LeanDecoder  # noqa: E402
from prefold.engine.engine import Engine  # noqa: E402
from prefold.engine.loading import make_pool  # noqa: E402
from prefold.engine.model_config import ModelConfig  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.tokenizer import Tokenizer  # noqa: E402
from prefold.engine.weights import load_weights  # noqa: E402

VOCABULARY = 160


def _save_model(folder, **changes):
    """Save a random model of two narrow layers, and a tokenizer of letters."""
    torch.manual_seed(5)
    shape = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.3,  # else all tokens are alike to it
        **changes,
    }
    transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=VOCABULARY, **shape)).save_pretrained(folder)
    letters = {chr(32 + number): number for number in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token=" "))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture
def save_model():
    return _save_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    _save_model(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_config(tiny_folder):
    return ModelConfig.from_folder(tiny_folder)


@pytest.fixture(scope="session")
def tiny_decoder(tiny_folder, tiny_config):
    return LeanDecoder(tiny_config, load_weights(tiny_folder, torch.float32, torch.device("cpu")))


@pytest.fixture
def engine(tiny_folder, tiny_config, tiny_decoder):
    """Makes engines on the tiny model, each with a cache of its own."""

    def make(kv_dtype: str, slots: int = 1000, **options) -> Engine:
        settings = EngineOptions(dtype="float32", kv_dtype=kv_dtype, **options)
        pool = make_pool(tiny_config, settings, slots)
        return Engine(tiny_decoder, tiny_config, Tokenizer(tiny_folder), settings, lambda: 0.0, pool)

    return make
