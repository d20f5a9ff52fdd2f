"""Which files are linted, and as what."""

from pathlib import Path

import pytest

from prefold.errors import PrefoldError
from prefold.lint.run import Form, Skipped, Target, find_targets, lint_files, read_files


def form_of(name: str, content: bytes) -> Form:
    (file,) = read_files([Target(name, is_named=True)], lambda _name: content, lambda _file: None)
    return file.form


def test_files_of_a_folder(tmp_path: Path) -> None:
    wanted = ["a.py", "b/c.jsonl", "b/d.txt", "b/e.md", "f.prompt", "g.jinja", "h.json", "i.j2"]
    others = [".git/a.py", "node_modules/a.py", "__pycache__/a.py", "env/pyvenv.cfg", "env/a.py", "x.png", "b/y.js"]
    for name in wanted + others:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = [target.name for target in find_targets([str(tmp_path), str(tmp_path / "a.py")])]
    assert sorted(str(tmp_path / name) for name in wanted) == sorted(found)


def test_an_absent_file_is_named() -> None:
    with pytest.raises(PrefoldError, match=r"no file absent\.txt"):
        find_targets(["absent.txt"])


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("a.py", b"", Form.SOURCE),
        ("a.txt", b'{"messages": []}', Form.TEXT),
        ("a.json", b'{"messages": []}', Form.BODY),
        ("a.json", b'{"prompt": "a"}\n{"prompt": "b"}', Form.LOG),
        ("a.log", b'{"prompt": "a"}\n{"prompt": "b"}\n', Form.LOG),
        ("a.jsonl", b'{"prompt": "a"}', Form.LOG),
        ("-", b'{\n"prompt": "a"}', Form.BODY),
        ("-", b"\xef\xbb\xbfYou are", Form.TEXT),
        ("-", b"{{ now }} You are", Form.TEXT),
        ("-", b"{% if a %}", Form.TEXT),
    ],
)
def test_forms_are_recognised(name: str, content: bytes, form: Form) -> None:
    assert form == form_of(name, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"\xff\xfe", "byte 0 is 0xFF"), (b"a\x00b", "binary")],
)
def test_a_named_file_must_be_readable_and_one_of_a_folder_is_skipped(content: bytes, message: str) -> None:
    with pytest.raises(PrefoldError, match=message):
        list(read_files([Target("a.txt", is_named=True)], lambda _name: content, lambda _file: None))
    skipped: list[Skipped] = []
    assert [] == list(read_files([Target("a.txt", is_named=False)], lambda _name: content, skipped.append))
    assert message in skipped[0].reason


def test_json_that_is_no_request_is_skipped_in_a_folder_and_an_error_where_named() -> None:
    for is_named in (False, True):
        skipped: list[Skipped] = []
        files = list(read_files([Target("package.json", is_named=is_named)], lambda _name: b'{"a": 1}', skipped.append))
        if is_named:
            with pytest.raises(PrefoldError, match=r"package\.json: .* dialect is unknown"):
                list(lint_files(files, {"PF101"}, skipped.append))
        else:
            assert [] == list(lint_files(files, {"PF101"}, skipped.append))
            assert ["package.json"] == [file.name for file in skipped]


def test_only_rules_in_force_report() -> None:
    text = b"Now: 2026-11-01T10:00:00Z, Session ID: 8842"
    files = list(read_files([Target("a.txt", is_named=True)], lambda _name: text, lambda _file: None))
    (linted,) = lint_files(files, {"PF105"}, lambda _file: None)
    assert ["PF105"] == [finding.rule for finding in linted.findings]
