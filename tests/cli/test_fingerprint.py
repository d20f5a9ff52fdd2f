"""`prefold fingerprint`."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.cli.fingerprint import fingerprint
from prefold.errors import InvalidRequest, PrefoldError, UsageError

BODY = {
    "model": "claude-sonnet-4-5",
    "system": "You are a support agent.\n规则：简短。",
    "tools": [{"name": name, "input_schema": {"type": "object"}} for name in ("open", "search")],
    "messages": [{"role": "user", "content": "Hello"}],
}


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a request body."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFOLD_FINGERPRINT_LOCK", raising=False)
    write_body(BODY)


def write_body(body: dict[str, Any]) -> None:
    Path("body.json").write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")


def run(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(fingerprint, arguments, input=stdin)
    assert not isinstance(result.exception, PrefoldError), result.exception
    assert code == result.exit_code, result.output
    return result


def fails(*arguments: str, stdin: str | None = None) -> PrefoldError:
    """The error that a call ends with."""
    error = CliRunner().invoke(fingerprint, arguments, input=stdin).exception
    assert isinstance(error, PrefoldError)
    assert error.hint
    return error


def report(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    content = json.loads(run(*arguments, "--json", code=code).stdout)
    assert 1 == content["schema_version"]
    prefixes: list[dict[str, Any]] = content["prefixes"]
    return prefixes


def test_added_and_unchanged() -> None:
    assert run("add", "support", "body.json").stdout.startswith("support: pf1:")
    (entry,) = report("list")
    assert ("support", "prefix", "anthropic", "body.json") == tuple(
        entry[key] for key in ("name", "part", "dialect", "source")
    )
    assert entry["tokens"] > 0
    assert f"support: unchanged, {entry['fingerprint'][:16]}\n" == run("check").stdout
    write_body({**BODY, "messages": [{"role": "user", "content": "Another question"}], "model": "claude-opus-4-5"})
    assert [{**entry, "change": None}] == report("check", "support")


def test_a_change_is_shown_and_accepted() -> None:
    (old,) = report("add", "support", "body.json")
    write_body({**BODY, "system": "You are a support agent.\n规则：详细。"})
    result = run("check", code=1)
    assert "support: changed\n" in result.stdout
    assert "where        system, character 28\n" in result.stdout
    assert "before       …are a support agent.⏎规则：|简短。\n" in result.stdout
    assert "after        …are a support agent.⏎规则：|详细。\n" in result.stdout
    assert "suspects     clock or id: no\n" in result.stdout
    assert "If this is meant: prefold fingerprint update support\n" == result.stderr
    (found,) = report("check", code=1)
    assert ("system", 28, old["fingerprint"]) == tuple(found["change"][key] for key in ("path", "char", "old"))
    (new,) = report("update", "support")
    assert found["change"]["new"] == new["fingerprint"]
    run("check")


def test_the_order_of_tools_is_a_change_and_named() -> None:
    run("add", "support", "body.json")
    write_body({**BODY, "tools": BODY["tools"][::-1]})
    (found,) = report("check", code=1)
    assert "tool_order" == found["change"]["cause"]
    assert ["tools not sorted"] == [s["name"] for s in found["change"]["suspects"] if s["evidence"]]


def test_parts() -> None:
    run("add", "system", "body.json", "--part", "system")
    run("add", "tools", "body.json", "--part", "tools")
    write_body({**BODY, "tools": BODY["tools"][:1]})
    assert [("system", False), ("tools", True)] == [
        (found["name"], found["change"] is not None) for found in report("check", code=1)
    ]


def test_plain_text_from_standard_input_has_no_file() -> None:
    run("add", "rules", "-", stdin="Rules.")
    result = run("check")
    assert ("", "1 more have no file: tests build and check them.\n") == (result.stdout, result.stderr)
    assert "has no file" in fails("check", "rules").message
    assert "unchanged" in run("check", "rules", "--from", "-", stdin="Rules.").stdout
    run("check", "rules", "--from", "-", code=1, stdin="Other rules.")
    Path("rules.txt").write_text("Other rules.")
    (entry,) = report("update", "rules", "--from", "rules.txt")
    assert "rules.txt" == entry["source"]


def test_sources_are_relative_to_the_lock_file() -> None:
    Path("locks").mkdir()
    run("add", "support", "body.json", "--lock", "locks/lock.json")
    (entry,) = report("list", "--lock", "locks/lock.json")
    assert "../body.json" == entry["source"]
    run("check", "--lock", "locks/lock.json")


def test_a_value_that_may_not_stay_is_warned_of() -> None:
    write_body({**BODY, "system": "Today is 2026-11-30. The law of 2019-05-01 holds."})
    assert "warning: support: 2026-11-30 (date) in system, character 9 may not stay\n" == (
        run("add", "support", "body.json").stderr
    )


def test_the_table() -> None:
    run("add", "support", "body.json")
    header, row = run("list").stdout.splitlines()
    assert ["name", "fingerprint", "part", "dialect", "file", "tokens", "(estimate)"] == header.split()
    assert ["support", "prefix", "anthropic", "body.json"] == [row.split()[index] for index in (0, 2, 3, 4)]


def test_remove() -> None:
    run("add", "support", "body.json")
    run("remove", "support")
    assert [] == report("list")
    assert "has no prefix 'support'" in fails("remove", "support").message


def test_the_same_may_be_added_again_another_not() -> None:
    run("add", "support", "body.json")
    before = Path("prefold.lock.json").read_bytes()
    run("add", "support", "body.json")
    write_body({**BODY, "system": "Other"})
    assert "already has another prefix 'support'" in fails("add", "support", "body.json").message
    assert before == Path("prefold.lock.json").read_bytes()


@pytest.mark.parametrize("arguments", [("check",), ("update", "support"), ("list",), ("remove", "support")])
def test_without_a_lock_file(arguments: tuple[str, ...]) -> None:
    error = fails(*arguments)
    assert isinstance(error, UsageError)
    assert "There is no lock file prefold.lock.json." == error.message


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("is not valid JSON", b"{"),
        ("holds a merge conflict in line 1", b"<<<<<<< HEAD\n"),
        ("has the schema version 2", b'{"schema_version": 2}'),
        ("is not UTF-8 text", b"\xff"),
    ],
)
def test_a_damaged_lock_file(message: str, text: bytes) -> None:
    Path("prefold.lock.json").write_bytes(text)
    for arguments in (("check",), ("add", "support", "body.json"), ("list",)):
        assert message in fails(*arguments).message
    assert text == Path("prefold.lock.json").read_bytes()


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("The body is empty", b""),
        ("not valid JSON: .* line 2, column 11", b'{\n  "system"'),
        ("not UTF-8 text: byte 0", b"\xff\xfe"),
        ("a binary file", b"text\0"),
        ("nested too deeply", b'{"system": ' + b"[" * 100_000),
        ("its dialect is unknown", b'{"a": 1}'),
    ],
)
def test_a_file_that_is_no_prompt(message: str, content: bytes) -> None:
    Path("body.json").write_bytes(content)
    error = fails("add", "support", "body.json")
    assert isinstance(error, InvalidRequest)
    assert re.search(message, error.message)
    assert not Path("prefold.lock.json").exists()


def test_other_wrong_use() -> None:
    assert "missing.json cannot be read: No such file" in fails("add", "x", "missing.json").message
    assert "There is no dialect 'klingon'" in fails("add", "x", "body.json", "--dialect", "klingon").message
    run("add", "one", "body.json")
    run("add", "two", "body.json")
    assert "--from body.json is for one prefix" in fails("check", "--from", "body.json").message
    Path("body.json").unlink()
    assert "body.json cannot be read" in fails("check").message


def test_the_command_is_light_to_import() -> None:
    program = "import sys, prefold.cli.fingerprint; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    for heavy in ("rich", "jinja2", "tokenizers", "prefold.prompts.prompt"):
        assert f"'{heavy}'" not in loaded
