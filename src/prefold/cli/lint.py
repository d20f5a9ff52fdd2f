"""`prefold lint`: values that would change a stable prefix, in prompts, request bodies, logs and Python source."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.outputs import write_file
from prefold.cli.session import console
from prefold.cli.settings import COMMA_LIST

if TYPE_CHECKING:
    from prefold.lint.baseline import Baseline
    from prefold.lint.fixes import Fixed
    from prefold.lint.run import Linted, Skipped
    from prefold.prompts.prompt import Dialect

_FORMATS = ("full", "concise", "json", "github", "sarif")
_SKIPPED_SHOWN = 5
"""Files of a folder that were not read, of which a line is printed."""


@click.command()
@click.argument("paths", nargs=-1)
@click.option(
    "--select",
    type=COMMA_LIST,
    default="",
    help="Only these rules: ids, beginnings of ids such as PF1, or names, with commas between them.",
)
@click.option("--ignore", type=COMMA_LIST, default="", help="Not these rules; wins over --select.")
@click.option("--baseline", type=click.Path(path_type=Path), help="Do not report what this file lists.")
@click.option(
    "--write-baseline",
    is_flag=True,
    allow_from_autoenv=False,
    help="Put all findings into the baseline file, and keep what it says about files and rules not looked at.",
)
@click.option("--fix", "wants_fix", is_flag=True, allow_from_autoenv=False, help="Show what can be mended, as a diff.")
@click.option("--write", is_flag=True, allow_from_autoenv=False, help="With --fix: mend it in the files.")
@click.option(
    "--output-format", type=click.Choice(_FORMATS), default="full", show_default=True, help="How findings are printed."
)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
@click.option("--dialect", help="Form of the request bodies.  [default: recognised by content]")
@click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Skip named files that cannot be read, are empty or hold no request, with a note, as in folders.",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 though there are findings.")
def lint(
    paths: tuple[str, ...],
    select: str,
    ignore: str,
    baseline: Path | None,
    write_baseline: bool,
    wants_fix: bool,
    write: bool,
    output_format: str,
    as_json: bool,
    dialect: str | None,
    skip_unreadable: bool,
    exit_zero: bool,
) -> None:
    """Find what would change a stable prefix.

    In text, in request bodies and logs, and in Python source.

    PATHS are files and folders, or - for standard input; without any, the current folder. A .py file is Python source;
    a .json file a request body; a .jsonl file a log of them; .txt, .md, .prompt and .jinja files are prompts. Other
    files are recognised by content.

    Exit code: 0 if nothing was found, 1 if something was, 2 if a file cannot be read or is not what it should be; what
    was found in the others is printed all the same.
    """
    from prefold.lint.rules import chosen_rules
    from prefold.prompts.prompt import Dialect

    rules = chosen_rules(_listed(select), _listed(ignore))
    form = "json" if as_json else output_format
    _check_options(paths, baseline, write_baseline, wants_fix, write, form)
    known = Dialect.named(dialect) if dialect else None
    linting = partial(_run, paths or (".",), rules, known, baseline)
    run, skipped = linting()
    if wants_fix and write:
        run, skipped = _mended(run, skipped, linting)
    accepted = _read_baseline(baseline, must_exist=not write_baseline)
    if accepted and write_baseline:
        accepted = accepted.updated(run, rules)
        accepted.write()
        click.echo(f"{baseline} lists {_count(sum(accepted.counts.values()), 'finding')}.", err=True)
    if accepted:
        run = [accepted.without_known(linted) for linted in run]
    if wants_fix and not write:
        _print_fixes(run)
    else:
        _print(run, skipped, form, accepted)
    failed = next((file for file in skipped if file.target.is_named and not skip_unreadable), None)
    _print_summary(run, [file for file in skipped if file is not failed])
    if failed:
        raise failed.error
    if any(linted.findings for linted in run) and not exit_zero:
        raise click.exceptions.Exit(ExitCode.FINDINGS)


def _listed(value: str) -> list[str]:
    return value.split(",") if value else []


def _check_options(
    paths: Sequence[str], baseline: Path | None, write_baseline: bool, wants_fix: bool, write: bool, form: str
) -> None:
    from prefold.errors import UsageError

    if write and not wants_fix:
        raise UsageError("--write says what to do with --fix, which is not given.", hint="Give --fix --write.")
    if write and "-" in paths:
        raise UsageError("Standard input cannot be mended.", hint="Name the files, or see the diff with --fix alone.")
    if wants_fix and not write and form not in {"full", "concise"}:
        raise UsageError(
            f"--fix shows a diff, which is not {form}.", hint="Leave one out; json and sarif have the fixes."
        )
    if write_baseline and baseline is None:
        raise UsageError("--write-baseline does not know where to write.", hint="Name the file with --baseline FILE.")
    if write_baseline and os.environ.get("CI", "").lower() not in {"", "0", "false"}:
        raise UsageError("A baseline is not written in CI.", hint="Write it on your own machine and commit it.")


def _run(
    paths: Sequence[str], rules: frozenset[str], dialect: Dialect | None, baseline: Path | None
) -> tuple[list[Linted], list[Skipped]]:
    """What is found in the files, but for the baseline itself, and what could not be looked at."""
    from prefold.cli.inputs import read_bytes
    from prefold.lint.run import find_targets, lint_files, read_files

    skipped: list[Skipped] = []
    known = baseline and os.path.realpath(baseline)
    targets = [target for target in find_targets(paths) if os.path.realpath(target.name) != known]
    with _progress(len(targets)) as advance:
        files = list(read_files(targets, read_bytes, skipped.append))
        run: list[Linted] = []
        for linted in lint_files(files, rules, skipped.append, dialect):
            run.append(linted)
            advance(linted.file.name)
    return run, skipped


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, where that is a terminal and there is more than one file."""
    talk = console(stderr=True)
    if total < 2 or not talk.file.isatty():
        yield lambda _name: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("Linting"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=talk, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task("", total=total)
        yield lambda name: progress.update(task, advance=1, description=name.replace("[", r"\["))


def _read_baseline(path: Path | None, *, must_exist: bool) -> Baseline | None:
    from prefold.lint.baseline import Baseline

    if path is None:
        return None
    return Baseline.read(path) if must_exist or path.exists() else Baseline(path, {})


def _print(run: Sequence[Linted], skipped: Sequence[Skipped], form: str, baseline: Baseline | None) -> None:
    from prefold import __version__
    from prefold.lint import output
    from prefold.lint.baseline import entry_of
    from prefold.lint.rules import RULES

    match form:
        case "json":
            click.echo(json.dumps(output.json_report(run, skipped, RULES), ensure_ascii=False))
        case "sarif":
            folder = baseline.path.parent if baseline else Path()
            log = output.sarif(run, RULES, __version__, lambda found, text: entry_of(found, text, folder).fingerprint)
            click.echo(json.dumps(log, ensure_ascii=False))
        case "github":
            for line in output.github(run, RULES):
                click.echo(line)
        case "concise":
            for line in output.concise(run):
                click.echo(line)
        case _:
            _print_frames(run)


def _print_frames(run: Iterable[Linted]) -> None:
    from prefold.cli.code_frame import code_frame
    from prefold.lint.lines import Lines
    from prefold.lint.rules import RULES

    data = console()
    for linted in run:
        lines = Lines(linted.file.text)
        for finding in linted.findings:
            data.print(code_frame(finding, RULES[finding.rule], lines), soft_wrap=True)


def _print_fixes(run: Iterable[Linted]) -> None:
    from prefold.lint.fixes import difference

    for linted in run:
        new = _fixed(linted)
        if new.count:
            click.echo(difference(linted.file.text, new.text, linted.file.name), nl=False)


_Run = tuple[list["Linted"], list["Skipped"]]
_MOST_PASSES = 8


def _mended(run: list[Linted], skipped: list[Skipped], lint_again: Callable[[], _Run]) -> _Run:
    """What is left when all that can be mended is; fixes that touch each other take several passes."""
    mended = 0
    for _ in range(_MOST_PASSES):
        count = _write_fixes(run)
        if not count:
            break
        mended += count
        run, skipped = lint_again()
    click.echo(f"Mended {_count(mended, 'finding')}.", err=True)
    return run, skipped


def _write_fixes(run: Iterable[Linted]) -> int:
    """Mend what can be mended in the files; the number of findings mended."""
    mended = 0
    for linted in run:
        new = _fixed(linted)
        if new.count:
            write_file(Path(linted.file.name), new.text.encode(linted.file.encoding))
            mended += new.count
    return mended


def _fixed(linted: Linted) -> Fixed:
    from prefold.lint.fixes import fixed
    from prefold.lint.run import Form

    return fixed(linted.file.text, linted.findings, is_python=linted.file.form is Form.SOURCE)


def _print_summary(run: Sequence[Linted], skipped: Sequence[Skipped]) -> None:
    for file in skipped[:_SKIPPED_SHOWN]:
        click.echo(f"Skipped {file.target.shown}: {file.reason}.", err=True)
    if len(skipped) > _SKIPPED_SHOWN:
        click.echo(f"Skipped {len(skipped) - _SKIPPED_SHOWN} more; --json lists them.", err=True)
    found = [finding for linted in run for finding in linted.findings]
    fixable = sum(bool(finding.fix) for finding in found)
    also = f", {fixable} of which --fix can mend" if fixable else ""
    click.echo(f"{_count(len(found), 'finding')} in {_count(len(run), 'file')}{also}.", err=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
