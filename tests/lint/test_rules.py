"""The registry of rules."""

import re
from pathlib import Path

import pytest

from prefold.errors import UsageError
from prefold.lint.findings import Scope
from prefold.lint.rules import RULES, chosen_rules

PAGE = Path(__file__).parents[2] / "docs" / "lint.md"
DIGIT_OF_SCOPE = {Scope.IGNORE: "0", Scope.TEXT: "1", Scope.BODY: "2", Scope.SOURCE: "3"}


def test_ids_are_in_order_and_say_the_scope() -> None:
    assert sorted(RULES) == [*RULES]
    for rule in RULES.values():
        assert re.fullmatch(rf"PF{DIGIT_OF_SCOPE[rule.scope]}[0-9]{{2}}", rule.id)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)


def test_names_are_unique_and_rules_say_all() -> None:
    assert len(RULES) == len({rule.name for rule in RULES.values()})
    for rule in RULES.values():
        assert all((rule.summary.endswith("."), rule.why, rule.before, rule.after)), rule.id


def test_all_rules_are_in_force_unless_chosen() -> None:
    assert frozenset(RULES) == chosen_rules()
    assert {"PF101"} == chosen_rules(["pf101"])
    assert {rule for rule in RULES if rule.startswith("PF1")} - {"PF104"} == chosen_rules(["PF1"], ["PF104"])
    assert {"PF101", "PF104"} == chosen_rules(["clock-in-prefix", "pf104"])


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("PF1010", "PF101"),
        ("PF999", "lists all"),
        ("clock-in-prefx", "clock-in-prefix"),
        ("", "lists all"),
        ("x", "lists all"),
    ],
)
def test_unknown_rules(wanted: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        chosen_rules([], [wanted])
    assert hint in error.value.hint


def test_the_page_lists_every_rule() -> None:
    rows = re.findall(
        r"^\| `(PF[0-9]+)` \| `([a-z0-9-]+)` \| (.+?) \| (yes|) ?\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    expected = [(rule.id, rule.name, rule.summary, "yes" if rule.is_fixable else "") for rule in RULES.values()]
    assert expected == rows
