from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core.block_index import BlockIndex
from prefold.core.keys import Scope
from prefold.core.tokens import pack
from prefold.gateway.events.decode import PLAIN, Cleared, Extra, Removed, Stored, Tier, decode_batch
from prefold.gateway.events.holdings import Holdings
from prefold.gateway.events.places import Places

FIXTURES = sorted(Path(__file__).parent.glob("fixtures/*.json"))
encode = msgspec.msgpack.encode


def batch(*events: object) -> bytes:
    return encode([1.0, list(events), 0])


STORED = {
    "type": "BlockStored",
    "block_hashes": [7, 8],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_recorded_streams_say_what_the_engine_held(path):
    recorded = json.loads(path.read_text())
    index = BlockIndex(1000)
    places, holdings = Places(index, recorded["block_size"], 1000), Holdings(0, index)
    for message in recorded["messages"]:
        read = decode_batch(bytes.fromhex(message))
        assert 0 == read.malformed
        for event in read.events:
            if isinstance(event, Stored):
                placed = places.stored(event)
                assert 0 == placed.skipped
                holdings.add(placed.keys)
            elif isinstance(event, Removed):
                holdings.remove(places.removed(event))
    for prompt in recorded["held"]:
        scope = Scope(prompt["salt"], 0, prompt["adapter"])
        keys = index.keys(pack(prompt["tokens"]), recorded["block_size"], scope)
        assert prompt["blocks"] == sum(index.match(keys))


def test_the_encodings_of_one_stream_are_read_alike():
    forms = [
        json.loads(path.read_text()) for path in FIXTURES if path.stem.startswith("vllm") and "int" not in path.stem
    ]
    first, *others = ([decode_batch(bytes.fromhex(message)) for message in form["messages"]] for form in forms)
    assert 3 == len(others)
    assert [first] * 3 == others


def test_what_a_stored_event_says():
    event = {
        **STORED,
        "parent_block_hash": b"\x01" * 32,
        "lora_name": "adapter",
        "lora_id": 3,
        "medium": "CPU",
        "group_idx": 1,
        "extra_keys": [["adapter", ["image", 0], "salt"], ["adapter"]],
        "kv_cache_spec_kind": "sliding_window",
        "unheard_of": [1, {"a": None}],
    }
    marked = Extra("salt", encode([["image", 0]]))
    tokens = pack([1, 2, 3, 4])
    assert (
        Stored([7, 8], b"\x01" * 32, tokens, 2, "adapter", [marked, PLAIN], Tier("CPU", 1), is_fleeting=True)
        == decode_batch(batch(event)).events[0]
    )


@pytest.mark.parametrize(
    ("keys", "extra"),
    [
        (None, PLAIN),
        (["salt"], Extra("salt")),
        ([["cache_salt", "salt"]], Extra("salt")),
        ([["lora", "adapter"], ["cache_salt", "adapter"]], Extra("adapter")),
        (["adapter"], PLAIN),
        (["adapter", "adapter"], Extra("adapter")),
        ([["cache_salt", 3]], Extra(None, encode([["cache_salt", 3]]))),
        ([b"digest"], Extra(None, encode([b"digest"]))),
        (["salt", "more"], Extra("salt", encode(["more"]))),
    ],
)
def test_keys_of_a_block(keys, extra):
    event = {**STORED, "lora_name": "adapter", "extra_keys": [keys, None]}
    assert [extra, PLAIN] == decode_batch(batch(event)).events[0].extras


def test_the_salt_of_a_whole_prompt_belongs_to_its_first_block():
    first, later = decode_batch(
        batch({**STORED, "cache_salt": "salt"}, {**STORED, "parent_block_hash": 8, "cache_salt": "salt"})
    ).events
    assert [Extra("salt"), PLAIN] == first.extras
    assert () == later.extras


def test_unknown_kinds_are_left_alone():
    assert (Cleared(),) == decode_batch(batch({"type": "Sneezed"}, ["Coughed", 1], ["AllBlocksCleared"])).events
    assert 0 == decode_batch(batch({"type": "Sneezed"})).malformed


@pytest.mark.parametrize(
    "event",
    [
        1,
        [],
        [3],
        {},
        {**STORED, "token_ids": [1, -2]},
        {**STORED, "token_ids": [[1, 2], [2, 3]]},
        {**STORED, "token_ids": "1234"},
        {**STORED, "token_ids": b"1234"},
        {**STORED, "block_hashes": ["7", "8"]},
        {**STORED, "block_hashes": [b"7" * 65, 8]},
        {**STORED, "block_hashes": None},
        {**STORED, "parent_block_hash": 1.5},
        {**STORED, "block_size": "2"},
        {**STORED, "extra_keys": [None]},
        {**STORED, "extra_keys": [1, None]},
        {**STORED, "lora_name": 5},
        {"type": "BlockRemoved", "block_hashes": 7},
        ["BlockRemoved"],
    ],
)
def test_events_that_cannot_be_read_are_counted_and_others_are_read(event):
    read = decode_batch(batch(event, {"type": "AllBlocksCleared"}))
    assert ((Cleared(),), 1) == (read.events, read.malformed)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        encode(1),
        encode([]),
        encode([1.0, 5]),
        encode({"ts": 1}),
        b"\x91" * 100_000,
        encode([1.0, []])[:-1],
    ],
    ids=["empty", "reserved", "number", "nothing", "no events", "no list", "deep", "cut short"],
)
def test_messages_that_cannot_be_read_are_counted(payload):
    read = decode_batch(payload)
    assert ((), 1) == (read.events, read.malformed)


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_counted(payload):
    read = decode_batch(payload)
    assert read.malformed >= 0


leaf = st.none() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=4) | st.text(max_size=4) | st.floats()
anything = st.recursive(leaf, lambda inner: st.lists(inner, max_size=4), max_leaves=6)


@given(
    st.dictionaries(
        st.sampled_from(
            [*STORED, "extra_keys", "medium", "group_idx", "lora_name", "kv_cache_spec_kind", "cache_salt"]
        ),
        anything,
    )
)
def test_whatever_an_event_holds_is_read_or_counted(fields):
    read = decode_batch(batch({**STORED, **fields}))
    assert len(read.events) + read.malformed <= 1
