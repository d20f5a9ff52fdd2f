"""The pool in 8 and 4 bits: beside the reference on what is stored, and under the engine."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from prefold.core.tokens import count, pack  # noqa: E402
from prefold.engine import request as asked  # noqa: E402
from prefold.engine.attention import TorchPool  # noqa: E402
from prefold.engine.checkpoint import resolve  # noqa: E402
from prefold.engine.loading import load_engine, make_pool  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.plan import Item  # noqa: E402
from prefold.engine.quantised.numbers import FORMS, hadamard, quantise, turn  # noqa: E402
from prefold.engine.quantised.numbers import dequantise as read  # noqa: E402
from prefold.engine.quantised.pool import QuantisedPool  # noqa: E402
from prefold.engine.size import KVShape  # noqa: E402
from prefold.engine.slots import cut, length  # noqa: E402
from prefold.errors import UnsupportedModel, UsageError  # noqa: E402

CPU = torch.device("cpu")
SIZE = 64


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def as_stored(x, name):
    """Numbers as a pool of that form has them."""
    matrix = hadamard(CPU)
    return turn(read(quantise(turn(x, matrix), FORMS[name]), FORMS[name], torch.float32), matrix)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_it_attends_to_what_it_stores(name, rows):
    """The reference pool, given the numbers that were stored, gives the same; for every kind of part."""
    total = 40
    q, k, v = randn(rows, 6, SIZE), randn(total, 2, SIZE, seed=1), randn(total, 2, SIZE, seed=2)
    runs = ((50, 61), (2, 20), (70, 81))  # scattered, in the order of the tokens
    slots = torch.cat([torch.arange(*run) for run in runs])
    before, itself = cut(runs, 0, total - rows), cut(runs, total - rows, total)
    if rows == 1:
        items = (Item(((0, 1),), runs, causal=False, first=True),)
    else:
        items = (
            Item(((0, rows),), itself, causal=True, first=True),
            Item(((0, 1), (1, rows)), cut(before, 0, 15), causal=False, first=False),
            Item(((0, rows),), cut(before, 15, total), causal=False, first=False),
        )
    reference = TorchPool(1, 90, 2, SIZE, dtype=torch.float32, device=CPU)
    pool = QuantisedPool(1, 90, 2, SIZE, form=FORMS[name], device=CPU)
    answers = []
    for this, keys, values in ((reference, as_stored(k, name), as_stored(v, name)), (pool, k, v)):
        old = slots[: total - rows]
        this.store(0, old, keys[: total - rows], values[: total - rows])
        new = keys[total - rows :], values[total - rows :], slots[total - rows :]
        answers.append(this.attend(0, q, *new, this.prepare(items), 0.1))
    torch.testing.assert_close(*answers, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_numbers_of_bfloat16_come_back_in_bfloat16(name):
    q, k, v = (x.bfloat16() for x in (randn(9, 6, SIZE), randn(9, 2, SIZE, seed=1), randn(9, 2, SIZE, seed=2)))
    pool = QuantisedPool(1, 9, 2, SIZE, form=FORMS[name], device=CPU)
    plan = pool.prepare((Item(((0, 9),), ((0, 9),), causal=True, first=True),))
    got = pool.attend(0, q, k, v, torch.arange(9), plan, 0.1)
    assert torch.bfloat16 == got.dtype
    exact = TorchPool(1, 9, 2, SIZE, dtype=torch.float32, device=CPU)
    stored = as_stored(k.float(), name), as_stored(v.float(), name)
    expected = exact.attend(0, q.float(), *stored, torch.arange(9), plan, 0.1)
    assert (got.float() - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("name", FORMS)
@given(places=st.lists(st.integers(0, 19), min_size=1, max_size=12, unique=True))
def test_records_bring_slots_back_to_the_bit(name, places):
    pool, other = (QuantisedPool(3, 20, 2, SIZE, form=FORMS[name], device=CPU) for _ in range(2))
    for layer in range(3):
        pool.store(layer, torch.arange(20), randn(20, 2, SIZE, seed=layer), randn(20, 2, SIZE, seed=layer + 9))
    runs = tuple((place, place + 1) for place in places)
    records = pool.dump(runs)
    assert (length(runs), pool.bytes_per_token) == records.shape
    assert torch.uint8 == records.dtype
    other.load(runs, records)
    assert torch.equal(records, other.dump(runs))
    assert torch.equal(pool.k[:, places], other.k[:, places])
    assert torch.equal(pool.v[:, places], other.v[:, places])


def test_capacity_is_what_size_says(tiny_config):
    shape = KVShape.of_model(tiny_config)
    bytes_per_token = {}
    for name in ("float32", "bfloat16", "int8", "int4"):
        pool = make_pool(tiny_config, EngineOptions(dtype="bfloat16", kv_dtype=name), 10)
        assert pool.bytes_per_token == shape.bytes_per_token(name), name
        bytes_per_token[name] = pool.bytes_per_token
    assert 1.88 < bytes_per_token["bfloat16"] / bytes_per_token["int8"] < 2
    assert 3.55 < bytes_per_token["bfloat16"] / bytes_per_token["int4"] < 4


def test_formats_tell_the_pools_apart(tiny_config):
    names = ("", "float32", "int8", "int4")
    pools = [make_pool(tiny_config, EngineOptions(dtype="bfloat16", kv_dtype=name), 10) for name in names]
    assert 4 == len({pool.format for pool in pools})


def test_an_unknown_type_is_refused():
    with pytest.raises(UsageError, match="'int3'") as caught:
        EngineOptions(kv_dtype="int3")
    assert "int4" in caught.value.hint


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(tmp_path, save_model):
    save_model(tmp_path, head_dim=16)
    checkpoint = resolve(str(tmp_path), cache_dir=tmp_path, progress=lambda *_: None)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModel, match="multiples of 32"):
        load_engine(checkpoint, EngineOptions(kv_dtype="int8"))


def ask(engine, prompt, **sampling):
    """Tokens, cached prompt tokens."""
    outputs: list[asked.Output] = []
    options = asked.SamplingOptions(**{"temperature": 0.0, "max_tokens": 24, "ignore_eos": True, **sampling})
    engine.submit(asked.Request(pack(prompt), options, outputs.append))
    while engine.busy:
        engine.step()
    engine.cache.check()
    assert outputs[-1].error is None
    return [token for output in outputs for token in output.tokens], outputs[-1].usage.cached


def prompts():
    start = [(7 * place) % 150 + 3 for place in range(120)]
    return [
        [*start[:size], *((size * place) % 150 + 3 for place in range(1, own))]
        for size, own in ((120, 30), (100, 9), (64, 70), (120, 1), (33, 40))
    ]


@pytest.mark.parametrize("name", ["bfloat16", "int8", "int4"])
def test_a_hit_changes_no_token(engine, name):
    warm = engine(name)
    for number, prompt in enumerate(prompts()):
        tokens, cached = ask(warm, prompt)
        assert tokens == ask(engine(name), prompt)[0]
        assert (cached > 0) == (number > 0)
    again, cached = ask(warm, prompts()[0])
    assert count(pack(prompts()[0])) - 1 == cached
    assert again == ask(engine(name), prompts()[0])[0]


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_on_a_grid_a_hit_changes_no_bit(engine, name):
    prompt = prompts()[0]
    cold, warm = engine(name, grid=16), engine(name, grid=16)
    ask(warm, prompt[:80], max_tokens=1)
    results = []
    for one in (cold, warm):
        outputs: list[asked.Output] = []
        options = asked.SamplingOptions(temperature=0.0, max_tokens=1, logprobs=5)
        one.submit(asked.Request(pack(prompt), options, outputs.append))
        while one.busy:
            one.step()
        results.append(outputs)
    assert 0 == results[0][-1].usage.cached
    assert 64 <= results[1][-1].usage.cached
    assert results[0][0].infos == results[1][0].infos


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_many_at_once_answer_as_each_alone(engine, name):
    together = engine(name)
    waiting = []
    for prompt in prompts():
        outputs: list[asked.Output] = []
        options = asked.SamplingOptions(temperature=0.0, max_tokens=24, ignore_eos=True)
        together.submit(asked.Request(pack(prompt), options, outputs.append))
        waiting.append(outputs)
    while together.busy:
        together.step()
    for prompt, outputs in zip(prompts(), waiting, strict=True):
        assert [token for output in outputs for token in output.tokens] == ask(engine(name), prompt)[0]


def test_eight_bits_answer_mostly_as_all_bits(engine):
    exact, eight, four = engine(""), engine("int8"), engine("int4")
    same = {8: 0, 4: 0}
    for prompt in prompts():
        expected, _ = ask(exact, prompt, max_tokens=8)
        for bits, other in ((8, eight), (4, four)):
            same[bits] += sum(a == b for a, b in zip(expected, ask(other, prompt, max_tokens=8)[0], strict=True))
    assert same[8] >= 30  # of 40
    assert same[8] >= same[4]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_a_hit_changes_no_token_of_the_default_model(driver, name):
    text = "The ferry to the island left at seven in the morning and again at four in the afternoon. " * 4
    warm = driver(1500, kv_dtype=name)
    warm.ask(text + "Nobody", max_tokens=4)
    hit = warm.ask(text + "The captain said", max_tokens=16)
    assert hit.usage.cached > 60
    assert hit.tokens == driver(1500, kv_dtype=name).ask(text + "The captain said", max_tokens=16).tokens
