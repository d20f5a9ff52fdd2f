"""Keys that keep apart what belongs apart, and bytes that are verified."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.semantic.entries.records import (
    Damaged,
    lives,
    pack_answer,
    pack_features,
    principal_key,
    room_of,
    text_bytes,
    text_of,
    unpack_answer,
    unpack_features,
    wording_of,
)

from ..entries_support import EMBEDDER, NOW, answer_of, question, vector  # noqa: TID252 - of the folder above


@given(st.text(st.characters()))
def test_texts_come_back(text):
    assert text == text_of(text_bytes(text))


def test_what_is_no_text():
    with pytest.raises(Damaged):
        text_of(b"\xff")


@given(st.data())
def test_a_damaged_answer_is_told_from_a_whole_one(data):
    packed = bytearray(pack_answer("id", answer_of("one")))
    assert answer_of("one") == unpack_answer("id", bytes(packed))
    with pytest.raises(Damaged):
        unpack_answer("other", bytes(packed))
    with pytest.raises(Damaged):
        unpack_answer("id", bytes(packed[: data.draw(st.integers(0, len(packed) - 1))]))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Damaged):
        unpack_answer("id", bytes(packed))


def test_rooms():
    one = question("a")
    assert room_of(one) == room_of(replace(one, text="b", principal="x", tags=frozenset("t")))
    others = [
        replace(one, context=b"d" * 32),
        replace(one, partition="q"),
        replace(one, context=one.context[:-1], partition="cp"),
    ]
    assert 4 == len({room_of(each) for each in [one, *others]})


def test_only_what_may_be_shared_has_an_open_room():
    closed = wording_of(question("a"), vector("a"), EMBEDDER)
    assert (b"", b"") == (closed.open_room, closed.open_space)
    one, other = (
        wording_of(question("a", partition=partition, open_context=b"o" * 32), vector("a"), EMBEDDER)
        for partition in "pq"
    )
    assert one.open_room == other.open_room
    assert one.open_space == other.open_space
    assert one.room != other.room
    everybody = wording_of(question("a", context=b"o" * 32, partition=""), vector("a"), EMBEDDER)
    assert (one.open_room, one.open_space) == (everybody.room, everybody.space)


def test_principals_cannot_be_matched_between_entries():
    assert b"" == principal_key("id", "")
    assert principal_key("id", "ann") == principal_key("id", "ann")
    assert 3 == len({principal_key("id", "ann"), principal_key("id", "bob"), principal_key("other", "ann")})


def test_an_entry_lives_from_a_little_before_its_time_to_its_end():
    assert [False, True, True, True, False] == [
        lives(NOW, NOW + 60, moment) for moment in (NOW - 6, NOW - 5, NOW, NOW + 59.9, NOW + 60)
    ]


@given(st.lists(st.floats(allow_nan=False)))
def test_features_come_back(features):
    assert tuple(features) == unpack_features(pack_features(tuple(features)))
