"""What one engine computes, another one finds: prompts brought to a tier that both see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

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
from prefold.engine.tiers.base import Layout, layout_fingerprint  # noqa: E402
from prefold.engine.tiers.disk import DiskTier  # noqa: E402
from prefold.engine.tiers.ladder import Ladder  # noqa: E402
from prefold.engine.tokenizer import Tokenizer  # noqa: E402
from prefold.engine.weights import load_weights  # noqa: E402

VOCABULARY = 160
BLOCK = 16
SLOTS = 1_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(7)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(
        **shape, vocab_size=VOCABULARY, num_key_value_heads=1, max_position_embeddings=1024, eos_token_id=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {f"w{number}": number for number in range(VOCABULARY)}
    words = tokenizers.models.WordLevel(vocabulary, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def engine(model: Path) -> Iterator[Callable[[Path | None], Engine]]:
    """Makes engines over a folder."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = ModelConfig.from_folder(model)
    decoder = LeanDecoder(config, load_weights(model, torch.float32, "cpu"))
    made: list[Engine] = []

    def make(folder: Path | None) -> Engine:
        options = EngineOptions(dtype="float32")
        kv = make_pool(config, options, SLOTS)
        ladder = None
        if folder is not None:
            fingerprint = layout_fingerprint("m", "float32", kv.format, kv.bytes_per_token, BLOCK)
            layout = Layout(fingerprint, BLOCK, BLOCK * kv.bytes_per_token)
            ladder = Ladder([DiskTier(layout, folder, 1 << 26)], layout, kv, clock=lambda: 0.0)
        made.append(Engine(decoder, config, Tokenizer(model), options, lambda: 0.0, kv, ladder=ladder))
        return made[-1]

    yield make
    for one in made:
        one.close()
    torch.set_num_threads(threads)


def prompt(seed: int, length: int = 200) -> bytes:
    dice = Random(seed)
    return pack([dice.randrange(3, VOCABULARY) for _ in range(length)])


def ask(engine: Engine, run: bytes, scope: Scope = SHARED, new: int = 8) -> tuple[list[int], int]:
    """The new tokens, and how many of the prompt were cached."""
    outputs: list[Output] = []
    engine.submit(
        Request(run, SamplingOptions(max_tokens=new, temperature=0.0, ignore_eos=True), outputs.append, scope)
    )
    while engine.busy:
        engine.step()
    usage = outputs[-1].usage
    assert usage is not None
    return [token for output in outputs for token in output.tokens], usage.cached


def test_what_is_shared_is_found(engine, tmp_path: Path) -> None:
    prefill, alone = engine(tmp_path), engine(None)
    for seed, length in enumerate((15, 16, 17, 200, 500)):
        run = prompt(seed, length)
        ask(prefill, run, new=1)
        prefill.share(run).result(30)
        tokens, cached = ask(engine(tmp_path), run)  # which has computed nothing that a load could be slower than
        assert (ask(alone, run)[0], min(length // BLOCK * BLOCK, length - 1)) == (tokens, cached)


def test_without_a_tier_there_is_nothing_to_wait_for(engine) -> None:
    assert engine(None).share(prompt(1)).done()


def test_what_others_removed_is_brought_again(engine, tmp_path: Path) -> None:
    prefill, run = engine(tmp_path), prompt(1)
    ask(prefill, run, new=1)
    prefill.share(run).result(30)
    assert prefill.share(run).result(30)
    engine(tmp_path).clear_tiers().result(30)
    assert 0 == ask(engine(tmp_path), run)[1]
    assert not prefill.share(run).result(30)
    assert prefill.share(run).result(30)
    assert 192 == ask(engine(tmp_path), run)[1]


def test_tiers_are_not_looked_into_where_others_wait(engine, tmp_path: Path, monkeypatch) -> None:
    prefill, run = engine(tmp_path), prompt(1)
    ask(prefill, run, new=1)
    threads = []
    find = DiskTier.find

    def noted(*arguments: object, **options: bool) -> int:
        threads.append(threading.current_thread())
        return find(*arguments, **options)

    monkeypatch.setattr(DiskTier, "find", noted)
    assert prefill.share(run).result(30)
    assert threads
    assert threading.current_thread() not in threads


def test_only_under_its_salt(engine, tmp_path: Path) -> None:
    prefill, run = engine(tmp_path), prompt(2)
    ann, ben = Scope("ann", 40), Scope("ben", 40)
    ask(prefill, run, ann, new=1)
    prefill.share(run, ann).result(30)
    assert 32 == ask(engine(tmp_path), run, ben)[1]  # whole blocks before the salt are everybody's
    assert 192 == ask(engine(tmp_path), run, ann)[1]


def test_what_is_not_computed_is_not_shared(engine, tmp_path: Path) -> None:
    prefill, run = engine(tmp_path), prompt(3)
    prefill.share(run).result(30)
    assert 0 == ask(engine(tmp_path), run)[1]
