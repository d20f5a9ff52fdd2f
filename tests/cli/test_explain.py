"""`prefold explain`."""

import json

import pytest
from click.testing import CliRunner, Result

from prefold.cli.explain import explain
from prefold.errors import UsageError
from prefold.lint.rules import RULES
from prefold.prompts.causes import CAUSES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(explain, arguments, env={"COLUMNS": "200"})


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_every_rule_by_id_and_by_name(rule) -> None:
    shown = run(rule.id.lower())
    assert 0 == shown.exit_code
    assert shown.stdout == run(rule.name).stdout
    for text in (rule.summary, rule.why, *rule.before.splitlines(), *rule.after.splitlines()):
        assert text in shown.stdout


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.name)
def test_every_cause(cause) -> None:
    shown = run(cause.name.replace("_", "-")).stdout
    assert all(text in shown for text in (cause.summary, cause.fix, *cause.before.splitlines()))


def test_all_are_listed() -> None:
    shown = run().stdout
    assert all(name in shown for name in [*RULES, *CAUSES])


def test_json() -> None:
    report = json.loads(run("PF101", "--json").stdout)
    assert (1, ["PF101"], []) == (report["schema_version"], [rule["id"] for rule in report["rules"]], report["causes"])
    report = json.loads(run("--json").stdout)
    assert ([*RULES], [*CAUSES]) == (
        [rule["id"] for rule in report["rules"]],
        [cause["name"] for cause in report["causes"]],
    )


@pytest.mark.parametrize(
    ("name", "hint"), [("pf1011", "PF101"), ("PF999", "lists all"), ("clocks", "clock"), ("xyzzy", "lists all")]
)
def test_unknown_names(name: str, hint: str) -> None:
    error = run(name).exception
    assert isinstance(error, UsageError)
    assert hint in error.hint
