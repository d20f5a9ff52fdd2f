"""`prefold render`: a request as the model reads it, part by part."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from rich.console import Console

    from prefold.prompts.prompt import Prompt
    from prefold.prompts.templates.rendered import TemplateFinding
    from prefold.prompts.tokens import TokenCounter
    from prefold.prompts.view import Piece


@click.command()
@click.argument("body", metavar="BODY")
@click.option("--template", metavar="FOLDER", help="Hugging Face folder whose chat template renders the request.")
@click.option("--dialect", help="Form of the request.  [default: recognised by content]")
@click.option(
    "--tokenizer", help="Tokenizer folder, tokenizer.json or vocabulary name.  [default: the template's, or by model]"
)
@click.option(
    "--show-invisible", is_flag=True, allow_from_autoenv=False, help="Show spaces, line ends and what has no width."
)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def render(
    body: str, template: str | None, dialect: str | None, tokenizer: str | None, show_invisible: bool, as_json: bool
) -> None:
    """Show request BODY as the model reads it.

    With the source, stability and tokens of each part.

    BODY is a file, - for standard input, or a line of a log as FILE:NUMBER: a body, or a record that holds one. Without
    --template the view is that of a hosted API, as far as requests show it. With it the text is exactly what the
    model's own template makes of the request, and the exit code is 1 if the template does something at the cost of
    prefixes.
    """
    from prefold.cli.inputs import read_request
    from prefold.prompts.logged import parse_logged
    from prefold.prompts.tokens import counter_for
    from prefold.prompts.view import view_of

    prompt = parse_logged(read_request(body), dialect).prompt
    text: str
    pieces: tuple[Piece, ...]
    findings: tuple[TemplateFinding, ...] = ()
    if template is None:
        view = view_of(prompt)
        text, pieces = view.text, view.pieces
    else:
        text, pieces, findings = _by_template(prompt, template)
        tokenizer = tokenizer or _tokenizer_in(template)
    report = _report(prompt, text, pieces, findings, counter_for(prompt.model, tokenizer))
    if as_json:
        echo_json(report)
    else:
        _print(report, show_invisible=show_invisible)
    if findings:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


def _by_template(prompt: Prompt, folder: str) -> tuple[str, tuple[Piece, ...], tuple[TemplateFinding, ...]]:
    from datetime import datetime
    from pathlib import Path

    from prefold.errors import UsageError
    from prefold.prompts.templates.rendered import rendered
    from prefold.prompts.templates.scene import template_in, tokenizer_adds_bos

    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UsageError(f"There is no folder {folder}.", hint="Give a model's folder with its chat template.")
    # Templates expect local time without a zone.
    template = template_in(path, clock=lambda: datetime.now().astimezone().replace(tzinfo=None))
    found = rendered(prompt, template, adds_bos=tokenizer_adds_bos(path, template.bos))
    return found.text, found.pieces, found.findings


def _tokenizer_in(folder: str) -> str | None:
    """The folder, where it has a tokenizer and a package that reads it is installed."""
    from pathlib import Path

    from prefold.prompts.tokens import can_read_files

    return folder if can_read_files() and (Path(folder).expanduser() / "tokenizer.json").is_file() else None


def _report(
    prompt: Prompt,
    text: str,
    pieces: tuple[Piece, ...],
    findings: tuple[TemplateFinding, ...],
    counter: TokenCounter,
) -> dict[str, Any]:
    """The answer as `--json` prints it; positions and lengths in characters."""
    from prefold.prompts.tokens import tokens_before

    stability = {segment.path: segment.stability for segment in prompt.segments}
    *ends, total = tokens_before(counter, text, [*(piece.end for piece in pieces), len(text)])
    return {
        "schema_version": 1,
        "dialect": prompt.dialect,
        "model": prompt.model,
        "tokenizer": {"name": counter.name, "is_exact": counter.is_exact},
        "characters": len(text),
        "tokens": total,
        "text": text,
        "pieces": [
            {
                "path": str(piece.path),
                "stability": stability.get(piece.path),
                "start": piece.start,
                "header_end": piece.header_end,
                "end": piece.end,
                "tokens": end - before,
                "cumulative_share": end / total if total else 1.0,
            }
            for piece, before, end in zip(pieces, [0, *ends], ends, strict=False)
        ],
        "findings": [
            {
                "cause": finding.cause,
                "message": finding.message,
                "help": finding.help,
                "path": None if finding.path is None else str(finding.path),
                "start": finding.start,
                "end": finding.end,
            }
            for finding in findings
        ],
    }


def _print(report: dict[str, Any], *, show_invisible: bool) -> None:
    data = console()
    text: str = report["text"]
    about = "" if report["tokenizer"]["is_exact"] else "~"
    for piece in report["pieces"]:
        parts = [
            piece["path"],
            piece["stability"] or "",
            f"{piece['end'] - piece['start']:,} characters",
            f"{about}{piece['tokens']:,} tokens",
            f"{piece['cumulative_share']:.1%}",
        ]
        data.print("── " + "  ".join(part for part in parts if part), style="bold", markup=False, soft_wrap=True)
        _print_text(data, text[piece["start"] : piece["end"]], show_invisible=show_invisible)
    rest = text[report["pieces"][-1]["end"] if report["pieces"] else 0 :]
    if rest:
        data.print("── template", style="bold", soft_wrap=True)
        _print_text(data, rest, show_invisible=show_invisible)
    counted = f"{about}{report['tokens']:,} tokens ({report['tokenizer']['name']}), {report['characters']:,} characters"
    data.print(f"── {counted}", style="bold", markup=False, soft_wrap=True)
    for finding in report["findings"]:
        data.print(
            f"{finding['cause']}: {_shown(finding['message'], show_invisible=False)}", markup=False, soft_wrap=True
        )
        data.print(f"  help: {finding['help']}", markup=False, soft_wrap=True)


def _print_text(data: Console, text: str, *, show_invisible: bool) -> None:
    """Print a text as it is: the console would expand its tabs."""
    shown = _shown(text, show_invisible=show_invisible).removeprefix("\n")
    data.file.write(shown if shown.endswith("\n") else f"{shown}\n")


def _shown(text: str, *, show_invisible: bool) -> str:
    """A text that can be printed: control characters, which could drive the terminal, always become visible."""
    pattern = _INVISIBLE if show_invisible else _CONTROLS
    return pattern.sub(lambda found: _symbol(found[0]), text)


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# All that looks like nothing or like a plain space, and marks that join the letter before them.
_INVISIBLE = re.compile(
    "[\x00-\x20\x7f-\xa0\xad\u0300-\u036f\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180e\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u3000\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_SYMBOLS = {" ": "·", "\n": "⏎\n", "\t": "⇥", "\r": "␍"}


def _symbol(character: str) -> str:
    """What is shown for a character: a sign, or its code point and name."""
    if character in _SYMBOLS:
        return _SYMBOLS[character]
    name = unicodedata.name(character, "")
    return f"<U+{ord(character):04X}{' ' + name if name else ''}>"
