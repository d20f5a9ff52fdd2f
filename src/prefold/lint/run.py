"""Finds files, tells what they are, and lints them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from prefold.errors import InvalidRequest, PrefoldError, UsageError
from prefold.lint.bodies import lint_body, lint_log
from prefold.lint.findings import Finding
from prefold.lint.ignores import ignores_in, without_ignored
from prefold.lint.text import lint_text
from prefold.prompts.prompt import Dialect
from prefold.prompts.tokens import counter_for

STANDARD_INPUT = "-"

_TEXT_SUFFIXES = frozenset({".txt", ".md", ".prompt", ".jinja", ".jinja2", ".j2"})
_LOG_SUFFIXES = frozenset({".jsonl", ".ndjson"})
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "build", "dist"})


class Form(Enum):
    """What a file is."""

    SOURCE = auto()
    BODY = auto()
    LOG = auto()
    TEXT = auto()


@dataclass(frozen=True, slots=True)
class Target:
    """A file to lint.

    Attributes:
        name: as it is reported; `-` for standard input.
        is_named: whether the user gave it by name, so that it must be readable.
    """

    name: str
    is_named: bool

    @property
    def shown(self) -> str:
        """What messages call it."""
        return "Standard input" if self.name == STANDARD_INPUT else self.name


@dataclass(frozen=True, slots=True)
class File:
    """A file that was read.

    Attributes:
        target: where it is from.
        text: without the byte order mark.
        form: what it is.
        has_mark: whether it began with a byte order mark.
    """

    target: Target
    text: str
    form: Form
    has_mark: bool = False

    @property
    def name(self) -> str:
        """As it is reported."""
        return self.target.name


@dataclass(frozen=True, slots=True)
class Linted:
    """A file and what was found in it, in order of position."""

    file: File
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file of a folder that was not linted, and why: a phrase."""

    name: str
    reason: str


def find_targets(paths: Sequence[str]) -> list[Target]:
    """The files to lint, each once, those of a folder in order of name.

    Raises:
        UsageError: if there is no such file.
    """
    targets: dict[str, Target] = {}
    for given in paths:
        if given != STANDARD_INPUT and not Path(given).exists():
            raise UsageError(f"There is no file {given}.", hint="Give files or folders, or - for standard input.")
        is_folder = given != STANDARD_INPUT and Path(given).is_dir()
        for name in _files_below(Path(given)) if is_folder else [given]:
            targets.setdefault(os.path.realpath(name), Target(name, is_named=not is_folder))
    return list(targets.values())


def read_files(
    targets: Iterable[Target], read: Callable[[str], bytes], skip: Callable[[Skipped], None]
) -> Iterator[File]:
    """The files that hold text.

    Args:
        targets: the files.
        read: gives the content of a file by its name, or raises a `PrefoldError`.
        skip: is told of each file of a folder that cannot be linted.

    Raises:
        PrefoldError: for a file given by name that cannot be linted.
    """
    for target in targets:
        try:
            content = read(target.name)
            text = _decoded(content, target.shown)
            form = _form_of(target.name, text)
            if not text.strip() and form is not Form.SOURCE:
                raise InvalidRequest(f"{target.shown} is empty.", hint="Give a prompt, a request body or a log.")
        except PrefoldError as error:
            if target.is_named:
                raise
            skip(_skipped(target, error))
        else:
            yield File(target, text, form, has_mark=content.startswith(b"\xef\xbb\xbf"))


def lint_files(
    files: Sequence[File], rules: Collection[str], skip: Callable[[Skipped], None], dialect: Dialect | None = None
) -> Iterator[Linted]:
    """Lint files, the Python ones among them as one project.

    Args:
        files: the files.
        rules: ids of the rules in force.
        skip: is told of each file of a folder that turns out to be of no form that is linted.
        dialect: of request bodies; None to recognise it by content.

    Raises:
        PrefoldError: for a file given by name that is not what it should be, such as broken JSON.
    """
    lint_python = _python_linter([file for file in files if file.form is Form.SOURCE])
    counter = counter_for()
    for file in files:
        try:
            match file.form:
                case Form.SOURCE:
                    found = lint_python(file)
                case Form.BODY:
                    found = lint_body(file.text, file.name, dialect)
                case Form.LOG:
                    found = lint_log(file.text, file.name, dialect)
                case Form.TEXT:
                    found = lint_text(file.text, file.name, counter)
        except PrefoldError as error:
            if file.target.is_named:
                raise _named_error(error, file.target.shown) from None
            skip(_skipped(file.target, error))
            continue
        found = [finding for finding in found if finding.rule in rules]
        if file.form in {Form.SOURCE, Form.TEXT}:  # JSON has no comments
            ignores = ignores_in(file.text, is_python=file.form is Form.SOURCE)
            found = without_ignored(found, ignores, file.text, file.name, rules)
        yield Linted(file, tuple(found))


def _python_linter(files: Sequence[File]) -> Callable[[File], list[Finding]]:
    if not files:
        return lambda _file: []
    from prefold.lint.source.project import Project, lint_source  # noqa: PLC0415 - of no use where there is no Python

    project = Project.of({file.name: file.text for file in files})
    return lambda file: lint_source(file.text, file.name, project)


def _files_below(folder: Path) -> Iterator[str]:
    suffixes = {".py", ".json", *_LOG_SUFFIXES, *_TEXT_SUFFIXES}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(parent, name)))
        yield from (str(Path(parent, name)) for name in sorted(names) if Path(name).suffix.lower() in suffixes)


def _is_skipped(folder: Path) -> bool:
    is_hidden = folder.name.startswith(".")
    return is_hidden or folder.name in _SKIPPED_FOLDERS or (folder / "pyvenv.cfg").exists()


def _form_of(name: str, text: str) -> Form:
    suffix = Path(name).suffix.lower()
    if suffix in {".py", ".pyi"}:
        return Form.SOURCE
    if suffix in _LOG_SUFFIXES:
        return Form.LOG
    if suffix in _TEXT_SUFFIXES:
        return Form.TEXT
    start = text.lstrip()
    if suffix != ".json" and (not start.startswith("{") or start.startswith(("{{", "{%", "{#"))):
        return Form.TEXT
    first, _, rest = start.partition("\n")
    return Form.LOG if first.rstrip().endswith("}") and rest.lstrip().startswith("{") else Form.BODY


def _decoded(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{name} is not UTF-8 text: byte {error.start} is 0x{content[error.start]:02X}.",
            hint="Convert or unpack it first.",
        ) from None
    if "\x00" in text:
        raise InvalidRequest(f"{name} is a binary file: it holds a NUL.", hint="Give a text.")
    return text


def _named_error(error: PrefoldError, name: str) -> PrefoldError:
    return error if name in error.message else InvalidRequest(f"{name}: {error.message}", hint=error.hint)


def _skipped(target: Target, error: PrefoldError) -> Skipped:
    reason = error.message.removeprefix(target.name).lstrip(": ").rstrip(".")
    return Skipped(target.name, reason)
