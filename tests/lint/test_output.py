"""Formats for programs."""

from prefold.errors import InvalidRequest
from prefold.lint.findings import Finding, Replacement
from prefold.lint.output import concise, github, json_report, sarif
from prefold.lint.run import File, Form, Linted, Skipped, Target
from prefold.lint.text import TEXT_RULES

RULES = {rule.id: rule for rule in TEXT_RULES}
TEXT = "😀你\nNow: 10:00\r\nend"
START = TEXT.index("10:00")
FINDING = Finding(
    "PF101",
    "A clock: 100%,\nhere.",
    "a folder/a,b.txt",
    START,
    START + 5,
    "Move it.",
    "system[0]",
    fix=(Replacement(0, 1, "x"),),
)
RUN = [Linted(File(Target(FINDING.file, is_named=True), TEXT, Form.TEXT), (FINDING,))]


def test_concise() -> None:
    assert ["a folder/a,b.txt:2:6: PF101 A clock: 100%,\nhere. (system[0])"] == list(concise(RUN))


def test_github_escapes_what_has_a_meaning() -> None:
    (line,) = github(RUN, RULES)
    properties, _, message = line.removeprefix("::error ").partition("::")
    assert "file=a folder/a%2Cb.txt,line=2,col=6,endLine=2,endColumn=11,title=PF101 clock-in-prefix" == properties
    assert "A clock: 100%25,%0Ahere. Move it." == message


def test_json() -> None:
    report = json_report(
        RUN, [Skipped(Target("b.txt", is_named=False), InvalidRequest("b.txt is empty.", hint=""))], RULES
    )
    assert (1, 1, [{"name": "b.txt", "reason": "is empty"}]) == (
        report["schema_version"],
        report["files"],
        report["skipped"],
    )
    (found,) = report["findings"]
    assert {"rule": "PF101", "line": 2, "column": 6, "end_line": 2, "end_column": 11}.items() <= found.items()
    assert ({"start": 0, "end": 1, "text": "x"},) == found["fix"]


def test_sarif_has_the_shape_of_the_standard() -> None:
    log = sarif(RUN, RULES, "1.2.3", lambda finding, text: f"{finding.rule}{len(text)}")
    assert "2.1.0" == log["version"]
    assert "sarif-2.1.0" in log["$schema"]
    (run,) = log["runs"]
    assert "unicodeCodePoints" == run["columnKind"]
    assert [*RULES] == [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    (result,) = run["results"]
    assert "PF101" == run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"]
    location = result["locations"][0]["physicalLocation"]
    assert {"uri": "a%20folder/a%2Cb.txt"} == location["artifactLocation"]
    assert {"startLine": 2, "startColumn": 6, "endLine": 2, "endColumn": 11} == location["region"]
    assert {"prefold/v1": f"PF101{len(TEXT)}"} == result["partialFingerprints"]
    (replacement,) = result["fixes"][0]["artifactChanges"][0]["replacements"]
    assert {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 2} == replacement["deletedRegion"]
    assert {"text": "x"} == replacement["insertedContent"]
