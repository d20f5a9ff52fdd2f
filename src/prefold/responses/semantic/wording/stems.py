"""Words without their endings."""

from __future__ import annotations

from functools import lru_cache

from prefold.responses.semantic.wording.lexicon import BRITISH, IRREGULAR

_SHORTEST = 4
"""Letters of the shortest word that is cut."""
_VOWELS = frozenset("aeiouy")
_STAY_DOUBLE = "lsz"


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word in lower case without its ending, in one spelling.

    A light form of step 1 of Porter's stemmer ("An algorithm for suffix stripping", Program 14(3), 1980), with British
    spellings and irregular forms by list.
    """
    word = IRREGULAR.get(word, word)
    word = BRITISH.get(word, word)
    if len(word) < _SHORTEST or not word.isascii():
        return word
    word = _without_plural(word)
    return _last_letters(_without_tense(BRITISH.get(word, word)))


def _without_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > _SHORTEST:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _without_tense(word: str) -> str:
    if word.endswith("ing") and len(word) > _SHORTEST + 1 and not _VOWELS.isdisjoint(word[:-3]):
        return _undoubled(word[:-3])
    if word.endswith("ied") and len(word) > _SHORTEST:
        return word[:-3] + "y"
    if word.endswith("ed") and len(word) > _SHORTEST and not _VOWELS.isdisjoint(word[:-2]):
        return _undoubled(word[:-2])
    return word[:-2] if word.endswith("ly") and len(word) > _SHORTEST + 1 else word


def _last_letters(word: str) -> str:
    if word.endswith("ise"):
        word = word[:-3] + "ize"
    if word.endswith("ll") and len(word) > _SHORTEST + 1:  # cancelled, canceled
        word = word[:-1]
    if word.endswith("e") and len(word) >= _SHORTEST:
        word = word[:-1]
    if word.endswith("y") and len(word) >= _SHORTEST and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    return word


def _undoubled(word: str) -> str:
    is_doubled = len(word) >= _SHORTEST and word[-1] == word[-2] and word[-1] not in _STAY_DOUBLE
    return word[:-1] if is_doubled else word
