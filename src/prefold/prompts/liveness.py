"""Whether a value in a stable part of a prompt is likely to be another one next time.

A date may be a law's, a UUID may be the example in a description, an address may be that of localhost. What decides is
what stands around the value: a word such as "now" or "today" makes a date a clock, "for example" makes anything a
constant. Where nothing decides, a value is taken for a constant if its kind often is one: a false alarm costs more
trust than a miss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from prefold.prompts.volatile import Kind, Volatile, find_volatile

_LOOK_BACK = 600
"""Characters before a value that can make it an example."""
_LOOK_AHEAD = 40
_NEAR = 90
"""Characters before a value in which its label stands."""
_EXAMPLE_WORDS = (
    *("e.g", "eg.", "i.e.", "example", "instance", "such as", "like", "format", "pattern", "sample", "placeholder"),
    *("例", "比如", "格式", "譬如", "诸如"),
)

_EXAMPLE_BEFORE = re.compile(
    r"(?:\b(?:e\.?g\.?|i\.e\.|for example|for instance)(?!\w)|例如|比如|譬如|诸如)"
    r"(?:[^\n。！？!?;；.]|\.(?!\s)){0,200}\Z"
    r"|(?:\b(?:examples?|such as|like|format(?:ted)?|pattern|sample|placeholder)(?!\w)"
    r"|示例|例子|样例|格式)[^\n.。!?]{0,40}\Z",
    re.IGNORECASE,
)
_EXAMPLE_HEADING = re.compile(
    r"^[^\n]{0,80}(?:\bexamples?\b|\bsamples?\b|\bformat\b|示例|例子|样例)[^\n]{0,40}[:：*]\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_EXAMPLE_TAG = re.compile(r"<(/?)(?:[a-z_-]*example|sample)s?\b", re.IGNORECASE)
_LONGEST_URL = 220
_URL_BEFORE = re.compile(r"[a-z][a-z0-9+.-]{1,10}://[^\s\"'<>]{0,200}\Z")


def find_live(text: str) -> Iterator[Volatile]:
    """The values in a text that change from request to request, as far as the text around them tells."""
    vicinity = _Vicinity(text)
    return (volatile for volatile in find_volatile(text) if vicinity.makes_live(volatile))


def is_live(text: str, volatile: Volatile) -> bool:
    """Whether a value found by `find_volatile` changes from request to request; for many values see `find_live`."""
    return _Vicinity(text).makes_live(volatile)


def is_example(text: str, start: int) -> bool:
    """Whether what begins at a character of a text is there to show what such a thing looks like."""
    return _Vicinity(text).makes_example(start)


class _Vicinity:
    """What stands around the values of a text.

    Most stretches of a text hold none of the words that make a value an example or a clock. Each stretch is searched
    for them once, however many values it has, and only where they are there the patterns are tried.

    Args:
        text: the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._example_words = _Stretches(text, _EXAMPLE_WORDS)
        self._now_words = _Stretches(text, _NOW_WORDS)

    def makes_live(self, volatile: Volatile) -> bool:
        """Whether what stands around a value makes it one that changes."""
        kind, start, end = volatile.kind, volatile.start, volatile.end
        if kind is Kind.NONCE:
            return True
        text = self._text
        value = text[start:end]
        near = text[max(0, start - _NEAR) : start].replace("\r", "")
        after = text[end : end + _LOOK_AHEAD].replace("\r", "")
        if kind in _CLOCKS and self._now_words.are_in(start - _NEAR, start) and _is_called_now(near):
            return not self.makes_example(start)
        if kind in _DRAWN and _URL_BEFORE.search(text, max(0, start - _LONGEST_URL), start):
            return False
        return _JUDGES[kind](value, near, after) and not self.makes_example(start)

    def makes_example(self, start: int) -> bool:
        """Whether a value that begins here is there to show what such a value looks like."""
        if not self._example_words.are_in(start - _LOOK_BACK, start):
            return False
        before = self._text[max(0, start - _LOOK_BACK) : start].replace("\r", "")
        if _EXAMPLE_BEFORE.search(before, max(0, len(before) - 250)):
            return True
        if _EXAMPLE_HEADING.search(before.rpartition("\n\n")[2]):
            return True
        tags = _EXAMPLE_TAG.findall(before)
        return bool(tags) and tags[-1] == ""


