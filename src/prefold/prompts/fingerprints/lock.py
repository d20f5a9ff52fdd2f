r"""The lock file: named stable prefixes, with their fingerprints and their text.

It is JSON with one value a line, names in order, and texts broken into their lines, so that a change is read as a
change of a prompt, and branches that touch different prefixes merge. It holds no time and no version of prefold, which
would only conflict.

    {
     "schema_version": 1,
     "prefixes": {
      "support-agent": {
       "fingerprint": "pf1:...",
       "dialect": "anthropic",
       "part": "prefix",
       "tokens": 1180,
       "source": "prompts/support.json",
       "body": {"system": {"lines": ["You are a support agent.\n", "Answer in French."]}}
      }
     }
    }
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefold.errors import PrefoldError, UsageError
from prefold.prompts.fingerprints.fingerprint import Part, fingerprint_of
from prefold.prompts.prompt import Dialect, Prompt

LOCK_NAME = "prefold.lock.json"
"""The lock file's usual name."""

SCHEMA_VERSION = 1

_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: |$)", re.MULTILINE)
_FOLDED = "lines"


@dataclass(frozen=True, slots=True)
class Entry:
    """A prefix as it was accepted.

    Attributes:
        name: how tests and commands call it.
        fingerprint: from `fingerprint_of`.
        part: what of its source it is.
        tokens: its length, estimated, so that it is the same whatever tokenizers are installed.
        source: the file it is read from, relative to the lock file's folder; None if a test builds it.
        prefix: the prefix itself.
    """

    name: str
    fingerprint: str
    part: Part
    tokens: int
    source: str | None
    prefix: Prompt

    @classmethod
    def of(cls, name: str, prefix: Prompt, part: Part, source: str | None = None) -> Entry:
        """The entry of a prefix as it is now.

        Raises:
            UsageError: if the name is empty or not printable.
        """
        from prefold.prompts.tokens import counter_for  # noqa: PLC0415 - a check that passes counts nothing

        if not name.strip() or not name.isprintable():
            raise UsageError(f"{name!r} is not a name for a prefix.", hint="Use printable characters.")
        count = counter_for().count
        tokens = sum(count(segment.text) for segment in prefix.segments)
        return cls(name, fingerprint_of(prefix), part, tokens, source, prefix)


