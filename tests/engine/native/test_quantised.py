"""K/V in 8 and 4 bits in the kernel, beside `QuantisedPool`, the reference: records, attention, engines."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from prefold.engine.native.pool import NativePool  # noqa: E402 - after the checks that torch is there
from prefold.engine.plan import Item  # noqa: E402
from prefold.engine.quantised.numbers import FORMS, dequantise, packed_bytes  # noqa: E402
from prefold.engine.quantised.pool import QuantisedPool  # noqa: E402
from prefold.engine.size import GROUP, KVShape  # noqa: E402

from .test_engine import answers, make, prompts_that_share, small_model  # noqa: E402
from .test_pool import LAYERS, a_plan, noise  # noqa: E402

SLOTS = 4000
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
"""Of results that are of the order of 1, from the same records."""

pytestmark = pytest.mark.parametrize("name", ["int8", "int4"])


def pools(kernel, kv_heads, size, dtype, name):
    form = FORMS[name]
    return (
        NativePool(kernel, LAYERS, SLOTS, kv_heads, size, dtype=dtype, form=form),
        QuantisedPool(LAYERS, SLOTS, kv_heads, size, form=form, device=torch.device("cpu")),
    )


def stored(pool, runs, kv_heads, size):
    """The records of some slots of the reference after random K and V went there."""
    slots = torch.cat([torch.arange(start, stop) for start, stop in runs])
    for layer in range(LAYERS):
        k, v = (noise(9 * layer + half, len(slots), kv_heads, size) for half in range(2))
        pool.store(layer, slots, k, v)
    return pool.dump(runs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(9, 3, 64), (2, 2, 96), (8, 1, 128)])
def test_any_plan_attends_as_the_reference_does(any_kernel, heads, kv_heads, size, dtype, name):
    draw = random.Random(f"{heads} {size} {dtype} {name}")
    for rows in (1, 31, draw.randint(32, 299)):
        native, reference = pools(any_kernel, kv_heads, size, dtype, name)
        items, write, filled = a_plan(draw, rows, SLOTS)
        if filled:
            native.load(filled, stored(reference, filled, kv_heads, size))
        q, k, v = (noise(rows + n, rows, count, size).to(dtype) for n, count in enumerate((heads, kv_heads, kv_heads)))
        plan, expected_plan = native.prepare(items), reference.prepare(items)
        results = [native.attend(layer, q, k, v, write, plan, size**-0.5) for layer in range(LAYERS)]
        slots = tuple((slot, slot + 1) for slot in write.tolist())
        for layer in range(LAYERS):
            reference.store(layer, write, k, v)
        near(reference.dump(slots), native.dump(slots), name, size)
        # The rest on the same records: the reference puts K and V of this step where nobody reads them.
        reference.load(slots, native.dump(slots))
        nowhere = torch.full_like(write, SLOTS)
        for layer, result in enumerate(results):
            others = q.float(), k.float(), v.float()
            expected = reference.attend(layer, *others, nowhere, expected_plan, size**-0.5)
            assert q.dtype == result.dtype
            torch.testing.assert_close(expected, result.float(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def near(expected, found, name, size):
    """Records that are the same, but for few numbers that lay between two steps and whose sum was in another order."""
    form = FORMS[name]
    a, b = (
        dequantise(records.view(-1, packed_bytes(size, form)), form, torch.float32).view(-1, GROUP)
        for records in (expected, found)
    )
    step = a.abs().amax(-1, keepdim=True) / (2 ** (form.bits - 1) - 1)
    assert ((a - b).abs() <= 1.01 * step).all()
    assert (expected != found).sum() <= 2 + 1e-4 * expected.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_records_come_back_to_the_bit(any_kernel, dtype, name):
    native, reference = pools(any_kernel, 2, 64, dtype, name)
    assert (reference.format, reference.bytes_per_token) == (native.format, native.bytes_per_token)
    runs = ((3, 50), (SLOTS - 1, SLOTS + 1), (64, 65))
    generator = torch.Generator().manual_seed(7)
    records = torch.randint(0, 256, (50, native.bytes_per_token), dtype=torch.uint8, generator=generator)
    native.load(runs, records)
    assert torch.equal(records, native.dump(runs))
    assert torch.equal(records[40:49], native.dump(((43, 50), (SLOTS - 1, SLOTS + 1))))


def test_what_lies_in_other_slots_of_a_page_does_not_matter(any_kernel, name):
    for dtype in (torch.float32, torch.bfloat16):
        native, reference = pools(any_kernel, 1, 32, dtype, name)
        nothing = torch.full((65, native.bytes_per_token), 0xFF, dtype=torch.uint8)  # scales that are no numbers
        native.load(((0, 65),), nothing)
        q, k, v = (noise(n, 5, 1, 32).to(dtype) for n in range(3))
        items = (Item(((0, 5),), ((13, 18),), causal=True, first=True),)
        write = torch.arange(13, 18)
        result = native.attend(0, q, k, v, write, native.prepare(items), 0.2)
        expected = reference.attend(0, q.float(), k.float(), v.float(), write, reference.prepare(items), 0.2)
        torch.testing.assert_close(expected, result.float(), atol=2e-2, rtol=2e-2)


def test_what_cannot_be_stored_is_never_taken_for_a_number(any_kernel, name):
    for dtype in (torch.float32, torch.bfloat16):
        native, _ = pools(any_kernel, 1, 32, dtype, name)
        q, k, v = (noise(n, 1, 1, 32).to(dtype) for n in range(3))
        v[0, 0, 5] = torch.inf
        plan = native.prepare((Item(((0, 1),), ((7, 8),), causal=False, first=True),))
        assert torch.isnan(native.attend(0, q, k, v, torch.tensor([7]), plan, 0.2)).all()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return small_model(
        tmp_path_factory.mktemp("model"), head_dim=32, initializer_range=0.3
    )  # else all tokens are alike


@pytest.mark.parametrize("step_tokens", [1024, 50])
def test_answers_are_those_of_the_torch_path(kernel, checkpoint, name, step_tokens):
    native, reference = (
        make(checkpoint, kernel=choice, kv_dtype=name, step_tokens=step_tokens) for choice in ("native", "torch")
    )
    assert isinstance(native.kv, NativePool)
    assert isinstance(reference.kv, QuantisedPool)
    assert reference.kv.capacity == native.kv.capacity
    for seed in (100, 200, 100):  # the last time everything is cached
        prompts = prompts_that_share(seed)
        assert answers(reference, prompts) == answers(native, prompts)


def test_warm_is_cold(kernel, checkpoint, name):
    engine = make(checkpoint, kernel="native", kv_dtype=name)
    for seed in (300, 400):
        for prompt in prompts_that_share(seed):
            cold = answers(make(checkpoint, kernel="native", kv_dtype=name), [prompt])
            assert cold == answers(engine, [prompt])  # warm from its siblings
            assert cold == answers(engine, [prompt])  # warm from itself


def test_the_memory_holds_what_size_says(kernel, checkpoint, name):
    width = KVShape.of_model(checkpoint.config).bytes_per_token(name)
    for dtype in ("float32", "bfloat16"):
        pool = make(checkpoint, kernel="native", kv_dtype=name, dtype=dtype, kv_memory=1 << 20).kv
        assert ((1 << 20) // width, width) == (pool.capacity, pool.bytes_per_token)
        pages = -(-(pool.capacity + 1) // 16)
        assert 16 * pages * width == pool._keys.numel() + pool._values.numel()


@pytest.mark.slow
def test_the_default_model_errs_as_on_the_torch_path(kernel, default_checkpoint, name):
    """In bfloat16, against float32 with K and V as they are."""
    from prefold.engine.loading import load_decoder, make_pool  # noqa: PLC0415 - torch is there
    from prefold.engine.options import EngineOptions  # noqa: PLC0415

    from .test_decoder import random_tokens, run  # noqa: PLC0415

    config, tokens = default_checkpoint.config, random_tokens(150, 49152, 1)

    def logits(dtype, with_kernel, **options):
        chosen = EngineOptions(dtype=dtype, **options)
        decoder = load_decoder(default_checkpoint, getattr(torch, dtype), torch.device("cpu"), with_kernel)
        return run(decoder, make_pool(config, chosen, 400, with_kernel), tokens, (70,)).float()

    exact = logits("float32", None)
    reference = logits("bfloat16", None, kv_dtype=name)
    native = logits("bfloat16", kernel, kv_dtype=name)
    assert (native - exact).norm() <= 1.1 * (reference - exact).norm()
