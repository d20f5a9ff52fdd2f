"""Round trips of vectors in 8 and 4 bits."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from prefold.engine.quantised.numbers import (  # noqa: E402
    FORMS,
    dequantise,
    form_for,
    hadamard,
    packed_bytes,
    quantise,
    turn,
)
from prefold.engine.size import GROUP, KVShape  # noqa: E402
from prefold.errors import UnsupportedModel, UsageError  # noqa: E402

CPU = torch.device("cpu")
HALF_STEP = {"int8": 0.5 / 127, "int4": 1 / 8, "fp8": 1 / 16}
"""Largest error of a number, relative to the largest magnitude of its group; int4 has no +8, and so up to a whole step
at the end that the largest number is not at; fp8 relative to the number itself."""

number = st.floats(-1e4, 1e4, width=32)
vectors = st.lists(st.lists(number, min_size=64, max_size=64), min_size=1, max_size=2)
few = settings(max_examples=30)  # drawing 64 numbers takes longer than packing them


def there_and_back(x: torch.Tensor, name: str) -> torch.Tensor:
    return dequantise(quantise(x, FORMS[name]), FORMS[name], torch.float32)


@pytest.mark.parametrize("name", FORMS)
@few
@given(rows=vectors)
def test_no_number_is_off_by_more_than_its_step_allows(name, rows):
    x = torch.tensor(rows)
    error = (there_and_back(x, name) - x).abs().unflatten(-1, (-1, GROUP))
    largest = x.abs().unflatten(-1, (-1, GROUP)).amax(-1, keepdim=True)
    # float16 scales are off by up to 1/2048 of a step for each of up to 127 steps, or by 2^-25 for tiny ones.
    allowed = largest * (HALF_STEP[name] + 1 / 2048) + 127 * 2**-25
    assert (error <= allowed).all()


@pytest.mark.parametrize("name", FORMS)
@few
@given(rows=vectors)
def test_turned_there_and_back_the_length_of_the_error_is_bounded(name, rows):
    x, matrix = torch.tensor(rows), hadamard(CPU)
    back = turn(there_and_back(turn(x, matrix), name), matrix)
    error = (back - x).unflatten(-1, (-1, GROUP)).norm(dim=-1)
    length = x.unflatten(-1, (-1, GROUP)).norm(dim=-1)  # at least the largest number after the turn
    assert (error <= math.sqrt(GROUP) * (length * (HALF_STEP[name] + 1 / 1024) + 127 * 2**-25)).all()


@pytest.mark.parametrize("name", FORMS)
@few
@given(rows=vectors)
def test_what_was_read_is_written_again_as_it_was(name, rows):
    """So K and V that went through a pool once lose nothing more."""
    once = there_and_back(torch.tensor(rows), name)
    assert torch.allclose(once, there_and_back(once, name), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
@few
@given(rows=vectors)
def test_a_token_does_not_know_of_the_others(name, rows):
    x = torch.tensor(rows)
    together = quantise(x, FORMS[name])
    for row, alone in zip(together, x, strict=True):
        assert torch.equal(row, quantise(alone[None], FORMS[name])[0])


@pytest.mark.parametrize("name", FORMS)
def test_zeros_stay_zeros(name):
    assert torch.equal(torch.zeros(2, 64), there_and_back(torch.zeros(2, 64), name))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_what_cannot_be_stored_is_never_taken_for_a_number(name, bad):
    x = torch.ones(1, 64)
    x[0, 40] = bad
    back = there_and_back(x, name)
    assert torch.isfinite(back[0, :GROUP]).all()  # the other group
    assert not torch.isfinite(back[0, 40])


@pytest.mark.parametrize(("name", "expected"), [("int8", 68), ("int4", 36), ("fp8", 68)])
def test_bytes_are_those_that_size_states(name, expected):
    packed = quantise(torch.randn(5, 3, 64), FORMS[name])
    assert (5, 3, expected) == packed.shape
    assert expected == packed_bytes(64, FORMS[name])
    assert 2 * 3 * expected == KVShape.of_heads(layers=1, kv_heads=3, head_dim=64).bytes_per_token(name)


def test_one_large_channel_does_not_cost_the_others_their_bits():
    """What the turn is for: keys have such channels."""
    x = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    x[:, 5] += 20
    matrix = hadamard(CPU)
    plain = there_and_back(x, "int4") - x
    turned = turn(there_and_back(turn(x, matrix), "int4"), matrix) - x
    assert turned.norm() < 0.7 * plain.norm()


def test_the_matrix_is_its_own_inverse():
    assert torch.allclose(torch.eye(GROUP), hadamard(CPU) @ hadamard(CPU), atol=1e-6)


@pytest.mark.parametrize("head_dim", [16, 80, 100])
def test_heads_that_are_no_whole_groups_are_refused(head_dim):
    with pytest.raises(UnsupportedModel, match=f"multiples of 32; this model's is {head_dim}") as caught:
        form_for("int4", head_dim, CPU)
    assert "--kv-dtype" in caught.value.hint


def test_fp8_is_for_cuda():
    with pytest.raises(UsageError, match="needs a CUDA device: on cpu") as caught:
        form_for("fp8", 64, CPU)
    assert "int8" in caught.value.hint
    assert "fp8" == form_for("fp8", 64, torch.device("cuda")).name
