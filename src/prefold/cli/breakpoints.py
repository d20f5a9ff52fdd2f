"""`prefold breakpoints`: what a request needs, so that its provider caches it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.outputs import write_file
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.prompts.breakpoints.plan import Plan, Traffic
    from prefold.prompts.prompt import Prompt
    from prefold.providers.rules import CacheRules

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Read a time written as `90`, `90s`, `5m`, `1h` or `2d`."""
    if value is None:
        return None
    written = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", value.strip())
    if written is None or float(written[1]) == 0:
        raise click.BadParameter(f"{value!r} is not a time; write it like 90s, 5m or 1h.")
    return float(written[1]) * _UNITS[written[2]]


@click.command()
@click.argument("body")
@click.option("--provider", help="Whose cache it is, such as bedrock or vllm.  [default: by model]")
@click.option("--model", help="The model, if the body does not name it.  [default: the body's]")
@click.option("--dialect", help="Form of the body.  [default: recognised by content]")
@click.option("--reads-per-hour", type=click.FloatRange(min=0), help="Requests an hour that begin like this one.")
@click.option("--reads", type=click.FloatRange(min=0), help="The same, as a number of requests within --within.")
@click.option("--within", metavar="TIME", callback=_seconds, help="The time for --reads, such as 5m or 1h.")
@click.option(
    "--turn-gap",
    metavar="TIME",
    callback=_seconds,
    help="Average time between two turns of the conversation, such as 40s or 10m.",
)
@click.option(
    "--conversation/--one-shot",
    "is_conversation",
    default=None,
    allow_from_autoenv=False,
    help="Whether the next request repeats all of this one.  [default: told by tools or an answer in the history]",
)
@click.option("--input-price", type=click.FloatRange(min=0, min_open=True), help="USD for a million input tokens.")
@click.option("--tokenizer", help="Tokenizer folder, tokenizer.json or vocabulary name.  [default: by model]")
@click.option("--patched", is_flag=True, allow_from_autoenv=False, help="Print the patched request instead.")
@click.option("--write", is_flag=True, allow_from_autoenv=False, help="Write the patched request over BODY.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    allow_from_autoenv=False,
    help="Write the patched request to this file, which must not exist unless --write is given.",
)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def breakpoints(
    *,
    body: str,
    provider: str | None,
    model: str | None,
    dialect: str | None,
    reads_per_hour: float | None,
    reads: float | None,
    within: float | None,
    turn_gap: float | None,
    is_conversation: bool | None,
    input_price: float | None,
    tokenizer: str | None,
    patched: bool,
    write: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Plan the cache markers of BODY, and say whether caching pays.

    BODY is a file, - for standard input, or a line of a log as FILE:NUMBER; a record of a log is planned for the body
    in it.
    """
    from prefold.cli.inputs import read_request
    from prefold.prompts.breakpoints.plan import plan_breakpoints
    from prefold.prompts.logged import parse_logged, with_body
    from prefold.prompts.tokens import counter_for

    target = _target(body, write=write, output=output, is_printed_twice=patched and as_json)
    content = read_request(body)
    prompt = parse_logged(content, dialect).prompt
    rules = _rules(model or prompt.model, provider)
    plan = plan_breakpoints(
        prompt,
        rules,
        counter=counter_for(model or prompt.model, tokenizer),
        traffic=_traffic(reads_per_hour, reads, within),
        turn_seconds=turn_gap,
        is_conversation=is_conversation,
        input_usd_per_million=input_price,
    )
    request = plan.apply(prompt).render()
    if target is not None:
        _save(target, request if output is not None else with_body(content, request))
    if patched:
        click.echo(request, nl=False)
    elif as_json:
        echo_json({"schema_version": 1, **plan.as_json()})
    else:
        _print_plan(plan, prompt)


def _target(body: str, *, write: bool, output: Path | None, is_printed_twice: bool) -> Path | None:
    """Where the patched request goes, if anywhere; checked before any work."""
    from prefold.errors import UsageError

    if is_printed_twice:
        raise UsageError("--patched and --json exclude each other.", hint="The patched request is JSON already.")
    if output is not None:
        if output.exists() and not write:
            raise UsageError(f"{output} exists.", hint="Give --write to replace it, or another file.")
        return output
    if not write:
        return None
    if not Path(body).is_file():
        raise UsageError(f"{body} is no file to write to.", hint="Give --output FILE.")
    return Path(body)


def _save(target: Path, content: bytes) -> None:
    write_file(target, content)
    click.echo(f"Wrote {target}.", err=True)


def _rules(model: str, provider: str | None) -> CacheRules:
    from prefold.errors import UsageError
    from prefold.prompts.breakpoints.plan import rules_to_plan
    from prefold.providers.rules import providers

    if (rules := rules_to_plan(model, provider)) is not None:
        return rules
    known = ", ".join(known.name for known in providers())
    if not model:
        raise UsageError("The body names no model.", hint=f"Give --model; or --provider, one of {known}.")
    whose = f" at {provider}" if provider else ""
    raise UsageError(f"No cache rules are known for the model {model!r}{whose}.", hint=f"Give --provider: {known}.")


def _traffic(reads_per_hour: float | None, reads: float | None, within: float | None) -> Traffic | None:
    from prefold.errors import UsageError
    from prefold.prompts.breakpoints.plan import Traffic

    if (reads is None) != (within is None):
        raise UsageError("--reads and --within belong together.", hint="Give both, as in --reads 3 --within 5m.")
    if reads_per_hour is not None:
        if reads is not None:
            raise UsageError("--reads-per-hour and --reads say the same thing.", hint="Give one of them.")
        return Traffic(reads_per_hour, _UNITS["h"])
    return Traffic(reads, within) if reads is not None and within is not None else None


def _print_plan(plan: Plan, prompt: Prompt) -> None:
    data = console()
    rules = plan.rules
    data.print(
        f"{rules.provider}: {rules.family} (rules of {rules.seen}). {plan.total_tokens:,} tokens, of which "
        f"{plan.stable_tokens:,} are stable, counted by {plan.counter}; minimum {rules.minimum_tokens:,}.",
        markup=False,
    )
    data.print(
        f"Caching {'pays' if plan.pays else 'does not pay'}.", style="bold green" if plan.pays else "bold yellow"
    )
    if plan.markers or plan.removed:
        data.print(_marker_table(plan))
    for name, value in plan.parameters.items():
        done = "already" if prompt.parameters.get(name) == value else "set"
        data.print(f"{done}: {name} = {json.dumps(value, ensure_ascii=False)}", markup=False)
    if plan.resource is not None:
        data.print(f"create: a cache of {', '.join(name for name in plan.resource if name != 'ttl')}", markup=False)
    if plan.break_even:
        data.print(_break_even_table(plan))
    for note in plan.notes:
        data.print(f"- {note}", markup=False)


def _marker_table(plan: Plan) -> Any:
    from rich.table import Table

    from prefold.prompts.breakpoints.markers import label_of

    table = Table(title="Markers")
    for name in ("do", "at", "for"):
        table.add_column(name, no_wrap=True)
    table.add_column("tokens", justify="right")
    table.add_column("why")
    for marker in plan.markers:
        table.add_row(marker.change.value, str(marker.path), label_of(marker.ttl), f"{marker.tokens:,}", marker.reason)
    for removed in plan.removed:
        table.add_row("remove", str(removed.path), "", "", removed.reason)
    return table


def _break_even_table(plan: Plan) -> Any:
    from rich.table import Table

    from prefold.prompts.breakpoints.markers import label_of

    def number(value: float | None) -> str:
        return "?" if value is None else f"{value:g}"

    table = Table(
        title="Break-even",
        caption="Relative to uncached input, by reads of one written entry; a cost below 1 pays.",
    )
    for name in ("lifetime", "write", "read", "pays from reads", "expected reads", "cost"):
        table.add_column(name, justify="right")
    for row in plan.break_even:
        table.add_row(
            label_of(row.ttl) if row.ttl else "no promise",
            number(row.write_multiplier),
            number(row.read_multiplier),
            "never" if row.reads is None else str(row.reads),
            number(row.expected_reads),
            number(row.relative_cost),
        )
    return table
