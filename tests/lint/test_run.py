"""Which files are linted, and as what."""

import os
from pathlib import Path

import pytest

from prefold.errors import PrefoldError
from prefold.lint.rules import RULES
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


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n", "is empty"),
        ("a.txt", b"\xff\xfe", "byte 0 is 0xFF"),
        ("a.txt", b"a\x00b", "binary"),
        ("a.json", b'{"a": 1}', "dialect is unknown"),
        ("a.json", b'{"messages": [\n  }', "line 2, column 3"),
        ("a.py", b"# coding: klingon\n", "unknown encoding: klingon"),
        ("a.py", b"# coding: utf-8\n\xff", "not UTF-8"),
    ],
)
def test_what_is_not_as_it_should_be_is_skipped(name: str, content: bytes, message: str, is_named: bool) -> None:
    skipped: list[Skipped] = []
    files = list(read_files([Target(name, is_named=is_named)], lambda _name: content, skipped.append))
    assert [] == list(lint_files(files, {"PF101"}, skipped.append))
    (file,) = skipped
    assert (name, is_named) == (file.target.name, file.target.is_named)
    assert message in file.reason
    assert name in file.error.message
    assert name not in file.reason


def test_python_is_read_as_it_says(tmp_path: Path) -> None:
    content = "# -*- coding: latin-1 -*-\nname = 'é'\n".encode("latin-1")
    (file,) = read_files([Target("a.py", is_named=True)], lambda _name: content, lambda _file: None)
    assert ("iso-8859-1", content) == (file.encoding, file.text.encode(file.encoding))


def test_only_regular_files_of_a_folder_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "absent.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a.txt").touch()
    assert [str(tmp_path / "a.txt")] == [target.name for target in find_targets([str(tmp_path)])]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_a_target(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    expected = [Target(str(tmp_path / "closed"), is_named=False)]
    assert expected == find_targets([str(tmp_path)])
    assert [Target(str(tmp_path / "closed"), is_named=True)] == find_targets([str(tmp_path / "closed")])


@pytest.mark.parametrize("is_named", [False, True])
def test_an_unused_ignore_is_told_where_the_whole_project_is_read(is_named: bool) -> None:
    text = b"a = 1  # prefold: ignore[PF301] a clock\nb = 2  # prefold: ignore[PF101] a clock\n"
    files = list(read_files([Target("a.py", is_named=is_named)], lambda _name: text, lambda _file: None))
    (linted,) = lint_files(files, frozenset(RULES), lambda _file: None)
    assert (["PF002"] if is_named else ["PF002", "PF002"]) == [finding.rule for finding in linted.findings]


def test_only_rules_in_force_report() -> None:
    text = b"Now: 2026-11-01T10:00:00Z, Session ID: 8842"
    files = list(read_files([Target("a.txt", is_named=True)], lambda _name: text, lambda _file: None))
    (linted,) = lint_files(files, {"PF105"}, lambda _file: None)
    assert ["PF105"] == [finding.rule for finding in linted.findings]
