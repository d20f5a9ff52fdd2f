"""Whether a value in a stable part of a prompt is likely to be another one next time.

A date may be a law's, a UUID may be the example in a description, an address may be that of localhost. What decides is
what stands around the value: a word such as "now" or "today" makes a date a clock, "for example" makes anything a
constant. Where nothing decides, a value is taken for a constant if its kind often is one: a false alarm costs more
trust than a miss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from prefold.prompts.volatile import Kind, Volatile

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
    r"(?:\b(?:e\.?g\.?|i\.e\.|examples?|for instance|such as|like|format(?:ted)?|pattern|sample|placeholder)(?!\w)"
    r"|例如|比如|示例|例子|样例|格式|譬如|诸如)[^\n.。!?]{0,40}\Z",
    re.IGNORECASE,
)
_EXAMPLE_HEADING = re.compile(
    r"^[^\n]{0,80}(?:\bexamples?\b|\bsamples?\b|\bformat\b|示例|例子|样例)[^\n]{0,40}[:：*]\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_EXAMPLE_TAG = re.compile(r"<(/?)(?:[a-z_-]*example|sample)s?\b", re.IGNORECASE)
_URL_BEFORE = re.compile(r"[a-z][a-z0-9+.-]{1,10}://[^\s\"'<>]{0,200}\Z")


def is_live(text: str, volatile: Volatile) -> bool:
    """Whether a value found by `find_volatile` changes from request to request, as far as the text around it tells."""
    before = text[max(0, volatile.start - _LOOK_BACK) : volatile.start].replace("\r", "")
    if volatile.kind is Kind.NONCE:
        return True
    if _is_example(before):
        return False
    if volatile.kind in _DRAWN and "://" in before and _URL_BEFORE.search(before):
        return False
    value = text[volatile.start : volatile.end]
    after = text[volatile.end : volatile.end + _LOOK_AHEAD].replace("\r", "")
    return _JUDGES[volatile.kind](value, before[-_NEAR:], after)


def _is_example(before: str) -> bool:
    """Whether a value after this text is there to show what such a value looks like."""
    lowered = before.lower()
    if not any(word in lowered for word in _EXAMPLE_WORDS):
        return False
    if _EXAMPLE_BEFORE.search(before, max(0, len(before) - _NEAR)):
        return True
    if _EXAMPLE_HEADING.search(before.rpartition("\n\n")[2]):
        return True
    tags = _EXAMPLE_TAG.findall(before)
    return bool(tags) and tags[-1] == ""


# ---------------------------------------------------------------------------------------------------------- clocks

_FIRST_YEAR_OF_NOW = 2023
"""A date before it is history: prompts for language models as a service are hardly older."""
_YEAR = re.compile(r"(?<![0-9])(?:19|20)[0-9]{2}")
_NUMBERS = re.compile(r"[0-9]+")
_NUMBERS_TO_THE_SECOND = 3
_MONTH_NAME = re.compile(r"[^\W\d_年月日]{3}")
_COMPACT = re.compile(r"[0-9]{8}")
_TIME_OF_DAY = re.compile(r"[0-9]:[0-9]|[0-9]T[0-9]|[ap]\.?m|[点时時시]", re.IGNORECASE)
_BETWEEN = r"[\s:=\"'`*(（：—–,>-]{0,8}"
_NOW = re.compile(
    r"(?:\b(?:today|now|currently|current(?: (?:local|utc|server|system|user))?"
    r"(?:[ _-]?(?:and )?(?:date|time|day|datetime|timestamp|moment|month|week|hour))+"
    r"|today's (?:date|day|time)|it is|it's"
    r"|(?:date|time|day)(?: and (?:date|time))?(?: is| now| today)+"
    r"|heute|aktuelles datum|datum|uhrzeit|aujourd'hui|date du jour|hoy|fecha(?: actual| de hoy)?|hoje)"
    r"|(?:当前|现在|目前|今天|今日|此刻|本地|系统|北京|服务器|現在|本日|오늘|현재)的?"
    r"(?:(?:和|与|及)?(?:日期|时间|時間|日時|时刻|날짜|시간))*)"
    r"(?: (?:is|in [\w/ ]{2,30}(?:is)?|\([^)\n]{1,30}\)))?"
    rf"(?:是|为|は、?|：)?{_BETWEEN}(?:(?:on|at|now|the) )?\Z",
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
    ),
    *("当前", "现在", "目前", "今", "此刻", "本地", "系统", "北京", "服务器", "現在", "本日", "오늘", "현재", "hoy"),
)
"""One of them is in each text that `_NOW` matches; looking for them is much faster."""
_DATE_LABEL = re.compile(
    r"(?:^|[\n{,;|<\[(.#>*-])[ \t\"'`*_]*"
    r"(?:date|time|timestamp|datetime|date and time|date/time|(?:generated|rendered)(?: (?:at|on))?"
    r"|request(?:ed)? (?:time|date|at)|(?:local|system|server|user|utc)[ _](?:date|time|datetime)"
    r"|(?:session|conversation|chat) (?:started|start|began|begin)(?: (?:at|on|time|date))?"
    rf"|日期|时间|生成时间|请求时间|日時|日付){_BETWEEN}\Z",
    re.IGNORECASE,
)
_AS_OF = re.compile(rf"\bas of(?: today,?| now,?)?{_BETWEEN}\Z", re.IGNORECASE)
_FIXED_MOMENT = re.compile(
    r"\b(?:since|until|till|before|after|from|to|between|and|through|on|in|by|at|effective|valid|expir\w*|releas\w*"
    r"|publish\w*|version|v|updat\w*|revis\w*|created|founded|born|signed|dated|deadline|due|starts?|ends?|cut-?off"
    rf"|copyright|adopted|enacted|amended|issued)(?: (?:on|at|date|time|is|in|from))?{_BETWEEN}\Z"
    rf"|(?:自|从|至|到|于|截至|截止|发布|生效|更新|版本|有效期|成立|以来){_BETWEEN}\Z",
    re.IGNORECASE,
)
_RANGE_AFTER = re.compile(r"\s?(?:-|–|—|to|until|and|至|到|~)\s?[0-9]|\s?[以之]?[前后]")
_LIST_MARKER = re.compile(r"[ \t]*(?:[-*+•|]|[0-9]{1,3}[.)])[ \t]")


def _is_now(value: str, before: str, after: str) -> bool:
    """Whether a date or a time is that of the clock."""
    lowered = before.lower()
    if any(word in lowered for word in _NOW_WORDS) and _NOW.search(before):
        return True
    numbers = len(_NUMBERS.findall(value))
    year = _YEAR.search(value)
    has_time = bool(_TIME_OF_DAY.search(value))
    if year is None:  # a time of day alone is an opening hour, a day alone an anniversary, unless it stands for itself
        return has_time and numbers >= _NUMBERS_TO_THE_SECOND and _is_alone(before, after)
    names_a_day = numbers >= (2 if _MONTH_NAME.search(value) else 3) or _COMPACT.match(value) is not None
    if int(year[0]) < _FIRST_YEAR_OF_NOW or not names_a_day:
        return False
    if _DATE_LABEL.search(before) or _AS_OF.search(before):
        return True
    if _FIXED_MOMENT.search(before, max(0, len(before) - 40)) or _RANGE_AFTER.match(after):
        return False
    return has_time or _is_alone(before, after)


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
    rf"(?:[ _-]?(?:s|ms|sec|seconds|millis|milliseconds|stamp|at|time))?(?: is)?{_BETWEEN}\Z",
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
        is_clock = bool(_CLOCK_LABEL.search(before, max(0, len(before) - 40))) or _is_alone(before, after)
    return is_clock and not _RANGE_AFTER.match(after)


# ------------------------------------------------------------------------------------------- addresses and others

_NO_SINGLE_MACHINE = re.compile(
    r"127\.|0\.0\.0\.0|255\.|192\.0\.2\.|198\.51\.100\.|203\.0\.113\.|2(?:2[4-9]|3[0-9])\.|169\.254\.169\.254"
    r"|(?:8\.8\.8\.8|8\.8\.4\.4|1\.1\.1\.1|1\.0\.0\.1|9\.9\.9\.9|1\.2\.3\.4)\Z"
    r"|2001:0?db8|fe80::?\Z|::1\Z|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\Z|00:00:00|ff:ff:ff|00:11:22",
    re.IGNORECASE,
)
_ADDRESS_LABEL = re.compile(
    rf"(?:\bip|address|host|client|server|from|node|pod|地址)(?:v4|v6)?{_BETWEEN}\Z", re.IGNORECASE
)
_NUMBERING_BEFORE = re.compile(
    rf"(?:\bv|version|section|clause|rule|§|ver\.?|release|第|版本|条)[ .]?{_BETWEEN}\Z", re.IGNORECASE
)
_LARGEST_VERSION = 9
"""Four numbers that begin with it or less are a version or the number of a section, unless called an address."""


def _is_some_machine(value: str, before: str, after: str) -> bool:
    """Whether an address is that of one machine, and not of every one, of none, of a network or of an example."""
    if _NO_SINGLE_MACHINE.match(value) or re.match(r"/[0-9]", after) or _NUMBERING_BEFORE.search(before):
        return False
    looks_like_version = "." in value and int(value.partition(".")[0]) <= _LARGEST_VERSION
    return not looks_like_version or _ADDRESS_LABEL.search(before) is not None


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
    rf"|校验|哈希|版本|产品|项目)(?:[ _-]?(?:id|key|uuid))?(?: is)?{_BETWEEN}(?:to )?\Z",
    re.IGNORECASE,
)
_PLACEHOLDER_UUID = frozenset({"123e4567-e89b-12d3-a456-426614174000", "550e8400-e29b-41d4-a716-446655440000"})
_FEWEST_DIFFERENT_DIGITS = 6


def _is_placeholder(value: str) -> bool:
    """Whether a long value stands for any: all zeros, `1234567890abcdef`, the UUID of the standard's own example."""
    plain = value.lower().removeprefix("0x").replace("-", "")
    is_counting = any(plain.startswith(start) for start in ("01234567", "12345678", "abcdef", "deadbeef"))
    return value.lower() in _PLACEHOLDER_UUID or is_counting or len(set(plain)) < _FEWEST_DIFFERENT_DIGITS