class _Stretches:
    """Remembers for each stretch of a text whether some words stand in it, in any case.

    Args:
        text: the text.
        words: in small letters.
    """

    _LENGTH = 512
    _OVERLAP = 16
    """Characters of the stretch before, so that no word is cut; none is longer."""

    def __init__(self, text: str, words: tuple[str, ...]) -> None:
        self._text = text
        self._words = words
        self._known: dict[int, bool] = {}

    def are_in(self, start: int, end: int) -> bool:
        """False if none of the words stands in these characters; they may stand close by where it is True."""
        first, last = max(0, start) // self._LENGTH, end // self._LENGTH
        return self._holds(last) or (first < last and any(map(self._holds, range(first, last))))

    def _holds(self, number: int) -> bool:
        if number not in self._known:
            start = number * self._LENGTH
            stretch = self._text[max(0, start - self._OVERLAP) : start + self._LENGTH].lower()
            self._known[number] = any(word in stretch for word in self._words)
        return self._known[number]


# ---------------------------------------------------------------------------------------------------------- clocks

_FIRST_YEAR_OF_NOW = 2023
"""A date before it is history: prompts for language models as a service are hardly older."""
_YEAR = re.compile(r"(?<![0-9])(?:19|20)[0-9]{2}")
_NUMBERS = re.compile(r"[0-9]+")
_NUMBERS_TO_THE_SECOND = 3
_MONTH_NAME = re.compile(r"[^\W\d_年月日]{3}")
_COMPACT = re.compile(r"[0-9]{8}")
_TIME_OF_DAY = re.compile(r"[0-9]:[0-9]|[0-9]T[0-9]|[ap]\.?m|[点时時시]", re.IGNORECASE)
_BETWEEN = " \t\n:=\"'`*(（：—–,>-"
"""Characters between a label and its value."""
_NOW = re.compile(
    r"(?:\b(?:today|now|currently|current(?: (?:local|utc|server|system|user))?"
    r"(?:[ _-]?(?:and )?(?:date|time|day|datetime|timestamp|moment|month|week|hour))+"
    r"|today's (?:date|day|time)|it is|it's"
    r"|(?:date|time|day)(?: and (?:date|time))?(?: is| now| today)+"
    r"|heute|aktuelles datum|datum|uhrzeit|aujourd'hui|date du jour|nous sommes|hoy|fecha(?: actual| de hoy)?|hoje)"
    r"|(?:当前|现在|目前|今天|今日|此刻|現在|本日|오늘|현재)[的の]?(?:(?:和|与|及)?(?:日期|时间|時間|日時|时刻|時刻|날짜|시간))*"
    r"|(?:本地|系统|北京|服务器)(?:日期|时间|时刻)+)"
    r"(?: (?:is|ist|est|es|é|in [\w/ ]{2,30}(?:is)?|\([^)\n]{1,30}\)))?"
    rf"(?:是|为|は、?|：|은|는)?[{re.escape(_BETWEEN)}]{{0,8}}(?:\w{{3,10}}, )?(?:(?:on|at|now|the|der|le|el|den) )?\Z",
    re.IGNORECASE,
)
_NOW_WORDS = (
    *(
        "now",
        "day",
        "date",
        "time",
        "current",
        "it is",
        "it's",
        "heute",
        "datum",
        "uhrzeit",
        "aujourd",
        "fecha",
        "hoje",
        "nous",
    ),
    *("当前", "现在", "目前", "今", "此刻", "日期", "时间", "时刻", "現在", "本日", "오늘", "현재", "hoy"),
)
"""One of them is in each text that `_NOW` matches; looking for them is much faster."""
_DATE_LABEL = re.compile(
    r"(?:^|[\n{,;|<\[(.#>*。，；、！-])[ \t\"'`*_]*"
    r"(?:date|time|timestamp|datetime|date and time|date/time|(?:generated|rendered)(?: (?:at|on))?"
    r"|request(?:ed)? (?:time|date|at)|(?:local|system|server|user|utc)[ _](?:date|time|datetime)"
    r"|(?:session|conversation|chat) (?:started|start|began|begin)(?: (?:at|on|time|date))?"
    r"|日期|时间|生成时间|请求时间|日時|日付)\Z",
    re.IGNORECASE,
)
_AS_OF = re.compile(r"\bas of(?: today,?| now,?)?\Z", re.IGNORECASE)
_FIXED_MOMENT = re.compile(
    r"\b(?:since|until|till|before|after|from|to|between|and|through|on|in|by|at|effective|valid|expir\w*|releas\w*"
    r"|publish\w*|version|v|updat\w*|revis\w*|created|founded|born|signed|dated|deadline|due|starts?|ends?|cut-?off"
    r"|copyright|adopted|enacted|amended|issued)(?: (?:on|at|date|time|is|in|from))?\Z"
    r"|(?:自|从|至|到|于|截至|截止|发布|生效|更新|版本|有效期|成立|以来)\Z",
    re.IGNORECASE,
)
_RANGE_AFTER = re.compile(r"\s?(?:-|–|—|to|until|and|至|到|~)\s?[0-9]|\s?[以之]?[前后]")
_LIST_MARKER = re.compile(r"[ \t]*(?:[-*+•|]|[0-9]{1,3}[.)])[ \t]")


