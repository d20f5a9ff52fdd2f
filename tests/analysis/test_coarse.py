"""Requests in larger units."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.coarse import BLOCK_TOKENS, coarsened
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Request
from prefold.core.tokens import common_prefix, count, pack


def request(run: bytes, unit: int = 1) -> Request:
    tokens = count(run) * unit
    record = Record(Blocks(run, unit, tokens), Place("test", 1), model="m")
    return Request(run, unit, tokens, 7.0, record, system_end=70, salt="s", output=pack([1, 2]), output_tokens=2)


@given(
    st.lists(st.integers(0, 2**32 - 1), max_size=300), st.lists(st.integers(0, 9), max_size=200), st.integers(0, 300)
)
def test_two_prompts_share_the_blocks_that_they_share_whole(tokens: list[int], more: list[int], at: int) -> None:
    one, other = pack(tokens), pack([*tokens[:at], *more])
    coarse_one, coarse_other = coarsened(request(one)).run, coarsened(request(other)).run
    assert count(one) // BLOCK_TOKENS == count(coarse_one)
    assert common_prefix(one, other) // BLOCK_TOKENS == common_prefix(coarse_one, coarse_other)


def test_what_else_it_says() -> None:
    coarse = coarsened(request(pack(range(130))))
    assert (64, 130, 7.0, 1) == (coarse.unit, coarse.tokens, coarse.time, coarse.system_end)
    assert ("m", "s") == coarse.scope
    assert (b"", 2) == (coarse.output, coarse.output_tokens)


def test_blocks_stay_as_they_are() -> None:
    blocks = request(pack(range(3)), unit=512)
    assert blocks is coarsened(blocks)
