import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core.tokens import common_prefix, count, pack, unpack
from prefold.errors import InvalidTokens

TOKENS = st.lists(st.integers(0, 2**32 - 1))
FEW_TOKENS = st.lists(st.integers(0, 1) | st.sampled_from([256, 2**24, 2**32 - 1]), max_size=40)


def test_a_run_is_little_endian_uint32() -> None:
    assert bytes.fromhex("01000000 00010000 04030201 ffffffff") == pack([1, 256, 0x01020304, 2**32 - 1])


def test_an_empty_run() -> None:
    assert b"" == pack([])
    assert [] == unpack(b"")
    assert 0 == count(b"")


@given(TOKENS)
def test_unpack_undoes_pack(tokens: list[int]) -> None:
    assert tokens == unpack(pack(tokens))
    assert len(tokens) == count(pack(tokens))


def test_any_iterable_of_whole_numbers_is_packed() -> None:
    assert pack([3, 4]) == pack((3, 4)) == pack(iter([3, 4])) == pack(range(3, 5))


@pytest.mark.parametrize(
    "tokens",
    [[-1], [2**32], [1.0], [None], ["7"], "7", 7, None, b"\1\0\0\0", bytearray(4)],
    ids=["negative", "33 bits", "float", "none", "digit", "text", "no list", "nothing", "a run", "bytearray"],
)
def test_what_is_no_token_list_is_refused(tokens: object) -> None:
    with pytest.raises(InvalidTokens) as raised:
        pack(tokens)  # type: ignore[arg-type]
    assert raised.value.hint


@given(FEW_TOKENS, FEW_TOKENS, FEW_TOKENS, st.data())
def test_common_prefix_counts_equal_leading_tokens(
    shared: list[int], rest: list[int], other_rest: list[int], data: st.DataObject
) -> None:
    run, other = shared + rest, shared + other_rest
    at = data.draw(st.integers(0, len(other)))
    run_from_there = run[at:] if data.draw(st.booleans()) else run
    expected = 0
    while expected < min(len(run_from_there), len(other) - at) and run_from_there[expected] == other[at + expected]:
        expected += 1
    assert expected == common_prefix(pack(run_from_there), pack(other), at)


@pytest.mark.parametrize("parting", range(33))
def test_common_prefix_finds_every_parting_exactly(parting: int) -> None:
    tokens = list(range(33))
    changed = [*tokens[:parting], tokens[parting] ^ 0x01000000, *tokens[parting + 1 :]]  # only the last byte differs
    assert parting == common_prefix(pack(changed), pack(tokens))


def test_equal_bytes_at_shifted_places_are_no_equal_tokens() -> None:
    # The two runs agree in their first seven bytes, hence in one token.
    assert 1 == common_prefix(bytes.fromhex("01000000 02000001"), bytes.fromhex("01000000 02000002"))