_EQUATED_BEFORE = re.compile(r"[0-9]{9,19}\s?(?:is|means|equals|=+|[-=]>|→|即|表示|对应)\s?\Z")
_EQUATED_AFTER = re.compile(r"\s?(?:is|means|equals|=+|[-=]>|→|即|表示|对应)\s?[0-9]")
"""A number of seconds and the time that it stands for, which is a lesson on epochs."""


def _is_called_now(before: str) -> bool:
    """Whether what a date or a time follows says that it is the present one."""
    clause = before.rpartition("。")[2].rpartition(". ")[2]
    lowered = clause.lower()
    return any(word in lowered for word in _NOW_WORDS) and _NOW.search(clause) is not None


def _is_moment(value: str, before: str, after: str) -> bool:
    """Whether a date or a time that nothing calls the present one is that of the clock nevertheless."""
    year = _YEAR.search(value)
    if year is not None and int(year[0]) < _FIRST_YEAR_OF_NOW:
        return False
    numbers = len(_NUMBERS.findall(value))
    if year is None:  # a time of day alone is an opening hour, a day alone an anniversary, unless it stands for itself
        has_seconds = numbers >= _NUMBERS_TO_THE_SECOND and _TIME_OF_DAY.search(value) is not None
        return has_seconds and _is_alone(before, after)
    names_a_day = numbers >= (2 if _MONTH_NAME.search(value) else 3) or _COMPACT.match(value) is not None
    label = _label(before)
    is_named = label[-1:].isalpha()
    if names_a_day and is_named and (_DATE_LABEL.search(label) or _AS_OF.search(label)):
        return True
    is_fixed = (is_named and _FIXED_MOMENT.search(label)) or _RANGE_AFTER.match(after) or _EQUATED_BEFORE.search(before)
    return names_a_day and not is_fixed and (_TIME_OF_DAY.search(value) is not None or _is_alone(before, after))


def _label(before: str) -> str:
    """What stands directly before a value and may name it."""
    return before.rstrip(_BETWEEN)[-_LONGEST_LABEL:]


