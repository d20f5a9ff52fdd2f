"""One spelling for things that are equal: numbers, escapes and white space in JSON, line ends, Unicode, UUIDs.

Every function here returns the text it was given where there is nothing to do, and its own result unchanged.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from prefold.prompts.paths import Path, Step

# Quantifiers are possessive: no input makes these patterns try twice.
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_JSON_STRING = re.compile(_STRING, re.DOTALL)
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
_COMPACT = re.compile(rf'(?:[^"\s]++|{_STRING})*+', re.DOTALL)
_SPACE_OUTSIDE_STRINGS = re.compile(rf"({_STRING})|\s++", re.DOTALL)
_INTEGERS = r"\d++(?![.eE])"
_NO_FLOATS = re.compile(rf'(?:[^"\d]++|{_STRING}|{_INTEGERS})*+', re.DOTALL)
# Of up to 15 digits, at least 0.0001 and not minus zero: a float is written so already.
_USUAL_FLOATS = r"\d{1,11}+\.(?:\d{0,3}[1-9]|0)(?![\deE])"
_ONLY_USUAL_FLOATS = re.compile(rf'(?:[^-"\d]++|-(?!0\.0(?!\d))|{_STRING}|{_INTEGERS}|{_USUAL_FLOATS})*+', re.DOTALL)
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})(?P<colon>\s*:)?|(?P<mark>[{{}}\[\],])|(?P<number>-?\d++(?:\.\d++)?(?:[eE][-+]?\d++)?)",
    re.DOTALL,
)
_NOT_ZERO = re.compile(r"[-0.]*[1-9]")

_TRAILING_SPACE = re.compile(r"(?<![ \t])[ \t]++(?=\r?\n)")
_UUID = re.compile(r"(?<![\w-])[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![\w-])")


def compact_json(source: str) -> str:
    """A JSON document without white space outside of strings."""
    if _COMPACT.fullmatch(source):
        return source
    return _SPACE_OUTSIDE_STRINGS.sub(r"\1", source)


def is_plain_json(source: str, value: Any) -> bool:
    """Whether a document is what `json` writes of its value: compact, with no escape and no digit more than needed."""
    return source == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def unescaped_json(source: str) -> str:
    """A JSON document whose strings have the escapes that they need and no other."""
    if "\\" not in source:
        return source
    return _JSON_STRING.sub(lambda found: _unescaped(found[0]) if "\\" in found[0] else found[0], source)


def _unescaped(string: str) -> str:
    value = json.loads(string)
    written = json.dumps(value, ensure_ascii=False)
    # Half of a surrogate pair can be written as an escape only.
    return json.dumps(value) if _HALF_PAIR.search(written) else written


@dataclass(frozen=True, slots=True)
class Respelling:
    """A number in a JSON document, from character `start` to `end`, and how it is to be written."""

    path: Path
    start: int
    end: int
    before: str
    after: str


def float_respellings(source: str, *, whole: bool = False) -> list[Respelling]:
    """Floats of a valid JSON document that `float_spelling` would write in another way, in their order."""
    if (_NO_FLOATS if whole else _ONLY_USUAL_FLOATS).fullmatch(source):  # ten times as fast as looking at each
        return []
    found = (
        Respelling(path, start, end, source[start:end], float_spelling(source[start:end], whole=whole))
        for path, start, end in _floats(source)
    )
    return [respelling for respelling in found if respelling.before != respelling.after]


def respelled(source: str, respellings: list[Respelling]) -> str:
    """A document with its numbers written anew."""
    ends = [0, *(respelling.end for respelling in respellings)]
    starts = [*(respelling.start for respelling in respellings), len(source)]
    kept = [source[end:start] for end, start in zip(ends, starts, strict=True)]
    return "".join([kept[0], *(f"{new.after}{text}" for new, text in zip(respellings, kept[1:], strict=True))])


def float_spelling(written: str, *, whole: bool = False) -> str:
    """The shortest spelling that reads back as the same float, as `repr` writes it: `10.0`, `100000.0`, `1e+16`.

    Minus zero becomes zero. What a float cannot hold exactly stays as it is written, and so do integers.

    Args:
        written: a JSON number.
        whole: write a float that is a whole number as an integer, as RFC 8785 does: `10` for `10.0`.
    """
    value = float(written)
    is_too_small = value == 0 and bool(_NOT_ZERO.match(written))
    if written.lstrip("-").isdecimal() or not math.isfinite(value) or is_too_small:
        return written
    spelling = repr(value + 0.0)  # minus zero and zero make zero
    if value and Decimal(spelling) != Decimal(written):
        return written
    return str(int(value)) if whole and value.is_integer() and abs(value) < 2**53 else spelling


def _floats(source: str) -> Iterator[tuple[Path, int, int]]:
    """Path, first character and the character after the last of each number that is not an integer."""
    steps: list[Step] = []
    for token in _TOKEN.finditer(source):
        if number := token["number"]:
            if not number.lstrip("-").isdecimal():
                yield Path(tuple(steps)), token.start(), token.end()
        elif token["colon"]:
            steps[-1] = json.loads(token["string"])
        elif mark := token["mark"]:
            if mark in "{[":
                steps.append("" if mark == "{" else 0)
            elif mark in "}]":
                steps.pop()
            elif isinstance(last := steps[-1], int):
                steps[-1] = last + 1


def with_line_feeds(text: str) -> str:
    """CRLF and CR as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def composed(text: str) -> str:
    """Unicode's form NFC: an accent and its letter as one character where there is one."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def without_trailing_space(text: str) -> str:
    """No spaces and tabs before line ends. Those at the very end stay: another text may follow them."""
    if " \n" in text or "\t\n" in text or "\r\n" in text:
        return _TRAILING_SPACE.sub("", text)
    return text


def lower_case_uuids(text: str) -> str:
    """UUIDs of the form 8-4-4-4-12 in lower case; 32 digits without dashes may be anything and stay."""
    return _UUID.sub(lambda match: match[0].lower(), text)