@dataclass(frozen=True, slots=True)
class Lock:
    """What a lock file says.

    Attributes:
        entries: by name.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, file: str) -> Lock:
        """Read a lock file's text.

        Args:
            text: all of it.
            file: its name, for messages.

        Raises:
            UsageError: if it is none, holds a merge conflict, or was written by a later prefold.
        """
        if conflict := _CONFLICT.search(text):
            line = text.count("\n", 0, conflict.start()) + 1
            raise UsageError(
                f"{file} holds a merge conflict in line {line}.",
                hint="Keep either side of it, then accept what is built now: prefold fingerprint update NAME, or "
                "pytest --prefold-update.",
            )
        try:
            content = json.loads(text, object_pairs_hook=_without_doubles)
        except json.JSONDecodeError as error:
            problem = f"is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}"
            raise _damaged(file, problem) from None
        except (ValueError, RecursionError) as error:
            raise _damaged(file, f"cannot be read: {error}") from None
        version = content.get("schema_version") if isinstance(content, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise UsageError(
                f"{file} has the schema version {version}, and this prefold knows {SCHEMA_VERSION}.",
                hint="Update prefold: pip install --upgrade prefold.",
            )
        if version != SCHEMA_VERSION or not isinstance(content.get("prefixes"), dict):
            raise _damaged(file, "is not a lock file of prefold")
        return cls({name: _read_entry(name, value, file) for name, value in content["prefixes"].items()})

    def format(self) -> str:
        """The file's text, the same for the same entries.

        Raises:
            UsageError: if a prefix is nested too deeply to be written.
        """
        prefixes = {}
        for name, entry in sorted(self.entries.items()):
            prefixes[name] = {
                "fingerprint": entry.fingerprint,
                "dialect": entry.prefix.dialect,
                "part": entry.part,
                "tokens": entry.tokens,
                "source": entry.source,
            }
            try:
                prefixes[name]["body"] = _fold(entry.prefix.value)
            except RecursionError:
                raise UsageError(
                    f"The prefix {name!r} is nested too deeply.", hint="No provider accepts such a prompt."
                ) from None
        content = {"schema_version": SCHEMA_VERSION, "prefixes": prefixes}
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


@dataclass(frozen=True, slots=True)
class LockFile:
    """A lock file on disk. Several processes may write it at once and no entry is lost.

    Attributes:
        path: where it is; its folder must exist before something is written.
    """

    path: Path

    def read(self) -> Lock:
        """What it says; nothing where there is no file.

        Raises:
            UsageError: as `Lock.parse`, or if the file cannot be read.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Lock()
        except UnicodeDecodeError as error:
            raise _damaged(str(self.path), f"is not UTF-8 text: byte {error.start}") from None
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}.", hint="Check the path.") from None
        return Lock.parse(text, str(self.path))

    def accept(self, entries: Iterable[Entry]) -> None:
        """Add entries, in place of those with the same names.

        Raises:
            UsageError: as `read`, or if the file cannot be written.
        """
        new = {entry.name: entry for entry in entries}
        self._change(lambda old: {**old, **new})

    def remove(self, names: Iterable[str]) -> None:
        """Take entries out, as far as they are there.

        Raises:
            UsageError: as `accept`.
        """
        gone = set(names)
        self._change(lambda old: {name: entry for name, entry in old.items() if name not in gone})

    def source_of(self, entry: Entry) -> Path | None:
        """The file an entry is read from, None if it has none."""
        return None if entry.source is None else self.path.parent / entry.source

    def _change(self, change: Callable[[Mapping[str, Entry]], Mapping[str, Entry]]) -> None:
        try:
            target = self.path.resolve()
            with _exclusive(target.parent):
                text = Lock(change(self.read().entries)).format()
                if target.exists() and target.read_text(encoding="utf-8") == text:
                    return
                draft = target.with_name(f".{target.name}.draft")
                try:
                    # Half of a surrogate pair has no UTF-8; its escape in JSON is what this handler makes of it.
                    draft.write_bytes(text.encode(errors="backslashreplace"))
                    draft.replace(target)
                finally:
                    draft.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}.", hint="Check the path.") from None


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Wait until no other process writes in a folder by this means. The folder is what is locked: no file is left."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_entry(name: str, value: Any, file: str) -> Entry:
    try:
        match value:
            case {
                "fingerprint": str(fingerprint),
                "dialect": str(dialect),
                "part": str(part),
                "tokens": int(tokens),
                "source": str() | None as source,
                "body": dict(body),
            }:
                prefix = Prompt.of(_unfold(body), Dialect(dialect))
                return Entry(name, fingerprint, Part(part), tokens, source, prefix)
    except (ValueError, PrefoldError):
        pass
    raise _damaged(file, f"has an entry {name!r} that is incomplete")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a merge that keeps both sides leaves a name twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is there twice")
        found[key] = value
    return found


def _damaged(file: str, problem: str) -> UsageError:
    return UsageError(f"{file} {problem}.", hint="Restore it from version control.")


def _fold(value: Any) -> Any:
    """A JSON value with every text of several lines as `{"lines": [...]}`; an object that looks so is wrapped once."""
    match value:
        case str() if "\n" in value:
            lines = re.split(r"(?<=\n)", value)
            return {_FOLDED: lines if lines[-1] else lines[:-1]}
        case dict():
            folded = {key: _fold(item) for key, item in value.items()}
            return {_FOLDED: folded} if value.keys() == {_FOLDED} else folded
        case list():
            return [_fold(item) for item in value]
        case _:
            return value


def _unfold(value: Any) -> Any:
    """What `_fold` was given."""
    match value:
        case {"lines": [*lines], **others} if not others:
            return "".join(lines)
        case {"lines": dict(inner), **others} if not others:
            return {key: _unfold(item) for key, item in inner.items()}
        case dict():
            return {key: _unfold(item) for key, item in value.items()}
        case list():
            return [_unfold(item) for item in value]
        case _:
            return value
