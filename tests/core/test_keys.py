"""Block keys. The golden vectors were computed from the documented byte layout, by a script that knows nothing else."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core import keys
from prefold.core.keys import SHARED, BlockKeys, Scope, block_keys, chain, check_salt, root_key, salted_key
from prefold.core.tokens import WIDTH, pack
from prefold.errors import InvalidSalt

TOKENS = pack([0, 1, 2, 3, 4, 5, 6, 7, 70_000, 2**32 - 1, 10])
ROOT = root_key("m")

FIRST = "5dad6695507bf5bd90fda42f70a1d1e90628134ad3026fd9d924657ae589921b"
SECOND = "c71acabf9535ecf8bf5e3db4d5d48ff79620a4c819c03d4151a0c8712bdbe810"
SECOND_SALTED = "bc604f626b15af27ad87f994c389fc803d42a2f2bd36b869728e91960fc25238"


@pytest.mark.parametrize(
    ("model", "adapter", "expected"),
    [
        ("m", "", "a3c9f1aadd58fd72fc4f4fd4332e18fed05d5ea48264ab10dd2fdcc647259931"),
        ("m", "lora", "4d0065ca699588ef7bb4dbacab516f8584a00a982c3e2a3fcf2cee941fc40674"),
        ("modèle", "", "de916149f300019baf6cb845c089d41c9b4c90bb4b0f90c6aeb1eb9cb8d8344c"),
    ],
)
def test_golden_roots(model: str, adapter: str, expected: str) -> None:
    assert expected == root_key(model, adapter).hex()


@pytest.mark.parametrize(
    ("block_size", "expected"),
    [
        pytest.param(
            1,
            [
                "c5968954e79ef02e8d21dd540758adc9dbe3d28f601f1739cd0a6b7de9acfaee",
                "50ed85ab4d8e4d4cbb729b6e4687522abfb4e3d0c4b4126d6ff82b2706e0ca5c",
            ],
            id="blocks of one",
        ),
        pytest.param(
            3,
            [
                "705cf39cc536c28ac8832e6804eec06137ef4ee1d757bb201b83b5d2b0b4d941",
                "593ef0435a92a39dfa28e1ffd1a6c353391ae9fd89a64ac4e33379022bab4493",
                "b6d048a6301376d759debd1fd5a417495e5891e93801c6a31df16fc515b7d29d",
            ],
            id="two tokens left over",
        ),
        pytest.param(4, [FIRST, SECOND], id="three tokens left over"),
        pytest.param(12, [], id="no whole block"),
    ],
)
def test_golden_chains(block_size: int, expected: list[str]) -> None:
    run = TOKENS[: 2 * WIDTH] if block_size == 1 else TOKENS
    assert expected == [key.hex() for key in block_keys(ROOT, run, block_size)]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        pytest.param(
            Scope(salt="tenant"),
            [
                "aee88e30a4a66d9ece4e170c7e99e99cccfdcfcacbe49c006f8ec933002b4b4a",
                "6bc7657f87284528627152fb1be635ecd4135bdf4cbc80af095ccb3e255c4d80",
            ],
            id="from the start",
        ),
        pytest.param(
            Scope(salt="é"),
            [
                "1b5e9b1945b0b6e7a963ec22f6fa53141608259f163f5dfc63879527f4c441f4",
                "dd2f9dd7062ecb69d940f364547309956d09f0a267572a38e03c84b92fc25092",
            ],
            id="two bytes of UTF-8",
        ),
        pytest.param(Scope(salt="tenant", salt_from=4), [FIRST, SECOND_SALTED], id="from the start of a block"),
        pytest.param(Scope(salt="tenant", salt_from=6), [FIRST, SECOND_SALTED], id="from inside a block"),
        pytest.param(Scope(salt="tenant", salt_from=7), [FIRST, SECOND_SALTED], id="from the last token of a block"),
        pytest.param(Scope(salt="tenant", salt_from=8), [FIRST, SECOND], id="from a block that is not full"),
        pytest.param(Scope(salt="tenant", salt_from=99), [FIRST, SECOND], id="from beyond the end"),
        pytest.param(Scope(salt_from=4), [FIRST, SECOND], id="no salt"),
    ],
)
def test_golden_salts(scope: Scope, expected: list[str]) -> None:
    assert expected == [key.hex() for key in block_keys(ROOT, TOKENS, 4, scope)]


@given(
    tokens=st.lists(st.integers(0, 2**32 - 1), max_size=40),
    cuts=st.lists(st.integers(0, 40)),
    block_size=st.integers(1, 9),
    scope=st.builds(Scope, salt=st.sampled_from([None, "tenant"]), salt_from=st.integers(0, 45)),
)
def test_any_cutting_into_runs_gives_the_same_keys(
    tokens: list[int], cuts: list[int], block_size: int, scope: Scope
) -> None:
    run = pack(tokens)
    expected = block_keys(ROOT, run, block_size, scope)
    grown = BlockKeys(ROOT, block_size, scope)
    returned = []
    edges = [0, *sorted(min(cut, len(tokens)) for cut in cuts), len(tokens)]
    for start, stop in pairwise(edges):
        returned += grown.extend(run[start * WIDTH : stop * WIDTH])
    assert len(tokens) // block_size == len(expected)
    assert expected == grown.keys == returned


@given(
    tokens=st.lists(st.integers(0, 1), min_size=1, max_size=24),
    block_size=st.integers(1, 5),
    salts=st.lists(st.sampled_from([None, "a", "b"]), min_size=2, max_size=2),
    salt_from=st.integers(0, 24),
)
def test_keys_are_shared_before_the_salt_and_private_after(
    tokens: list[int], block_size: int, salts: list[str | None], salt_from: int
) -> None:
    one, other = (block_keys(ROOT, pack(tokens), block_size, Scope(salt, salt_from)) for salt in salts)
    shared_blocks = len(one) if salts[0] == salts[1] else min(len(one), salt_from // block_size)
    assert one[:shared_blocks] == other[:shared_blocks]
    assert not set(one[shared_blocks:]) & set(other[shared_blocks:])


def test_a_key_names_everything_before_it() -> None:
    changed = pack([9]) + TOKENS[WIDTH:]
    assert not set(block_keys(ROOT, TOKENS, 4)) & set(block_keys(ROOT, changed, 4))
    assert not set(block_keys(ROOT, TOKENS, 4)) & set(block_keys(root_key("n"), TOKENS, 4))
    assert not set(block_keys(ROOT, TOKENS, 4)) & set(block_keys(root_key("m", "lora"), TOKENS, 4))


def test_texts_are_told_apart_by_their_lengths() -> None:
    assert root_key("ab", "c") != root_key("a", "bc")
    assert salted_key(ROOT, "a") != salted_key(ROOT, "a ")


def test_processes_agree_whatever_their_hash_seed() -> None:
    program = (
        "from prefold.core.keys import Scope, block_keys, root_key\n"
        "from prefold.core.tokens import pack\n"
        "scope = Scope(salt='tenant', salt_from=500)\n"
        "print(*(key.hex() for key in block_keys(root_key('m', 'lora'), pack(range(1000)), 16, scope)))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    here = block_keys(root_key("m", "lora"), pack(range(1000)), 16, Scope(salt="tenant", salt_from=500))
    assert [" ".join(key.hex() for key in here) + "\n"] * 2 == outputs


@pytest.mark.parametrize(
    "salt", ["", "a" * 129, "a@b", "a/b", "a\\b", "a\0b", "\ud800", None, 7, b"salt"], ids=lambda salt: repr(salt)[:12]
)
def test_bad_salts_are_refused_with_a_hint(salt: object) -> None:
    with pytest.raises(InvalidSalt) as raised:
        check_salt(salt)  # type: ignore[arg-type]
    assert raised.value.hint


@pytest.mark.parametrize("salt", ["a", "a" * 128, "é" * 128, "tenant-7 (EU)"])
def test_good_salts_are_returned(salt: str) -> None:
    assert salt == check_salt(salt)


def test_a_scope_checks_itself() -> None:
    with pytest.raises(InvalidSalt, match="empty"):
        Scope(salt="")
    with pytest.raises(InvalidSalt, match="-1"):
        Scope(salt="a", salt_from=-1)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the byte strings that `prefold.core.keys` hashes from here on."""
    sizes: list[int] = []
    sha256: Callable[[bytes], object] = hashlib.sha256

    def counting_sha256(data: bytes) -> object:
        sizes.append(len(data))
        return sha256(data)

    monkeypatch.setattr(keys, "sha256", counting_sha256)
    return sizes


def test_one_hash_a_block_over_parent_and_tokens_alone(hashed: list[int]) -> None:
    chain(ROOT, pack(range(1000)), 16)
    assert [32 + 16 * WIDTH] * 62 == hashed


def test_a_salt_costs_one_hash_more(hashed: list[int]) -> None:
    block_keys(ROOT, pack(range(1000)), 16, Scope(salt="tenant", salt_from=500))
    assert [32 + 16 * WIDTH] * 31 + [32 + 32 + 4 + len("tenant")] + [32 + 16 * WIDTH] * 31 == hashed


def test_growing_hashes_nothing_twice(hashed: list[int]) -> None:
    grown = BlockKeys(ROOT, 16, SHARED)
    for token in range(1000):
        grown.extend(pack([token]))
    assert [32 + 16 * WIDTH] * 62 == hashed
