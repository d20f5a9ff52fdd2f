"""Places in a template that are to be filled, and what their names say about how often the filling varies.

Known are `str.format` and f-strings, `%`, `string.Template` and shells, Jinja and Mustache, and `<<name>>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from prefold.prompts.prompt import Stability


class Style(StrEnum):
    """How a placeholder is written."""

    JINJA = "jinja"
    """`{{ name }}`, with or without a filter or a call behind the name."""
    BRACE = "brace"
    """`{name}`, `{name:format}`, `{0}` and `{}`."""
    PERCENT = "percent"
    """`%(name)s`"""
    POSITION = "position"
    """`%s`"""
    DOLLAR = "dollar"
    """`$name` and `${name}`."""
    ANGLE = "angle"
    """`<<name>>`"""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Characters `start` to `end` of a template, to be filled with what has this name.

    Attributes:
        start: its first character.
        end: the character after it.
        name: with its attributes, such as `user.name`; a number, or empty, where it is filled by position.
        style: how it is written.
    """

    start: int
    end: int
    name: str
    style: Style


_PLACEHOLDER = re.compile(  # each branch begins with its character, which lets the search skip everything else
    r"\{\{-?\s*+(?P<jinja>[^\W\d]\w*+(?:\.\w++)*+)(?:[^\w{}\n][^{}\n]{0,120})?\}\}"
    r"|\{(?<!\{\{)(?P<brace>(?:\w++(?:\.\w++|\[\w++\])*+)?)(?:![rsa])?(?::[^{}\n]{0,80})?\}(?!\})"
    r"|\$\{?(?P<dollar>[A-Za-z_]\w*+)\}?"
    r"|%\((?P<percent>\w++)\)[-#0 +.0-9]{0,8}[a-zA-Z]"
    r"|%(?P<position>[sdr])"
    r"|<<(?P<angle>[A-Za-z_]\w*+)>>"
)


def find_placeholders(text: str) -> list[Placeholder]:
    """The placeholders of a template, in order."""
    return [_placeholder(found) for found in _PLACEHOLDER.finditer(text)]


def _placeholder(found: re.Match[str]) -> Placeholder:
    style = Style(found.lastgroup or "")
    return Placeholder(*found.span(), "" if style is Style.POSITION else found[style], style)


_CLOCK = r"(?:(?:current|now|today|today_?s|utc|local|server|system|request|start|started|generated|rendered)_)*"
_ID = r"_?(?:id|uuid|guid|key|number|no)"
_MEANINGS = (
    (
        Stability.REQUEST,
        re.compile(
            rf"{_CLOCK}(?:time|date_?time|time_?stamp|ts|now|utc_?now|strftime_now|epoch|clock|hour)"
            r"(?:_(?:utc|str|string|text|iso|iso8601|now|ms|s|seconds|local))*"
            r"|(?:now|timestamp)_\w+|(?:generated|created|updated|requested|rendered)_at"
            rf"|(?:request|req|trace|span|correlation|run|message|msg|call|turn|ticket|order|invocation|job|event){_ID}"
            r"|uuid[1-7]?|guid|ulid|nonce|random(?:_\w+)?|cch"
            r"|\w*(?:时间|时刻|请求)\w*"
        ),
    ),
    (
        Stability.DAILY,
        re.compile(
            rf"{_CLOCK}(?:date|today|day|weekday|day_of_week)(?:_(?:utc|str|string|text|iso|now|today|local))*"
            r"|today_\w+|\w*(?:日期|今天|今日|星期)\w*"
        ),
    ),
    (
        Stability.SESSION,
        re.compile(
            rf"(?:session|conversation|thread|chat|user|client|customer|account|tenant|member|visitor|device){_ID}"
            r"|(?:current_)?user_?name|(?:current_)?user_?e?mail|host_?name|cwd|working_dir(?:ectory)?|pid|build_id"
            r"|(?:client_|remote_|user_)?(?:ip|ip_address|addr)"
            r"|\w*(?:会话|用户)\w*"
        ),
    ),
    (Stability.REQUEST, re.compile(r"\w*当前\w*")),
)
"""What a name in snake case is, the first that fits."""
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATOR = re.compile(r"\W+")


def stability_of_name(name: str) -> Stability | None:
    """How often a placeholder is filled anew, where its name is that of a clock, an id, a user or a machine.

    Args:
        name: in any case, with or without attributes: `now`, `requestId`, `user.name`.

    Returns:
        None for any other name.
    """
    parts = [part for part in _SEPARATOR.split(_CASE_CHANGE.sub("_", name).lower()) if part]
    candidates = [*parts[::-1], *map("_".join, pairwise(parts))]
    for stability, pattern in _MEANINGS:
        if any(pattern.fullmatch(candidate) for candidate in candidates):
            return stability
    return None
