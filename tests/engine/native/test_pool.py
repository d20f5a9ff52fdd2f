"""The kernel's attention against `TorchPool`, the reference, on plans that no scheduler would think of."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from prefold.engine.attention import TorchPool  # noqa: E402 - after the check that torch is there
from prefold.engine.native.pool import NativePool  # noqa: E402
from prefold.engine.plan import Item  # noqa: E402
from prefold.engine.slots import join  # noqa: E402

LAYERS = 2
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
"""Of results that are of the order of 1; the weights of bfloat16 keys are bfloat16 too."""


def pools(kernel, slots, kv_heads, size, dtype):
    return (
        NativePool(kernel, LAYERS, slots, kv_heads, size, dtype=dtype),
        TorchPool(LAYERS, slots, kv_heads, size, dtype=torch.float32, device=torch.device("cpu")),
    )


def scattered(draw, free, count):
    """Some of the free slots, as runs that begin and end anywhere in a page."""
    taken = []
    while count:
        start = draw.randrange(len(free))
        stop = min(start + draw.randint(1, count), len(free))
        taken += free[start:stop]
        del free[start:stop]
        count -= stop - start
    return join(*(((slot, slot + 1),) for slot in taken))


def a_plan(draw, rows, slots):
    """Items over `rows` rows, the slots that they write, and slots that must hold something before."""
    free = list(range(slots))
    sequences, row = [], 0
    while row < rows:
        size = draw.choice([1, 1, 2, 17, 40, rows])
        sequences.append((row, min(row + size, rows)))
        row = sequences[-1][1]
    own, merged, write, filled = [], [], [], []

    def history(most):
        runs = scattered(draw, free, draw.randint(1, most))
        filled.append(runs)
        return runs

    for start, stop in sequences:
        itself = scattered(draw, free, stop - start)
        write += [slot for begin, end in itself for slot in range(begin, end)]
        where = ((start, stop),)
        if stop - start == 1 and draw.random() < 0.7:
            own.append(Item(where, join(history(300), itself), causal=False, first=True))
        else:
            own.append(Item(where, itself, causal=True, first=True))
            if draw.random() < 0.7:
                merged.append(Item(where, history(300), causal=False, first=False))
    for _ in range(draw.randint(0, 3)):  # keys that several sequences share; a row may be in more than one of these
        users = draw.sample(sequences, draw.randint(1, min(5, len(sequences))))
        merged.append(Item(join(*((user,) for user in sorted(users))), history(200), causal=False, first=False))
    return (*own, *merged), torch.tensor(write), join(*filled)


def noise(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(6, 2, 16), (9, 3, 64), (2, 2, 48), (8, 1, 128)])
def test_any_plan_attends_as_the_reference_does(any_kernel, heads, kv_heads, size, dtype):
    draw = random.Random(f"{heads} {size} {dtype}")
    for rows in (1, 2, 31, draw.randint(32, 299), 300):
        native, reference = pools(any_kernel, 4000, kv_heads, size, dtype)
        items, write, filled = a_plan(draw, rows, 4000)
        records = noise(rows, sum(b - a for a, b in filled), LAYERS, 2, kv_heads, size).to(dtype)
        native.load(filled, records.flatten(1).view(torch.uint8))
        reference.load(filled, records.float().flatten(1).view(torch.uint8))
        q, k, v = (noise(rows + n, rows, count, size).to(dtype) for n, count in enumerate((heads, kv_heads, kv_heads)))
        plans = native.prepare(items), reference.prepare(items)
        for layer in range(LAYERS):
            result = native.attend(layer, q, k, v, write, plans[0], size**-0.5)
            expected = reference.attend(layer, q.float(), k.float(), v.float(), write, plans[1], size**-0.5)
            assert q.dtype == result.dtype
            torch.testing.assert_close(expected, result.float(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_a_long_context_of_one_row_is_split_over_threads(any_kernel):
    native, reference = pools(any_kernel, 5000, 1, 32, torch.float32)
    records = noise(1, 4000, LAYERS, 2, 1, 32)
    runs = ((5, 2005), (2010, 4010))
    for pool in (native, reference):
        pool.load(runs, records.view(4000, -1).view(torch.uint8))
    q, k, v = noise(2, 1, 4, 32), noise(3, 1, 1, 32), noise(4, 1, 1, 32)
    items = (Item(((0, 1),), (*runs, (4500, 4501)), causal=False, first=True),)
    results = [pool.attend(1, q, k, v, torch.tensor([4500]), pool.prepare(items), 0.2) for pool in (native, reference)]
    torch.testing.assert_close(results[1], results[0], atol=2e-5, rtol=2e-5)


def test_what_lies_in_other_slots_of_a_page_does_not_matter(any_kernel):
    for dtype in (torch.float32, torch.bfloat16):
        native, reference = pools(any_kernel, 64, 1, 32, dtype)
        everything = torch.full((65, LAYERS, 2, 1, 32), torch.nan, dtype=dtype)
        native.load(((0, 65),), everything.view(65, -1).view(torch.uint8))
        q, k, v = (noise(n, 5, 1, 32).to(dtype) for n in range(3))
        items = (Item(((0, 5),), ((13, 18),), causal=True, first=True),)
        write = torch.arange(13, 18)
        result = native.attend(0, q, k, v, write, native.prepare(items), 0.2)
        expected = reference.attend(0, q.float(), k.float(), v.float(), write, reference.prepare(items), 0.2)
        torch.testing.assert_close(expected, result.float(), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_records_are_those_of_the_torch_pool_to_the_bit(any_kernel, dtype):
    native = NativePool(any_kernel, 3, 200, 2, 32, dtype=dtype)
    reference = TorchPool(3, 200, 2, 32, dtype=dtype, device=torch.device("cpu"))
    assert (native.format, native.bytes_per_token) == (reference.format, reference.bytes_per_token)
    runs = ((3, 50), (199, 201), (64, 65))
    generator = torch.Generator().manual_seed(7)
    records = torch.randint(0, 256, (50, native.bytes_per_token), dtype=torch.uint8, generator=generator)
    for pool in (native, reference):
        pool.load(runs, records)
        assert torch.equal(records, pool.dump(runs))
        assert torch.equal(records[40:49], pool.dump(((43, 50), (199, 201))))
        assert pool.dump(()).shape == (0, pool.bytes_per_token)
    q, k, v = (noise(n, 40, 2, 32).to(dtype) for n in range(3))
    items = (Item(((0, 40),), ((100, 140),), causal=True, first=True),)
    for pool in (native, reference):
        pool.attend(1, q, k, v, torch.arange(100, 140), pool.prepare(items), 1.0)
    assert torch.equal(
        reference.dump(((100, 140),)).view(40, 3, -1)[:, 1], native.dump(((100, 140),)).view(40, 3, -1)[:, 1]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_records_at_once(kernel, dtype):
    """More than a thread copies alone."""
    pool = NativePool(kernel, 3, 6000, 2, 32, dtype=dtype)
    generator = torch.Generator().manual_seed(8)
    records = torch.randint(0, 256, (5000, pool.bytes_per_token), dtype=torch.uint8, generator=generator)
    assert records.numel() > 2 << 20
    runs = ((3, 3003), (3990, 5990))
    pool.load(runs, records)
    assert torch.equal(records, pool.dump(runs))
    assert torch.equal(records[2990:3010], pool.dump(((2993, 3003), (3990, 4000))))
