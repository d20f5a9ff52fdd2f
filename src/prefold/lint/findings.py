"""What every part of the linter says in the same form: rules, findings, and fixes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a rule reads."""

    IGNORE = "ignore"
    """The comments that silence other rules: rule ids PF0xx."""

    TEXT = "text"
    """Plain text, and the text inside request bodies: rule ids PF1xx."""
    BODY = "body"
    """The structure of request bodies: rule ids PF2xx."""
    SOURCE = "source"
    """Python source: rule ids PF3xx."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, and all that `prefold explain` says about it.

    Attributes:
        id: such as `PF101`; never reused.
        name: in kebab case, such as `clock-in-prefix`.
        scope: what it reads.
        summary: one line: what is wrong.
        why: a paragraph: what it costs, and when it does not matter.
        before: an example that is found.
        after: the same, mended.
        is_fixable: whether `--fix` mends it.
    """

    id: str
    name: str
    scope: Scope
    summary: str
    why: str
    before: str
    after: str
    is_fixable: bool = False


@dataclass(frozen=True, slots=True)
class Replacement:
    """Characters `start` to `end` of a file's text, to be replaced by `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a rule is broken.

    Attributes:
        rule: id of the rule.
        message: one sentence that names what was found.
        file: as the user gave it, `-` for standard input.
        start: first character of the span, in the file's text.
        end: the character after it.
        help: one sentence: what to do.
        path: where in a request body, such as `system[0]`; empty for text and source.
        notes: further lines, such as the way a value flows into the prompt.
        lost_tokens: input tokens behind the span that every request reads again; None where that cannot be said.
        fix: replacements that mend it without changing the meaning; none where there is no such fix.
    """

    rule: str
    message: str
    file: str
    start: int
    end: int
    help: str
    path: str = ""
    notes: tuple[str, ...] = ()
    lost_tokens: int | None = None
    fix: tuple[Replacement, ...] = ()
