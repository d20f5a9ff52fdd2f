"""What the simulator predicts is what the engine does: the same requests give the same recomputed tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tokenizers  # noqa: E402 - after the checks that the engine's packages are there

from prefold.analysis.caches.base import CacheModel  # noqa: E402
from prefold.analysis.caches.build import build  # noqa: E402
from prefold.analysis.caches.spec import CacheSpec  # noqa: E402
from prefold.analysis.record import Blocks, Place, Record  # noqa: E402
from prefold.analysis.request import Request  # noqa: E402
from prefold.core.keys import Scope  # noqa: E402
from prefold.core.policies import POLICIES  # noqa: E402
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
TRACE = Path(__file__).resolve().parents[3] / "shared/data/traces/mooncake/conversation_trace.jsonl"


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
        **shape, vocab_size=VOCABULARY, num_key_value_heads=1, max_position_embeddings=1024, eos_token_id=EOS
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {f"w{number}": number for number in range(VOCABULARY)}
    words = tokenizers.models.WordLevel(vocabulary, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))
    return folder


class Clock:
    """Tells the time that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(folder, clock):
    """Makes engines with room for so many tokens, under a policy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is too small to share
    config = ModelConfig.from_folder(folder)
    decoder = LeanDecoder(config, load_weights(folder, torch.float32, "cpu"))
    tokenizer = Tokenizer(folder)

    def make(slots: int, policy: str) -> Engine:
        options = EngineOptions(dtype="float32", policy=policy)
        return Engine(decoder, config, tokenizer, options, clock, make_pool(config, options, slots))

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


def simulated(engine: Engine) -> CacheModel:
    """What the simulator makes of an engine."""
    spec = CacheSpec(
        "prefold",
        rules_for("", "prefold"),
        capacity=engine.cache.capacity,
        policy=engine.options.policy,
        attention_span=engine.config.attention_span,
    )
    return build(spec)


def logged(one: Asked, answer: Answered, number: int, time: float) -> Request:
    """A request as the simulator reads it from a log."""
    size = count(one.prompt)
    return Request(
        one.prompt,
        1,
        size,
        time,
        Record(Blocks(one.prompt, 1, size), Place("log", number + 1), stop=answer.finish),
        salt=one.salt,
        output=pack(answer.tokens),
        output_tokens=len(answer.tokens),
    )


@pytest.mark.parametrize(("slots", "seed"), [(8000, 1), (150, 1), (150, 2), (230, 3), (300, 4), (400, 5)], ids=str)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_simulator_recomputes_what_the_engine_recomputes(engine, clock, slots: int, seed: int, policy: str):
    running = engine(slots, policy)
    model = simulated(running)
    done, predicted = [], []
    run = b""
    for number, one in enumerate(conversations(seed)):
        if number % 4 == 3:  # the next turn of a conversation: its prompt is what was said before
            one = Asked(run + pack([number]), one.salt, one.max_tokens)  # noqa: PLW2901
        if count(one.prompt) + one.max_tokens > slots:
            continue
        clock.now = 19.0 * number
        answer = ask(running, one)
        done.append(answer.recomputed)
        run = one.prompt + pack(answer.tokens)
        predicted.append(count(one.prompt) - model.serve(logged(one, answer, number, clock.now)).hit)
    assert done == predicted
    assert (slots < 8000 or policy == "ttl-lru") == (running.cache.counters.evicted > 0)
    assert sum(done) < running.cache.counters.input


def replayed(requests: int) -> Iterator[tuple[float, Asked]]:
    """The first requests of a public trace with their times in seconds, a block of 512 tokens made one of three."""
    with TRACE.open() as lines:
        for line in islice(lines, requests):
            record = json.loads(line)
            blocks = [(3 + block // 2500, 3 + block // 50 % 50, 3 + block % 50) for block in record["hash_ids"]]
            prompt = pack([token for block in blocks for token in block])
            yield record["timestamp"] / 1000, Asked(prompt, None, 1 + min(record["output_length"] // 512, 8))


@pytest.mark.skipif(not TRACE.exists(), reason="needs the public traces")
@pytest.mark.parametrize("policy", ["default", "lru"])
def test_a_replayed_trace_hits_what_the_simulator_says(engine, clock, policy: str):
    trace = list(replayed(1200))
    working_set = 3 * len({asked.prompt[at : at + 12] for _, asked in trace for at in range(0, len(asked.prompt), 12)})
    running = engine(working_set // 10, policy)
    model = simulated(running)
    hits = predicted = 0
    for number, (time, one) in enumerate(trace):
        if count(one.prompt) + one.max_tokens > min(running.cache.capacity, running.config.context_length):
            continue
        clock.now = time
        answer = ask(running, one)
        hits += count(one.prompt) - answer.recomputed
        predicted += model.serve(logged(one, answer, number, time)).hit
    assert hits == predicted
    assert hits == running.cache.counters.hit
    assert 0 < running.cache.counters.evicted
    running.cache.check()
