"""The registry of rules, and the choice among them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from prefold.errors import UsageError
from prefold.lint.bodies import BODY_RULES
from prefold.lint.findings import Rule
from prefold.lint.ignores import IGNORE_RULES
from prefold.lint.source.rules import SOURCE_RULES
from prefold.lint.text import TEXT_RULES

RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.id: rule for rule in (*IGNORE_RULES, *TEXT_RULES, *BODY_RULES, *SOURCE_RULES)}
)
"""All rules by id, in the order of their ids."""


def chosen_rules(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> frozenset[str]:
    """Ids of the rules that are in force.

    Args:
        select: what names rules, as `rules_named` takes it; none for all.
        ignore: the same for those that are left out; wins over `select`.

    Raises:
        UsageError: if something names no rule.
    """
    selected = [rule for given in select for rule in _known(given)] or [*RULES]
    ignored = {rule for given in ignore for rule in _known(given)}
    return frozenset(rule for rule in selected if rule not in ignored)


def rules_named(given: str) -> frozenset[str]:
    """Ids of the rules that an id, the beginning of ids such as `PF1`, or a name stands for; none if it names none."""
    wanted = given.strip().upper()
    return frozenset(
        rule.id
        for rule in RULES.values()
        if (wanted.startswith("PF") and rule.id.startswith(wanted)) or rule.name.upper() == wanted
    )


def near_rule(given: str) -> str | None:
    """The id or name that was probably meant by something that names no rule."""
    wanted = given.strip().upper()
    longer = next((rule for rule in RULES if wanted.startswith(rule)), None)
    names = difflib.get_close_matches(wanted.lower(), [rule.name for rule in RULES.values()], n=1)
    return longer or next(iter(names), None)


def _known(given: str) -> frozenset[str]:
    found = rules_named(given)
    if not found:
        near = near_rule(given)
        hint = f"Did you mean {near}?" if near else "`prefold explain` lists all rules."
        raise UsageError(f"There is no lint rule {given!r}.", hint=hint)
    return found
