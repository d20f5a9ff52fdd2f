"""Date-times in texts, in one format: ISO 8601, in UTC where a zone is given, as coarse as asked.

Only what can be read in one way is changed: `11/30/2026 08:54` has its month first, for there is no month 30, but
`11/12/2026 08:54` may be either. What cannot be told is left as it is, and said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum


class Granularity(StrEnum):
    """The finest part of a date-time that is kept."""

    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"
    SECOND = "second"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A date-time that was left as it is.

    Attributes:
        text: it.
        reason: why; what can stand behind "because".
    """

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Moments:
    """A text with its date-times in one format, and those that could not be read without doubt."""

    text: str
    doubts: tuple[Doubt, ...]


def written(moment: datetime, granularity: Granularity, *, has_seconds: bool = True) -> str:
    """A date-time as ISO 8601, in UTC with `Z` unless it is naive, no finer than asked: `2026-11-30T08:54Z`.

    Raises:
        OverflowError: if it has no year in UTC.
    """
    zone = ""
    if moment.tzinfo is not None:
        moment, zone = moment.astimezone(UTC).replace(tzinfo=None), "Z"
    if granularity is Granularity.DAY:
        return moment.date().isoformat()
    if granularity is Granularity.HOUR:
        moment = moment.replace(minute=0)
    is_to_the_second = granularity is Granularity.SECOND and has_seconds
    return moment.isoformat(timespec="seconds" if is_to_the_second else "minutes") + zone


def with_moments(text: str, granularity: Granularity) -> Moments:
    """A text with each date that a time of day follows in one format.

    Dates may be ISO 8601, numbers with slashes, dots or dashes, with an English month, or Chinese, Japanese or Korean;
    so may times, on 12 or 24 hours. A weekday beside such a date goes, and so do fractions of a second.
    """
    doubts: dict[Doubt, None] = {}

    def rewritten(found: re.Match[str]) -> str:
        # The forms name their parts alike, each with a tag before it.
        parts = {name.partition("_")[2]: part for name, part in found.groupdict().items() if part is not None}
        try:
            return written(_moment(parts), granularity, has_seconds="second" in parts)
        except _DoubtfulError as doubt:
            doubts[Doubt(found[0], str(doubt))] = None
        except (ValueError, OverflowError):
            doubts[Doubt(found[0], "there is no such time")] = None
        return found[0]

    return Moments(_MOMENT.sub(rewritten, text), tuple(doubts))


# ------------------------------------------------------------------------------------------------------------- forms

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CHINESE_WEEKDAYS = ("一", "二", "三", "四", "五", "六", "日天")
_MORNING = ("上午", "早上", "凌晨", "午前", "오전")
_AFTERNOON = ("下午", "午後", "오후")
_OTHER_HALVES = ("中午", "晚上")
_ZONE_NAMES = "[ECMPA][SD]T|CES?T|EES?T|WES?T|BST|[JIKN]ST|MSK"

_WEEKDAY = (
    r"(?P<w_weekday>Mon(?:day)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:rs(?:day)?)?|Fri(?:day)?|Sat(?:urday)?"
    r"|Sun(?:day)?)\.?,?\ "
)
_MONTH = (
    r"(?P<month>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_YEAR = r"(?P<year>\d{4})"
_DAY = r"(?P<day>\d\d?)"
_ORDINAL = r"(?:st|nd|rd|th)"
_WEEKDAY_AFTER = rf"(?:\ ?[（(]?(?:星期|周|礼拜)(?P<weekday_after>[{''.join(_CHINESE_WEEKDAYS)}])[)）]?)"
_DATES = (
    rf"{_YEAR}(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark){_DAY}",
    r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?=T)",
    rf"{_YEAR}\ ?[年년]\ ?(?P<month>\d\d?)\ ?[月월]\ ?{_DAY}\ ?[日号號일]{_WEEKDAY_AFTER}?",
    r"(?<![./])(?P<one>\d\d?)(?P<mark>[-/.])(?P<other>\d\d?)(?P=mark)(?P<year>\d{4}|\d\d)",
    rf"{_MONTH}\ {{1,2}}{_DAY}{_ORDINAL}?,?\ {_YEAR}",
    rf"{_DAY}(?:{_ORDINAL}|\.)?(?:\ |\ of\ |\ de\ |-)(?P<month>[A-Za-zÀ-ÿ]{{3,10}})\.?(?:,?\ |\ de\ |-){_YEAR}",
)
_HALF = rf"(?:(?P<half>{'|'.join((*_MORNING, *_AFTERNOON, *_OTHER_HALVES))})\ ?)?"
_HALF_AFTER = r"(?:\ ?(?P<half_after>[AaPp]\.?[Mm]\b\.?))"
_TIMES = (
    rf"{_HALF}(?P<hour>\d\d?):(?P<minute>[0-5]\d)(?::(?P<second>\d\d)(?:[.,]\d++)?)?{_HALF_AFTER}?",
    rf"{_HALF}(?P<hour>\d\d?)\ ?[点點时時시](?:整|\ ?(?P<minute>[0-5]?\d)\ ?[分분](?:\ ?(?P<second>\d\d?)\ ?[秒초])?)?",
    r"(?<=T)(?P<hour>\d\d)(?P<minute>[0-5]\d)(?P<second>\d\d)?(?:[.,]\d++)?",
)
_ZONE = rf"(?:\ ?(?P<z_zone>Z|(?:UTC|GMT)?[-+]\d\d(?::?[0-5]\d)?|(?:UTC|GMT)(?:[-+]\d)?|{_ZONE_NAMES}))?"
_BETWEEN = r"(?:T|,?\ (?:at\ )?|，|(?<=[日号號일)）]|[一二三四五六天]))"


