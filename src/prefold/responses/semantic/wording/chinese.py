"""Reading Chinese: the units of a question without a segmenter, by short lists of words, and single characters else.

The lists come from general knowledge of the language; no set that figures are reported on gave a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prefold.responses.semantic.wording.asking import Asked
from prefold.responses.semantic.wording.lexicon import lines, rows, word_set
from prefold.responses.semantic.wording.word import Kind, Word

_ASKED: Mapping[str, Asked] = MappingProxyType(
    {word: Asked(row[0]) for row in rows("chinese_asked") for word in row[1:]}
)
_FILLERS = word_set(" ".join(lines("chinese_fillers")))
_NEGATIONS = word_set("不能 不会 不要 不再 不是 没有 没 不 未 无 非 别 勿 從未 从未 并非 無 沒有")
_WHOLE = word_set(
    "不同 不过 不仅 不但 非常 除非 无论 不管 未来 别人 别的 无线 特别 不锈钢 个别 分别 区别 级别 非洲 不久"
)
"""Words that look negated and are not."""
_SAME: Mapping[str, str] = MappingProxyType({word: row[0] for row in rows("chinese_same") for word in row})
_FIRST_SIDE = 10_000
"""Numbers of sides of antonyms begin here, beyond those of English."""
_SIDES: Mapping[str, frozenset[int]] = MappingProxyType(
    {
        word: frozenset((_FIRST_SIDE + 2 * number + side,))
        for number, pair in enumerate(rows("chinese_antonyms"))
        for side, words in enumerate(pair)
        for word in words.split(",")
    }
)
_DATES: Mapping[str, str] = MappingProxyType(
    {day: day.replace("星期", "周").replace("周天", "周日") for day in word_set(" ".join(lines("chinese_dates")))}
)
_SCOPES = word_set("只 仅 全部 所有 每 各 除了 除 最 首次 第一 唯一 额外 另外 其他 国际 国内 免费 企业 个人 学生")
_ROLES = word_set("从 到 至 向 比 由 为")
_DIGITS: Mapping[str, int] = MappingProxyType(
    {**{digit: value for value, digit in enumerate("零一二三四五六七八九")}, "两": 2, "〇": 0}
)
_TENS: Mapping[str, int] = MappingProxyType({"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 10**8})
_SECTION = 10_000
_UNITS = word_set(
    "年 月 日 号 天 周 小时 分钟 秒 点 岁 元 块 美元 英镑 欧元 公里 千米 米 厘米 公斤 千克 斤 克 升 毫升 度 个月 次 人 "
    "名 个 位 倍 楼 层 % 平方公里 英里 英尺"
)
_SAME_UNIT = MappingProxyType({"号": "日", "千米": "公里", "千克": "公斤", "块": "元"})
_NUMBER = re.compile(
    r"(?:(?P<digits>\d+(?:[.,]\d+)*)|(?P<han>[零〇一二两三四五六七八九十百千万亿]{1,12}))(?P<times>[万亿千百])?"
    rf"(?P<unit>{'|'.join(sorted(_UNITS, key=lambda unit: (-len(unit), unit)))})?"
)
_FOREIGN = re.compile(r"[^\W\d_\u3400-\u9fff]+(?:[-'’.][^\W\d_\u3400-\u9fff]+)*")
_LONGEST = 7
_ENTRIES = frozenset(
    word
    for words in (_ASKED, _FILLERS, _NEGATIONS, _WHOLE, _SAME, _SIDES, _DATES, _SCOPES, _ROLES)
    for word in words
    if len(word) > 1
)
_WEIGHT = 0.4
"""Of a character."""


@dataclass(frozen=True, slots=True)
class Chinese:
    """What was read: see `Facts`."""

    words: list[Word]
    negations: int
    asked: frozenset[Asked]


def read_chinese(text: str) -> Chinese:
    """Read a text, in lower case; foreign words in it are units of their own."""
    words: list[Word] = []
    asked: set[Asked] = set()
    negations = 0
    role = ""
    for unit in _units(text):
        if isinstance(unit, Word):
            words.append(Word(unit.stem, unit.surface, unit.kind, unit.weight, role))
        elif unit in _ASKED:
            asked.add(_ASKED[unit])
        elif unit in _NEGATIONS:
            negations += 1
        elif unit in _ROLES:
            role = unit
        elif unit not in _FILLERS and unit.isalnum():
            words.append(_word(unit, role))
    return Chinese(words, negations, frozenset(asked or {Asked.DO}))


def _units(text: str) -> Iterable[str | Word]:
    """The text from left to right: foreign words and numbers as words, else the longest word of any list."""
    at = 0
    while at < len(text):
        foreign = _FOREIGN.match(text, at)
        if foreign:
            yield Word(foreign[0], foreign[0], Kind.ENTITY, 1.2)
            at = foreign.end()
            continue
        word = _longest(text, at)
        number = _NUMBER.match(text, at)
        if number and len(word) <= len(number[0]) and (number["digits"] or number["unit"] or len(number[0]) > 1):
            yield Word(_value(number), number[0], Kind.NUMBER, 1.2)
            at = number.end()
        else:
            yield word
            at += len(word)


def _word(unit: str, role: str) -> Word:
    if unit in _DATES:
        return Word(_DATES[unit], unit, Kind.DATE, 1.2, role)
    same = _SAME.get(unit, unit)
    if unit in _SIDES:
        return Word(same, unit, Kind.POLAR, 2 * _WEIGHT, role, sides=_SIDES[unit])
    if unit in _SCOPES:
        return Word(unit, unit, Kind.SCOPE, 0.6, role)
    return Word(same, unit, Kind.PLAIN, min(_WEIGHT * len(same), 2.0), role)


def _longest(text: str, at: int) -> str:
    for size in range(_LONGEST, 1, -1):
        if text[at : at + size] in _ENTRIES:
            return text[at : at + size]
    return text[at]


def _value(number: re.Match[str]) -> str:
    unit = _SAME_UNIT.get(number["unit"] or "", number["unit"] or "")
    if number["digits"] and not number["times"]:
        return number["digits"].replace(",", "") + unit
    digits = (number["digits"] or "").replace(",", "")
    value = (float(digits) if digits.count(".") < 2 else 0.0) if digits else _han(number["han"])
    return f"{value * _TENS.get(number['times'] or '', 1):.15g}{unit}"


def _han(text: str) -> float:
    """Chinese numerals; digits in a row (二〇一四) are read one by one."""
    if _TENS.keys().isdisjoint(text):
        return float("".join(str(_DIGITS[character]) for character in text))
    total, section, digit = 0, 0, 0
    for character in text:
        if character in _DIGITS:
            digit = _DIGITS[character]
        elif _TENS[character] >= _SECTION:
            total = (total + section + digit) * _TENS[character]
            section = digit = 0
        else:
            section += (digit or 1) * _TENS[character]
            digit = 0
    return float(total + section + digit)
