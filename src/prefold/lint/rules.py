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
        select: ids, or beginnings of ids such as `PF1`; none for all.
        ignore: the same for those that are left out; wins over `select`.

    Raises:
        UsageError: if there is no rule of that id or beginning.
    """
    selected = [rule for prefix in select for rule in _matching(prefix)] or [*RULES]
    ignored = {rule for prefix in ignore for rule in _matching(prefix)}
    return frozenset(rule for rule in selected if rule not in ignored)


def _matching(prefix: str) -> list[str]:
    wanted = prefix.strip().upper()
    found = [rule for rule in RULES if rule.startswith(wanted)] if wanted else []
    if not found:
        near = difflib.get_close_matches(wanted, RULES, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`prefold explain` lists all rules."
        raise UsageError(f"There is no lint rule {prefix!r}.", hint=hint)
    return found
