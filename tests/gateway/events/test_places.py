from __future__ import annotations

import pytest

from prefold.core.block_index import BlockIndex
from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import pack
from prefold.gateway.events.decode import PLAIN, Extra, Removed, Stored, Tier
from prefold.gateway.events.places import Places

PROMPT = list(range(100, 164))


def stored(tokens, hashes, parent=None, **options) -> Stored:
    return Stored(hashes, parent, pack(tokens), len(tokens) // len(hashes), **options)


@pytest.fixture
def index() -> BlockIndex:
    return BlockIndex(1000)


@pytest.fixture
def places(index) -> Places:
    return Places(index, 16, 100)


def test_blocks_of_the_same_size(index, places):
    keys = index.keys(pack(PROMPT), 16)
    assert keys[:2] == list(places.stored(stored(PROMPT[:32], [1, 2])).keys)
    assert keys[2:] == list(places.stored(stored(PROMPT[32:], [3, 4], parent=2)).keys)
    assert [keys[3], keys[1]] == places.removed(Removed([4, 2, 9]))
    assert 2 == len(places)


def test_blocks_again_are_no_news(index, places):
    places.stored(stored(PROMPT[:32], [1, 2]))
    assert index.keys(pack(PROMPT), 16)[2:3] == list(places.stored(stored(PROMPT[:48], [1, 2, 3])).keys)
    assert 3 == len(places)


@pytest.mark.parametrize("size", [1, 2, 8, 32, 64, 5, 24])
def test_blocks_of_another_size_give_the_same_keys(index, places, size):
    whole = PROMPT[: len(PROMPT) // size * size]
    hashes = list(range(len(whole) // size))
    made = list(places.stored(stored(whole, hashes)).keys)
    assert index.keys(pack(whole), 16) == made
    assert made == sorted(places.removed(Removed(hashes)), key=made.index)


def test_a_block_of_ours_is_gone_with_the_engines_last_block_in_it(index, places):
    keys = places.stored(stored(PROMPT[:32], list(range(32)))).keys
    assert [] == places.removed(Removed([30]))
    assert [keys[1]] == places.removed(Removed([31]))


def test_what_follows_an_unknown_block_is_skipped(places):
    assert ((), 2) == (places.stored(stored(PROMPT[:32], [1, 2], parent=7)).keys, 2)
    assert 2 == places.stored(stored(PROMPT[:32], [1, 2], parent=7)).skipped
    assert 1 == places.stored(stored(PROMPT[:16], [3], parent=2)).skipped
    assert 0 == len(places)


def test_tokens_that_do_not_fill_the_blocks_are_skipped(places):
    assert 2 == places.stored(Stored([1, 2], None, pack(PROMPT[:16]), 16)).skipped


@pytest.mark.parametrize("scope", [Scope("salt"), Scope("salt", 16), Scope("salt", 40), Scope("salt", 0, "adapter")])
@pytest.mark.parametrize("size", [8, 16])
def test_salts_and_adapters_make_the_keys_of_their_scope(index, places, scope, size):
    names = list(range(64 // size))
    extras = [Extra("salt") if number == scope.salt_from // size else PLAIN for number in names]
    event = stored(PROMPT, names, extras=extras, adapter=scope.namespace)
    assert index.keys(pack(PROMPT), 16, scope) == list(places.stored(event).keys)


def test_what_images_stand_on_is_no_text(index, places):
    keys = places.stored(stored(PROMPT, [1, 2, 3, 4], extras=[PLAIN, Extra(None, b"image"), PLAIN, PLAIN])).keys
    text = index.keys(pack(PROMPT), 16, SHARED)
    assert text[0] == keys[0]
    assert set(text[1:]).isdisjoint(keys[1:])


def test_a_block_is_there_until_it_is_in_no_tier(index, places):
    key = index.keys(pack(PROMPT[:16]), 16)
    places.stored(stored(PROMPT[:16], [1], tier=Tier("GPU")))
    places.stored(stored(PROMPT[:16], [1], tier=Tier("CPU")))
    assert [] == places.removed(Removed([1], Tier("GPU")))
    assert key == places.removed(Removed([1], Tier("CPU")))


def test_a_tier_may_name_known_blocks_without_their_tokens(index, places):
    key = places.stored(stored(PROMPT[:16], [1], tier=Tier("GPU"))).keys
    assert ((), 0) == (
        tuple((placed := places.stored(Stored([1, 5], None, b"", 0, tier=Tier("CPU")))).keys),
        placed.skipped,
    )
    assert [] == places.removed(Removed([1], Tier("GPU")))
    assert list(key) == places.removed(Removed([1]))  # of all tiers, since none is named


def test_layers_that_keep_the_end_only_say_nothing(places):
    window = Tier("GPU", 1)
    assert ((), 0) == (
        (placed := places.stored(stored(PROMPT[:16], [1], tier=window, is_fleeting=True))).keys,
        placed.skipped,
    )
    places.stored(stored(PROMPT[:16], [1], tier=Tier("GPU", 0)))
    assert [] == places.removed(Removed([1], window))
    assert 1 == len(places)


def test_memory_is_bounded_and_what_is_forgotten_is_told(index):
    places = Places(index, 16, 3)
    keys = places.stored(stored(PROMPT, [1, 2, 3, 4])).keys
    assert [keys[0]] == places.forget_excess()
    assert 3 == len(places)
    assert [] == places.forget_excess()


def test_clear_names_everything(index, places):
    keys = places.stored(stored(PROMPT, [1, 2, 3, 4])).keys
    assert sorted(keys) == sorted(places.clear())
    assert 0 == len(places)
