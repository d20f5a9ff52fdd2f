"""One spelling for equal things."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.canonical.spelling import (
    compact_json,
    composed,
    float_respellings,
    float_spelling,
    lower_case_uuids,
    respelled,
    unescaped_json,
    with_line_feeds,
    without_trailing_space,
)
from prefold.prompts.paths import Path

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("10.0", "10.0"),
        ("10.00", "10.0"),
        ("1e5", "100000.0"),
        ("1E+2", "100.0"),
        ("1.50", "1.5"),
        ("-0.0", "0.0"),
        ("-0e7", "0.0"),
        ("0.0001", "0.0001"),
        ("1e-7", "1e-07"),
        ("1e16", "1e+16"),
        ("10", "10"),
        ("-0", "-0"),
        ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        ("1e999", "1e999"),
        ("1e-999", "1e-999"),
        ("1e-99999999999999999999", "1e-99999999999999999999"),
    ],
)
def test_one_spelling_of_a_float(written: str, expected: str) -> None:
    assert expected == float_spelling(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [("10.0", "10"), ("1e5", "100000"), ("-2.0", "-2"), ("-0.0", "0"), ("1.5", "1.5"), ("1e16", "1e+16")],
)
def test_whole_numbers_as_integers(written: str, expected: str) -> None:
    assert expected == float_spelling(written, whole=True)


@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_spelling_keeps_the_value_and_is_settled(value: float, whole: bool) -> None:
    spelling = float_spelling(repr(value), whole=whole)
    assert value == float(spelling)
    assert spelling == float_spelling(spelling, whole=whole)


@given(st.from_regex(re.compile(r"-?(0|[1-9]\d{0,20})(\.\d{1,20})?([eE][-+]?\d{1,3})?", re.ASCII), fullmatch=True))
def test_any_number_is_found_where_its_spelling_differs(written: str) -> None:
    source = f'{{"a":["1e5",{written}]}}'
    found = [(str(new.path), new.before, new.after) for new in float_respellings(source)]
    expected = float_spelling(written)
    assert ([("a[1]", written, expected)] if expected != written else []) == found
    assert f'{{"a":["1e5",{expected}]}}' == respelled(source, float_respellings(source))


def test_floats_are_found_by_path_and_never_in_strings() -> None:
    source = '{"a": [1, 2.50, {"x\\"y": 1e5}], "text": "2.50 and \\"1e5\\"", "b": {"c": 3.0}, "d": -0.0, "n": 12}'
    found = float_respellings(source)
    assert [("a[1]", "2.5"), ('a[2]["x\\"y"]', "100000.0"), ("d", "0.0")] == [(str(n.path), n.after) for n in found]
    expected = '{"a": [1, 2.5, {"x\\"y": 100000.0}], "text": "2.50 and \\"1e5\\"", "b": {"c": 3.0}, "d": 0.0, "n": 12}'
    assert expected == respelled(source, found)
    assert [Path.of("b", "c")] == [new.path for new in float_respellings(source, whole=True) if new.before == "3.0"]


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_compact_json_is_what_json_writes(value: object, indent: int | str | None, ascii_only: bool) -> None:
    loose = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)
    assert compact == compact_json(loose)
    assert compact == compact_json(compact)


@given(VALUES)
def test_floats_as_json_writes_them_are_left_alone(value: object) -> None:
    found = float_respellings(json.dumps(value))
    assert {"-0.0"} >= {new.before for new in found}


@given(VALUES)
def test_unescaped_json_is_the_same_value(value: object) -> None:
    written = json.dumps(value, ensure_ascii=True)
    assert json.dumps(value, ensure_ascii=False) == unescaped_json(written)


def test_half_of_a_surrogate_pair_stays_escaped() -> None:
    assert '["\\ud83d", "é"]' == unescaped_json('["\\uD83D", "\\u00e9"]')


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\r\nb\rc\n", "a\nb\nc\n"), ("a\r\r\n", "a\n\n"), ("plain\n", "plain\n")],
)
def test_line_ends(text: str, expected: str) -> None:
    assert expected == with_line_feeds(text)


def test_accents_are_composed() -> None:
    assert "caf\u00e9 \uac00" == composed("cafe\u0301 \u1100\u1161")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a  \nb\t\n", "a\nb\n"),
        ("a \t\r\nb", "a\r\nb"),
        (" indented\n", " indented\n"),
        ("The next block follows ", "The next block follows "),
        ("\n \n", "\n\n"),
    ],
)
def test_trailing_space(text: str, expected: str) -> None:
    assert expected == without_trailing_space(text)


def test_a_long_run_of_spaces_takes_no_longer_than_its_length() -> None:
    spaces = " " * 200_000  # a pattern that tried from each of them would take minutes
    assert f"{spaces}x\n" == without_trailing_space(f"{spaces}x \n")


def test_uuids_in_lower_case() -> None:
    identifier = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
    digest = "A0EEBC999C0B4EF8BB6D6BB9BD380A11"
    assert f"id {identifier.lower()}, {digest}, x-{identifier}" == lower_case_uuids(
        f"id {identifier}, {digest}, x-{identifier}"
    )


def test_not_finite_floats_are_no_json_numbers() -> None:
    assert math.isnan(json.loads("NaN"))  # what a lenient reader lets through
    assert [] == float_respellings('{"a":NaN,"b":-Infinity}')