def _is_own_home(value: str, _before: str, _after: str) -> bool:
    """Whether a home folder is a person's, and not that of the one user of a container."""
    return not _USER_OF_IMAGES.fullmatch(re.split(r"[/\\]", value)[-1])


def _is_identifier(value: str, _before: str, _after: str) -> bool:
    """Whether what is labelled as an id is one, and not the type of ids, a version or a name."""
    return not _NO_IDENTIFIER.fullmatch(value)


def _is_drawn(value: str, before: str, _after: str) -> bool:
    """Whether an unlabelled id is drawn anew each time: not a digest or the name of a resource."""
    return not (_CONSTANT_LABEL.search(before) or _is_placeholder(value))


_DRAWN = frozenset({Kind.UUID, Kind.HEX, Kind.TOKEN})
_JUDGES: Mapping[Kind, Callable[[str, str, str], bool]] = MappingProxyType(
    {
        Kind.UUID: _is_drawn,
        Kind.HEX: _is_drawn,
        Kind.TOKEN: _is_drawn,
        Kind.USER_PATH: _is_own_home,
        Kind.IDENTIFIER: _is_identifier,
        Kind.ADDRESS: _is_some_machine,
        Kind.TIME: _is_now,
        Kind.DATE: _is_now,
        Kind.EPOCH: _is_clock_number,
    }
)
"""For each kind, what looks at the value, the text before it and the text after it."""
