"""Comments that silence rules."""

import pytest

from prefold.lint.findings import Finding
from prefold.lint.ignores import ignores_in, without_ignored

RULES = frozenset({"PF001", "PF002", "PF101", "PF103"})


def kept(text: str, *, is_python: bool = False, rules: frozenset[str] = RULES) -> list[str]:
    """Rules that are reported for a text in which PF101 finds each "X"."""
    found = [Finding("PF101", "", "f", index, index + 1, "") for index, letter in enumerate(text) if letter == "X"]
    ignores = ignores_in(text, is_python=is_python)
    return [finding.rule for finding in without_ignored(found, ignores, text, "f", rules)]


@pytest.mark.parametrize(
    "text",
    [
        "X  # prefold: ignore[PF101] once a day only",
        "X <!-- prefold: ignore[PF101] once a day only -->",
        "X {# prefold: ignore[PF101] once a day only #}",
        "X /* prefold: ignore[PF101] once a day only */",
        "# prefold: ignore-file[PF101] a report\n\nX\nX",
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


def test_the_rules_about_ignores_can_be_left_out() -> None:
    assert [] == kept("a # prefold: ignore[PF101]", rules=RULES - {"PF001", "PF002"})


def test_in_python_only_comments_count() -> None:
    assert ["PF101"] == kept('a = "X prefold: ignore[PF101] why"', is_python=True)
    assert [] == kept('a = "X"  # prefold: ignore[PF101] why', is_python=True)
    assert [] == kept('a = """\nX"""  # prefold: ignore[PF101] why', is_python=True)
    assert ["PF101"] == kept("a = (X  # no end", is_python=True)
