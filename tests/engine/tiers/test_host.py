"""Host memory."""

import pytest

from prefold.engine.tiers.host import HostTier
from prefold.errors import UsageError

from .support import LAYOUT, RECORD, chain, read, write


def host(blocks: int) -> HostTier:
    return HostTier(LAYOUT, blocks * RECORD + 5)


def test_chains_lose_their_ends_first() -> None:
    tier = host(6)
    old, new = chain("old", 4), chain("new", 4)
    write(tier, old)
    write(tier, new)
    assert 2 == tier.find(old)
    assert 4 == tier.find(new)
    usage = tier.usage()
    assert (6, 6 * RECORD, 2) == (usage.blocks, usage.bytes, usage.evicted)


def test_reading_is_using() -> None:
    tier = host(6)
    first, second = chain("1", 3), chain("2", 3)
    write(tier, first)
    write(tier, second)
    read(tier, first)
    write(tier, chain("3", 2))
    assert 3 == tier.find(first)
    assert 1 == tier.find(second)


def test_finding_is_not() -> None:
    tier = host(6)
    first, second = chain("1", 3), chain("2", 3)
    write(tier, first)
    write(tier, second)
    tier.find(first)
    write(tier, chain("3", 2))
    assert 1 == tier.find(first)


def test_reading_the_end_keeps_the_beginning() -> None:
    tier = host(4)
    keys, other = chain("a", 3), chain("b", 1)
    write(tier, keys)
    write(tier, other)
    into = memoryview(bytearray(RECORD))
    assert 1 == tier.read(keys[2:], into)
    write(tier, chain("c", 1))
    assert 3 == tier.find(keys)
    assert 0 == tier.find(other)


def test_a_chain_longer_than_the_tier_keeps_its_beginning() -> None:
    tier = host(4)
    keys = chain("a", 9)
    assert 4 == write(tier, keys)
    assert 4 == read(tier, keys)
    assert 5 == tier.usage().refused
    assert 0 == write(tier, keys, first=4)
    assert 4 == read(tier, keys)


def test_the_parent_of_what_is_written_stays() -> None:
    tier = host(3)
    keys = chain("a", 3)
    write(tier, keys[:2])
    write(tier, chain("b", 1))
    assert 1 == write(tier, keys, first=2)
    assert 3 == read(tier, keys)


def test_capacities_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="holds no block"):
        HostTier(LAYOUT, RECORD - 1)
    with pytest.raises(UsageError, match="more than the machine"):
        HostTier(LAYOUT, 1 << 60)