_LONGEST_LABEL = 40


_LIKE_A_DATE = re.compile(r"[0-9][0-9/.:T -]{5,}[0-9Z]")


def _is_alone(before: str, after: str) -> bool:
    """Whether a value is all that its line holds, and no item of a list."""
    *_, line_before, line = ["", *before.split("\n")]
    rest, _, behind = after.partition("\n")
    if line.strip(" \t[](){}<>*_#\"'`") or rest.strip(" \t[](){}<>*_#\"'`.,;。") or _LIST_MARKER.match(line):
        return False
    neighbours = (line_before.strip(), behind.partition("\n")[0].strip())
    return not any(_LIKE_A_DATE.fullmatch(neighbour) for neighbour in neighbours)


_CLOCK_LABEL = re.compile(
    r"(?:epoch|unix|time|timestamp|\bts|now|date|clock|created|generated|nonce|seed|\bat|\bt|时间戳?|时刻)"
    r"(?:[ _-]?(?:s|ms|sec|seconds|millis|milliseconds|stamp|at|time))?(?: is)?\Z",
    re.IGNORECASE,
)


_FRACTION = re.compile(r"\.[0-9]")
_MILLISECONDS = 13
"""Digits of an epoch in milliseconds: such a number hardly is anything else."""


def _is_clock_number(value: str, before: str, after: str) -> bool:
    """Whether ten or more digits in the range of epochs are one."""
    if len(value) >= _MILLISECONDS:
        is_clock = not value.endswith("000000") and not _FRACTION.match(after)
    else:
        is_clock = bool(_CLOCK_LABEL.search(_label(before))) or _is_alone(before, after)
    return is_clock and not _RANGE_AFTER.match(after) and not _EQUATED_AFTER.match(after)


# ------------------------------------------------------------------------------------------- addresses and others

_NO_SINGLE_MACHINE = re.compile(
    r"127\.|0\.0\.0\.0|255\.|192\.0\.2\.|198\.51\.100\.|203\.0\.113\.|2(?:2[4-9]|3[0-9])\.|169\.254\.169\.254"
    r"|(?:8\.8\.8\.8|8\.8\.4\.4|1\.1\.1\.1|1\.0\.0\.1|9\.9\.9\.9|1\.2\.3\.4)\Z"
    r"|2001:0?db8|fe80::?\Z|::1\Z|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\Z|00:00:00|ff:ff:ff|00:11:22",
    re.IGNORECASE,
)
_NETWORK_AFTER = re.compile(r"/[0-9]")
_ADDRESS_LABEL = re.compile(
    r"(?:\bip|address|host|client|server|from|node|pod|地址)(?:v4|v6)?(?: is)?\Z", re.IGNORECASE
)
_NUMBERING_BEFORE = re.compile(r"(?:\bv|version|section|clause|rule|§|ver\.?|release|第|版本|条)\.?\Z", re.IGNORECASE)
_LARGEST_VERSION = 9
"""Four numbers that begin with it or less are a version or the number of a section, unless called an address."""


def _is_some_machine(value: str, before: str, after: str) -> bool:
    """Whether an address is that of one machine, and not of every one, of none, of a network or of an example."""
    label = _label(before)
    is_number = not label[-1:].isdigit() and _NUMBERING_BEFORE.search(label)
    if _NO_SINGLE_MACHINE.match(value) or _NETWORK_AFTER.match(after) or is_number:
        return False
    looks_like_version = "." in value and int(value.partition(".")[0]) <= _LARGEST_VERSION
    return not looks_like_version or _ADDRESS_LABEL.search(label) is not None


