"""`prefold lint` as its users meet it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.cli.lint import lint
from prefold.errors import PrefoldError, UsageError

CLOCK = "Now: 2026-11-01T10:00:00Z\nYou are an agent.\n"
CLEAN = "You are an agent.\n"
UNSORTED = '{"tools": [{"name": "b"}, {"name": "a"}], "messages": []}'
SORTED = '{"tools": [{"name": "a"}, {"name": "b"}], "messages": []}'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def run(*arguments: str, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(lint, arguments, input=text)


def report(*arguments: str, text: str | None = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json", text=text).stdout)
    return document


def error_of(*arguments: str, text: str | bytes | None = None) -> PrefoldError:
    error = run(*arguments, text=text).exception
    assert isinstance(error, PrefoldError)
    return error


def test_exit_codes(folder: Path) -> None:
    (folder / "clean.txt").write_text(CLEAN)
    (folder / "clock.txt").write_text(CLOCK)
    assert 0 == run("clean.txt").exit_code
    assert 1 == run("clean.txt", "clock.txt").exit_code
    assert 0 == run("clock.txt", "--exit-zero").exit_code
    assert 0 == run("clock.txt", "--ignore", "PF101").exit_code
    assert 0 == run("clock.txt", "--select", "PF2, PF3").exit_code


def test_the_frame_shows_place_cost_and_help() -> None:
    shown = run("-", text=CLOCK + "Rule.\n" * 500)
    lines = shown.stdout.splitlines()
    assert "PF101 clock-in-prefix: The time '2026-11-01T10:00:00Z' changes from request to request." == lines[0]
    assert " --> -:1:6" == lines[1]
    assert ["1 | Now: 2026-11-01T10:00:00Z", "  |      " + "^" * 20] == lines[3:5]
    assert lines[5].startswith("  = cost: at least 1,")
    assert "  = help: Move it to the end of the newest message." == lines[6]
    assert "1 finding in 1 file." in shown.stderr


def test_carets_stand_below_the_span_behind_tabs_wide_and_invisible_letters() -> None:
    shown = run("-", text="\t你好\x1b[31m Session ID: 8842\n").stdout.splitlines()
    assert "\x1b" not in "".join(shown)
    assert shown[4].index("^") == shown[3].index("8842") + len("你好")  # each is two cells wide
    assert 4 == shown[4].count("^")


def test_a_long_line_is_cut_around_the_span() -> None:
    shown = run("-", text=f"{'a ' * 400}Session ID: 8842{' b' * 400}").stdout.splitlines()
    assert len(shown[3]) < 120
    assert shown[3].startswith("1 | ...")
    assert shown[3].endswith("...")
    assert "8842" == shown[3][shown[4].index("^") : shown[4].rindex("^") + 1]


def test_every_form_in_one_run(folder: Path) -> None:
    (folder / "prompts").mkdir()
    (folder / "prompts" / "agent.txt").write_text(CLOCK)
    (folder / "body.json").write_text(UNSORTED)
    (folder / "log.jsonl").write_text(json.dumps({"request": {"system": CLOCK, "messages": []}}) + "\n")
    (folder / "package.json").write_text('{"name": "x"}')
    (folder / "broken.py").write_text("def (")
    (folder / "code.py").write_text(
        "import time\nimport anthropic\n"
        "anthropic.Anthropic().messages.create(system=f'{time.time()} You are an agent.', messages=[])\n"
    )
    found = report(".")
    rules = {(finding["file"], finding["rule"]) for finding in found["findings"]}
    assert {
        ("body.json", "PF201"),
        ("code.py", "PF301"),
        ("log.jsonl", "PF101"),
        (str(Path("prompts", "agent.txt")), "PF101"),
    } == rules
    assert ["broken.py", "package.json"] == sorted(file["name"] for file in found["skipped"])
    assert "Skipped package.json: " in run().stderr


@pytest.mark.parametrize("form", ["concise", "github", "json", "sarif"])
def test_formats_for_programs(form: str) -> None:
    shown = run("-", "--output-format", form, text=CLOCK).stdout
    assert 1 == len(shown.splitlines())
    assert "PF101" in shown
    if form in {"json", "sarif"}:
        json.loads(shown)


def test_a_fix_is_shown_and_written_only_when_asked(folder: Path) -> None:
    body = folder / "body.json"
    body.write_text(UNSORTED)
    body.chmod(0o640)
    shown = run("body.json", "--fix")
    assert f"-{UNSORTED}" in shown.stdout
    assert f"+{SORTED}" in shown.stdout
    assert (1, UNSORTED) == (shown.exit_code, body.read_text())
    written = run("body.json", "--fix", "--write")
    assert (0, SORTED) == (written.exit_code, body.read_text())
    assert "Mended 1 finding." in written.stderr
    assert 0o640 == body.stat().st_mode & 0o777
    assert [body] == list(folder.iterdir())


def test_a_fix_keeps_line_ends_and_the_byte_order_mark(folder: Path) -> None:
    source = UNSORTED.replace(" ", "\r\n")
    (folder / "body.json").write_bytes(b"\xef\xbb\xbf" + source.encode())
    run("body.json", "--fix", "--write")
    content = (folder / "body.json").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf{")
    assert source.count("\r\n") == content.count(b"\r\n") == content.count(b"\n")


def test_python_is_mended(folder: Path) -> None:
    code = folder / "code.py"
    code.write_text(
        "# -*- coding: latin-1 -*-\nimport json\nimport anthropic\n\ndef ask(settings):\n"
        "    return anthropic.Anthropic().messages.create(system=json.dumps(settings) + ' Régles.', messages=[])\n",
        encoding="latin-1",
    )
    assert 0 == run("code.py", "--fix", "--write").exit_code
    assert "json.dumps(settings, sort_keys=True) + ' Régles.'" in code.read_text(encoding="latin-1")


def test_one_run_mends_all_that_can_be_mended(folder: Path) -> None:
    tools = [{"name": name, "input_schema": {"maximum": 0}} for name in ("b", "a", "c")]
    body = folder / "body.json"
    body.write_text(json.dumps({"tools": tools, "messages": []}).replace(": 0", ": 1E-7"))
    written = run("body.json", "--fix", "--write")
    assert 0 == written.exit_code
    assert "Mended 4 findings." in written.stderr
    assert body.read_text().count("1e-07") == 3
    assert "No" not in run("body.json", "--fix").stdout


def test_what_is_found_is_printed_though_a_file_cannot_be_read(folder: Path) -> None:
    (folder / "a.txt").write_text(CLOCK)
    (folder / "empty.md").write_text("")
    (folder / "other.json").write_text('{"a": 1}')
    (folder / "broken.json").write_text("{")
    names = ("broken.json", "other.json", "empty.md", "a.txt")
    result = run(*names, "--output-format", "concise")
    assert "a.txt:1:6: PF101" in result.stdout
    assert isinstance(result.exception, PrefoldError)
    assert "empty.md is empty" in result.exception.message
    assert "Skipped broken.json: " in result.stderr
    skipping = run(*names, "--skip-unreadable")
    assert 1 == skipping.exit_code
    assert "Skipped empty.md: is empty." in skipping.stderr
    assert 0 == run("empty.md", "broken.json", "--skip-unreadable").exit_code


def test_the_baseline_is_no_request_to_lint(folder: Path) -> None:
    (folder / "a.txt").write_text(CLOCK)
    run(".", "--baseline", "known.json", "--write-baseline")
    assert "Skipped" not in run(".", "--baseline", "known.json").stderr
    assert 0 == run("a.txt", "known.json", "--baseline", "known.json").exit_code


def test_a_baseline_hides_what_is_known(folder: Path) -> None:
    (folder / "a.txt").write_text(CLOCK)
    assert 0 == run(".", "--baseline", "known.json", "--write-baseline").exit_code
    (folder / "a.txt").write_text("\n" + CLOCK.replace("10:00", "11:30"))
    assert 0 == run(".", "--baseline", "known.json").exit_code
    (folder / "b.txt").write_text("Session ID: 8842\n")
    assert ["PF105"] == [
        finding["rule"] for finding in report("a.txt", "b.txt", "--baseline", "known.json")["findings"]
    ]


def test_a_baseline_is_not_written_in_ci(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "a.txt").write_text(CLOCK)
    monkeypatch.setenv("CI", "true")
    assert "not written in CI" in error_of("a.txt", "--baseline", "known.json", "--write-baseline").message
    assert not (folder / "known.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.txt"], "no file absent.txt"),
        (["-", "--select", "PF9"], "no lint rule 'PF9'"),
        (["-", "--dialect", "klingon"], "no dialect 'klingon'"),
        (["-", "--write"], "--fix"),
        (["-", "--fix", "--write"], "Standard input"),
        (["-", "--fix", "--json"], "diff"),
        (["-", "--write-baseline"], "where to write"),
        (["-", "--baseline", "absent.json"], "absent.json cannot be read"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    error = error_of(*arguments, text=CLOCK)
    assert message in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Standard input is empty"),
        (b"\x80\x81", "not UTF-8"),
        (b"a\x00b", "binary"),
        (b'{"messages": [\n  }', "line 2, column 3"),
        (b'{"messages": ' + b"[" * 200_000, "nested too deeply"),
        (b'{"a": 1}', "dialect is unknown"),
    ],
)
def test_bad_input(content: bytes, message: str) -> None:
    error = error_of("-", text=content)
    assert message in error.message
    assert error.hint


def test_little_is_loaded(folder: Path) -> None:
    (folder / "a.txt").write_text(CLOCK)
    code = (
        "import sys; from prefold.cli.main import run; code = run(['lint', 'a.txt']);"
        "heavy = ('torch', 'numpy', 'tokenizers', 'prefold.lint.source.dataflow', 'rich.progress');"
        "print(code, *(module for module in heavy if module in sys.modules), file=sys.stderr)"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "1" == finished.stderr.splitlines()[-1]


def test_unwritable_baseline(folder: Path) -> None:
    (folder / "a.txt").write_text(CLOCK)
    error = error_of("a.txt", "--baseline", "absent/known.json", "--write-baseline")
    assert isinstance(error, UsageError)
    assert "cannot be written" in error.message
