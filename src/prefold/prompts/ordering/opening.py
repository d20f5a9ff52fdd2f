"""The opening of a request: tools and system text, which come before the conversation; cut into what can be moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prefold.prompts.prompt import Prompt, Section, Segment, Stability

_SMALL = r"[^\W\d_A-Z]"
# Ends of lines and of sentences. A short word before a full stop is a title or an abbreviation, such as "Dr. Smith".
_END = re.compile(
    r"\n(?:[^\S\n]*\n)*"
    rf"|[.!?](?:(?<={_SMALL}{{3}}.)|(?<=[\dZ)\]\"%].))[ \t]+(?=[^\W\d_a-z])"
    r"|[。！？][^\S\n]*(?=[^\s”』」）\"'])"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A line or a sentence of an opening.

    Attributes:
        segment: the segment it belongs to.
        start: its first character in the segment's text.
        text: all of it, with the white space that follows.
        stability: how often it changes.
    """

    segment: Segment
    start: int
    text: str
    stability: Stability = Stability.STATIC

    @property
    def key(self) -> str:
        """The unit without its spacing, by which it is known again: spacing is not what varies."""
        return " ".join(self.text.split())


def is_one_text(prompt: Prompt) -> bool:
    """Whether all of a prompt is one text, with the rules and the question in it, and no system text."""
    segments = [segment for segment in prompt.segments if segment.section is not Section.TOOLS]
    return len(segments) == 1 and segments[0].section is Section.MESSAGES and segments[0].text_path is not None


def split_question(text: str) -> tuple[str, str]:
    """A prompt that is one text, as what comes before its last paragraph, and that; a last line if there is but one."""
    body = text.rstrip()
    cut = body.rfind("\n\n")
    cut = cut + 2 if cut >= 0 else body.rfind("\n") + 1
    return text[:cut], text[cut:]


def opening_units(prompt: Prompt) -> list[Unit]:
    """The opening of a prompt in units, in order."""
    if is_one_text(prompt):
        texts = [(segment, split_question(segment.text)[0]) for segment in prompt.segments if segment.text_path]
    else:
        texts = [
            (segment, segment.text)
            for segment in prompt.segments
            if segment.section is Section.SYSTEM and segment.text_path is not None
        ]
    return [Unit(segment, start, text) for segment, whole in texts for start, text in _cut(whole)]


def _cut(text: str) -> Iterator[tuple[int, str]]:
    """Lines with the blank lines after them, and the sentences in them; joined they are the text."""
    start = 0
    for found in _END.finditer(text):
        piece = text[start : found.end()]
        if start or not piece.isspace():  # blank lines at the beginning go with the first unit
            yield start, piece
            start = found.end()
    if start < len(text):
        yield start, text[start:]