_USER_OF_IMAGES = re.compile(
    r"(?:user|username|name|you|your[-_]?name|example|app|runner|node|ubuntu|debian|vscode|codespace|sandbox|agent|work"
    r"|worker|workspace|shared|public|default|oai|coder|dev|developer|jovyan|me|xxx|foo|test|git|linuxbrew|ec2-user|admin"
    r"|site|wwwroot)",
    re.IGNORECASE,
)
_NO_IDENTIFIER = re.compile(
    r"(?:u?int|float|uuid|ulid|str|string|char|varchar|text|bytes|id|sha|md|v|number)-?[0-9]{1,4}"
    r"|v?[0-9]{1,4}(?:\.[0-9]{1,4})+"
    r"|[a-z_]\w*(?:\.[a-z_]\w*)+"  # a name in code
    r"|[a-z]{3,}(?:[-_][a-z]{3,})*[0-9]?",
    re.IGNORECASE,
)
_CONSTANT_LABEL = re.compile(
    r"(?:sha-?(?:1|256|384|512)?|md5|checksums?|digest|hash|integrity|fingerprint|etag|commit|revision|pinned|version"
    r"|base64,|namespace|tenant|product|model|schema|template|org(?:anization)?|project|workspace|knowledge base"
    r"|collection|voice|agent|assistant|app(?:lication)?|category|policy|file|document|folder|database|dataset|key|guid"
    r"|校验|哈希|版本|产品|项目)(?:[ _-]?(?:id|key|uuid))?(?: is)?(?: to)?\Z",
    re.IGNORECASE,
)
_PUBLISHED_UUID = re.compile(
    r"123e4567-e89b-12d3-a456-426614174000|550e8400-e29b-41d4-a716-446655440000"  # examples in standards
    r"|6ba7b81[0-4]-9dad-11d1-80b4-00c04fd430c8"  # namespaces of RFC 9562
    r"|[0-9a-f]{8}-0000-1000-8000-00805f9b34fb"  # Bluetooth's base
    r"|[0-9a-f]{8}-0000-0000-c000-000000000046",  # COM's
    re.IGNORECASE,
)
_FEWEST_DIFFERENT_DIGITS = 6


def _is_placeholder(value: str) -> bool:
    """Whether a long value is known to all, or stands for any: all zeros, `1234567890abcdef`."""
    plain = value.lower().removeprefix("0x").replace("-", "")
    is_counting = any(plain.startswith(start) for start in ("01234567", "12345678", "abcdef", "deadbeef"))
    return _PUBLISHED_UUID.fullmatch(value) is not None or is_counting or len(set(plain)) < _FEWEST_DIFFERENT_DIGITS


def _is_own_home(value: str, _before: str, _after: str) -> bool:
    """Whether a home folder is a person's, and not that of the one user of a container."""
    return not _USER_OF_IMAGES.fullmatch(re.split(r"[/\\]", value)[-1])


def _is_identifier(value: str, _before: str, _after: str) -> bool:
    """Whether what is labelled as an id is one, and not the type of ids, a version or a name."""
    return not _NO_IDENTIFIER.fullmatch(value)


def _is_drawn(value: str, before: str, _after: str) -> bool:
    """Whether an unlabelled id is drawn anew each time: not a digest or the name of a resource."""
    return not (_CONSTANT_LABEL.search(_label(before)) or _is_placeholder(value))


_CLOCKS = frozenset({Kind.DATE, Kind.TIME})
_DRAWN = frozenset({Kind.UUID, Kind.HEX, Kind.TOKEN})
_JUDGES: Mapping[Kind, Callable[[str, str, str], bool]] = MappingProxyType(
    {
        Kind.UUID: _is_drawn,
        Kind.HEX: _is_drawn,
        Kind.TOKEN: _is_drawn,
        Kind.USER_PATH: _is_own_home,
        Kind.IDENTIFIER: _is_identifier,
        Kind.ADDRESS: _is_some_machine,
        Kind.TIME: _is_moment,
        Kind.DATE: _is_moment,
        Kind.EPOCH: _is_clock_number,
    }
)
"""For each kind, what looks at the value, the text before it and the text after it."""
