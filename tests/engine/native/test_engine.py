"""Engines on the kernel: plans of the real scheduler, prefixes cold and warm, two engines in one process."""

from __future__ import annotations

import threading
import time

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from prefold.core.tokens import pack  # noqa: E402 - after the checks that torch is there
from prefold.engine.checkpoint import resolve  # noqa: E402
from prefold.engine.loading import load_engine  # noqa: E402
from prefold.engine.native.decoder import NativeDecoder  # noqa: E402
from prefold.engine.native.pool import NativePool  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.request import Request, SamplingOptions  # noqa: E402

VOCABULARY = 160


def small_model(folder, **changes):
    """The checkpoint of a random model of two layers, and a tokenizer that names its ids."""
    torch.manual_seed(7)
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, **changes}
    config = transformers.LlamaConfig(
        **shape, vocab_size=VOCABULARY, num_key_value_heads=2, max_position_embeddings=1024, eos_token_id=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {f"w{number}": number for number in range(VOCABULARY)}
    words = tokenizers.models.WordLevel(vocabulary, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))
    return resolve(str(folder), cache_dir=folder, progress=lambda *_: None)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


def make(checkpoint, **options):
    return load_engine(checkpoint, EngineOptions(**{"dtype": "float32", "kv_memory": 1 << 20, **options}))


def answers(engine, prompts, new=12):
    """Greedy tokens of prompts that run together."""
    made = [[] for _ in prompts]
    for prompt, tokens in zip(prompts, made, strict=True):
        options = SamplingOptions(max_tokens=new, temperature=0.0, ignore_eos=True)
        engine.submit(Request(pack(prompt), options, lambda output, tokens=tokens: tokens.extend(output.tokens)))
    while engine.busy:
        engine.step()
    engine.cache.check()
    return made


def numbers(seed, count):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()


def prompts_that_share(seed):
    """Prompts over a common beginning, some over a longer one, some alone; lengths that are no multiple of a page."""
    head, longer = numbers(seed, 337), numbers(seed + 1, 61)
    return [
        *(head + numbers(seed + n, 5 + n) for n in range(2, 8)),
        *(head + longer + numbers(seed + n, 30) for n in range(8, 12)),
        numbers(seed + 12, 400),
        numbers(seed + 13, 1),
        head,
    ]


@pytest.mark.parametrize("step_tokens", [1024, 50])
def test_answers_are_those_of_the_torch_path(kernel, checkpoint, step_tokens):
    native = make(checkpoint, kernel="native", step_tokens=step_tokens)
    assert isinstance(native.kv, NativePool)
    reference = make(checkpoint, kernel="torch", step_tokens=step_tokens)
    for seed in (100, 200, 100):  # the last time everything is cached
        prompts = prompts_that_share(seed)
        assert answers(reference, prompts) == answers(native, prompts)


def test_warm_is_cold(kernel, checkpoint):
    engine = make(checkpoint, kernel="native")
    for seed in (300, 400):
        for prompt in prompts_that_share(seed):
            cold = answers(make(checkpoint, kernel="native"), [prompt])
            assert cold == answers(engine, [prompt])  # warm from its siblings
            assert cold == answers(engine, [prompt])  # warm from itself


def test_other_models_attend_in_the_kernel_too(kernel, tmp_path):
    torch.manual_seed(8)
    config = transformers.Phi3Config(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=VOCABULARY, max_position_embeddings=512, pad_token_id=0, sliding_window=None,
    )  # fmt: skip
    transformers.Phi3ForCausalLM(config).save_pretrained(tmp_path)
    vocabulary = {f"w{number}": number for number in range(VOCABULARY)}
    words = tokenizers.models.WordLevel(vocabulary, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(tmp_path / "tokenizer.json"))
    checkpoint = resolve(str(tmp_path), cache_dir=tmp_path, progress=lambda *_: None)
    prompts = [numbers(1, 100), numbers(1, 100) + numbers(2, 9), numbers(3, 40)]
    native = make(checkpoint, kernel="native")
    assert isinstance(native.kv, NativePool)
    assert answers(make(checkpoint, kernel="torch"), prompts) == answers(native, prompts)


def test_two_engines_in_one_process_do_not_disturb_each_other(kernel, checkpoint):
    expected = {seed: answers(make(checkpoint, kernel="native"), prompts_that_share(seed)) for seed in (500, 600)}
    results = {}

    def work(seed):
        engine = make(checkpoint, kernel="native", threads=2)
        results[seed] = [answers(engine, prompts_that_share(seed)) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {seed: [tokens] * 3 for seed, tokens in expected.items()}


def test_any_number_of_threads_gives_the_same_answers(kernel, checkpoint):
    prompts = prompts_that_share(700)
    before = torch.get_num_threads()
    try:
        made = [answers(make(checkpoint, kernel="native", threads=threads), prompts) for threads in (1, 2, 5)]
    finally:
        torch.set_num_threads(before)
    assert [made[0]] * 3 == made


def test_a_default_engine_runs_in_the_kernel(kernel, default_checkpoint):
    engine = load_engine(default_checkpoint, EngineOptions(kv_memory=1 << 24), clock=time.monotonic)
    assert isinstance(engine.kv, NativePool)
    assert isinstance(engine._decoder, NativeDecoder)
    assert 4 == len(answers(engine, [[5, 6, 7]], new=4)[0])
