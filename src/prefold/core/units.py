"""Amounts of memory as people write them."""

from __future__ import annotations

import re
from fractions import Fraction

from prefold.errors import UsageError

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNITS = {
    "": 1,
    **{unit.lower(): 1024**power for power, unit in enumerate(_BINARY)},
    **{unit: 1000**power for power, unit in enumerate(("b", "kb", "mb", "gb", "tb", "pb"))},
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)", re.ASCII | re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Bytes in an amount such as `2GiB`, `1.5 GB`, `512 MiB` or `1048576`; fractions of a byte are dropped.

    Units are binary (KiB, MiB, GiB, TiB, PiB) or decimal (KB, MB, GB, TB, PB), in any case; none means bytes.

    Raises:
        UsageError: if the text is not a number with one of these units.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not an amount of memory.", hint="Write a number with a unit, such as 2GiB.")
    number, unit = match.groups()
    if unit.lower() not in _UNITS:
        bare = f"{unit.upper()}iB or {unit.upper()}B" if len(unit) == 1 else "GiB, MiB, GB or MB"
        raise UsageError(f"{text!r} has the unknown unit {unit!r}.", hint=f"Write {bare}.")
    return int(Fraction(number) * _UNITS[unit.lower()])


def format_bytes(count: int) -> str:
    """An amount in the largest binary unit of which it is at least one, to two decimals: `40 GiB`, `68.62 KiB`."""
    power = 0
    # One unit up as soon as rounding would write 1024 of the smaller one.
    while power + 1 < len(_BINARY) and round(count / 1024**power, 2) >= 1024:
        power += 1
    number = f"{count / 1024**power:.2f}".rstrip("0").rstrip(".")
    return f"{number} {_BINARY[power]}"
