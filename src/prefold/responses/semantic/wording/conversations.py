"""Whether the last turn of one conversation may be answered as that of another whose earlier turns differ.

The cache does not ask: where it looks at requests with earlier turns at all, these count byte for byte. This is what
might be compared instead, and what `prefold answers bench` measures on pairs of conversations.

A last turn that stands alone ("Is the Camden branch open on Christmas Day?") needs no history. One that agrees to what
was offered, or picks from it, is never answered from elsewhere. Any other question is where both
histories tell the same:

- at most one of them has facts (names, numbers, dates, code) that the other lacks, and most words of one are in the
  other;
- where turns are told in nearly the same words, nothing stands in the place of something else, and nothing is denied on
  one side alone; the same for how replies to such questions begin;
- nothing in one is the opposite of something in the other;
- what was said last in each was said lately in the other.

Rules, no model. They were written with the 80 conversations about billing of fow-cache in sight; of the other 160 only
counts were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import product

from prefold.responses.semantic.wording.alignment import are_opposed, are_synonyms
from prefold.responses.semantic.wording.asking import Asked
from prefold.responses.semantic.wording.facts import Facts, facts
from prefold.responses.semantic.wording.lexicon import word_set
from prefold.responses.semantic.wording.word import Kind, Word

_POINTING = word_set(
    "it its that this that's it's those these they them their he she him her his one ones there then same other else "
    "instead too either both first second third again also which mine me my our us still actually yet already now "
    "today tonight"
)
"""Words that point at something said before, or at who says it."""
_POINTING_AT_NOTHING = re.compile(r"\bat the same time\b|\binstead of\b|\bother than\b")
_PICKING = word_set("one ones first second third last other another former latter either neither both option options")
"""Words that pick one of several things, by their order or by leaving others out."""
_OPENERS = word_set("ok okay right great thanks cool perfect brilliant lovely last quick question another btw oh")
"""Words before a question that say nothing."""
_GOING_ON = word_set("and so but or yes no yeah yep then")
"""Words with which a turn goes on from the one before."""
_DENYING = word_set("no nope nah not never none nothing without cannot")
_SHORT = 3
_WEIGHT_ALONE = 2.4
_WEIGHT_BESIDE_NAME = 2.0
_CARRIES = 0.5
_TELLING = (Kind.NUMBER, Kind.DATE, Kind.ENTITY, Kind.CODE)
_SAME_WORDS = 0.5
"""Share of words, in order, from which on two turns are told in nearly the same ones."""
_COVERED = 0.55
_LATELY = 4
"""Turns at the end of a history that are late ones."""
_SAYS_LITTLE = 2.0
_SAID_LATELY = 0.4


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn.

    Attributes:
        role: whose it is.
        facts: what it says.
        words: all of them, in lower case, without marks.
        asks: whether it ends with a question mark, or asks for something.
    """

    role: str
    facts: Facts
    words: tuple[str, ...]
    asks: bool


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Some neighbouring words of a turn."""

    turn: Turn
    start: int
    end: int

    @property
    def words(self) -> tuple[str, ...]:
        return self.turn.words[self.start : self.end]

    @property
    def denies(self) -> bool:
        return any(word in _DENYING or word.endswith("n't") for word in self.words)

    @property
    def carrying(self) -> list[Word]:
        return [word for word in self.turn.facts.words if word.weight >= _CARRIES and word.surface in self.words]


@dataclass(frozen=True, slots=True)
class History:
    """What was said before the last turn.

    Attributes:
        last: the turn to answer.
        turns: those before it, in order.
        stands_alone: whether the last turn can be understood without them.
    """

    last: Turn
    turns: tuple[Turn, ...]
    stands_alone: bool


def history(turns: Sequence[tuple[str, str]]) -> History:
    """Take a conversation apart.

    Args:
        turns: role and text, oldest first; the last one is the user's.
    """
    read = tuple(_read(role, text) for role, text in turns)
    return History(read[-1], read[:-1], stands_alone(read[-1].facts))


def stands_alone(turn: Facts) -> bool:
    """Whether a turn names all that it is about: it points at nothing, and has enough words or a name of its own."""
    words = _words(turn)
    while words and words[0] in _OPENERS:
        words = words[1:]
    if not words or words[0] in _GOING_ON or not _POINTING.isdisjoint(words) or turn.rest:
        return False
    weight = _weight(turn.words)
    is_named = any(word.kind in (Kind.ENTITY, Kind.CODE) for word in turn.words)
    return weight >= (_WEIGHT_BESIDE_NAME if is_named else _WEIGHT_ALONE)


def histories_agree(a: History, b: History) -> bool:
    """Whether the earlier turns give no reason to answer the two last turns differently; the same for (b, a)."""
    if a.stands_alone and b.stands_alone:
        return True
    if _picks(a.last) or _picks(b.last) or any(turn.facts.rest for turn in a.turns + b.turns):
        return False
    said_a, said_b = _said(a.turns), _said(b.turns)
    only_a, only_b = _without(said_a, said_b), _without(said_b, said_a)
    return (
        not (_tells(only_a) and _tells(only_b))
        and max(_covered(said_a, said_b), _covered(said_b, said_a)) >= _COVERED
        and not any(are_opposed(one, other) for one in only_a for other in only_b)
        and not any(_are_swapped(some, others) for some, others in _changes(a.turns, b.turns))
        and _ends_alike(a.turns, b.turns)
        and _ends_alike(b.turns, a.turns)
    )


def _read(role: str, text: str) -> Turn:
    said = facts(text)
    asks = text.rstrip().endswith(("?", "？")) or bool(said.asked - {Asked.DO})
    return Turn(role, said, tuple(_words(said)), asks)


def _words(turn: Facts) -> list[str]:
    return [word.strip(",.?!'") for word in _POINTING_AT_NOTHING.sub("", turn.plain).split()]


def _picks(last: Turn) -> bool:
    """Whether a turn asks nothing, or asks it of one of several things that were offered."""
    return not last.asks or not _PICKING.isdisjoint(last.words)


def _said(turns: Sequence[Turn]) -> dict[str, Word]:
    """Words that carry something, by their stems."""
    return {word.stem: word for turn in turns for word in turn.facts.words if word.weight >= _CARRIES}


def _without(some: dict[str, Word], others: dict[str, Word]) -> list[Word]:
    return [word for stem, word in some.items() if stem not in others]


def _weight(words: Iterable[Word]) -> float:
    return sum(word.weight for word in words)


def _tells(words: Iterable[Word]) -> bool:
    return any(word.kind in _TELLING for word in words)


def _covered(some: dict[str, Word], others: dict[str, Word]) -> float:
    """Share of what some words say that others say, too."""
    whole = _weight(some.values())
    return 1 - _weight(_without(some, others)) / whole if whole else 1.0


def _changes(a: Sequence[Turn], b: Sequence[Turn]) -> Iterator[tuple[_Stretch, _Stretch]]:
    """Short stretches in which turns told in nearly the same words differ, and how replies to such questions begin."""
    for (at, one), (place, other) in product(enumerate(a), enumerate(b)):
        matcher = SequenceMatcher(None, one.words, other.words, autojunk=False)
        if one.role != other.role or matcher.ratio() < _SAME_WORDS:
            continue
        for kind, start, end, other_start, other_end in matcher.get_opcodes():
            if kind != "equal" and max(end - start, other_end - other_start) <= _SHORT:
                yield _Stretch(one, start, end), _Stretch(other, other_start, other_end)
        if one.role != "user" and one.asks and other.asks and at + 1 < len(a) and place + 1 < len(b):
            yield _Stretch(a[at + 1], 0, _SHORT), _Stretch(b[place + 1], 0, _SHORT)


def _are_swapped(some: _Stretch, others: _Stretch) -> bool:
    """Whether one says something where the other says something else, or denies it."""
    if some.denies != others.denies:
        return True
    return any(
        one.stem != other.stem and not are_synonyms(one, other) for one in some.carrying for other in others.carrying
    )


def _ends_alike(a: Sequence[Turn], b: Sequence[Turn]) -> bool:
    """Whether what was said last in one history was said lately in the other."""
    last = _said(a[-1:])
    return _weight(last.values()) < _SAYS_LITTLE or _covered(last, _said(b[-_LATELY:])) >= _SAID_LATELY
