"""What the simulator predicts is what the engine does: the same requests give the same recomputed tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tokenizers  # noqa: E402 - after the checks that the engine's packages are there

from prefold.analysis.caches.build import build  # noqa: E402
from prefold.analysis.caches.spec import CacheSpec  # noqa: E402
from prefold.analysis.record import Blocks, Place, Record  # noqa: E402
from prefold.analysis.request import Request  # noqa: E402
from prefold.core.keys import Scope  # noqa: E402
from prefold.core.tokens import count, pack  # noqa: E402
from prefold.engine import request as asked  # noqa: E402
from prefold.engine.decoder import LeanDecoder  # noqa: E402
from prefold.engine.engine import Engine  # noqa: E402
from prefold.engine.loading import make_pool  # noqa: E402
from prefold.engine.model_config import ModelConfig  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.tokenizer import Tokenizer  # noqa: E402
from prefold.engine.weights import load_weights  # noqa: E402
from prefold.providers.rules import rules_for  # noqa: E402

VOCABULARY = 160
EOS = 2
LONG = 120


@dataclass(frozen=True)
class Asked:
    """A request as the engine takes it."""

    prompt: bytes
    salt: str | None
    max_tokens: int


@dataclass(frozen=True)
class Answered:
    """What the engine said of one."""

    tokens: list[int]
    finish: str
    recomputed: int


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random model of two narrow layers, and a tokenizer that names its ids."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(7)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(
        **shape, vocab_size=VOCABULARY, num_key_value_heads=1, max_position_embeddings=512, eos_token_id=EOS
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {f"w{number}": number for number in range(VOCABULARY)}
    words = tokenizers.models.WordLevel(vocabulary, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def engine(folder):
    """Makes engines with room for so many tokens, under a policy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is too small to share
    config = ModelConfig.from_folder(folder)
    decoder = LeanDecoder(config, load_weights(folder, torch.float32, "cpu"))
    tokenizer = Tokenizer(folder)

    def make(slots: int, policy: str) -> Engine:
        options = EngineOptions(dtype="float32", policy=policy)
        return Engine(decoder, config, tokenizer, options, lambda: 0.0, make_pool(config, options, slots))

    yield make
    torch.set_num_threads(threads)


def conversations(seed: int) -> Iterator[Asked]:
    """Prompts that share beginnings, in two salts and none."""
    dice = Random(seed)
    shared = [[(7 * start + number) % 90 + 3 for number in range(size)] for start, size in enumerate((70, 40, 33))]
    for _ in range(60):
        first = 93 + 8 * dice.randrange(4)
        own = [first + at % 30 for at in range(dice.randrange(1, 40))]
        prompt = shared[dice.randrange(3)][: dice.choice((20, 100))] + own
        yield Asked(pack(prompt), dice.choice((None, None, "a", "b")), dice.choice((1, 2, 9, 40, LONG)))


def ask(engine: Engine, one: Asked) -> Answered:
    outputs: list[asked.Output] = []
    scope = Scope(salt=one.salt)
    # A log does not say how long an answer was allowed to be: one that ends by itself is taken to be far from that.
    sampling = asked.SamplingOptions(temperature=0.0, max_tokens=one.max_tokens, ignore_eos=one.max_tokens < LONG)
    engine.submit(asked.Request(one.prompt, sampling, outputs.append, scope))
    while engine.busy:
        engine.step()
    usage = outputs[-1].usage
    assert usage is not None
    return Answered(
        [token for output in outputs for token in output.tokens],
        outputs[-1].finish or "",
        count(one.prompt) - usage.cached,
    )


@pytest.mark.parametrize(("slots", "seed"), [(8000, 1), (150, 1), (150, 2), (230, 3), (300, 4), (400, 5)], ids=str)
@pytest.mark.parametrize("policy", ["lru", "fifo", "lfu", "arc", "s3-fifo", "gdsf"])
def test_the_simulator_recomputes_what_the_engine_recomputes(engine, slots: int, seed: int, policy: str):
    running = engine(slots, policy)
    model = build(CacheSpec("prefold", rules_for("", "prefold"), capacity=slots, policy=policy))
    done, predicted = [], []
    run = b""
    for number, one in enumerate(conversations(seed)):
        if number % 4 == 3:  # the next turn of a conversation: its prompt is what was said before
            one = Asked(run + pack([number]), one.salt, one.max_tokens)  # noqa: PLW2901
        if count(one.prompt) + one.max_tokens > slots:
            continue
        answer = ask(running, one)
        done.append(answer.recomputed)
        run = one.prompt + pack(answer.tokens)
        size = count(one.prompt)
        record = Record(Blocks(one.prompt, 1, size), Place("log", number + 1), stop=answer.finish)
        served = model.serve(
            Request(
                one.prompt,
                1,
                size,
                float(number),
                record,
                salt=one.salt,
                output=pack(answer.tokens),
                output_tokens=len(answer.tokens),
            )
        )
        predicted.append(size - served.hit)
    assert done == predicted
    assert (slots < 8000) == (running.cache.counters.evicted > 0)
    assert sum(done) < running.cache.counters.input
