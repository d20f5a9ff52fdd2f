"""What is different between two states of a stable prefix: where, why, and which of the usual suspects did it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from prefold.prompts.causes import CAUSES, NONE
from prefold.prompts.divergence.differences import first_difference
from prefold.prompts.divergence.values import within_segment
from prefold.prompts.fingerprints.fingerprint import fields_of, fingerprint_of, shortened
from prefold.prompts.fingerprints.lock import Entry
from prefold.prompts.fingerprints.suspects import Suspect, suspects
from prefold.prompts.invisible import visible
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section, Segment
from prefold.prompts.sequences import common_length
from prefold.prompts.tokens import counter_for

_SHOWN_AROUND = 24
"""Characters on each side of a break."""


@dataclass(frozen=True, slots=True)
class Change:
    """A prefix that is no longer what it was.

    Attributes:
        old: fingerprint before.
        new: fingerprint now.
        path: where the two first differ, such as `system[0]`; None if the old text is not known.
        char: the first character that differs, in the text of the segment there.
        before: the old text on both sides of the break, invisible characters made visible, the break marked by `|`.
        after: the same of the new text.
        cause: as `prefold diff` names it.
        explanation: one sentence about the cause.
        fix: what to do about it.
        lost_tokens: tokens of the new prefix behind the break, which have to be computed again; an estimate.
        suspects: all that were tested.
    """

    old: str
    new: str
    path: Path | None
    char: int
    before: str
    after: str
    cause: str
    explanation: str
    fix: str
    lost_tokens: int
    suspects: tuple[Suspect, ...]

    def lines(self) -> list[str]:
        """The change for people to read, without the prefix's name."""
        written = [f"fingerprint  {shortened(self.old)} -> {shortened(self.new)}"]
        if self.path is None:
            return [*written, f"where        {self.explanation}"]
        written += [
            f"where        {self.path}, character {self.char}",
            f"before       {self.before}",
            f"after        {self.after}",
            f"cause        {self.cause}: {self.explanation}",
        ]
        if self.fix:
            written.append(f"fix          {self.fix}")
        if self.lost_tokens:
            written.append(f"lost         about {self.lost_tokens:,} tokens behind the break have to be computed again")
        for index, suspect in enumerate(self.suspects):
            label = "" if index else "suspects"
            written.append(f"{label:<12} {suspect.name}: {suspect.evidence or 'no'}")
        return written

    def as_json(self) -> dict[str, Any]:
        """The change as `--json` prints it."""
        return {
            "old": self.old,
            "new": self.new,
            "path": None if self.path is None else str(self.path),
            "char": self.char,
            "before": self.before,
            "after": self.after,
            "cause": self.cause,
            "explanation": self.explanation,
            "fix": self.fix,
            "lost_tokens": self.lost_tokens,
            "suspects": [{"name": suspect.name, "evidence": suspect.evidence} for suspect in self.suspects],
        }


def change_since(entry: Entry, prefix: Prompt) -> Change | None:
    """What changed since a prefix was accepted; None if nothing did."""
    new = fingerprint_of(prefix)
    if new == entry.fingerprint:
        return None
    if fingerprint_of(entry.prefix) == entry.fingerprint:
        return change_between(entry.prefix, prefix)
    reason = "the text kept in the lock file is not that of its fingerprint (a merge, or an edit by hand)"
    return Change(entry.fingerprint, new, None, 0, "", "", "", reason, "", 0, ())


def change_between(before: Prompt, after: Prompt) -> Change | None:
    """What is different between two prefixes; None if they are the same to the model.

    Only what they say is compared, not what the cache of a provider would make of it: a prefix that is too short to be
    cached, or not marked yet, is a prefix all the same.
    """
    index = _first_different(before, after)
    if index is None:
        return None
    old, new = (prompt.segments[index] if index < len(prompt.segments) else None for prompt in (before, after))
    char = common_length(old.text, new.text) if old and new and _is_same_place(old, new) else 0
    cause, path = _cause(before, after, index)
    return Change(
        old=fingerprint_of(before),
        new=fingerprint_of(after),
        path=path,
        char=char,
        before=_shown(old, new, char),
        after=_shown(new, old, char),
        cause=cause,
        explanation=_GROWN if cause == NONE else CAUSES[cause].summary,
        fix="" if cause == NONE else CAUSES[cause].fix,
        lost_tokens=0 if cause == NONE else _tokens_from(after, index, char),
        suspects=suspects(before, after),
    )


_GROWN = "Something was added at the end; all that came before it still matches."


def _first_different(before: Prompt, after: Prompt) -> int | None:
    pairs = zip_longest(before.segments, after.segments)
    return next(
        (i for i, (old, new) in enumerate(pairs) if not old or not new or fields_of(old) != fields_of(new)), None
    )


def _cause(before: Prompt, after: Prompt, index: int) -> tuple[str, Path]:
    """The cause by its name in `causes.CAUSES`, and the place; `index` is that of the first segment that differs."""
    if index == len(before.segments):
        added = after.segments[index]
        return ("tool_set" if added.section is Section.TOOLS else NONE), added.path
    old = before.segments[index]
    if index == len(after.segments):
        return ("tool_set" if old.section is Section.TOOLS else "text_edit"), old.path
    new = after.segments[index]
    if old.text == new.text:  # the speaker is another, or where a message begins
        return "text_edit", new.path
    difference = first_difference(before, after)
    if difference and difference.cause != NONE and difference.path:
        return difference.cause, difference.path
    # Between requests this would be just another question; in a prefix it is a change like any other.
    return within_segment(old, new)


def _is_same_place(old: Segment, new: Segment) -> bool:
    """Whether two segments differ in nothing but their text."""
    return fields_of(old)[:-1] == fields_of(new)[:-1]


def _shown(segment: Segment | None, other: Segment | None, char: int) -> str:
    """A segment around a character, with the speaker where the other one has another."""
    if segment is None:
        return "(nothing)"
    speaker = f"({segment.role}) " if other and segment.role != other.role else ""
    return speaker + excerpt(segment.text, char)


def _tokens_from(prefix: Prompt, index: int, char: int) -> int:
    count = counter_for().count
    rest = prefix.segments[index:]
    return sum(count(segment.text) for segment in rest) - (count(rest[0].text[:char]) if rest else 0)


def excerpt(text: str, char: int) -> str:
    """The text on both sides of a character, in one line, with `|` before the character."""
    start, end = max(0, char - _SHOWN_AROUND), min(len(text), char + _SHOWN_AROUND)
    left, right = visible(text[start:char]), visible(text[char:end])
    return f"{'…' if start else ''}{left}|{right}{'…' if end < len(text) else ''}"
