"""Python values as JSON."""

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from prefold.errors import InvalidRequest
from prefold.prompts.canonical.moments import Granularity
from prefold.prompts.canonical.values import canonical_json, plain


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    y: float
    x: int


class Model(BaseModel):
    b: Decimal
    a: datetime


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None, "é"]}, '{"a":[true,null,"é"],"b":1}'),
        (Decimal("1.50"), "1.5"),
        (Decimal(10), "10.0"),
        (10.0, "10.0"),
        (10, "10"),
        (-0.0, "0.0"),
        (Decimal("-0.00"), "0.0"),
        (date(2026, 11, 30), '"2026-11-30"'),
        (time(8, 30), '"08:30:00"'),
        (datetime(2026, 11, 30, 8, 54, 12, 345, tzinfo=UTC), '"2026-11-30T08:54:12Z"'),
        (datetime(2026, 11, 30, 8, 54, tzinfo=timezone(timedelta(hours=8))), '"2026-11-30T00:54:00Z"'),
        (datetime(2026, 11, 30, 8, 54), '"2026-11-30T08:54:00"'),  # noqa: DTZ001 - naive is meant
        (UUID("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"), '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
        (Color.RED, '"red"'),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ((1, 2), "[1,2]"),
        (Point(y=2.0, x=1), '{"x":1,"y":2.0}'),
        (Model(b=Decimal("2.50"), a=datetime(2026, 1, 2, tzinfo=UTC)), '{"a":"2026-01-02T00:00:00Z","b":2.5}'),
        ({2: "two", Color.RED: 1, True: 0}, '{"2":"two","red":1,"true":0}'),
        ("\ud83d", '"\\ud83d"'),
    ],
)
def test_one_text_for_equal_values(value: object, expected: str) -> None:
    assert expected == canonical_json(value)


def test_a_granularity_holds_for_all_moments_inside() -> None:
    value = {"at": [datetime(2026, 11, 30, 8, 54, tzinfo=UTC)]}
    assert '{"at":["2026-11-30"]}' == canonical_json(value, granularity=Granularity.DAY)
    assert '{"at":["2026-11-30T08:00Z"]}' == canonical_json(value, granularity=Granularity.HOUR)


def test_plain_keeps_the_order_of_keys() -> None:
    assert ["b", "a"] == list(plain({"b": Decimal("1.0"), "a": UUID(int=0)}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [object()]}, r"The value at a\[0\] is of type object"),
        (b"bytes", "The value is of type bytes"),
        ({"a": float("nan")}, "The value at a is nan, which JSON cannot say"),
        (Decimal("Infinity"), "Infinity"),
        (Decimal("0.12345678901234567890123"), "no float holds"),
        ({1: "a", "1": "b"}, "two keys '1'"),
        (Point, "is of type type"),
    ],
)
def test_what_has_no_one_text_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        canonical_json(value)
    assert caught.value.hint


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], data) for key in data.draw(st.permutations(list(value)))}
    return [shuffled(item, data) for item in value] if isinstance(value, list) else value


@given(JSON, st.data())
def test_the_order_of_keys_makes_no_difference(value: object, data: st.DataObject) -> None:
    assert canonical_json(value) == canonical_json(shuffled(value, data))
    assert value == json.loads(canonical_json(value))


def test_hash_seeds_make_no_difference() -> None:
    code = (
        "from prefold.prompts.canonical.values import canonical_json\n"
        "print(canonical_json({'s': {'b', 'a', 'c', 'd'}, 't': frozenset({(1, 'x'), (2, 'y')})}))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert {'{"s":["a","b","c","d"],"t":[[1,"x"],[2,"y"]]}\n'} == texts
