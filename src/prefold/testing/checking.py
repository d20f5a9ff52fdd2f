"""Holding a prefix against the lock file: what the pytest fixture and the helper for other test runners share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.errors import UsageError
from prefold.prompts.fingerprints.changes import change_between, change_since
from prefold.prompts.fingerprints.fingerprint import Part, prefix_of, shortened
from prefold.prompts.fingerprints.lock import Entry, LockFile
from prefold.prompts.fingerprints.suspects import passing_values
from prefold.prompts.prompt import Dialect, Prompt


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a check; both are empty if the prefix is as it was.

    Attributes:
        problem: why the test must fail, in several lines.
        accepted: what was written to the lock file, in one line.
    """

    problem: str = ""
    accepted: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """Checks prefixes against one lock file.

    Attributes:
        lock: the file.
        accepts: whether to write prefixes that are new or changed to it.
        how_to_accept: what the user types to have that done.
    """

    lock: Path
    accepts: bool
    how_to_accept: str

    def __call__(
        self, name: str, prefix: object, fields: Mapping[str, Any], *, part: str, dialect: str | None
    ) -> Verdict:
        """Check one prefix.

        Args:
            name: what it is called in the lock file.
            prefix: a body, a prompt, a text, or a function that builds one; None if it is given by its fields.
            fields: `system`, `tools` and `messages` of the prefix; None for those that are not given.
            part: what of a body stays.
            dialect: the form of a body; None to recognise it.

        Raises:
            PrefoldError: if the arguments or the lock file cannot be used.
        """
        given = {key: value for key, value in fields.items() if value is not None}
        if (prefix is None) == (not given):
            raise UsageError(
                f"The prefix {name!r} is given {'twice' if given else 'as nothing'}.",
                hint="Give a body or a text, or else system=, tools= or messages=.",
            )
        if given:
            # The order in which Anthropic's API reads them is everybody's; parts named one by one all stay.
            current, kept = prefix_of(given, Part.WHOLE, Dialect.ANTHROPIC), Part.WHOLE
        else:
            kept = _part_named(part)
            form = Dialect.named(dialect) if dialect else None
            current = _read(prefix() if callable(prefix) else prefix, kept, form)
            if callable(prefix) and (change := change_between(current, _read(prefix(), kept, form))):
                heading = f"The prefix {name!r} is not the same when it is built twice."
                return Verdict(problem="\n".join([heading, *(f"  {line}" for line in change.lines())]))
        return self._against_lock(name, current, kept)

    def _against_lock(self, name: str, prefix: Prompt, part: Part) -> Verdict:
        file = LockFile(self.lock)
        entry = file.read().entries.get(name)
        change = change_since(entry, prefix) if entry else None
        if entry and not change:
            return Verdict()
        if self.accepts:
            new = Entry.of(name, prefix, part, entry.source if entry else None)
            file.accept([new])
            return Verdict(accepted=_accepted(entry, new))
        if change:
            lines = [f"The prefix {name!r} changed.", *(f"  {line}" for line in change.lines())]
            lines.append(f"If this is meant, accept it: {self.how_to_accept}")
            return Verdict(problem="\n".join(lines))
        return Verdict(
            problem=f"The prefix {name!r} is not in {self.lock}.\n"
            f"If it is new, accept it: {self.how_to_accept}; then commit the file."
        )


def refuse_update_under_ci(switch: str, environment: Mapping[str, str]) -> None:
    """Make sure that nothing accepts changes where nobody looks at them.

    Raises:
        UsageError: under CI, which sets the variable CI.
    """
    if environment.get("CI", "").lower() not in ("", "0", "false"):
        raise UsageError(
            f"{switch} writes nothing under CI, where the variable CI is set.",
            hint="Accept changes where you work, and commit the lock file.",
        )


def _accepted(old: Entry | None, new: Entry) -> str:
    before = f"{shortened(old.fingerprint)} -> " if old else "new, "
    warnings = "".join(f"; {value} may not stay" for value in passing_values(new.prefix) if value.is_live)
    return f"accepted {new.name}: {before}{shortened(new.fingerprint)}{warnings}"


def _part_named(name: str) -> Part:
    try:
        return Part(name)
    except ValueError:
        raise UsageError(f"There is no part {name!r}.", hint=f"Known parts: {', '.join(Part)}.") from None


def _read(built: object, part: Part, dialect: Dialect | None) -> Prompt:
    match built:
        case Prompt():
            return prefix_of(built.value, part, built.dialect)
        case str() | Mapping():
            return prefix_of(built, part, dialect)
        case _:
            raise UsageError(
                f"A prefix cannot be of the type {type(built).__name__}.",
                hint="Give a request body, a Prompt or a text, or a function that builds one.",
            )
