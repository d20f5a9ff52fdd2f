"""One word of a question."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a word is, as far as it can be told."""

    PLAIN = "plain"
    LIGHT = "light"
    NUMBER = "number"
    DATE = "date"
    ENTITY = "entity"
    POLAR = "polar"
    SCOPE = "scope"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a question.

    Attributes:
        stem: what is compared: without its ending, in American spelling; of numbers their value and unit.
        surface: as it stood, in lower case.
        kind: what it is.
        weight: how much it says, 0.2 to 2: rare words and names more than common ones.
        role: the preposition before it that gives it a direction (`from`, `to`, `than`...), or "".
        groups: of synonyms that it is in.
        sides: of antonyms: twice the number of the pair, plus one for its second side.
        known: whether it is in a list of words.
    """

    stem: str
    surface: str
    kind: Kind
    weight: float
    role: str = ""
    groups: frozenset[int] = frozenset()
    sides: frozenset[int] = frozenset()
    known: bool = True
