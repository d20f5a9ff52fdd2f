"""Which words of two questions answer to one another, and what is left over on either side.

Words are paired off from the surest to the least sure: the same stem, then synonyms, then one word that derives from
the other, then a misspelling. Antonyms are never paired, whatever else holds. What stays without a partner is what the
two questions differ in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from prefold.responses.semantic.wording.asking import Asked
from prefold.responses.semantic.wording.facts import Facts
from prefold.responses.semantic.wording.lexicon import ECHOES, IMPLIED, word_set
from prefold.responses.semantic.wording.stems import stem
from prefold.responses.semantic.wording.word import Kind, Word

_ENDINGS = word_set(
    "s es er or al ial ion tion ation ition ment ness iti ity ance ence ant ent abl able ful less ic ical ous ship age "
    "i y ist ism ar ari ary ing ed d n en r ur ure t liz ize ibl ibility ability ish like hood th"
)
_NEGATING = ("un", "non", "in", "im", "dis", "de", "ir", "il")
_TELLING = (Kind.NUMBER, Kind.DATE, Kind.CODE)
"""Kinds whose words are the same or they are not."""
_PARTS_OF_DAY = word_set("morning afternoon evening night noon midday tonight")
_SHORTEST_STEM = 4
_SHORTEST_SLIP = 3
_LONG_WORD = 9
"""Letters from which on two slips of the pen are allowed."""
_HALF_DAY = 720
_MOST_COMPARED = 1024
"""Pairs of words that differ; questions that differ in more are not alike."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """How the words of two questions pair off.

    Attributes:
        pairs: places of partners, in the first and in the second, in order of the first.
        synonyms: how many are synonyms or derive from one another.
        misspelt: how many differ by a slip of the pen.
        left: words of the first without a partner.
        right: words of the second without one.
        turned: whether two partners changed places, by their order or by `from` and `to`.
        crossing: share of neighbouring pairs that run backwards in the second, 0 to 1; moving the end of a question to
            its front counts nothing.
    """

    pairs: tuple[tuple[int, int], ...]
    synonyms: int
    misspelt: int
    left: tuple[Word, ...]
    right: tuple[Word, ...]
    turned: bool
    crossing: float


def align(a: Facts, b: Facts) -> Alignment:
    """Pair off the words of two questions; aligning (b, a) gives the mirror image."""
    if a.plain <= b.plain:
        return _Aligner(a, b).run()
    found = _Aligner(b, a).run()
    pairs = tuple(sorted((first, second) for second, first in found.pairs))
    crossing = _crossing([second for _, second in pairs])
    return Alignment(pairs, found.synonyms, found.misspelt, found.right, found.left, found.turned, crossing)


class _Aligner:
    """Places of the words without a partner yet, and the partners found."""

    def __init__(self, a: Facts, b: Facts) -> None:
        self._a, self._b = a, b
        self._partners = _same_stems(a.words, b.words)
        taken = set(self._partners.values())
        self._left = [at for at in range(len(a.words)) if at not in self._partners]
        self._right = [at for at in range(len(b.words)) if at not in taken]

    def run(self) -> Alignment:
        a, b = self._a, self._b
        _drop_compounds(a.words, self._left, b.words, self._right)
        _drop_compounds(b.words, self._right, a.words, self._left)
        synonyms = self._pair_off(are_synonyms) + self._pair_off(_derive)
        misspelt = self._pair_off(_is_slip)
        synonyms += self._pair_off(_are_near_numbers)
        pairs = tuple(sorted(self._partners.items()))
        return Alignment(
            pairs,
            synonyms,
            misspelt,
            tuple(a.words[at] for at in self._left if not _is_implied(a.words[at], b)),
            tuple(b.words[at] for at in self._right if not _is_implied(b.words[at], a)),
            _are_turned(a, b, pairs),
            _crossing([second for _, second in pairs]),
        )

    def _pair_off(self, fits: Callable[[Word, Word], bool]) -> int:
        """Pair what passes a test, nearest places first; how many there were."""
        if len(self._left) * len(self._right) > _MOST_COMPARED:
            return 0
        found = 0
        for first in tuple(self._left):
            word = self._a.words[first]
            fitting = [second for second in self._right if fits(word, self._b.words[second])]
            if fitting:
                second = min(fitting, key=lambda place: abs(place - first))
                self._partners[first] = second
                self._left.remove(first)
                self._right.remove(second)
                found += 1
        return found


def _same_stems(a: tuple[Word, ...], b: tuple[Word, ...]) -> dict[int, int]:
    """Partners of one stem; of several places the one with the same direction, else the first."""
    places: dict[str, list[int]] = {}
    for at, word in enumerate(b):
        places.setdefault(word.stem, []).append(at)
    partners = {}
    for at, word in enumerate(a):
        free = places.get(word.stem)
        if free:
            chosen = next((place for place in free if b[place].role == word.role), free[0])
            free.remove(chosen)
            partners[at] = chosen
    return partners


def are_opposed(a: Word, b: Word) -> bool:
    """Whether they are antonyms."""
    if a.sides and b.sides and a.sides.isdisjoint(b.sides) and any(side ^ 1 in b.sides for side in a.sides):
        return True
    short, long = (a.stem, b.stem) if len(a.stem) < len(b.stem) else (b.stem, a.stem)
    return long.endswith(short) and long[: -len(short)] in _NEGATING


def are_synonyms(a: Word, b: Word) -> bool:
    """Whether one may stand for the other."""
    return not a.groups.isdisjoint(b.groups) and not are_opposed(a, b)


def _derive(a: Word, b: Word) -> bool:
    """Whether one is the other with an ending."""
    short, long = (a.stem, b.stem) if len(a.stem) < len(b.stem) else (b.stem, a.stem)
    if len(short) < _SHORTEST_STEM or short[:3] != long[:3] or a.kind in _TELLING or b.kind in _TELLING:
        return False
    bare = short[:-1] if len(short) > _SHORTEST_STEM else short
    return any(long.startswith(start) and long[len(start) :] in _ENDINGS for start in (short, bare))


def _is_slip(a: Word, b: Word) -> bool:
    """Whether one is the other misspelt: they are near, and not both of them are words."""
    one, other = a.surface, b.surface
    if (a.known and b.known) or min(len(one), len(other)) < _SHORTEST_SLIP or one[0] != other[0]:
        return False
    if {Kind.CODE, Kind.NUMBER} & {a.kind, b.kind} or are_opposed(a, b):
        return False
    limit = 1 if max(len(one), len(other)) < _LONG_WORD else 2
    return distance(one, other, limit) <= limit


def distance(a: str, b: str, limit: int) -> int:
    """Letters to insert, drop, change or swap with their neighbour to make one from the other; limit + 1 beyond it.

    Optimal string alignment (Boytsov, "Indexing methods for approximate dictionary searching", JEA 16, 2011).
    """
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    last = list(range(len(b) + 1))
    for row, letter in enumerate(a, 1):
        current = [row]
        for column, other in enumerate(b, 1):
            least = min(last[column] + 1, current[column - 1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == b[column - 2] and a[row - 2] == other:
                least = min(least, before[column - 2] + 1)
            current.append(least)
        if min(current) > limit:
            return limit + 1
        before, last = last, current
    return last[-1]


def _are_near_numbers(a: Word, b: Word) -> bool:
    """Whether they are one number that has a unit in one place only, or one time of day."""
    if a.kind is not Kind.NUMBER or b.kind is not Kind.NUMBER:
        return False
    (value, _, unit), (other, _, other_unit) = a.stem.partition(" "), b.stem.partition(" ")
    units = {unit, other_unit}
    if units in ({"clock", "clock am"}, {"clock", "clock pm"}):
        return (float(value) - float(other)) % _HALF_DAY == 0
    if units in ({"", "clock"}, {"", "clock am"}, {"", "clock pm"}):
        hours, minutes = (value, other) if not unit else (other, value)
        return hours in _HOURS and (60 * int(hours) - float(minutes)) % _HALF_DAY == 0
    return value == other and "" in units


_HOURS = frozenset(map(str, range(24)))


def _drop_compounds(words: tuple[Word, ...], left: list[int], others: tuple[Word, ...], right: list[int]) -> None:
    """Drop from what is left over what differs in a space only: `web site` and `website`."""
    joined = {others[at].surface: at for at in right}
    for first, second in tuple(pairwise(left)):
        at = joined.get(words[first].surface + words[second].surface)
        if at is not None and second == first + 1 and first in left and second in left and at in right:
            left.remove(first)
            left.remove(second)
            right.remove(at)


def _is_implied(word: Word, other: Facts) -> bool:
    """Whether the other question says as much without the word."""
    if word.kind in _TELLING:
        return word.stem in _PARTS_OF_DAY and any("clock" in number for number in other.numbers)
    if word.stem in _implied(other.asked):
        return True
    beside = _echoes().get(word.stem)
    return beside is not None and any(each.stem in beside for each in other.words)


@lru_cache(maxsize=256)
def _implied(asked: frozenset[Asked]) -> frozenset[str]:
    """Stems of the words that say no more than kinds of question do."""
    return frozenset(stem(word) for kind in asked for word in IMPLIED.get(kind.value, ()))


@lru_cache(maxsize=1)
def _echoes() -> dict[str, frozenset[str]]:
    return {stem(word): frozenset(map(stem, beside)) for word, beside in ECHOES.items()}


def _are_turned(a: Facts, b: Facts, pairs: tuple[tuple[int, int], ...]) -> bool:
    places = [second for _, second in pairs]
    moved = sum(place != rank for place, rank in zip(places, sorted(places), strict=True))
    if len(places) > 2 and moved == 2:
        return True
    roles = {(a.words[first].role, b.words[second].role) for first, second in pairs}
    return any(one != other and (other, one) in roles for one, other in roles)


def _crossing(places: list[int]) -> float:
    if len(places) < 2:
        return 0.0
    falls = sum(one > other for one, other in pairwise(places))
    is_rotation = falls == 1 and places[0] > places[-1]
    return 0.0 if is_rotation else falls / (len(places) - 1)
