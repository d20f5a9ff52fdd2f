"""Amounts of memory as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core.units import format_bytes, parse_bytes
from prefold.errors import UsageError


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (0, "0"),
        (1_048_576, "1048576"),
        (7, "7 B"),
        (2 << 30, "2GiB"),
        (2 << 30, " 2 gib "),
        (1536 << 20, "1.5GiB"),
        (512 << 20, "512 MiB"),
        (80 << 30, "80GiB"),
        (1 << 40, "1TiB"),
        (2_000_000_000, "2GB"),
        (1_500, "1.5kB"),
        (500, ".5KB"),
        (0, "0.0001KB"),
    ],
)
def test_parses_binary_and_decimal_units(expected: int, text: str) -> None:
    assert expected == parse_bytes(text)


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1e9", "2 GiB of memory", "nan", "1..5GiB", "٣GiB"])
def test_refuses_what_is_no_amount(text: str) -> None:
    with pytest.raises(UsageError, match="is not an amount of memory") as caught:
        parse_bytes(text)
    assert repr(text) in caught.value.message
    assert "2GiB" in caught.value.hint


@pytest.mark.parametrize(("text", "hint"), [("2G", "GiB or GB"), ("2k", "KiB or KB"), ("3 parsec", "GiB")])
def test_refuses_unknown_and_ambiguous_units(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="unknown unit") as caught:
        parse_bytes(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("expected", "count"),
    [
        ("0 B", 0),
        ("1023 B", 1023),
        ("1 KiB", 1024),
        ("68.62 KiB", 70_272),
        ("22.5 KiB", 23_040),
        ("1 MiB", (1 << 20) - 1),
        ("40 GiB", 40 << 30),
        ("2048 PiB", 2 << 60),
    ],
)
def test_formats_in_the_largest_fitting_unit(expected: str, count: int) -> None:
    assert expected == format_bytes(count)


@given(st.integers(min_value=0, max_value=1 << 55))
def test_formatted_amounts_read_back_to_within_rounding(count: int) -> None:
    assert pytest.approx(count, rel=0.006, abs=0.5) == parse_bytes(format_bytes(count))
