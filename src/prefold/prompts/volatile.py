"""Values in a text that differ from request to request: clocks, identifiers, addresses, nonces.

Nearly all of them hold a digit, so one compiled pattern walks over the digits of a text and stops only where something
of interest can begin; what it stops at is then confirmed. The rest (labels, user paths, client nonces) is found by
fixed characters and words. Every pattern is bounded, so the time is linear in the text whatever it holds.

`find_volatile` finds every form, whatever it means; whether a value is likely to be another one next time is for
`prefold.prompts.liveness` to say.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain


class Kind(StrEnum):
    """What a value is; the more specific kinds come first and win where two claim a place."""

    NONCE = "nonce"
    """A number that a client puts into each request, such as `cch=1a2b3`."""
    UUID = "uuid"
    USER_PATH = "user_path"
    """A home folder with the name of its user."""
    IDENTIFIER = "identifier"
    """A value that is called the id of a session, a request, a trace and the like."""
    ADDRESS = "address"
    """An IPv4, IPv6 or MAC address."""
    TIME = "time"
    """A time of day, with or without a date."""
    DATE = "date"
    """A calendar date without a time of day."""
    EPOCH = "epoch"
    """Seconds, or their thousandths, millionths or billionths, since 1970."""
    HEX = "hex"
    """At least 16 hexadecimal digits, letters among them."""
    TOKEN = "token"  # noqa: S105 - a kind, no secret
    """Letters and digits that look drawn at random."""


@dataclass(frozen=True, slots=True)
class Volatile:
    """One such value: characters `start` to `end` of the text."""

    kind: Kind
    start: int
    end: int


def find_volatile(text: str) -> list[Volatile]:
    """The values in a text, in order and without overlaps."""
    found = [*_by_digit(text), *_by_label(text), *_by_prefix(text), *_by_word(text)]
    found.sort(key=lambda volatile: (volatile.start, -volatile.end))
    kept: list[Volatile] = []
    for volatile in found:
        if not kept or volatile.start >= kept[-1].end:
            kept.append(volatile)
        elif _RANK[volatile.kind] < _RANK[kept[-1].kind]:
            kept[-1] = volatile
    return kept


_RANK = {kind: rank for rank, kind in enumerate(Kind)}

# ------------------------------------------------------------------------------------------------- dates and times

_MONTHS = (
    "jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec"
    "|january|february|march|april|june|july|august|september|october|november|december"
    "|januar|februar|märz|mai|juni|juli|oktober|dezember"
    "|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    "|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
    "|janeiro|fevereiro|março|maio|junho|julho|setembro|outubro|novembro|dezembro"
)
_WEEKDAYS = "mon|tue|tues|wed|thu|thur|thurs|fri|sat|sun|monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_CALENDAR_NAMES = frozenset(f"{_MONTHS}|{_WEEKDAYS}".split("|"))
_MONTH = rf"(?i:{_MONTHS})(?![^\W\d_])\.?"
_WEEKDAY = rf"(?i:{_WEEKDAYS})(?![^\W\d_])"
_YEAR = r"(?:19|20)[0-9]{2}"
_MONTH_NUMBER = r"(?:1[0-2]|0?[1-9])"
_DAY = r"(?:3[01]|[12][0-9]|0?[1-9])"
_ORDINAL = rf"{_DAY}(?:st|nd|rd|th|er|º|\.)?"
_DATE = "|".join(
    (
        rf"{_YEAR}-{_MONTH_NUMBER}-{_DAY}(?![0-9])",
        rf"{_YEAR}/{_MONTH_NUMBER}/{_DAY}(?![0-9])",
        rf"{_YEAR}\.{_MONTH_NUMBER}\.{_DAY}(?![0-9]|\.[0-9])",
        rf"{_YEAR}-W[0-5][0-9](?:-[1-7])?(?![0-9])",
        rf"{_YEAR}(?:1[0-2]|0[1-9])(?:3[01]|[12][0-9]|0[1-9])(?:(?=T[0-9])|(?!\w|\.[0-9]))",
        rf"{_YEAR}-(?:1[0-2]|0[1-9])(?![-0-9]|[A-Za-z_])",
        rf"{_DAY}/{_DAY}/(?:{_YEAR}|[0-9]{{2}})(?![0-9/])",  # either order
        rf"{_DAY}-{_DAY}-{_YEAR}(?![0-9-])",
        rf"{_DAY}\.{_DAY}\.{_YEAR}(?![0-9]|\.[0-9])",
        rf"(?=[^\W\d]){_MONTH} {_DAY}(?:st|nd|rd|th)?(?![0-9]|:[0-9])(?:,? {_YEAR}(?![0-9]))?",
        rf"{_ORDINAL}(?: of | de |[ /-]){_MONTH}(?:(?:,? | de |[/-]){_YEAR}(?![0-9]))?",
        rf"(?=[^\W\d]){_MONTH},? {_YEAR}(?![0-9])",
        rf"(?:[0-9]{{4}} ?[年년] ?)?{_MONTH_NUMBER} ?[月월] ?{_DAY} ?[日号號일]",
        rf"{_YEAR} ?[年년] ?{_MONTH_NUMBER} ?[月월]",
    )
)
_HOUR = r"(?:2[0-3]|[01]?[0-9])"
_HALF_DAY = r"(?i:a\.m\.|p\.m\.|[ap]m(?![a-z]))"
_HALF_DAY_CJK = "上午|下午|凌晨|晚上|中午|早上|午前|午後|오전|오후"
_ZONE = (
    r"(?: ?(?:Z|UTC|GMT|[ECMPA][SD]T|CES?T|EES?T|WES?T|BST|[JIKN]ST|MSK)(?![A-Za-z]))"
    r"?(?: ?(?:UTC|GMT)?[+-][0-9]{2}:?[0-9]{2}(?![0-9]))?"
)
_MINUTE = "[0-5]?[0-9] ?[分분]"
_TIME = "|".join(
    (
        rf"{_HOUR}:[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{{1,9}})?)?(?![0-9]|:[0-9a-fA-F])(?: ?{_HALF_DAY})?{_ZONE}",
        rf"(?:1[0-2]|0?[1-9]) ?(?:{_HALF_DAY}{_ZONE}|o['’]clock)",
        rf"{_HOUR}(?:\.[0-5][0-9])? Uhr",
        rf"(?:{_HALF_DAY_CJK}) ?{_HOUR} ?(?::[0-5][0-9]|[点时時시](?: ?{_MINUTE})?(?: ?[0-9]{{1,2}} ?[秒초])?)",
        rf"{_HOUR} ?[点时時시] ?{_MINUTE}(?: ?[0-5]?[0-9] ?[秒초])?",
    )
)
_CLOCK = re.compile(
    rf"(?:(?=[A-Za-z]){_WEEKDAY}\.?,? )?(?:{_DATE})(?:[,，]? ?[（(]?(?:星期|周|礼拜)[一二三四五六日天][)）]?)?"
    rf"(?P<after_date>(?:T|[ ]{{1,2}}|, ?|，|_|:| at |, at |(?<=[日号號일一二三四五六天)）]))"
    rf"(?:{_TIME}|(?<=[0-9]T)[0-9]{{4,6}}(?:Z|[+-][0-9]{{4}})?)(?: {_YEAR}(?![0-9]))?)?"
    rf"|(?P<alone>{_TIME})"
)
_LAST_WORD_BACKWARDS = re.compile(r" [.,]{0,2}([A-Za-zÀ-ÿ]{3,10})")
_NAMES_BEFORE = re.compile(rf"(?<![A-Za-z0-9])(?:{_WEEKDAY}\.?,? )?(?:{_MONTH},? )?\Z")
_HALF_DAY_BEFORE = re.compile(rf"(?:{_HALF_DAY_CJK}) ?\Z")
_NO_CLOCK_BEHIND = frozenset(string.ascii_letters + "_./-")
"""Behind one of these a number is the rest of a name, a version, a path or a longer number."""
_PART_OF_ADDRESS = re.compile(r"(?:[0-9]|:|(?<![A-Za-z])[a-fA-F]{1,4}):\Z")
_DATE_IN_WORDS = re.compile(
    r"[〇零○一二三四五六七八九]{4}年(?:[一二三四五六七八九十]{1,2}月(?:[一二三四五六七八九十]{1,3}[日号])?)?"
)

# ------------------------------------------------------------------------------------- what a digit can be a part of


def _in_any_case(*words: str) -> str:
    """A pattern of the words in upper and lower case; sets of characters are read much faster than `(?i:...)`."""
    return "|".join("".join(f"[{letter}{letter.upper()}]" for letter in word) for word in words)


_MONTH_STEM = _in_any_case(
    *("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "mär", "mai", "okt", "dez"),
    *("fév", "avr", "jui", "aoû", "déc", "ene", "abr", "ago", "dic", "fev", "set", "out"),
)
_MONTH_END = _in_any_case(
    *("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    *("ary", "rch", "ril", "une", "uly", "ust", "ept"),
)
_LONG_MONTH_END = _in_any_case("ember", "tober")
_DIGIT = re.compile(
    # Branches begin with a set or a letter, so that most of them are passed over at the first character.
    rf"""[0-9](?<![0-9][0-9])(?:
    (?=[0-9]{{0,3}}(?:
        [-/](?:[0-9]{{1,3}}[-/][0-9]|[0-9W][0-9](?<=[0-9]{{4}}-..)|{_MONTH_STEM})     # 2026-11-01, 2026-11, 1-Nov
      | \.(?:[0-9]{{1,3}}\.(?:[0-9]{{4}}|[0-9]{{1,3}}\.[0-9])|(?<=[0-9]{{4}}\.)[0-9]{{1,2}}\.[0-9]|[0-9]{{2}}[ ]U)
      | :(?![0-9]{{2}}[ ]?[-–—~][ ]?[0-9]{{1,2}}:)(?<![-–—~][0-9]:)(?<![-–—~][0-9]{{2}}:)  # 10:00, not 9:00-17:00
        [0-9a-fA-F:]
      | [ ](?:{_MONTH_STEM}|of[ ]|de[ ]|[AaPp]\.?[Mm]|[年년月월][ ]?[0-9]|[点时時시]|Uhr|o['’]cl)
      | [AaPp]\.?[Mm]                                               # 3pm
      | [年년月월][ ]?[0-9]
      | [点时時시]
      | (?:st|nd|rd|th|er|\.)[ ](?:of[ ]|de[ ])?(?:{_MONTH_STEM})   # 1st of November
      | [0-9]{{4}}(?<=[0-9]{{8}})(?![0-9])                          # 20261101
      | [a-fA-F][0-9a-fA-F]{{0,2}}:[0-9a-fA-F:]
    ))(?P<separated>)
    | (?=[A-Za-z0-9_-]{{8}})                                        # in the first half of a long token
    | (?<=[A-Za-z0-9_-]{{8}}.)                                      # in the second half
    | (?=[0-9]{{0,3}}(?![0-9]))(?:
        (?<=[aepuocrinlsAEPUOCRINLS][nbrylgptvcheNBRYLGPTVCHE][ ].)(?<=(?:{_MONTH_END})[ ].)       # Nov 1
      | (?<=[rR][ ].)(?<=(?:{_LONG_MONTH_END})[ ].)
      | (?<=[.,][ ].)(?:(?<=(?:{_MONTH_END})[.,][ ].)|(?<=(?:{_LONG_MONTH_END})[.,][ ].))
      )(?P<named>)
    )""",
    re.VERBOSE,
)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = re.compile(rf"(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|[.-][0-9])")
_COLONS = re.compile(r"[0-9a-fA-F:]*")
_HEX_AND_COLONS = string.hexdigits + ":"
_WITH_COLONS = re.compile(
    r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}"  # MAC
    r"|(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}"  # IPv6 in full, then shortened
    r"|(?=[0-9a-fA-F:]{7})(?:[0-9a-fA-F]{1,4}:){1,6}(?::[0-9a-fA-F]{1,4}){1,6}"
)
_LONGEST_ADDRESS = 39
_TOKEN_CHARACTERS = string.ascii_letters + string.digits + "_-"
_REST_OF_TOKEN = re.compile(r"[A-Za-z0-9_-]*")
_LONGEST_TOKEN = 200
"""Characters. What is longer is content, such as an image, and no identifier."""
_UUID = re.compile(r"(?<![A-Za-z0-9])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![A-Za-z0-9])")
_HEX = re.compile(
    r"(?<![A-Za-z0-9.])(?![0-9]+[eE][0-9]*(?![0-9a-fA-F]))(?:0[xX])?(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{16,128}(?![A-Za-z0-9])"
)
_EPOCH = re.compile(r"(?<![A-Za-z0-9_])(?:[0-9]{10}|[0-9]{13}|[0-9]{16}|[0-9]{19})(?![A-Za-z0-9_])")
_PLAUSIBLE_SECONDS = range(1_200_000_000, 2_100_000_000)
"""2008 to 2036."""


def _by_digit(text: str) -> Iterator[Volatile]:
    """What holds a digit and is known by its form."""
    done = 0
    for anchor in _DIGIT.finditer(text):
        digit = anchor.start()
        if digit < done:
            continue
        found = None
        if anchor.lastgroup is not None:
            found = _clock_at(text, digit, done) or _address_at(text, digit, done)
        if found is None:
            start, done = _token_bounds(text, digit, done)
            found = _token(text, start, done)
        if found is not None:
            yield found
            done = found.end
    if not text.isascii():
        for date in _DATE_IN_WORDS.finditer(text):
            yield Volatile(Kind.DATE, date.start(), date.end())


def _clock_at(text: str, digit: int, floor: int) -> Volatile | None:
    """The date or time of which the number beginning at `digit` is the first."""
    before = text[digit - 1] if digit else ""
    if before in _NO_CLOCK_BEHIND:
        return None
    if before == ":" and _PART_OF_ADDRESS.search(text, max(0, digit - 6), digit):
        return None
    lead = _lead_of(text[max(floor, digit - 24) : digit]) if before == " " or not before.isascii() else 0
    for start in (digit - lead, digit) if lead else (digit,):
        clock = _CLOCK.match(text, start)
        if clock is not None and clock.end() > digit and not text[clock.end() : clock.end() + 1].isdigit():
            return Volatile(Kind.DATE if clock.lastgroup is None else Kind.TIME, start, clock.end())
    return None


def _lead_of(window: str) -> int:
    """Characters at the end of the window that belong to the date or time that follows it."""
    word = _LAST_WORD_BACKWARDS.match(window[::-1])
    if word is not None and word[1][::-1].lower() in _CALENDAR_NAMES:
        names = _NAMES_BEFORE.search(window)
        return len(window) - names.start() if names else 0
    half_day = None if window.isascii() else _HALF_DAY_BEFORE.search(window)
    return len(window) - half_day.start() if half_day else 0


def _address_at(text: str, digit: int, floor: int) -> Volatile | None:
    """The address of which the digit is the first."""
    before = text[digit - 1] if digit else ""
    if before not in {".", "_", "-"} and not (before.isascii() and before.isalnum()):
        ipv4 = _IPV4.match(text, digit)
        if ipv4 is not None:
            return Volatile(Kind.ADDRESS, digit, ipv4.end())
    if ":" not in text[digit : digit + 5]:
        return None
    window = text[max(floor, digit - _LONGEST_ADDRESS) : digit]
    start = digit - len(window) + len(window.rstrip(_HEX_AND_COLONS))
    rest = _COLONS.match(text, digit, start + _LONGEST_ADDRESS + 1)
    end = rest.end() if rest else digit
    is_whole = not text[start - 1 : start].isalnum() and not text[end : end + 1].isalnum()
    if is_whole and _WITH_COLONS.fullmatch(text, start, end):
        return Volatile(Kind.ADDRESS, start, end)
    return None


def _token_bounds(text: str, digit: int, floor: int) -> tuple[int, int]:
    """Start and end of the letters, digits, `_` and `-` around a digit."""
    window = text[max(floor, digit - _LONGEST_TOKEN) : digit]
    rest = _REST_OF_TOKEN.match(text, digit)
    return digit - len(window) + len(window.rstrip(_TOKEN_CHARACTERS)), rest.end() if rest else digit


def _token(text: str, start: int, end: int) -> Volatile | None:
    """The first epoch, UUID, hexadecimal number or random part in a token."""
    if not 10 <= end - start <= _LONGEST_TOKEN:
        return None
    epoch = _EPOCH.search(text, start, end)
    if epoch is not None and text[start - 1 : start] not in {".", ","} and int(epoch[0][:10]) in _PLAUSIBLE_SECONDS:
        return Volatile(Kind.EPOCH, epoch.start(), epoch.end())
    for kind, pattern in ((Kind.UUID, _UUID), (Kind.HEX, _HEX)):
        found = pattern.search(text, start, end)
        if found is not None:
            return Volatile(kind, found.start(), found.end())
    token = text[start:end]
    if len(token) == _NANOID and not (token.islower() or token.isupper()) and _is_random(token):
        return Volatile(Kind.TOKEN, start, end)
    offset = start
    for part in re.split("[_-]", token):
        if len(part) >= _SHORTEST_RANDOM and _is_random(part):
            return Volatile(Kind.TOKEN, offset, offset + len(part))
        offset += len(part) + 1
    return None


_SHORTEST_RANDOM = 20
_NANOID = 21
_WORDS = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}")
_NUMBERS = re.compile(r"[0-9]+")


def _is_random(token: str) -> bool:
    """Whether letters and digits are mixed as chance mixes them and names do not.

    A third of the characters of a random mixed-case token lie in runs of three letters of one case; of a name in camel
    case nearly all do. In one case only, chance scatters the digits over many places.
    """
    numbers = _NUMBERS.findall(token)
    if token.lower() != token and token.upper() != token:
        in_words = sum(len(word) for word in _WORDS.findall(token))
        return bool(numbers) and 2 * in_words < len(token)
    digits = sum(len(number) for number in numbers)
    longest_letters = max(len(letters) for letters in _NUMBERS.split(token))
    return len(numbers) >= 3 and 8 * digits >= len(token) > digits and longest_letters <= 9


# --------------------------------------------------------------------------------------------- identifiers by label

_VALUE_AHEAD = r"(?=[\s\"'`*]{0,3}[A-Za-z_.-]{0,32}[0-9])"
_LABEL_END = "[A-Za-z _-][iIcCsSoO][dDeEtTnN]"  # of session id, request, trace and their like
_LABEL_MARKS = (
    re.compile(rf"[:=#](?:(?<={_LABEL_END}.)|(?<={_LABEL_END}[\"'`* ].)|(?<={_LABEL_END}[*\"'][*\"'].)){_VALUE_AHEAD}"),
    re.compile(rf" is(?<=[iI][dD] is){_VALUE_AHEAD}"),
    re.compile("id (?=[0-9]{5})"),
    re.compile("ID (?=[0-9]{5})"),
)
_LABEL_MARKS_CJK = (re.compile(rf"[:：是为](?:(?<=[dDeEtTnN号求话].)|(?<=[dD号][* ].)){_VALUE_AHEAD}"),)
_LABEL = re.compile(
    r"(?:(?:session|request|req|trace|span|user|client|customer|conversation|chat|thread|run|message|msg|correlation"
    r"|transaction|job|build|account|device|tenant|call|invocation|execution|instance|process|turn|event|ticket|visitor)"
    r"[ _-]?(?:id|ID|Id)|nonce|request|session|trace|correlation|uuid|guid|ulid"
    r"|(?:会话|请求|用户|跟踪|追踪|链路|对话|客户|设备|任务|订单)\s?(?:id|编号|号)?)"
    r"[\"'`* ]{0,3}(?:[:=#：]| is|是|为|(?<=id) )\Z",
    re.IGNORECASE,
)
_LABELLED_VALUE = re.compile(r"[\s\"'`*]{0,3}([A-Za-z0-9](?:[A-Za-z0-9_+/=-]|[.:](?=[A-Za-z0-9])){2,99})")


def _by_label(text: str) -> Iterator[Volatile]:
    """What is called an id."""
    marks = _LABEL_MARKS if text.isascii() else _LABEL_MARKS + _LABEL_MARKS_CJK
    for mark in chain.from_iterable(pattern.finditer(text) for pattern in marks):
        value = _LABELLED_VALUE.match(text, mark.end())
        if value is None or not any(map(str.isdigit, value[1])):
            continue
        if _LABEL.search(text, max(0, mark.end() - 40), mark.end()):
            yield Volatile(Kind.IDENTIFIER, value.start(1), value.end(1))


_AFTER_PREFIX = re.compile(r"[_-](?=[A-Za-z0-9-]{6})(?=[A-Za-z-]{0,32}[0-9])")
_PREFIX = re.compile(
    r"(?<![A-Za-z0-9_-])(?:req|request|sess|session|ses|msg|run|trace|span|conv|thread|call|toolu|chatcmpl|cmpl|resp"
    r"|usr|evt|job|txn|cus|acct)\Z"
)
_PREFIXED_VALUE = re.compile(r"(?![A-Za-z]+[0-9]{0,2}(?![A-Za-z0-9]))[A-Za-z0-9][A-Za-z0-9_-]{5,99}")


def _by_prefix(text: str) -> Iterator[Volatile]:
    """Ids that say what they are: `req_8f3a...`."""
    for mark in _AFTER_PREFIX.finditer(text):
        prefix = _PREFIX.search(text, max(0, mark.start() - 10), mark.start())
        value = _PREFIXED_VALUE.match(text, mark.end())
        if prefix is not None and value is not None:
            yield Volatile(Kind.IDENTIFIER, prefix.start(), value.end())


# ------------------------------------------------------------------------------------------------------ fixed words

_BY_WORD = (
    # Kind, a word that the text must hold, and the pattern.
    (Kind.NONCE, "cch=", re.compile(r"cch=[0-9A-Za-z]{3,64}")),
    (Kind.NONCE, "x-anthropic-billing-header", re.compile(r"x-anthropic-billing-header:[^\n]{0,400}")),
    (Kind.USER_PATH, "/home/", re.compile(r"/(?<![\w.~-]/)home/\w(?:[\w.-]{0,62}[\w-])?")),
    (Kind.USER_PATH, "/Users/", re.compile(r"/(?:(?<=/[a-z]/)|(?<![\w.~-]/))Users/\w(?:[\w.-]{0,62}[\w-])?")),
    (Kind.USER_PATH, "Users\\", re.compile(r":\\{1,2}Users\\{1,2}\w(?:[\w.-]{0,62}[\w-])?")),
)

_ENGLISH_WEEKDAY = re.compile(r"day\b(?<=Monday|uesday|nesday|ursday|Friday|turday|Sunday)")
_CHINESE_WEEKDAY = re.compile(r"(?:星期|礼拜|周)[一二三四五六日天]")
_TODAY_IS = re.compile(
    r"(?:today(?:'s)?|now|current day|current weekday|day of the week|weekday)\W{1,3}(?:is |it is )?([a-z]{3,6}day)\Z"
    r"|(?:今天|现在|当前|今日)(?:日期)?(?:是|为)?[:：]? ?((?:星期|礼拜|周).)\Z",
    re.IGNORECASE,
)


def _by_word(text: str) -> Iterator[Volatile]:
    """Client nonces, home folders, and the weekday of a clock that says nothing else."""
    for kind, word, pattern in _BY_WORD:
        if word in text:
            for found in pattern.finditer(text):
                yield Volatile(kind, found.start(), found.end())
    for weekday in (_ENGLISH_WEEKDAY,) if text.isascii() else (_ENGLISH_WEEKDAY, _CHINESE_WEEKDAY):
        for name in weekday.finditer(text):
            today = _TODAY_IS.search(text, max(0, name.end() - 40), name.end())
            if today is not None:
                yield Volatile(Kind.DATE, *today.span(today.lastindex or 0))
