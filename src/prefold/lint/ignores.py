"""Comments that silence a rule: `# prefold: ignore[PF101] reason` on a line, `ignore-file` for a whole file."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from prefold.lint.findings import Finding, Rule, Scope
from prefold.lint.lines import Lines

WITHOUT_REASON = Rule(
    "PF001",
    "ignore-without-reason",
    Scope.IGNORE,
    "A comment silences a rule and does not say why, or which.",
    "Whoever reads the code later must be able to tell whether the reason still holds.",
    'prompt = f"{now} ..."  # prefold: ignore[PF301]',
    'prompt = f"{now} ..."  # prefold: ignore[PF301] a report that is asked for once a day',
)
UNUSED = Rule(
    "PF002",
    "unused-ignore",
    Scope.IGNORE,
    "A comment silences a rule that finds nothing there.",
    "It would hide the next finding in that place, which nobody has looked at.",
    'prompt = "You are an agent."  # prefold: ignore[PF301] the clock is wanted here',
    'prompt = "You are an agent."',
)
IGNORE_RULES: tuple[Rule, ...] = (WITHOUT_REASON, UNUSED)

_MARK = "prefold: ignore"
_COMMENT = re.compile(r"prefold: ignore(?P<file>-file)?(?:\[(?P<rules>[^\]\n]*)\])?(?P<reason>[^\n]*)")
_COMMENT_ENDS = re.compile(r"\s*(?:-->|\*/|#\}|-?%\}|\}\})?\s*\Z")


@dataclass(frozen=True, slots=True)
class Ignore:
    """A comment that silences rules.

    Attributes:
        start: its first character, from `prefold:` on.
        end: the character after its last.
        rules: what names them, as written.
        reason: why; empty if it does not say.
        is_for_file: whether it silences them in the whole file.
    """

    start: int
    end: int
    rules: tuple[str, ...]
    reason: str
    is_for_file: bool


def ignores_in(text: str, *, is_python: bool) -> list[Ignore]:
    """The comments in a file; in Python those that are comments, elsewhere all that are written like one."""
    if _MARK not in text:
        return []
    spans = _python_comments(text) if is_python else [(0, len(text))]
    return [_ignore(found) for start, end in spans for found in _COMMENT.finditer(text, start, end)]


def without_ignored(
    findings: list[Finding],
    ignores: list[Ignore],
    text: str,
    file: str,
    rules: Collection[str],
    *,
    named: Callable[[str], Collection[str]],
    complete: Collection[str],
) -> list[Finding]:
    """Findings that no comment silences, and what is wrong with the comments.

    Args:
        findings: of the file.
        ignores: of the file.
        text: of the file.
        file: its name.
        rules: those in force.
        named: gives the ids of the rules that a comment's argument stands for; none if it names none.
        complete: the rules whose findings are all here; a comment for another one may be of use in another run.
    """
    if not ignores:
        return findings
    lines = Lines(text)
    of_line: dict[tuple[int, str], _Argument] = {}
    of_file: dict[str, _Argument] = {}
    for ignore in ignores:
        for written in ignore.rules:
            for rule in named(written):
                if ignore.is_for_file:
                    of_file.setdefault(rule, (ignore, written))
                else:
                    of_line.setdefault((lines.position(ignore.start).line, rule), (ignore, written))
    used: set[_Argument] = set()
    kept: list[Finding] = []
    for finding in findings:
        first, last = lines.position(finding.start).line, lines.position(max(finding.start, finding.end - 1)).line
        found = [of_line.get((line, finding.rule)) for line in range(first, last + 1)] + [of_file.get(finding.rule)]
        silencing = [argument for argument in found if argument]
        used |= {*silencing}
        if not silencing:
            kept.append(finding)
    for ignore in ignores:
        unused = [written for written in ignore.rules if (ignore, written) not in used]
        faults = [*_fault_of_form(ignore, file), *_unused(ignore, unused, file, named, complete)]
        kept += [finding for finding in faults if finding.rule in rules]
    return sorted(kept, key=lambda finding: finding.start)


_Argument = tuple[Ignore, str]
"""A comment, and one of the things in its brackets."""


def _fault_of_form(ignore: Ignore, file: str) -> Iterator[Finding]:
    if not ignore.rules or not ignore.reason:
        missing = "reason" if ignore.rules else "rule"
        help_ = "Write it as `prefold: ignore[PF101] reason`."
        yield Finding(WITHOUT_REASON.id, f"This ignore names no {missing}.", file, ignore.start, ignore.end, help_)


def _unused(
    ignore: Ignore, unused: list[str], file: str, named: Callable[[str], Collection[str]], complete: Collection[str]
) -> Iterator[Finding]:
    for written in unused:
        rules = named(written)
        if not rules:
            message = f"This ignore silences nothing: there is no rule {written!r}."
            yield Finding(UNUSED.id, message, file, ignore.start, ignore.end, "`prefold explain` lists all rules.")
        elif all(rule in complete for rule in rules):
            message = f"This ignore silences nothing: {written} finds nothing here."
            yield Finding(UNUSED.id, message, file, ignore.start, ignore.end, "Take it out.")


def _ignore(found: re.Match[str]) -> Ignore:
    rules = tuple(rule.strip() for rule in (found["rules"] or "").split(",") if rule.strip())
    reason = _COMMENT_ENDS.sub("", found["reason"]).strip()
    return Ignore(found.start(), found.end(), rules, reason, is_for_file=found["file"] is not None)


def _python_comments(text: str) -> list[tuple[int, int]]:
    """Spans of the comments; none behind a place that is not Python."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    spans: list[tuple[int, int]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
            if token.type == tokenize.COMMENT:
                start = starts[token.start[0] - 1] + token.start[1]
                spans.append((start, start + len(token.string)))
    except (tokenize.TokenError, SyntaxError):
        return spans
    return spans