def _tagged(tag: str, forms: Iterable[str]) -> str:
    """Several forms as one, with names that are different in each."""
    tagged = (
        form.replace("(?P<", f"(?P<{tag}{number}_").replace("(?P=", f"(?P={tag}{number}_")
        for number, form in enumerate(forms)
    )
    return f"(?:{'|'.join(tagged)})"


def _unnamed(pattern: str) -> str:
    return re.sub(r"\?P<\w+>", "?:", pattern)


_TIME = _tagged("t", _TIMES)
# What stands behind a date-time must not be taken for a part of it when it is read again.
_END = rf"(?![A-Za-z0-9_:半刻]|[.,]\d|\ ?[AaPp]\.?[Mm]\b|{_unnamed(_BETWEEN + _TIME)})"
_OF_CTIME = (
    rf"{_MONTH}\ {{1,2}}{_DAY}\ (?P<hour>\d\d):(?P<minute>[0-5]\d):(?P<second>\d\d)"
    rf"(?:\ (?P<zone>UTC|GMT|{_ZONE_NAMES}))?\ {_YEAR}{_END}"
)
_MOMENT = re.compile(
    rf"(?<![A-Za-z0-9_-])(?:(?P<w_other_weekday>{_unnamed(_WEEKDAY)})?{_WEEKDAY})?"
    rf"(?:{_tagged('d', _DATES)}{_BETWEEN}{_TIME}{_ZONE}{_END}|{_tagged('c', [_OF_CTIME])})",
    re.ASCII,
)

# ----------------------------------------------------------------------------------------------------------- reading

_Parts = Mapping[str, str]
_NOON = 12
_FIRST_EVENING_HOUR = 6
_LARGEST_OFFSET = timedelta(hours=14)


class _DoubtfulError(Exception):
    """The words can be read in more than one way."""


def _moment(parts: _Parts) -> datetime:
    day, month = _day_and_month(parts)
    moment = datetime(  # noqa: DTZ001 - naive where no zone is given
        int(parts["year"]), month, day, _hour(parts), int(parts.get("minute", 0)), int(parts.get("second", 0))
    )
    english, chinese = parts.get("weekday", "")[:3].lower(), parts.get("weekday_after", "")
    known = {"", _WEEKDAYS[moment.weekday()], *_CHINESE_WEEKDAYS[moment.weekday()]}
    if "other_weekday" in parts or not known.issuperset((english, chinese)):
        raise _DoubtfulError("it is another day of the week")
    return moment if "zone" not in parts else moment.replace(tzinfo=_zone(parts))


def _day_and_month(parts: _Parts) -> tuple[int, int]:
    if "one" not in parts:
        name = parts["month"]
        if name.isdigit():
            return int(parts["day"]), int(name)
        if name[:3].lower() not in _MONTHS:
            raise _DoubtfulError("its month has no English name")
        return int(parts["day"]), _MONTHS.index(name[:3].lower()) + 1
    one, other = int(parts["one"]), int(parts["other"])
    if len(parts["year"]) == len("26"):
        raise _DoubtfulError("its year has two digits")
    if one > len(_MONTHS) or one == other or parts["mark"] == ".":  # with dots the day is first in every language
        return one, other
    if other > len(_MONTHS):
        return other, one
    raise _DoubtfulError("its day and month may be either way round")


def _hour(parts: _Parts) -> int:
    hour = int(parts["hour"])
    half = parts.get("half", "") + parts.get("half_after", "")[:1].lower()
    if not half:
        return hour
    if half in ("p", *_AFTERNOON) and 0 < hour <= _NOON:
        return hour % _NOON + _NOON
    if half in ("a", *_MORNING) and hour <= _NOON:
        return hour % _NOON
    if half == "晚上" and _FIRST_EVENING_HOUR <= hour < _NOON:
        return hour + _NOON
    raise _DoubtfulError("its half of the day is not clear")


def _zone(parts: _Parts) -> timezone:
    name = parts["zone"]
    offset = name.removeprefix("UTC").removeprefix("GMT")
    if offset in ("", "Z"):
        return UTC
    if offset[0] not in "+-":
        raise _DoubtfulError(f"{name} is the name of more than one zone")
    if name[0] == "-" and ":" in name and "second" not in parts:
        raise _DoubtfulError(f"{name} may be a zone or the end of it")
    digits = offset[1:].replace(":", "")
    distance = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    if distance > _LARGEST_OFFSET:
        raise _DoubtfulError(f"there is no zone {name}")
    return timezone(-distance if offset[0] == "-" else distance)
