"""`prefold diff`: where and why a request stops matching the one before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.prompts.divergence.compare import Divergence
    from prefold.prompts.logged import Logged
    from prefold.prompts.prompt import Prompt
    from prefold.prompts.templates.chat_template import ChatTemplate


@dataclass(frozen=True)
class _Pair:
    """Two requests to compare, with the seconds between them and what the second one hit, where the input says so."""

    before: Prompt
    after: Prompt
    gap_seconds: float | None = None
    observed_tokens: int | None = None


@click.command()
@click.argument("before", metavar="[A]", required=False)
@click.argument("after", metavar="[B]", required=False)
@click.option(
    "--case",
    metavar="FILE",
    allow_from_autoenv=False,
    help="Read both requests, their dialect and the pause from one JSON file.",
)
@click.option("--dialect", help="Form of the requests.  [default: recognised by content]")
@click.option("--provider", help="Whose cache is asked, such as openai or vllm.  [default: by model and dialect]")
@click.option(
    "--gap", type=click.FloatRange(min=0), help="Seconds between the two requests.  [default: the log's, or 0]"
)
@click.option("--tokenizer", help="Tokenizer folder, tokenizer.json or vocabulary name.  [default: by model]")
@click.option("--template", metavar="FOLDER", help="Also compare what this Hugging Face folder's chat template makes.")
@click.option("--patched", is_flag=True, allow_from_autoenv=False, help="Print B with the fix on standard output.")
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def diff(
    before: str | None,
    after: str | None,
    case: str | None,
    dialect: str | None,
    provider: str | None,
    gap: float | None,
    tokenizer: str | None,
    template: str | None,
    patched: bool,
    as_json: bool,
) -> None:
    """Say where request B stops matching request A.

    And why, what that costs with the cache that is asked, and what mends it.

    A and B are files, or - for standard input, or lines of a log as FILE:NUMBER. A alone is a log of exactly two
    requests. The exit code is 1 if something is lost, 0 if B continues A or shares with it all that it can.
    """
    from prefold.errors import UsageError
    from prefold.prompts.divergence.compare import compare
    from prefold.prompts.divergence.reuse import target_rules
    from prefold.prompts.tokens import counter_for

    if patched and as_json:
        raise UsageError("--patched and --json exclude each other.", hint="The patched request is JSON already.")
    if (case is None) == (before is None):
        raise UsageError(
            "There is nothing to compare." if case is None else "A case file holds both requests.",
            hint="Give two requests, a log of two, or --case FILE.",
        )
    if gap is not None and not math.isfinite(gap):
        raise UsageError(f"--gap is {gap}.", hint="It is a number of seconds.")
    pair = _read_case(case, dialect) if case is not None else _read_pair(str(before), after, dialect)
    found = compare(
        pair.before,
        pair.after,
        rules=target_rules(pair.before, provider),
        counter=counter_for(pair.before.model, tokenizer),
        gap_seconds=gap if gap is not None else pair.gap_seconds or 0.0,
        observed_tokens=pair.observed_tokens,
        template=None if template is None else _template_in(template),
    )
    if patched:
        if found.mended is None:
            console(stderr=True).print(f"{found.cause}: there is nothing to mend in B.", markup=False)
        click.echo((found.mended[1] if found.mended else pair.after).render(), nl=False)
    elif as_json:
        echo_json({"schema_version": 1, **found.as_json()})
    else:
        _print(found)
    if found.is_break:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


def _template_in(folder: str) -> ChatTemplate:
    from datetime import datetime
    from pathlib import Path

    from prefold.errors import UsageError
    from prefold.prompts.templates.scene import template_in

    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UsageError(f"There is no folder {folder}.", hint="Give a model's folder with its chat template.")
    return template_in(path, clock=lambda: datetime.now().astimezone().replace(tzinfo=None))


def _read_case(file: str, dialect: str | None) -> _Pair:
    from prefold.cli.inputs import read_bytes
    from prefold.errors import UsageError
    from prefold.prompts.json_text import JsonText
    from prefold.prompts.prompt import Prompt

    try:
        document = JsonText.parse(read_bytes(file).decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text: {error.reason}.", hint="A case is a JSON file.") from None
    value = document.value
    if not isinstance(value, dict) or not {"before", "after"} <= value.keys():
        raise UsageError(
            f"{file} has no before and after.", hint='A case looks like {"before": {...}, "after": {...}}.'
        )
    dialect = dialect or value.get("dialect")
    if not isinstance(dialect, str | None):
        raise UsageError(f"{file}: dialect is {dialect!r}.", hint="It is a name, such as anthropic.")
    gap = value.get("gap_seconds", 0)
    if not isinstance(gap, int | float) or not 0 <= gap < math.inf:
        raise UsageError(f"{file}: gap_seconds is {gap!r}.", hint="It is a number of seconds, 0 or more.")
    requests = [value["before"], value["after"]]
    if not all(isinstance(request, dict | str) for request in requests):
        raise UsageError(f"{file}: before and after are requests.", hint="They are JSON objects, or texts.")
    before, after = (Prompt.of(request, dialect) for request in requests)
    return _Pair(before, after, float(gap))


def _read_pair(before: str, after: str | None, dialect: str | None) -> _Pair:
    from prefold.cli.inputs import STANDARD_INPUT, read_bytes, read_request, shown
    from prefold.errors import UsageError

    if after is not None:
        if before == after == STANDARD_INPUT:
            raise UsageError("Standard input can be one of the two only.", hint="A alone is a log of two requests.")
        return _paired((before, after), (read_request(before), read_request(after)), dialect)
    lines = [line for line in read_bytes(before).splitlines() if line.strip()]
    if len(lines) != 2:
        counted = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
        raise UsageError(f"{shown(before)} has {counted}, not two.", hint="Name two lines as FILE:NUMBER FILE:NUMBER.")
    return _paired((f"{before}:1", f"{before}:2"), (lines[0], lines[1]), dialect)


def _paired(names: tuple[str, str], contents: tuple[bytes, bytes], dialect: str | None) -> _Pair:
    before, after = (_logged(name, content, dialect) for name, content in zip(names, contents, strict=True))
    gap = after.time - before.time if before.time is not None and after.time is not None else None
    usage = after.usage
    observed = usage.read if usage is not None and usage.is_reported else None
    return _Pair(before.prompt, after.prompt, None if gap is None else max(0.0, gap), observed)


def _logged(name: str, content: bytes, dialect: str | None) -> Logged:
    from prefold.cli.inputs import shown
    from prefold.errors import InvalidRequest
    from prefold.prompts.logged import parse_logged

    try:
        return parse_logged(content, dialect)
    except InvalidRequest as error:
        raise InvalidRequest(f"{shown(name)}: {error.message}", hint=error.hint) from None


def _print(found: Divergence) -> None:
    from rich.table import Table

    out = console()
    if not found.is_break:
        out.print(f"No break: {found.hit_tokens:,} tokens are read from the cache ({found.target}).", markup=False)
        return
    where = f" at {found.path}" if found.path is not None else ""
    out.print(f"{found.cause}{where}", style="bold red", markup=False)
    out.print(found.explanation, markup=False)
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for name, value in _facts(found):
        facts.add_row(name, value)
    out.print()
    out.print(facts)


def _facts(found: Divergence) -> list[tuple[str, Any]]:
    from rich.text import Text

    from prefold.prompts.invisible import visible
    from prefold.prompts.sequences import common_length

    about = "" if found.tokens_are_exact else "about "
    rows: list[tuple[str, Any]] = []
    if found.before or found.after:
        shared = common_length(found.before, found.after) if found.char is not None and found.offset is not None else 0
        rows += [
            (
                name,
                Text.assemble(visible(text[:shared]), ("▸" if shared else "", "bold"), (visible(text[shared:]), "red")),
            )
            for name, text in (("before", found.before), ("after", found.after))
        ]
    if found.char is not None:
        inside = f", {found.offset:,} into {found.path}" if found.offset else ""
        rows.append(("position", Text(f"character {found.char:,}{inside}, {about}token {found.token:,}")))
    rows += [
        ("lost", Text(f"{about}{found.lost_tokens:,} tokens are read again ({found.target}; {found.counter})")),
        ("fix", Text(found.fix)),
    ]
    if found.mended is not None:
        gained = f"with the fix, {about}{found.gain_tokens:,} tokens more are read from the cache (tried on a copy)"
        rows.append(("gain", Text(gained)))
    if found.note:
        rows.append(("note", Text(found.note)))
    return rows
