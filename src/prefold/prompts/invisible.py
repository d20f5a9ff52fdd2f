"""Making visible what a reader cannot see and a tokenizer can."""

from __future__ import annotations

import re
import unicodedata

_SIGNS = {"\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"}
_SPACES_THAT_MATTER = re.compile(r"^ +| +$| {2,}| +(?=[\n\r\t])|(?<=[\n\r\t]) +")


def visible(text: str) -> str:
    """A text in one line, with signs for white space that matters and code points for what has no glyph.

    A single space between words stays a space; at an end, or beside other white space, each is a `·`. Combining
    characters are named, so that composed and decomposed letters look different.
    """
    dotted = _SPACES_THAT_MATTER.sub(lambda spaces: "·" * len(spaces.group()), text)
    return "".join(map(_shown, dotted))


def _shown(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    if character == " " or (character.isprintable() and unicodedata.category(character) != "Mn"):
        return character
    return f"<U+{ord(character):04X}>"
