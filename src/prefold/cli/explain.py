"""`prefold explain`: what a lint rule or a cause of breaks means, with an example before and after."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.session import console

if TYPE_CHECKING:
    from prefold.lint.findings import Rule
    from prefold.prompts.causes import Cause


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def explain(name: str | None, as_json: bool) -> None:
    """Explain a lint rule or a cause of breaks.

    NAME is a rule such as PF101 or clock-in-prefix, or a cause such as tool_order. Without it all are listed.
    """
    from prefold.lint.rules import RULES
    from prefold.prompts.causes import CAUSES

    rules: list[Rule] = [*RULES.values()]
    causes: list[Cause] = [*CAUSES.values()]
    if name is not None:
        rules = [rule for rule in rules if name.lower() in {rule.id.lower(), rule.name}]
        causes = [cause for cause in causes if name.lower().replace("-", "_") == cause.name]
        if not rules and not causes:
            raise _unknown(name)
    if as_json:
        report: dict[str, Any] = {"schema_version": 1, "rules": [asdict(rule) for rule in rules]}
        click.echo(json.dumps({**report, "causes": [asdict(cause) for cause in causes]}, ensure_ascii=False))
    elif name is None:
        _print_list(rules, causes)
    else:
        for text in [*map(_rule_text, rules), *map(_cause_text, causes)]:
            click.echo(text)


def _unknown(name: str) -> Exception:
    import difflib

    from prefold.errors import UsageError
    from prefold.lint.rules import near_rule
    from prefold.prompts.causes import CAUSES

    near = near_rule(name) or next(iter(difflib.get_close_matches(name, CAUSES, n=1)), None)
    hint = f"Did you mean {near}?" if near else "`prefold explain` lists all rules and causes."
    return UsageError(f"There is no rule or cause {name!r}.", hint=hint)


def _print_list(rules: list[Rule], causes: list[Cause]) -> None:
    from rich.table import Table

    for title, rows in (
        ("Lint rules", [(f"{rule.id} {rule.name}", rule.summary) for rule in rules]),
        ("Causes of breaks", [(cause.name, cause.summary) for cause in causes]),
    ):
        table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for row in rows:
            table.add_row(*row)
        console().print(table)
        click.echo()


def _rule_text(rule: Rule) -> str:
    fixable = "\n`prefold lint --fix` mends it." if rule.is_fixable else ""
    heading = f"{rule.id} {rule.name}\n\n{rule.summary}\n\n{rule.why}{fixable}"
    silence = f"To silence it on a line: # prefold: ignore[{rule.id}] reason"
    return f"{heading}\n\n{_before_and_after(rule.before, rule.after)}\n\n{silence}"


def _cause_text(cause: Cause) -> str:
    return f"{cause.name}\n\n{cause.summary}\n{cause.fix}\n\n{_before_and_after(cause.before, cause.after)}"


def _before_and_after(before: str, after: str) -> str:
    return f"Before:\n{_indented(before)}\n\nAfter:\n{_indented(after)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
