"""Blending on the default model: both kernels do the same, and the first token is near to the exact one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from prefold.engine.loading import load_engine  # noqa: E402 - after the check that torch is there
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.errors import UsageError  # noqa: E402

from .conftest import Bench  # noqa: E402

PASSAGES = (
    "The library opens at nine in the morning and closes at six in the evening, except on Sundays.",
    "Members may borrow up to seven books at a time, and keep each of them for three weeks.",
    "A lost book costs its price and a fee of two pounds; a late one costs ten pence for each day.",
)


def prompt_of(tokenizer, order):
    run = tokenizer.encode("<|im_start|>user\nRules:\n", add_special=False)
    ranges = []
    for number in order:
        ids = tokenizer.encode(PASSAGES[number], add_special=False)
        ranges.append((len(run), len(run) + len(ids)))
        run += [*ids, *tokenizer.encode("\n", add_special=False)]
    end = "When does the library open?<|im_end|>\n<|im_start|>assistant\n"
    return [*run, *tokenizer.encode(end, add_special=False)], ranges


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_both_kernels_blend_alike(default_checkpoint):
    chances = {}
    for kernel in ("native", "torch"):
        for share in (0.2, 1.0):
            options = EngineOptions(
                dtype="float32", kernel=kernel, threads=1, kv_memory=64 << 20, blend=True, blend_recompute=share
            )
            try:
                blending = Bench(load_engine(default_checkpoint, options))
            except UsageError as error:
                pytest.skip(f"no native kernel here: {error}")
            tokenizer = blending.engine.tokenizer
            blending.ask(*prompt_of(tokenizer, [0, 1, 2]), max_tokens=1)
            answer = blending.ask(*prompt_of(tokenizer, [2, 0, 1]), max_tokens=4)
            assert 3 == answer.blend.reused
            exact = blending.ask(prompt_of(tokenizer, [2, 0, 1])[0], max_tokens=4)
            if share == 1.0:
                assert exact.tokens == answer.tokens
                assert exact.chances == pytest.approx(answer.chances, abs=1e-3)
            else:
                chances[kernel] = answer.tokens, answer.chances
    assert chances["native"][0] == chances["torch"][0]
    assert chances["native"][1] == pytest.approx(chances["torch"][1], abs=1e-2)
