"""What a question says, taken apart once: its words with what kind each is, negations, numbers, dates, what is asked.

Rules, no model. English and Chinese are read; of other languages only numbers, quotes and code, and the rest word for
word. Nothing here decides: `alignment` looks at what two questions have in common, `guards` names what differs,
`features` measures it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from hashlib import sha256

from prefold.responses.semantic.wording.asking import Asked
from prefold.responses.semantic.wording.chinese import read_chinese
from prefold.responses.semantic.wording.english import read_english
from prefold.responses.semantic.wording.language import language_of
from prefold.responses.semantic.wording.word import Word

READ = 4096
"""Characters that are read; what follows them has to be the same to the character."""

MOST_WORDS = 160
"""Words that are compared; those that follow have to be the same."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a question says.

    Attributes:
        plain: the text in lower case with single spaces and without marks at its ends.
        language: see `language_of`.
        words: those that say something, in order.
        negations: how many there are.
        asked: kinds of question in it.
        numbers: values with units.
        quotes: what stands in quotation marks.
        codes: code, paths, flags, identifiers, addresses.
        rest: hash of what was not read; b"" where all of it was.
        length: words that there were, with those that say nothing.
    """

    plain: str
    language: str
    words: tuple[Word, ...]
    negations: int
    asked: frozenset[Asked]
    numbers: frozenset[str]
    quotes: frozenset[str]
    codes: frozenset[str]
    rest: bytes
    length: int


_QUOTE = re.compile(r"[\"“«「『]([^\"“”«»「」『』\n]{1,200})[\"”»」』]|(?<!\w)['‘]([^'’\n]{2,200})['’](?!\w)")
_CODE = re.compile(
    r"`[^`\n]{1,200}`|https?://\S+|\b[\w.+-]{1,64}@[\w-]+\.\w+|(?<!\w)--?[a-zA-Z][\w-]+|\b[a-zA-Z]\w*\(\)"
    r"|\b[a-z]+_\w+|\b[a-z]+[A-Z]\w*|(?<!\S)[/~]\w[\w./-]*|\B\.[a-z]{2,5}\b"
    r"|\b[\w-]{1,64}\.(?:py|js|ts|json|yaml|yml|toml|txt|csv|md|html|css|java|go|rs|cpp|sh|sql|xml|pdf|docx?|xlsx?|png"
    r"|jpe?g|zip)\b|[=!<>]=|->|=>|::|&&|\|\|"
)
_SPACES = re.compile(r"\s+")
_AT_ENDS = " \t.?!,;:。？！，；：~…"


def facts(text: str) -> Facts:
    """Take a question apart.

    Never raises. Takes time linear in what is read, about 0.1 ms for a short question.
    """
    normal = unicodedata.normalize("NFKC", text[:READ])
    plain = _SPACES.sub(" ", normal.casefold()).strip(_AT_ENDS)
    unread = text[READ:].encode("utf-8", "surrogatepass")
    language = language_of(text)
    if language == "zh":
        chinese = read_chinese(plain)
        words, negations, asked = chinese.words, chinese.negations, chinese.asked
        length = len(words)
    else:
        english = read_english(normal)
        words, negations, asked = english.words, english.negations, english.asked
        length = english.length
    unread += " ".join(word.stem for word in words[MOST_WORDS:]).encode("utf-8", "surrogatepass")
    return Facts(
        plain=plain,
        language=language,
        words=tuple(words[:MOST_WORDS]),
        negations=negations,
        asked=asked,
        numbers=frozenset(word.stem for word in words[:MOST_WORDS] if word.kind == "number"),
        quotes=frozenset((double or single).strip().casefold() for double, single in _QUOTE.findall(normal)),
        codes=frozenset(code.strip("`()") for code in _CODE.findall(normal)),
        rest=sha256(unread).digest() if unread else b"",
        length=length,
    )
