"""`prefold canonicalize`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.cli.canonicalize import _STEPS, canonicalize
from prefold.errors import InvalidRequest, PrefoldError, UsageError
from prefold.prompts.canonical.canonicalize import DEFAULT_STEPS, Step
from prefold.prompts.canonical.moments import Granularity

TOOLS = [{"name": "search"}, {"name": "read"}]
BODY = {"model": "claude-x", "system": "Now: 2026-11-30 08:54.", "tools": TOOLS, "messages": []}
CANONICAL = json.dumps({**BODY, "tools": TOOLS[::-1]}, separators=(",", ":"))


@pytest.fixture
def body(tmp_path: Path) -> Path:
    path = tmp_path / "body.json"
    path.write_text(json.dumps(BODY) + "\n")
    return path


def run(*arguments: object, **options: Any) -> Result:
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(canonicalize, words, env={"COLUMNS": "120", "NO_COLOR": "1"}, **options)


def test_the_body_goes_to_standard_output_and_the_changes_beside_it(body: Path) -> None:
    result = run(body)
    assert (0, f"{CANONICAL}\n") == (result.exit_code, result.stdout)
    assert "2 changes" in result.stderr
    assert "search, read" in result.stderr
    assert "the whole body" in result.stderr
    assert json.dumps(BODY) == body.read_text().strip()


def test_standard_input() -> None:
    assert f"{CANONICAL}\n" == run("-", input=json.dumps(BODY)).stdout


def test_steps_stand_for_themselves_and_safe_for_those_that_keep_the_meaning(body: Path) -> None:
    day = json.dumps(BODY).replace(" 08:54", "")
    assert f"{day}\n" == run(body, "--step", "datetimes").stdout
    hour = CANONICAL.replace(" 08:54", "T08:00")
    assert f"{hour}\n" == run(body, "--step", "safe", "--step", "datetimes", "--granularity", "hour").stdout


def test_texts_of_messages_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_text('{"messages":[{"role":"user","content":"a\\r\\n"}]}')
    assert "Nothing to change." in run(path).stderr
    assert '{"messages":[{"role":"user","content":"a\\n"}]}\n' == run(path, "--messages").stdout


def test_check(body: Path) -> None:
    result = run(body, "--check")
    assert (1, "") == (result.exit_code, result.stdout)
    body.write_text(CANONICAL + "\n")
    result = run(body, "--check")
    assert (0, "", "Nothing to change.\n") == (result.exit_code, result.stdout, result.stderr)


def test_write_keeps_mode_links_and_the_end_of_the_file(body: Path, tmp_path: Path) -> None:
    body.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(body)
    result = run(link, "--write")
    assert (0, "") == (result.exit_code, result.stdout)
    assert f"{CANONICAL}\n" == body.read_text()
    assert 0o640 == body.stat().st_mode & 0o777
    assert link.is_symlink()
    assert {"body.json", "link.json"} == {path.name for path in tmp_path.iterdir()}
    before = body.stat()
    run(link, "--write")
    assert (before.st_ino, before.st_mtime_ns) == (body.stat().st_ino, body.stat().st_mtime_ns)


def test_json(body: Path) -> None:
    result = run(body, "--json")
    report = json.loads(result.stdout)
    assert ("", 1, f"{CANONICAL}\n") == (result.stderr, report["schema_version"], report["body"])
    assert [
        {"line": None, "path": "tools", "step": "tool_order", "before": "search, read", "after": "read, search"},
        {"line": None, "path": "", "step": "json_whitespace"},
    ] == [
        {key: change[key] for key in ("line", "path", "step", *(("before", "after") if change["path"] else ()))}
        for change in report["changes"]
    ]
    checked = run(body, "--json", "--check")
    assert (1, None) == (checked.exit_code, json.loads(checked.stdout)["body"])


@pytest.mark.parametrize("name", ["log.jsonl", "log.txt"])
def test_one_request_in_each_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(f"{CANONICAL}\r\n\n{json.dumps(BODY)}\n".encode())
    result = run(path)
    assert f"{CANONICAL}\r\n\n{CANONICAL}\n".encode() == result.stdout_bytes
    assert {3} == {change["line"] for change in json.loads(run(path, "--json").stdout)["changes"]}
    assert "line" in result.stderr


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("not json\n")
    error = run(path).exception
    assert isinstance(error, InvalidRequest)
    assert f"Line 1 of {path}: There is no JSON object." == error.message


def test_records_are_changed_in_the_bodies_that_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    records = [
        f'{{"ts": 1.50,  "request": {json.dumps(BODY)}, "cost": 1e5}}',
        f'{{"b": 1, "a": {{"kwargs": 2}}, "body":{json.dumps(json.dumps(BODY))}}}',
        f'{{"request": {{"headers": {{"b": 1}},  "body": {json.dumps(BODY)}}}}}',
    ]
    path.write_text("".join(f"{record}\r\n" for record in records))
    expected = [
        f'{{"ts": 1.50,  "request": {CANONICAL}, "cost": 1e5}}',
        f'{{"b": 1, "a": {{"kwargs": 2}}, "body":{json.dumps(CANONICAL)}}}',
        f'{{"request": {{"headers": {{"b": 1}},  "body": {CANONICAL}}}}}',
    ]
    result = run(path)
    assert "".join(f"{record}\r\n" for record in expected).encode() == result.stdout_bytes
    for number in range(1, 4):
        assert f"{CANONICAL}\n" == run(f"{path}:{number}").stdout
    run(path, "--write")
    assert result.stdout_bytes == path.read_bytes()
    assert "Nothing to change." in run(path, "--check").stderr


def test_a_record_over_several_lines(body: Path) -> None:
    record = json.dumps({"ts": 1, "body": 0}, indent=2)
    body.write_text(record.replace("0", json.dumps(BODY)))
    assert record.replace("0", CANONICAL) + "\n" == run(body).stdout


def test_date_times_in_doubt_are_said(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"body": {**BODY, "system": "Now: 11/12/2026 08:54"}}) + "\n")
    result = run(path, "--step", "datetimes", "--check")
    assert 0 == result.exit_code
    expected = "line 1, system: 11/12/2026 08:54 stays as it is, because its day and month may be either way round.\n"
    assert f"{expected}Nothing to change.\n" == result.stderr
    (note,) = json.loads(run(path, "--step", "datetimes", "--json").stdout)["notes"]
    assert {"line": 1, "path": "system", "step": "datetimes", "text": "11/12/2026 08:54"}.items() <= note.items()


def test_one_request_over_several_lines(body: Path) -> None:
    body.write_text(json.dumps(BODY, indent=2))
    assert f"{CANONICAL}\n" == run(body).stdout


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{json.dumps(BODY)}\n" * 30)
    assert "and 20 more; --json lists all." in run(path, "--check").stderr


def test_the_options_name_what_there_is() -> None:
    assert tuple(Step) == _STEPS
    assert frozenset(_STEPS[:7]) == DEFAULT_STEPS
    help_text = run("--help").stdout
    assert all(name in help_text for name in (*Step, *Granularity))


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", InvalidRequest, "empty"),
        (b'{"a": 1,\n "b" 2}', InvalidRequest, "line 2, column 6"),
        (b"\xff\xfe", InvalidRequest, "not UTF-8"),
        (b"\x00\x01", InvalidRequest, "binary"),
        (b"[1]", InvalidRequest, "not a JSON object"),
        (b'{"a":' + b"[" * 100_000, InvalidRequest, "nested too deeply"),
        (b'{"messages": 5}', InvalidRequest, "dialect"),
        (b'{"messages":[]}\n{"messages":[}\n', InvalidRequest, r"Line 2 of .*body.json: .* column 14"),
        (b'{"messages":[]}\nnot json\n', InvalidRequest, r"Line 2 of .*body.json: There is no JSON object"),
        (
            b'{"messages":[]}\n{"body":{"messages":[{"role":"user","content":5}]}}\n',
            InvalidRequest,
            "Line 2 of .*content",
        ),
        (b'{"messages":[{"role":"user","content":5}]}', InvalidRequest, r"messages\[0\].content"),
    ],
)
def test_bad_input(tmp_path: Path, content: bytes, error: type[PrefoldError], message: str) -> None:
    path = tmp_path / "body.json"
    path.write_bytes(content)
    result = run(path)
    assert isinstance(result.exception, error)
    with pytest.raises(error, match=message):
        raise result.exception
    assert content == path.read_bytes()


def test_bad_options(body: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ([tmp_path / "missing.json"], "no file"),
        ([body, "--write", "--check"], "exclude each other"),
        (["-", "--write"], "Standard input"),
        ([f"{body}:1", "--write"], "is no file to write to"),
        ([f"{body}:9"], "has 1 lines"),
        ([body, "--dialect", "klingon"], "klingon"),
    ):
        result = run(*arguments, input="{}")
        assert isinstance(result.exception, UsageError | InvalidRequest)
        assert message in result.exception.message
    assert 2 == run(body, "--step", "everything").exit_code
