from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from prefold.engine.attention import TorchPool, attention, padded_attention, reference_attention  # noqa: E402
from prefold.engine.plan import Item  # noqa: E402
from prefold.engine.slots import cut  # noqa: E402


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def textbook(q, k, v, causal):
    """(T, H, D), (L, N, D) by the reference, heads repeated."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, dim=1).transpose(0, 1) for x in (k, v))
    out, lse = reference_attention(q.transpose(0, 1), k, v, causal=causal, scale=0.25)
    return out.transpose(0, 1), lse.transpose(0, 1)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 4), (5, 1)])
@pytest.mark.parametrize("rows", [1, 7, 70])
def test_attention_is_the_textbooks(heads, kv_heads, rows, causal):
    length = rows if causal else 33
    q, k, v = randn(rows, heads, 16), randn(length, kv_heads, 16, seed=1), randn(length, kv_heads, 16, seed=2)
    for expected, got in zip(textbook(q, k, v, causal), attention(q, k, v, causal=causal, scale=0.25), strict=True):
        torch.testing.assert_close(expected, got, atol=1e-5, rtol=1e-5)


def test_padding_counts_for_nothing():
    q, k, v = randn(3, 6, 16), randn(3, 9, 2, 16, seed=1), randn(3, 9, 2, 16, seed=2)
    lengths = (9, 1, 4)
    mask = torch.zeros(3, 1, 1, 9)
    for row, length in enumerate(lengths):
        mask[row, :, :, length:] = -torch.inf
    out, lse = padded_attention(q, k, v, mask, scale=0.25)
    for row, length in enumerate(lengths):
        expected = textbook(q[row : row + 1], k[row, :length], v[row, :length], causal=False)
        torch.testing.assert_close(expected[0][0], out[row], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(expected[1][0], lse[row], atol=1e-5, rtol=1e-5)


def test_merged_parts_are_the_whole():
    """Prefix in two pieces, then the chunk itself, scattered over the pool: the result is one causal attention."""
    rows, total = 5, 20
    q, k, v = randn(total, 6, 16), randn(total, 2, 16, seed=1), randn(total, 2, 16, seed=2)
    expected, _ = textbook(q, k, v, causal=True)
    runs = ((11, 17), (2, 5), (20, 26), (7, 11), (28, 29))  # in the order of the tokens
    slots = torch.cat([torch.arange(*run) for run in runs])
    pool = TorchPool(1, 30, 2, 16, dtype=torch.float32, device=torch.device("cpu"))
    pool.k[0, slots[:15]], pool.v[0, slots[:15]] = k[:15], v[:15]
    items = (
        Item(((0, rows),), cut(runs, 15, 20), causal=True, first=True),
        Item(((0, 2), (2, rows)), cut(runs, 0, 6), causal=False, first=False),
        Item(((0, rows),), cut(runs, 6, 15), causal=False, first=False),
    )
    got = pool.attend(0, q[15:], k[15:], v[15:], slots[15:], pool.prepare(items), 0.25)
    torch.testing.assert_close(expected[15:], got, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_records_bring_slots_back_to_the_bit(dtype):
    pool, other = (TorchPool(3, 20, 2, 16, dtype=dtype, device=torch.device("cpu")) for _ in range(2))
    for seed, half in enumerate((pool.k, pool.v)):
        half.copy_(randn(*half.shape, seed=seed).to(dtype))
    records = pool.dump(((4, 9), (1, 3)))
    assert (7, pool.bytes_per_token) == records.shape
    other.load(((10, 12), (15, 20)), torch.cat((records[5:], records[:5])))
    for ours, theirs in ((pool.k, other.k), (pool.v, other.v)):
        assert torch.equal(ours[:, 1:3], theirs[:, 10:12])
        assert torch.equal(ours[:, 4:9], theirs[:, 15:20])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_on_cuda_is_the_textbooks(dtype):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    q, k, v = (randn(*s).to("cuda", dtype) for s in ((40, 6, 64), (40, 2, 64), (40, 2, 64)))
    for causal in (True, False):
        out, lse = attention(q, k, v, causal=causal, scale=0.25)
        expected, expected_lse = textbook(q.float(), k.float(), v.float(), causal)
        torch.testing.assert_close(expected, out.float(), atol=2e-2, rtol=2e-2)
        torch.testing.assert_close(expected_lse, lse, atol=2e-2, rtol=2e-2)
