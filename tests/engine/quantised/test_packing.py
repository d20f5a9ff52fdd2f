"""The C++ form of packed pages, `native/quantised.h`, beside the Python one: equal to the bit."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import prefold.engine.native  # noqa: E402
from prefold.engine.native.build import targets_here  # noqa: E402
from prefold.engine.quantised.numbers import FORMS, dequantise, hadamard, packed_bytes, quantise, turn  # noqa: E402

TARGETS = {target.name: target for target in targets_here()}
SLOTS = 16

pytestmark = pytest.mark.skipif(not TARGETS or not shutil.which("c++"), reason="no compiler, or an unknown CPU")


@pytest.fixture(scope="module", params=TARGETS)
def library(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("packing") / "packing.so"
    headers = Path(prefold.engine.native.__file__).parent
    flags = ["-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-Wall", "-Werror"]
    flags += ["-Wno-maybe-uninitialized", "-Wno-uninitialized"]  # of the intrinsics in GCC 12's own headers
    source = Path(__file__).with_name("packing.cpp")
    command = ["c++", *flags, *TARGETS[request.param].flags, f"-I{headers}", str(source), "-o", str(path)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


def at(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def size_of(number):
    return ctypes.c_size_t(number)


def vectors(count, size):
    """Vectors of all magnitudes, one of zeros among them."""
    x = torch.randn(count, size, generator=torch.Generator().manual_seed(size))
    x *= torch.logspace(-9, 4, count)[:, None]
    x[3] = 0
    return x


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int4", 4)])
def test_records_are_those_of_python(library, name, bits, size):
    x = vectors(100, size)
    record = torch.empty(packed_bytes(size, FORMS[name]), dtype=torch.uint8)
    for one in x:
        library.packed(bits, at(one), size_of(size), at(record))  # turns it too
        assert torch.equal(quantise(one, FORMS[name]), record)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int4", 4)])
def test_what_cannot_be_stored_is_never_taken_for_a_number(library, name, bits, bad):
    x = torch.ones(64)
    x[40] = bad
    record = torch.empty(packed_bytes(64, FORMS[name]), dtype=torch.uint8)
    library.packed(bits, at(x), size_of(64), at(record))
    back = dequantise(record, FORMS[name], torch.float32)
    assert torch.isfinite(back[:32]).all()
    assert not torch.isfinite(back[32:]).any()  # the turn spreads it over its group


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("half", ["keys", "values"])
@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int4", 4)])
def test_pages_open_to_what_a_tile_takes(library, name, bits, half, dtype, size):
    records = quantise(vectors(SLOTS, size), FORMS[name])
    page, back = torch.zeros_like(records), torch.zeros_like(records)
    found = torch.empty(SLOTS * size, dtype=dtype)
    paged = library.paged_bfloat16 if dtype == torch.bfloat16 else library.paged_float
    paged(bits, int(half == "values"), at(records), size_of(size), at(page), at(back), at(found))
    assert torch.equal(records, back)
    numbers = dequantise(records, FORMS[name], dtype)  # (slots, size)
    unit = 4 // dtype.itemsize
    if half == "keys":
        expected = numbers.view(SLOTS, size // unit, unit).transpose(0, 1)
    else:
        expected = numbers.view(SLOTS // unit, unit, size).transpose(1, 2)
    assert torch.equal(expected.flatten(), found)


def test_the_turn_is_that_of_python(library):
    x = vectors(20, 96)
    expected = turn(x, hadamard(torch.device("cpu")))
    for one in x:
        library.turned(at(one), size_of(96))
    assert ((expected - x).norm(dim=-1) <= 1e-6 * expected.norm(dim=-1)).all()
