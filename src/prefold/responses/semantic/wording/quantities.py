"""Numbers with their units, ordinals, times of day, in digits or written out: as text that is equal for equal ones."""

from __future__ import annotations

from dataclasses import dataclass

from prefold.responses.semantic.wording.lexicon import MULTIPLES, NUMERALS, ORDINALS, UNITS, word_set

_CURRENCIES = "$£€¥₹"
_HALF_DAY = 720
_DAY_HALVES = {"morning": "am", "afternoon": "pm", "evening": "pm"}
_ORDINAL_ENDS = word_set("st nd rd th")
_BEFORE_ONE = word_set("in for with is are have has of only just add buy get need per at")
"""Words after which `one` is a number rather than "the red one"."""
_FEWEST_TENS = 20
_ROUNDED = 1e9
"""Above it not all digits are kept."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number.

    Attributes:
        text: value in the smallest unit, and the unit's dimension; "14 days" and "two weeks" have the same.
        end: place of the first token behind it.
    """

    text: str
    end: int


def read_quantity(tokens: list[str], at: int) -> Quantity | None:
    """The number that begins at a token; None where none does."""
    sign = tokens[at] if tokens[at] in _CURRENCIES else ""
    first = at + bool(sign)
    if first == len(tokens):
        return None
    word = tokens[first]
    if word in ORDINALS and word != "second":
        return Quantity(f"{ORDINALS[word]}th", first + 1)
    if word.count(".") > 1 and word[0].isdigit():  # a version
        return Quantity(word, first + 1)
    found = _in_digits(word, first) if word[0].isdigit() else _written_out(tokens, first)
    if found is None:
        return None
    value, end = found
    while end < len(tokens) and tokens[end] in MULTIPLES:
        value, end = value * MULTIPLES[tokens[end]], end + 1
    if sign:
        dimension, scale = UNITS[sign]
        return Quantity(f"{value * scale:.15g} {dimension}", end)
    return _ordinal(tokens, value, end) or _clock(tokens, value, end) or _with_unit(tokens, value, end)


def _in_digits(word: str, at: int) -> tuple[float, int] | None:
    try:
        return float(word), at + 1
    except ValueError:  # 2fa
        return None


def _written_out(tokens: list[str], at: int) -> tuple[float, int] | None:
    word = tokens[at]
    if word not in NUMERALS or (word == "one" and (at == 0 or tokens[at - 1] not in _BEFORE_ONE)):
        return None
    value, end = float(NUMERALS[word]), at + 1
    following = NUMERALS.get(_at(tokens, end), 0)
    if value >= _FEWEST_TENS and 0 < following < 10:
        return value + following, end + 1
    return value, end


def _ordinal(tokens: list[str], value: float, end: int) -> Quantity | None:
    return Quantity(f"{value:g}th", end + 1) if _at(tokens, end) in _ORDINAL_ENDS else None


def _clock(tokens: list[str], value: float, end: int) -> Quantity | None:
    """A time of day in minutes: "7pm", "9:15", "seven in the morning"."""
    minutes, is_time = 60 * value, False
    past = _at(tokens, end + 1)
    if _at(tokens, end) == ":" and past.isdigit() and len(past) == 2:
        minutes, is_time, end = minutes + int(past), True, end + 2
    if _at(tokens, end) == "oclock":
        is_time, end = True, end + 1
    half = _at(tokens, end) if _at(tokens, end) in ("am", "pm") else ""
    if half:
        end += 1
    elif tokens[end : end + 2] == ["in", "the"] and _at(tokens, end + 2) in _DAY_HALVES:
        half, end = _DAY_HALVES[tokens[end + 2]], end + 3
    if half:
        return Quantity(f"{minutes % _HALF_DAY + _HALF_DAY * (half == 'pm'):g} clock {half}", end)
    return Quantity(f"{minutes:g} clock", end) if is_time else None


def _with_unit(tokens: list[str], value: float, end: int) -> Quantity:
    unit = _at(tokens, end)
    if unit in ("year", "years", "yr", "yo") and _at(tokens, end + 1) in ("old", "olds"):
        return Quantity(f"{value:g} old", end + 2)
    is_a_letter = len(unit) == 1 and unit.isalpha() and not tokens[end - 1][0].isdigit()
    if unit in UNITS and not is_a_letter:
        dimension, scale = UNITS[unit]
        exact = tokens[end - 1] if value > _ROUNDED else f"{value * scale:.9g}"
        return Quantity(f"{exact} {dimension}", end + 1)
    if tokens[end - 1].isdigit():
        return Quantity(tokens[end - 1], end)  # to the digit: numbers of orders are long
    return Quantity(f"{value:.15g}", end)


def _at(tokens: list[str], at: int) -> str:
    return tokens[at] if at < len(tokens) else ""
