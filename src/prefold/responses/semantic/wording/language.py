"""The language of a short text, by its script and its commonest words.

It keeps questions in different languages apart, so that it must say the same of two wordings of one question; what it
calls the language matters less. English is what Latin script is without evidence of another language.
"""

from __future__ import annotations

import re
import unicodedata

# Words of the others that are English words as well are left out.
_WORDS = {
    "de": "der das und ist nicht ich ein eine einen mein meine wie wo kann warum für mit auf zu von den wann gibt sie",
    "fr": "le les et est pas je un une mon ma mes comment où que puis pourquoi pour avec sur du des quand vous qui",
    "es": "el y es yo un una mi mis cómo dónde qué puedo por para sobre del cuándo está hay mucho cuál",
    "it": "il lo gli è un una mio mia dove che posso perché per su del della quando sono quanto qual",
    "pt": "o os é não eu um uma meu minha onde que posso porque para com sobre da quando são qual fazer",
    "nl": "de het een en niet ik mijn hoe waar wat kan waarom voor op wanneer zijn welke kunnen",
    "en": "the a an and is are not i my your to of in for on with how where what can do does did why when who which",
}
_LANGUAGES_OF: dict[str, tuple[str, ...]] = {}
for _language, _words in _WORDS.items():
    for _word in _words.split():
        _LANGUAGES_OF[_word] = (*_LANGUAGES_OF.get(_word, ()), _language)

_TOKEN = re.compile(r"[^\W\d_]+")
_MOST_LETTERS = 400
_SCRIPTS = {"HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "CJK": "zh"}
_SHARE_OF_HAN = 0.2  # Chinese questions are full of Latin names, English ones have hardly a Chinese word


def language_of(text: str) -> str:
    """ISO 639-1 code of the language of a text, or the lower-case name of its script; "" where it has no letters."""
    beginning = unicodedata.normalize("NFKC", text[:_MOST_LETTERS])  # letters of full width are Latin ones
    scripts: dict[str, int] = {}
    for character in beginning:
        if character.isascii():
            script = "LATIN" if character.isalpha() else ""
        else:
            script = unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
        if script:
            script = _SCRIPTS.get(script, script)
            scripts[script] = scripts.get(script, 0) + 1
    if not scripts:
        return ""
    letters = sum(scripts.values())
    # A few kana or Hangul decide over Han, which Japanese and Korean texts hold as well.
    for language in ("ja", "ko", "zh"):
        if scripts.get(language, 0) > _SHARE_OF_HAN * letters * (1 if language == "zh" else 0.5):
            return language
    script = max(scripts, key=lambda name: scripts[name])
    return _of_latin(beginning) if script == "LATIN" else script.lower()


def _of_latin(text: str) -> str:
    votes = dict.fromkeys(_WORDS, 0.0)
    for token in _TOKEN.findall(text.lower()):
        languages = _LANGUAGES_OF.get(token, ())
        for language in languages:
            votes[language] += 1 / len(languages)
    best = max(votes, key=lambda language: votes[language])
    return best if votes[best] > votes["en"] + 1 else "en"
