"""What two questions differ in, by name. Evidence, not a verdict: each is a feature that the decision weighs."""

from __future__ import annotations

from collections.abc import Iterable

from prefold.responses.semantic.types import Reason
from prefold.responses.semantic.wording.alignment import Alignment, align, are_opposed
from prefold.responses.semantic.wording.asking import Asked
from prefold.responses.semantic.wording.facts import Facts
from prefold.responses.semantic.wording.word import Kind, Word

GUARDS = (
    Reason.LANGUAGE,
    Reason.NEGATION,
    Reason.NUMBER,
    Reason.DATE,
    Reason.POLARITY,
    Reason.ENTITY,
    Reason.QUOTE,
    Reason.CODE,
    Reason.QUESTION_WORD,
    Reason.OPERAND,
    Reason.SCOPE,
)
"""All that there are, in the order of the features."""

_DEFINITE = frozenset(
    (
        Asked.PRICE,
        Asked.LONG,
        Asked.MANY,
        Asked.OFTEN,
        Asked.OLD,
        Asked.FAR,
        Asked.WHEN,
        Asked.WHERE,
        Asked.WHO,
        Asked.WHY,
    )
)
_OPEN = frozenset((Asked.WHAT, Asked.WHICH, Asked.DO, Asked.WHETHER))


def differences(a: Facts, b: Facts) -> tuple[Reason, ...]:
    """What speaks against both having one answer, in the order of `GUARDS`; the same for (b, a)."""
    return differing(a, b, align(a, b))


def differing(a: Facts, b: Facts, alignment: Alignment) -> tuple[Reason, ...]:
    """The same where the words were paired off already."""
    left, right = alignment.left, alignment.right
    found = {
        Reason.LANGUAGE: a.language != b.language,
        Reason.NEGATION: (a.negations - b.negations) % 2 == 1,
        Reason.NUMBER: _has(left, Kind.NUMBER) or _has(right, Kind.NUMBER),
        Reason.DATE: _has(left, Kind.DATE) or _has(right, Kind.DATE),
        Reason.POLARITY: any(are_opposed(one, other) for one in left for other in right),
        Reason.ENTITY: _has(left, Kind.ENTITY) or _has(right, Kind.ENTITY),
        Reason.QUOTE: a.quotes != b.quotes and bool(a.quotes) and bool(b.quotes),
        Reason.CODE: a.codes != b.codes or _has(left, Kind.CODE) or _has(right, Kind.CODE),
        Reason.QUESTION_WORD: asks_for_another(a.asked, b.asked),
        Reason.OPERAND: alignment.turned or (_weighs(left) and _weighs(right)) or a.rest != b.rest,
        Reason.SCOPE: _has(left, Kind.SCOPE) or _has(right, Kind.SCOPE) or _weighs(left) != _weighs(right),
    }
    return tuple(reason for reason in GUARDS if found[reason])


def asks_for_another(a: frozenset[Asked], b: frozenset[Asked]) -> bool:
    """Whether the answers have to be of two kinds: a time and a place, a reason and a procedure."""
    definite_a, definite_b = a & _DEFINITE, b & _DEFINITE
    if definite_a and definite_b:
        return not definite_a & definite_b
    if definite_a or definite_b:
        other = b if definite_a else a
        return Asked.HOW in other
    return False


def _has(words: Iterable[Word], kind: Kind) -> bool:
    return any(word.kind is kind for word in words)


def _weighs(words: Iterable[Word]) -> bool:
    return sum(word.weight for word in words) >= 0.5
