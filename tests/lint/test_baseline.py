"""The list of known findings."""

import json
from pathlib import Path

import pytest

from prefold.errors import UsageError
from prefold.lint.baseline import Baseline
from prefold.lint.findings import Finding
from prefold.lint.run import File, Form, Linted, Target

RULES = frozenset({"PF101", "PF103"})


def linted(path: Path, text: str, rule: str = "PF101") -> Linted:
    """A file in which a rule finds each word that begins with a digit."""
    path.write_text(text)
    found = []
    for word in text.split():
        if word[0].isdigit():
            start = text.index(word, found[-1].end if found else 0)
            found.append(Finding(rule, "", str(path), start, start + len(word), ""))
    return Linted(File(Target(str(path), is_named=True), text, Form.TEXT), tuple(found))


def test_known_findings_are_not_reported_though_lines_and_digits_change(tmp_path: Path) -> None:
    empty = Baseline(tmp_path / "baseline.json", {})
    empty.updated([linted(tmp_path / "a.txt", "Now 2026-11-01 here")], RULES).write()
    known = Baseline.read(tmp_path / "baseline.json")
    again = known.without_known(linted(tmp_path / "a.txt", "\n\nmoved 2026-12-24 here, 10:00 new"))
    assert ["10:00"] == [again.file.text[found.start : found.end] for found in again.findings]


def test_as_many_as_are_known_are_left_out(tmp_path: Path) -> None:
    known = Baseline(tmp_path / "b", {}).updated([linted(tmp_path / "a.txt", "1 2")], RULES)
    assert 1 == len(known.without_known(linted(tmp_path / "a.txt", "1 2 3")).findings)


def test_a_partial_run_drops_nothing(tmp_path: Path) -> None:
    full = Baseline(tmp_path / "b", {}).updated(
        [linted(tmp_path / "a.txt", "1"), linted(tmp_path / "c.txt", "2"), linted(tmp_path / "d.txt", "3", "PF103")],
        RULES,
    )
    after = full.updated([linted(tmp_path / "a.txt", "none"), linted(tmp_path / "d.txt", "none")], {"PF101"})
    assert [("c.txt", "PF101"), ("d.txt", "PF103")] == sorted((entry.file, entry.rule) for entry in after.counts)


def test_what_is_gone_is_dropped(tmp_path: Path) -> None:
    full = Baseline(tmp_path / "b", {}).updated([linted(tmp_path / "a.txt", "1")], RULES)
    (tmp_path / "a.txt").unlink()
    assert {} == full.updated([], RULES).counts


def test_written_in_order_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    written = Baseline(path, {}).updated([linted(tmp_path / "c.txt", "1"), linted(tmp_path / "a.txt", "1 1")], RULES)
    written.write()
    assert written == Baseline.read(path)
    entries = json.loads(path.read_text())["findings"]
    assert [("a.txt", 2), ("c.txt", 1)] == [(entry["file"], entry["count"]) for entry in entries]


@pytest.mark.parametrize("content", ["", "[]", '{"schema_version": 2, "findings": []}', '{"schema_version": 1}'])
def test_something_else_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="not a baseline"):
        Baseline.read(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"baseline\.json cannot be read"):
        Baseline.read(tmp_path / "baseline.json")
