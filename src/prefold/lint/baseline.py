"""A list of known findings, so that an old repository starts green and only what is new is reported."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.errors import UsageError
from prefold.lint.findings import Finding
from prefold.lint.run import STANDARD_INPUT, Linted

_SCHEMA_VERSION = 1
_WITH_DIGITS = re.compile(r"[0-9a-zA-Z]*[0-9][0-9a-zA-Z]*")


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Findings that are known: as many of them in one file as there are of this rule and this text.

    Attributes:
        file: relative to the folder of the baseline, with `/`.
        rule: its id.
        text: the span, with every word that holds a digit written as `0`, so that tomorrow's date is the same finding.
    """

    file: str
    rule: str
    text: str

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits."""
        return hashlib.sha256(f"{self.rule}\0{self.file}\0{self.text}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Baseline:
    """Known findings and how often each is known.

    Attributes:
        path: of its file.
        counts: by entry.
    """

    path: Path
    counts: Mapping[Entry, int]

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a file.

        Raises:
            UsageError: if it cannot be read, or is no baseline.
        """
        try:
            return cls(path, _counts(json.loads(path.read_text(encoding="utf-8"))))
        except OSError as error:
            hint = "Write it with --write-baseline."
            raise UsageError(f"The baseline {path} cannot be read: {error.strerror}.", hint=hint) from None
        except (ValueError, TypeError, KeyError):
            hint = "Write it anew with --write-baseline."
            raise UsageError(f"{path} is not a baseline of prefold lint.", hint=hint) from None

    def without_known(self, linted: Linted) -> Linted:
        """A file with the findings that are not in the baseline."""
        left = Counter(self.counts)
        new: list[Finding] = []
        for finding in linted.findings:
            entry = self.entry(finding, linted.file.text)
            if left[entry] > 0:
                left[entry] -= 1
            else:
                new.append(finding)
        return Linted(linted.file, tuple(new))

    def updated(self, run: Iterable[Linted], rules: Collection[str]) -> Baseline:
        """The baseline after a run: what the run looked at is replaced, all else is kept.

        Args:
            run: the files that were linted, with all their findings.
            rules: those that were in force.
        """
        files = list(run)
        looked_at = {_relative(linted.file.name, self.path.parent) for linted in files}
        kept = {
            entry: count
            for entry, count in self.counts.items()
            if entry.rule not in rules or (entry.file not in looked_at and self._exists(entry))
        }
        found = Counter(self.entry(finding, linted.file.text) for linted in files for finding in linted.findings)
        return Baseline(self.path, {**kept, **found})

    def write(self) -> None:
        """Write the file.

        Raises:
            UsageError: if it cannot be written.
        """
        entries = [
            {
                "fingerprint": entry.fingerprint,
                "file": entry.file,
                "rule": entry.rule,
                "text": entry.text,
                "count": count,
            }
            for entry, count in sorted(self.counts.items())
        ]
        content = json.dumps({"schema_version": _SCHEMA_VERSION, "findings": entries}, indent=1, ensure_ascii=False)
        try:
            self.path.write_text(f"{content}\n", encoding="utf-8")
        except OSError as error:
            hint = "Check the folder and its permissions."
            raise UsageError(f"The baseline {self.path} cannot be written: {error.strerror}.", hint=hint) from None

    def entry(self, finding: Finding, text: str) -> Entry:
        """The entry that a finding in a file with this text belongs to."""
        return entry_of(finding, text, self.path.parent)

    def _exists(self, entry: Entry) -> bool:
        return entry.file == STANDARD_INPUT or (self.path.parent / entry.file).exists()


def entry_of(finding: Finding, text: str, folder: Path) -> Entry:
    """What names a finding independently of its line.

    Args:
        finding: what was found.
        text: of its file.
        folder: to which the file's name is relative.
    """
    span = " ".join(text[finding.start : finding.end].split())
    return Entry(_relative(finding.file, folder), finding.rule, _WITH_DIGITS.sub("0", span))


def _relative(file: str, folder: Path) -> str:
    return file if file == STANDARD_INPUT else Path(os.path.relpath(file, folder)).as_posix()


def _counts(document: Any) -> dict[Entry, int]:
    if document["schema_version"] != _SCHEMA_VERSION:
        raise ValueError("another version")
    return {
        Entry(str(item["file"]), str(item["rule"]), str(item["text"])): int(item["count"])
        for item in document["findings"]
    }
