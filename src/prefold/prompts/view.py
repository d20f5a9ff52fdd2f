"""A prompt as one text: what the model reads, as far as a request shows it.

No provider publishes the template behind its API. This view has what every one of them must tell apart: the text
of each segment, whose it is, and where a message begins. Two requests share a prefix in it where their segments do.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Segment


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment's place in the view.

    Attributes:
        start: first character, of the header where the segment has one.
        header_end: where the header ends and the segment's own text begins.
        end: the character after the last.
        path: the segment's.
    """

    start: int
    header_end: int
    end: int
    path: Path


@dataclass(frozen=True, slots=True)
class View:
    """The text of a prompt and where each part of it comes from."""

    text: str
    pieces: tuple[Piece, ...]


def header_of(segment: Segment) -> str:
    """What stands before a segment: whose words follow, where a message begins."""
    if not segment.role:
        return ""
    return f"\n<|{segment.role}|>\n" if segment.begins_message else "\n"


def view_of(prompt: Prompt) -> View:
    """The view of a prompt.

    Raises:
        InvalidRequest: as `Prompt.segments`.
    """
    written: list[str] = []
    pieces: list[Piece] = []
    position = 0
    for segment in prompt.segments:
        header = header_of(segment)
        written += (header, segment.text)
        header_end = position + len(header)
        end = header_end + len(segment.text)
        pieces.append(Piece(position, header_end, end, segment.path))
        position = end
    return View("".join(written), tuple(pieces))
