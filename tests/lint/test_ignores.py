"""Comments that silence rules."""

import pytest

from prefold.lint.findings import Finding, Rule
from prefold.lint.ignores import IGNORE_RULES, ignores_in, without_ignored
from prefold.lint.rules import rules_named

RULES = frozenset({"PF001", "PF002", "PF101", "PF103"})


def kept(
    text: str, *, is_python: bool = False, rules: frozenset[str] = RULES, complete: frozenset[str] | None = None
) -> list[str]:
    """Rules that are reported for a text in which PF101 finds each "X"."""
    found = [Finding("PF101", "", "f", index, index + 1, "") for index, letter in enumerate(text) if letter == "X"]
    ignores = ignores_in(text, is_python=is_python)
    complete = rules if complete is None else complete
    kept = without_ignored(found, ignores, text, "f", rules, named=rules_named, complete=complete)
    return [finding.rule for finding in kept]


@pytest.mark.parametrize(
    "text",
    [
        "X  # prefold: ignore[PF101] once a day only",
        "X <!-- prefold: ignore[PF101] once a day only -->",
        "X {# prefold: ignore[PF101] once a day only #}",
        "X /* prefold: ignore[PF101] once a day only */",
        "# prefold: ignore-file[PF101] a report\n\nX\nX",
        "X  # prefold: ignore[PF1] once a day only",
        "X  # prefold: ignore[clock-in-prefix] once a day only",
        "X  # prefold: ignore[pf101, PF10] once a day only",
    ],
)
def test_silenced(text: str) -> None:
    assert [] == kept(text)


def test_only_the_line_and_the_rule_are_silenced() -> None:
    assert ["PF101"] == kept("X # prefold: ignore[PF101] why\nX")
    assert ["PF101", "PF002"] == kept("X # prefold: ignore[PF103] why")


@pytest.mark.parametrize("comment", ["prefold: ignore[PF101]", "prefold: ignore[PF101] -->"])
def test_a_reason_is_asked_for(comment: str) -> None:
    assert ["PF001"] == kept(f"X # {comment}")


def test_a_rule_is_asked_for() -> None:
    assert ["PF101", "PF001"] == kept("X # prefold: ignore because")


def test_an_ignore_that_silences_nothing() -> None:
    assert ["PF002"] == kept("a # prefold: ignore[PF101] why")
    assert ["PF002"] == kept("a # prefold: ignore[clock] why")


def test_an_ignore_of_a_rule_that_is_not_in_force_may_be_in_use() -> None:
    assert [] == kept("a # prefold: ignore[PF104] why")


def test_an_ignore_of_several_rules_is_unused_if_none_of_them_finds_anything() -> None:
    assert ["PF002"] == kept("a # prefold: ignore[PF101] why, ignore-nothing")
    assert ["PF002"] == kept("a # prefold: ignore[uuid-in-prefix] why")
    assert [] == kept("a # prefold: ignore[PF1] PF104 is not in force")


def test_an_ignore_is_not_called_unused_where_findings_may_be_missing() -> None:
    assert [] == kept("a # prefold: ignore[PF101] why", complete=RULES - {"PF101"})
    assert ["PF002"] == kept("a # prefold: ignore[PF1xx] why", complete=frozenset())


def test_the_rules_about_ignores_can_be_left_out() -> None:
    assert [] == kept("a # prefold: ignore[PF101]", rules=RULES - {"PF001", "PF002"})


def test_in_python_only_comments_count() -> None:
    assert ["PF101"] == kept('a = "X prefold: ignore[PF101] why"', is_python=True)
    assert [] == kept('a = "X"  # prefold: ignore[PF101] why', is_python=True)
    assert [] == kept('a = """\nX"""  # prefold: ignore[PF101] why', is_python=True)
    assert ["PF101"] == kept("a = (X  # no end", is_python=True)


@pytest.mark.parametrize("rule", IGNORE_RULES, ids=lambda rule: rule.id)
def test_the_examples_of_each_rule_are_true(rule: Rule) -> None:
    found = [Finding("PF301", "", "f", 0, 1, "")] if "{now}" in rule.before else []

    def rules_of(text: str) -> list[str]:
        ignores = ignores_in(text, is_python=True)
        rules = ("PF001", "PF002", "PF301")
        kept = without_ignored(found, ignores, text, "f", rules, named=rules_named, complete=rules)
        return [finding.rule for finding in kept]

    assert [rule.id] == rules_of(rule.before)
    assert [] == rules_of(rule.after)
