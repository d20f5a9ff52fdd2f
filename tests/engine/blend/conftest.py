"""A tiny random model, and engines on it that blend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tokenizers  # noqa: E402 - after the checks that the engine's packages are there

from prefold.core.keys import SHARED, Scope  # noqa: E402
from prefold.core.tokens import pack  # noqa: E402
from prefold.engine.decoder import LeanDecoder  # noqa: E402
from prefold.engine.engine import Engine  # noqa: E402
from prefold.engine.loading import make_pool  # noqa: E402
from prefold.engine.model_config import ModelConfig  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.request import Output, Request, SamplingOptions  # noqa: E402
from prefold.engine.tokenizer import Tokenizer  # noqa: E402
from prefold.engine.weights import load_weights  # noqa: E402

VOCABULARY = 160


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A random model of four narrow layers, and a tokenizer that names its ids."""
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(5)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        **shape,
        vocab_size=VOCABULARY,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.3,  # else all tokens are alike to it
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = tokenizers.models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def tiny_decoder(tiny_folder):
    config = ModelConfig.from_folder(tiny_folder)
    return LeanDecoder(config, load_weights(tiny_folder, torch.float32, torch.device("cpu")))


@dataclass
class Asked:
    """A request and everything that came back, of all its choices."""

    ticket: object
    outputs: list[Output] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [token for output in self.outputs for token in output.tokens if output.choice == 0]

    @property
    def usage(self):
        return self.outputs[-1].usage

    @property
    def blend(self):
        return self.usage.blend

    @property
    def finish(self):
        return self.outputs[-1].finish

    @property
    def chances(self) -> list[float]:
        """Log-probabilities of the chosen tokens."""
        return [info.chosen.logprob for output in self.outputs for info in output.infos]


class Bench:
    """An engine driven in the test's own thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def submit(self, prompt: Iterable[int], chunks=(), scope: Scope = SHARED, **sampling) -> Asked:
        asked = Asked(None)
        options = SamplingOptions(
            **{"max_tokens": 8, "temperature": 0.0, "ignore_eos": True, "logprobs": 0, **sampling}
        )
        request = Request(pack(prompt), options, asked.outputs.append, scope, chunks=tuple(chunks))
        asked.ticket = self.engine.submit(request)
        return asked

    def run(self) -> None:
        while self.engine.busy:
            self.engine.step()
        self.check()

    def check(self) -> None:
        self.engine.cache.check()
        assert self.engine.cache.free == self.engine.pool.free_slots

    def ask(self, prompt, chunks=(), scope: Scope = SHARED, **sampling) -> Asked:
        asked = self.submit(prompt, chunks, scope, **sampling)
        self.run()
        return asked


@pytest.fixture
def bench(tiny_folder, tiny_decoder) -> Iterable[Callable[..., Bench]]:
    """Makes engines on the tiny model."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is too small to share

    def make(slots: int = 2000, **options) -> Bench:
        settings = EngineOptions(**{"dtype": "float32", "blend": True, **options})
        config = tiny_decoder.config
        return Bench(
            Engine(
                tiny_decoder, config, Tokenizer(tiny_folder), settings, lambda: 0.0, make_pool(config, settings, slots)
            )
        )

    yield make
    torch.set_num_threads(threads)
