"""Word lists for English: what `facts` reads words by, and what `alignment` holds to mean the same.

The lists lie in the folder `lists`, one row a line. They were written down from general knowledge of the language and
from the first 300 pairs of fow-cache (those without a letter in their number) and nothing else: its other 300 pairs,
and every other set that figures are reported on, gave no word. How frequent a word is comes from the vocabulary of the
default encoder's tokenizer, where that is installed.

In a phrase `_` stands for the space. All lists hold words as they stand in a text; `facts` stems both sides alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

from prefold.responses.semantic.embedders.minilm_files import whole_words


def lines(name: str) -> list[str]:
    """The lines of a list."""
    return files(__package__).joinpath("lists", f"{name}.txt").read_text("utf-8").splitlines()


def rows(name: str) -> list[list[str]]:
    """The words of each line of a list."""
    return [line.split() for line in lines(name)]


def word_set(words: str) -> frozenset[str]:
    """The words in a text."""
    return frozenset(words.split())


def _to_first(name: str) -> Mapping[str, str]:
    """Each further word of a row to its first one."""
    return MappingProxyType({word: row[0] for row in rows(name) for word in row[1:]})


def _to_sets(name: str) -> Mapping[str, frozenset[str]]:
    """The first word of a row to the others, which stand between commas."""
    return MappingProxyType({row[0]: frozenset(row[1].split(",")) for row in rows(name)})


def _numbered(words: str, first: int) -> Mapping[str, int]:
    return {word: value for value, word in enumerate(words.split(), first)}


CONTRACTIONS: Mapping[str, str] = MappingProxyType({row[0]: " ".join(row[1:]) for row in rows("contractions")})

IS_AFTER = word_set("what where who when how why that there it here which he she everything")
"""Words after which `'s` is a verb rather than a possessive."""

DROPPED = word_set(" ".join(lines("dropped")))
"""Words that change nothing once the kind of question is known; those that change it are read before."""

LIGHT = word_set(" ".join(lines("light")))
"""Words that carry little: left over, they weigh a quarter."""

NEGATIONS = word_set(
    "not no never none nothing nobody nowhere without neither nor cannot hardly barely scarcely non lack lacking"
)

IRREGULAR = _to_first("irregular")
BRITISH = _to_first("british")

PHRASES = _to_first("phrases")
"""Words in a row that are read as one."""

SYNONYMS: tuple[frozenset[str], ...] = tuple(map(frozenset, rows("synonyms")))
"""Words that may stand for one another; a word may be in several of the groups."""

ANTONYMS: tuple[tuple[frozenset[str], frozenset[str]], ...] = tuple(
    (frozenset(row[0].split(",")), frozenset(row[1].split(","))) for row in rows("antonyms")
)
"""Two sides of which a question names one: naming the other asks for something else."""

SCOPES = word_set(
    "only all every each both other another next previous first last second main extra additional existing former "
    "except besides also including excluding instead without within outside abroad joint extended free premium basic "
    "pro international domestic local global online offline instore student senior adult child business personal "
    "annual yearly monthly weekly daily hourly min max minimum maximum average total half double multiple several"
)
"""Words that widen or narrow what is asked."""

ECHOES = _to_sets("echoes")
"""Words that say nothing new beside one of the others, wherever that stands in the other question."""

IMPLIED = _to_sets("implied")
"""Words that say no more than the kind of question does."""

DATES: Mapping[str, str] = MappingProxyType({word: row[0] for row in rows("dates") for word in row})

NUMERALS: Mapping[str, int] = MappingProxyType(
    {
        **_numbered("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen", 0),
        **_numbered("fifteen sixteen seventeen eighteen nineteen", 15),
        **{word: 10 * tens for word, tens in _numbered("twenty thirty forty fifty sixty seventy eighty", 2).items()},
        "ninety": 90,
        "dozen": 12,
        "single": 1,
        "couple": 2,
        "twice": 2,
        "thrice": 3,
    }
)

MULTIPLES: Mapping[str, int] = MappingProxyType(
    {
        "hundred": 100,
        "thousand": 1000,
        "k": 1000,
        "million": 10**6,
        "mn": 10**6,
        "billion": 10**9,
        "bn": 10**9,
        "trillion": 10**12,
    }
)

ORDINALS: Mapping[str, int] = MappingProxyType(
    _numbered("second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth", 2)
)

UNITS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {word: (row[0], float(row[1])) for row in rows("units") for word in row[2:]}
)
"""Word to dimension, and how many of its smallest unit it is. Months are no number of days."""


@lru_cache(maxsize=1)
def ranks() -> Mapping[str, int]:
    """Known words by how frequent they are, most frequent first; empty where the default encoder is not installed."""
    return MappingProxyType({word: rank for rank, word in enumerate(whole_words())})
