from __future__ import annotations

import pytest

from prefold.core.block_index import BlockIndex
from prefold.gateway.events.holdings import Holdings


@pytest.fixture
def index() -> BlockIndex:
    return BlockIndex(100)


@pytest.fixture
def holdings(index) -> Holdings:
    return Holdings(0, index)


def test_a_prediction_lapses(index, holdings):
    holdings.predict([1, 2], until=2.0)
    assert [2] == index.match([1, 2, 3])
    holdings.lapse(1.9)
    assert [2] == index.match([1, 2, 3])
    holdings.lapse(2.0)
    assert [0] == index.match([1, 2, 3])


def test_what_events_confirm_stays(index, holdings):
    holdings.predict([1, 2, 3], until=2.0)
    holdings.add([1, 2])
    holdings.lapse(5.0)
    assert [2] == index.match([1, 2, 3])


def test_what_is_held_is_not_predicted(index, holdings):
    holdings.add([1])
    holdings.predict([1, 2], until=2.0)
    holdings.lapse(2.0)
    assert [1] == index.match([1, 2])


def test_a_later_prediction_outlives_an_earlier_one(index, holdings):
    holdings.predict([1, 2], until=2.0)
    holdings.predict([1], until=3.0)
    holdings.lapse(2.5)
    assert [1] == index.match([1, 2])


def test_a_block_that_is_held_twice_is_gone_when_both_are(index, holdings):
    holdings.add([1])
    holdings.add([1])
    holdings.remove([1])
    assert [1] == index.match([1])
    holdings.remove([1])
    assert [0] == index.match([1])


def test_clear(index, holdings):
    holdings.add([1])
    holdings.predict([2], until=1.0)
    holdings.clear()
    holdings.lapse(9.0)
    assert 0 == index.size
