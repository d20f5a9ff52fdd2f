"""Reading English, or whatever else is written with spaces: tokens, then words with what kind each is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from prefold.responses.semantic.wording.asking import Asked, asked_for
from prefold.responses.semantic.wording.lexicon import (
    ANTONYMS,
    CONTRACTIONS,
    DATES,
    DROPPED,
    IS_AFTER,
    LIGHT,
    MULTIPLES,
    NEGATIONS,
    PHRASES,
    SCOPES,
    SYNONYMS,
    UNITS,
    ranks,
    word_set,
)
from prefold.responses.semantic.wording.quantities import read_quantity
from prefold.responses.semantic.wording.stems import stem
from prefold.responses.semantic.wording.word import Kind, Word

_TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)*)(?P<tail>[A-Za-z%°]*)"
    r"|(?P<word>[^\W\d_]+(?:['’][^\W\d_]+)*)|(?P<sign>\S)",
)
_UNSAID = frozenset(",.?!;()-–—")
_BEHIND_NUMBERS = word_set("st nd rd th am pm")
_BEFORE_MAY = word_set("in of by until till since for before after this next last early mid late")
_BETWEEN = word_set("it them this that")
_ROLES = word_set("from to into in than by between instead for versus over of against with on")
_DIRECTED = word_set("from to into than by for instead over against")
_SHORT_FORMS = {"re": "are", "ve": "have", "ll": "will", "d": "would", "m": "am"}
_ABBREVIATIONS = {"us": "usa", "it": "computing"}
_SWITCHED = {"on": "enable", "off": "disable"}
_NOTHING = "the"
_REACH = 6
"""Tokens within which `off` belongs to `turn`."""
_SHOUTED, _ALL_NAMES = 0.6, 0.7
"""Share of capitals, or of words with one, above which they tell nothing."""
_WEIGHTS = ((1000, 0.6), (4000, 0.8), (12_000, 1.0))
_RARE, _NAME = 1.2, 1.4
_UNRANKED = 30_000
_KNOWN_LENGTH = 3


@dataclass(frozen=True, slots=True)
class English:
    """What was read: see `Facts`."""

    words: list[Word]
    negations: int
    asked: frozenset[Asked]
    length: int


def read_english(text: str) -> English:
    """Read a text."""
    tokens, names = _Tokens(text).read()
    asked, kept = asked_for(tokens)
    words, negations = _words(kept, names)
    return English(words, negations, asked, len(tokens))


class _Tokens:
    """The tokens of a text in lower case, contractions written out, and which of them are written as names are."""

    def __init__(self, text: str) -> None:
        self._text = text
        letters = [character for character in text if character.isalpha()]
        self._is_shouted = sum(map(str.isupper, letters)) > _SHOUTED * len(letters)
        self._tokens: list[str] = []
        self._names: set[str] = set()

    def read(self) -> tuple[list[str], frozenset[str]]:
        words = capitals = 0
        starts = True  # a sentence
        for match in _TOKEN.finditer(self._text):
            if match["number"]:
                self._number(match["number"].replace(",", ""), match["tail"].lower())
            elif match["word"]:
                words += 1
                capitals += match["word"][0].isupper()
                self._word(match["word"].replace("’", "'"), starts=starts)
            elif match["sign"] not in _UNSAID:
                self._tokens.append(match["sign"])
            starts = match["sign"] in (".", "?", "!") or (starts and match["sign"] is not None)
        if words > _KNOWN_LENGTH and capitals > _ALL_NAMES * words:
            self._names.clear()
        return self._tokens, frozenset(self._names)

    def _number(self, digits: str, tail: str) -> None:
        if tail and not (tail in UNITS or tail in MULTIPLES or tail in _BEHIND_NUMBERS):
            self._tokens.append(digits + tail)  # 2fa, 3d
        else:
            self._tokens += [digits, tail] if tail else [digits]

    def _word(self, written: str, *, starts: bool) -> None:
        low = written.lower()
        before = self._tokens[-1] if self._tokens else ""
        is_abbreviation = len(written) > 1 and written.isupper()
        if written[0].isupper() and not self._is_shouted and low != "i" and (is_abbreviation or not starts):
            self._names.add(low.removesuffix("'s"))
        if low in _ABBREVIATIONS and ((is_abbreviation and not self._is_shouted) or (low == "us" and before == "the")):
            self._tokens.append(_ABBREVIATIONS[low])
        elif low == "may" and before in _BEFORE_MAY:
            self._tokens.append("may-month")
        else:
            self._tokens += _written_out(low)


def _written_out(low: str) -> list[str]:
    if low in CONTRACTIONS:
        return CONTRACTIONS[low].split()
    head, mark, tail = low.partition("'")
    if not mark:
        return [low]
    if low.endswith("n't"):
        return [low[:-3], "not"]
    if tail == "s":
        return [head, "is"] if head in IS_AFTER else [head]
    return [head, _SHORT_FORMS.get(tail, tail)]


def _words(tokens: list[str], names: frozenset[str]) -> tuple[list[Word], int]:
    """Those that say something, and how many negations there are."""
    words: list[Word] = []
    negations = 0
    role = ""
    at = 0
    while at < len(tokens):
        read, used = _phrase(tokens, at)
        number = read_quantity(tokens, at) if used == 1 else None
        start, at = at, number.end if number else at + used
        if number:
            words.append(Word(number.text, " ".join(tokens[start:at]), Kind.NUMBER, _RARE, role))
        elif read in NEGATIONS:
            negations += 1
        elif read in _ROLES:
            role = read if read in _DIRECTED else ""
            if read == "over":  # as in "orders over 50"
                words.append(_known_by_itself(read))
        elif read not in DROPPED and read[0].isalnum():
            words.append(_in_place(read, " ".join(tokens[start:at]), role, is_name=read in names))
    return words, negations


def _phrase(tokens: list[str], at: int) -> tuple[str, int]:
    """What the phrase that begins here is read as, and how many tokens it takes; one where there is none."""
    for phrase, meaning in _phrases().get(tokens[at], ()):
        end = at + len(phrase)
        if tuple(tokens[at:end]) == phrase:
            return meaning, len(phrase)
        if len(phrase) == 2 and tokens[end : end + 1] == [phrase[1]] and tokens[at + 1] in _BETWEEN:  # "send it back"
            return meaning, len(phrase) + 1
    if tokens[at] in ("turn", "switch"):  # "turn the alarm off"
        for ahead in range(at + 1, min(at + _REACH, len(tokens))):
            switched = _SWITCHED.get(tokens[ahead])
            if switched:
                tokens[ahead] = _NOTHING
                return switched, 1
    return tokens[at], 1


def _in_place(token: str, surface: str, role: str, *, is_name: bool) -> Word:
    word = _known_by_itself(token)
    if is_name and word.kind in (Kind.PLAIN, Kind.LIGHT) and not word.groups:
        return replace(word, surface=surface, role=role, kind=Kind.ENTITY, weight=_NAME)
    return replace(word, surface=surface, role=role)


@lru_cache(maxsize=8192)
def _known_by_itself(token: str) -> Word:
    """What is known of a word wherever it stands."""
    if token in DATES:
        return Word(DATES[token], token, Kind.DATE, _RARE)
    stemmed = stem(token)
    groups = _groups().get(token, frozenset()) | _groups().get(stemmed, frozenset())
    sides = _sides().get(token, frozenset()) | _sides().get(stemmed, frozenset())
    if token in LIGHT:
        return Word(stemmed, token, Kind.LIGHT, 0.25, "", groups, sides)
    is_listed = bool(groups or sides) or token in PHRASES.values()
    rank = min(_rank(token), _rank(stemmed))
    is_known = is_listed or rank < _UNRANKED or len(token) < _KNOWN_LENGTH
    weight = next((weight for highest, weight in _WEIGHTS if rank < highest), _RARE)
    if any(map(str.isdigit, token)):
        kind = Kind.CODE
    elif not is_known:
        kind = Kind.ENTITY
    else:
        kind = Kind.SCOPE if token in SCOPES else Kind.POLAR if sides else Kind.PLAIN
    return Word(stemmed, token, kind, weight, "", groups, sides, is_known)


def _rank(word: str) -> int:
    """How many words are more frequent; where no frequencies are at hand, every word is a common one."""
    known = ranks()
    return known.get(word, _UNRANKED) if known else 0


@lru_cache(maxsize=1)
def _groups() -> dict[str, frozenset[int]]:
    """Numbers of the groups of synonyms by word and by stem."""
    return _numbers_by_word((number, group) for number, group in enumerate(SYNONYMS))


@lru_cache(maxsize=1)
def _sides() -> dict[str, frozenset[int]]:
    """Numbers of sides of antonyms, likewise; `number ^ 1` is the other side."""
    return _numbers_by_word((2 * number + side, pair[side]) for number, pair in enumerate(ANTONYMS) for side in (0, 1))


def _numbers_by_word(groups: Iterable[tuple[int, frozenset[str]]]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for number, words in groups:
        for word in words:
            found.setdefault(word, set()).add(number)
            found.setdefault(stem(word), set()).add(number)
    return {word: frozenset(numbers) for word, numbers in found.items()}


@lru_cache(maxsize=1)
def _phrases() -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """By first word: the words of a phrase and what they are read as, longest first."""
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for phrase, meaning in PHRASES.items():
        words = tuple(phrase.split("_"))
        found.setdefault(words[0], []).append((words, meaning))
    for rows in found.values():
        rows.sort(key=lambda row: -len(row[0]))
    return found
