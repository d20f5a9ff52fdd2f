from __future__ import annotations

import os

import platformdirs
import pytest

torch = pytest.importorskip("torch")

from prefold.engine.native.build import ISA_VARIABLE, NoKernel, targets_here  # noqa: E402 - torch is there
from prefold.engine.native.library import load_kernel  # noqa: E402

COMPILED = platformdirs.user_cache_path("prefold") / "native"
"""Where a user's compiled kernels are: each is compiled once, not once a run."""


def _load(isa: str):
    try:
        return load_kernel(COMPILED, lambda *_: None, {**os.environ, ISA_VARIABLE: isa})
    except NoKernel as reason:
        pytest.skip(f"no kernel here: {reason}")


@pytest.fixture(scope="session", params=[target.name for target in targets_here()])
def any_kernel(request):
    """The kernel for each instruction set that this machine has."""
    return _load(request.param)


@pytest.fixture(scope="session")
def kernel():
    """The kernel as a user gets it."""
    return _load("")
