"""Finds files, tells what they are, and lints them."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from prefold.errors import InvalidRequest, PrefoldError, UsageError
from prefold.lint.bodies import lint_body, lint_log
from prefold.lint.findings import Finding, Scope
from prefold.lint.ignores import ignores_in, without_ignored
from prefold.lint.rules import RULES, rules_named
from prefold.lint.text import lint_text
from prefold.prompts.prompt import Dialect
from prefold.prompts.tokens import counter_for

STANDARD_INPUT = "-"

_PYTHON_SUFFIXES = frozenset({".py", ".pyi"})
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
        is_named: whether the user gave it by name, and not a folder that holds it.
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
        encoding: in which a text must be written to be read again; `utf-8-sig` has a byte order mark.
    """

    target: Target
    text: str
    form: Form
    encoding: str = "utf-8"

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
    """A file that could not be linted.

    Attributes:
        target: the file.
        error: why, for a user who gave it by name.
    """

    target: Target
    error: PrefoldError

    @property
    def reason(self) -> str:
        """Why, as a phrase to stand behind the name."""
        return self.error.message.removeprefix(self.target.name).lstrip(": ").rstrip(".")


def find_targets(paths: Sequence[str]) -> list[Target]:
    """The files to lint, each once, those of a folder in order of name.

    A folder that cannot be read is a target too, so that whoever reads it learns why.

    Raises:
        UsageError: if there is no such file.
    """
    targets: dict[str, Target] = {}
    for given in paths:
        if given != STANDARD_INPUT and not os.path.exists(given):  # noqa: PTH110 - Path.exists may raise
            raise UsageError(f"There is no file {given}.", hint="Give files or folders, or - for standard input.")
        is_folder = given != STANDARD_INPUT and Path(given).is_dir()
        for name in _files_below(given) if is_folder else [given]:
            targets.setdefault(os.path.realpath(name), Target(name, is_named=name == given))
    return list(targets.values())


def read_files(
    targets: Iterable[Target], read: Callable[[str], bytes], skip: Callable[[Skipped], None]
) -> Iterator[File]:
    """The files that hold text.

    Args:
        targets: the files.
        read: gives the content of a file by its name, or raises a `PrefoldError`.
        skip: is told of each file that cannot be linted.
    """
    for target in targets:
        try:
            content = read(target.name)
            encoding = _encoding_of(target, content)
            text = _decoded(content, encoding, target.shown)
            form = _form_of(target.name, text)
            if not text.strip() and form is not Form.SOURCE:
                raise InvalidRequest(f"{target.shown} is empty.", hint="Give a prompt, a request body or a log.")
        except PrefoldError as error:
            skip(Skipped(target, error))
        else:
            yield File(target, text, form, encoding)


def lint_files(
    files: Sequence[File], rules: Collection[str], skip: Callable[[Skipped], None], dialect: Dialect | None = None
) -> Iterator[Linted]:
    """Lint files, the Python ones among them as one project.

    Args:
        files: the files.
        rules: ids of the rules in force.
        skip: is told of each file that is not what it should be, such as broken JSON.
        dialect: of request bodies; None to recognise it by content.
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
            skip(Skipped(file.target, _named_error(error, file.target.shown)))
            continue
        found = [finding for finding in found if finding.rule in rules]
        if file.form in {Form.SOURCE, Form.TEXT}:  # JSON has no comments
            ignores = ignores_in(file.text, is_python=file.form is Form.SOURCE)
            complete = _complete_rules(file, rules)
            found = without_ignored(found, ignores, file.text, file.name, rules, named=rules_named, complete=complete)
        yield Linted(file, tuple(found))


def _complete_rules(file: File, rules: Collection[str]) -> list[str]:
    """Rules that find all there is in a file: for a value that flows between files they must all be in the run."""
    return [rule for rule in rules if RULES[rule].scope is not Scope.SOURCE or not file.target.is_named]


def _python_linter(files: Sequence[File]) -> Callable[[File], list[Finding]]:
    if not files:
        return lambda _file: []
    from prefold.lint.source.project import Project, lint_source  # noqa: PLC0415 - of no use where there is no Python

    project = Project.of({file.name: file.text for file in files})
    return lambda file: lint_source(file.text, file.name, project)


def _files_below(folder: str) -> Iterator[str]:
    """The files of a folder that are linted, and the folders that cannot be read."""
    suffixes = {*_PYTHON_SUFFIXES, ".json", *_LOG_SUFFIXES, *_TEXT_SUFFIXES}
    unreadable: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=lambda error: unreadable.append(error.filename)):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(parent, name)))
        paths = [Path(parent, name) for name in sorted(names) if Path(name).suffix.lower() in suffixes]
        yield from (str(path) for path in paths if os.path.isfile(path))  # noqa: PTH113 - no pipe, no device
    yield from unreadable


def _is_skipped(folder: Path) -> bool:
    is_environment = os.path.exists(folder / "pyvenv.cfg")  # noqa: PTH110 - Path.exists may raise
    return folder.name.startswith(".") or folder.name in _SKIPPED_FOLDERS or is_environment


def _form_of(name: str, text: str) -> Form:
    suffix = Path(name).suffix.lower()
    if suffix in _PYTHON_SUFFIXES:
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


def _encoding_of(target: Target, content: bytes) -> str:
    """UTF-8, with a byte order mark or without, or what a Python file declares."""
    if Path(target.name).suffix.lower() in _PYTHON_SUFFIXES:
        try:
            return tokenize.detect_encoding(io.BytesIO(content).readline)[0]
        except SyntaxError as error:
            raise InvalidRequest(f"{target.shown}: {error.msg}.", hint="Write it in UTF-8.") from None
    return "utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else "utf-8"


def _decoded(content: bytes, encoding: str, name: str) -> str:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        form = encoding.upper().removesuffix("-SIG")
        raise InvalidRequest(
            f"{name} is not {form} text: byte {error.start} is 0x{content[error.start]:02X}.",
            hint="Convert or unpack it first.",
        ) from None
    if "\x00" in text:
        raise InvalidRequest(f"{name} is a binary file: it holds a NUL.", hint="Give a text.")
    return text


def _named_error(error: PrefoldError, name: str) -> PrefoldError:
    return error if name in error.message else InvalidRequest(f"{name}: {error.message}", hint=error.hint)
