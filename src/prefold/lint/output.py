"""Findings in the formats that people and programs read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from prefold.lint.findings import Finding, Rule
from prefold.lint.lines import Lines
from prefold.lint.run import Linted, Skipped

SCHEMA_VERSION = 1
Fingerprint = Callable[[Finding, str], str]
"""Takes a finding and the text of its file."""


def concise(run: Iterable[Linted]) -> Iterable[str]:
    """One line for each finding."""
    for linted in run:
        lines = Lines(linted.file.text)
        for finding in linted.findings:
            place = lines.position(finding.start)
            path = f" ({finding.path})" if finding.path else ""
            yield f"{finding.file}:{place.line}:{place.column}: {finding.rule} {finding.message}{path}"


def github(run: Iterable[Linted], rules: Mapping[str, Rule]) -> Iterable[str]:
    """Commands of a workflow, which GitHub shows beside the lines.

    See https://docs.github.com/actions/reference/workflow-commands-for-github-actions.
    """
    for linted in run:
        lines = Lines(linted.file.text)
        for finding in linted.findings:
            start, end = lines.position(finding.start), lines.position(finding.end)
            properties = {
                "file": PurePath(finding.file).as_posix(),
                "line": start.line,
                "col": start.column,
                "endLine": end.line,
                "endColumn": end.column,
                "title": f"{finding.rule} {rules[finding.rule].name}",
            }
            written = ",".join(f"{name}={_escaped_property(str(value))}" for name, value in properties.items())
            yield f"::error {written}::{_escaped_message(f'{finding.message} {finding.help}')}"


def json_report(run: Sequence[Linted], skipped: Sequence[Skipped], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """What `--json` prints. Lines and columns count from 1, characters from 0; a column is one code point."""
    return {
        "schema_version": SCHEMA_VERSION,
        "files": len(run),
        "skipped": [{"name": file.target.name, "reason": file.reason} for file in skipped],
        "findings": [
            _json_finding(finding, lines, rules)
            for linted in run
            for lines in [Lines(linted.file.text)]
            for finding in linted.findings
        ],
    }


def sarif(run: Sequence[Linted], rules: Mapping[str, Rule], version: str, fingerprint: Fingerprint) -> dict[str, Any]:
    """A log in SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0), for code scanning.

    Args:
        run: the files.
        rules: those in force.
        version: of prefold.
        fingerprint: names a finding independently of its line.
    """
    index = {rule: position for position, rule in enumerate(rules)}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "prefold",
                        "semanticVersion": version,
                        "informationUri": "https://github.com/prefold/prefold",
                        "rules": [_sarif_rule(rule) for rule in rules.values()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [
                    _sarif_result(finding, lines, index, fingerprint(finding, linted.file.text))
                    for linted in run
                    for lines in [Lines(linted.file.text)]
                    for finding in linted.findings
                ],
            }
        ],
    }


def _json_finding(finding: Finding, lines: Lines, rules: Mapping[str, Rule]) -> dict[str, Any]:
    start, end = lines.position(finding.start), lines.position(finding.end)
    return {
        **asdict(finding),
        "name": rules[finding.rule].name,
        "line": start.line,
        "column": start.column,
        "end_line": end.line,
        "end_column": end.column,
    }


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"Instead of:\n{rule.before}\n\nwrite:\n{rule.after}"},
        "defaultConfiguration": {"level": "warning"},
    }


def _sarif_result(finding: Finding, lines: Lines, index: Mapping[str, int], fingerprint: str) -> dict[str, Any]:
    path = f" ({finding.path})" if finding.path else ""
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": "warning",
        "message": {"text": f"{finding.message}{path} {finding.help}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(finding.file),
                    "region": _region(finding.start, finding.end, lines),
                }
            }
        ],
        "partialFingerprints": {"prefold/v1": fingerprint},
    }
    if finding.fix:
        replacements = [
            {"deletedRegion": _region(item.start, item.end, lines), "insertedContent": {"text": item.text}}
            for item in finding.fix
        ]
        change = {"artifactLocation": _artifact(finding.file), "replacements": replacements}
        result["fixes"] = [{"description": {"text": finding.help}, "artifactChanges": [change]}]
    return result


def _region(start: int, end: int, lines: Lines) -> dict[str, int]:
    first, last = lines.position(start), lines.position(end)
    return {
        "startLine": first.line,
        "startColumn": first.column,
        "endLine": last.line,
        "endColumn": last.column,
    }


def _artifact(file: str) -> dict[str, str]:
    path = PurePath(file)
    return {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}


def _escaped_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped_message(text).replace(":", "%3A").replace(",", "%2C")
