"""What every tier does."""

import pytest

from prefold.engine.tiers.base import TierUsage

from .conftest import MakeTier
from .support import LAYOUT, OTHER_LAYOUT, RECORD, chain, read, records, write


def test_what_was_written_is_read(make_tier: MakeTier) -> None:
    tier = make_tier()
    keys = chain("a", 20)
    assert 0 == tier.find(keys)
    assert 0 == read(tier, keys)
    assert 20 == write(tier, keys)
    assert 20 == tier.find(keys)
    assert 20 == read(tier, keys)
    assert 20 == tier.find([*keys, *chain("b", 1)])
    assert 20 == read(tier, [*keys, *chain("b", 3)])
    usage = tier.usage()
    assert (40, 23) == (usage.hits, usage.misses)
    assert (0, 0, 0, 0) == (usage.corrupt, usage.refused, usage.evicted, usage.errors)


def test_a_part_of_a_chain_is_read(make_tier: MakeTier) -> None:
    tier = make_tier()
    keys = chain("a", 6)
    write(tier, keys)
    assert 4 == tier.find(keys[2:])
    assert 4 == read(tier, keys[2:])


def test_nothing_asked_is_nothing_done(make_tier: MakeTier) -> None:
    tier = make_tier()
    assert 0 == tier.find([])
    assert 0 == tier.read([], memoryview(bytearray()))
    assert 0 == tier.write([], [], memoryview(b""))
    tier.remove([])
    assert TierUsage(capacity=tier.usage().capacity) == tier.usage()


def test_a_chain_goes_on(make_tier: MakeTier) -> None:
    tier = make_tier()
    keys = chain("a", 9)
    assert 4 == write(tier, keys[:4])
    assert 5 == write(tier, keys, first=4)
    assert 9 == read(tier, keys)


def test_a_block_without_its_parent_is_refused(make_tier: MakeTier) -> None:
    tier = make_tier()
    keys = chain("a", 5)
    assert 0 == write(tier, keys, first=2)
    assert 0 == tier.write(keys[2:], range(2, 5), records(keys[2:]))
    assert 6 == tier.usage().refused
    assert 0 == tier.find(keys[2:])
    write(tier, keys[:1])
    assert 0 == write(tier, keys, first=2)
    assert 4 == write(tier, keys, first=1)


def test_what_is_there_is_not_stored_twice(make_tier: MakeTier) -> None:
    tier = make_tier()
    keys = chain("a", 4)
    write(tier, keys[:3])
    before = tier.usage()
    assert 3 == write(tier, keys[:3])
    assert before == tier.usage()
    assert 4 == write(tier, keys)
    assert 0 == tier.usage().refused


def test_chains_share_their_beginning(make_tier: MakeTier) -> None:
    tier = make_tier()
    shared, left, right = chain("s", 3), chain("l", 2), chain("r", 2)
    write(tier, shared + left)
    write(tier, shared + right, first=3)
    assert 5 == read(tier, shared + left)
    assert 5 == read(tier, shared + right)


def test_what_was_removed_is_gone(make_tier: MakeTier) -> None:
    tier = make_tier()
    keys = chain("a", 5)
    write(tier, keys)
    tier.remove(keys[2:3])
    assert 2 == tier.find(keys)
    assert 2 == read(tier, keys)
    tier.remove(keys)
    assert 0 == tier.find(keys)
    tier.remove(keys)


def test_clear(make_tier: MakeTier) -> None:
    tier = make_tier()
    keys = chain("a", 5)
    write(tier, keys)
    assert 5 == tier.clear()
    assert 0 == tier.find(keys)
    assert 0 == tier.clear()
    assert 5 == write(tier, keys)


def test_models_do_not_meet(make_tier: MakeTier) -> None:
    """A model swapped under the same name has another fingerprint, and finds nothing."""
    tier, other = make_tier(), make_tier(OTHER_LAYOUT)
    keys = chain("a", 3)
    write(tier, keys)
    assert 0 == other.find(keys)
    assert 0 == read(other, keys)
    other.clear()
    assert 3 == read(tier, keys)


def test_another_process_finds_it(make_tier: MakeTier) -> None:
    tier, other = make_tier(), make_tier()
    if tier.name == "host":
        pytest.skip("memory is of one process")
    keys = chain("a", 7)
    write(tier, keys[:4])
    assert 4 == other.find(keys)
    assert 4 == read(other, keys)
    assert 3 == write(other, keys, first=4)
    assert 7 == read(tier, keys)
    assert 7 == make_tier().find(keys)


def test_a_tier_that_is_closed_is_empty(make_tier: MakeTier) -> None:
    tier = make_tier()
    keys = chain("a", 3)
    write(tier, keys)
    tier.close()
    if tier.name in ("host", "disk"):
        assert 0 == tier.find(keys)
        assert 0 == read(tier, keys)
        assert 0 == write(tier, keys)
    tier.close()


def test_records_of_odd_sizes(make_tier: MakeTier) -> None:
    layout = type(LAYOUT)("ef" * 32, 64, RECORD + 7)
    tier = make_tier(layout)
    keys = chain("a", 5)
    assert 5 == write(tier, keys, size=RECORD + 7)
    assert 5 == read(tier, keys, size=RECORD + 7)
