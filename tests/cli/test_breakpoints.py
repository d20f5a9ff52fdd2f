"""`prefold breakpoints`: a plan as table, JSON and patched request, and clear messages for bad input."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from prefold.cli.main import run

SYSTEM = "You are a careful agent. Check the handbook before you answer. " * 200


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of the user's, and an empty folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def write(name: str = "body.json", **changes: Any) -> str:
    """A request on disk; its name."""
    body = {"model": "claude-sonnet-4-5", "system": SYSTEM, "messages": [{"role": "user", "content": "hi"}], **changes}
    Path(name).write_text(json.dumps(body), encoding="utf-8")
    return name


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert 0 == run(["breakpoints", *arguments, "--json"])
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["breakpoints", write(), "--reads", "3", "--within", "1h"])
    printed = capsys.readouterr()
    assert "Caching pays." in printed.out
    assert "anthropic: Claude, 1,024 tokens (rules of 2026-11-30)" in printed.out
    assert "counted by estimate (claude)" in printed.out
    assert [["add", "system", "1h"]] == [
        [cell.strip() for cell in line.split("│")[1:4]] for line in printed.out.splitlines() if "static part" in line
    ]
    assert "" == printed.err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, write())
    assert (1, "anthropic", True) == (printed["schema_version"], printed["provider"], printed["pays"])
    assert [("system", 300, "add")] == [(mark["path"], mark["ttl"], mark["change"]) for mark in printed["markers"]]
    assert [1, 2] == [row["reads"] for row in printed["break_even"]]


@pytest.mark.parametrize(
    ("arguments", "ttl"),
    [
        (["--reads-per-hour", "200"], 300),
        (["--reads", "12", "--within", "1h"], 3600),
        (["--reads-per-hour", "5"], 3600),
        (["--reads", "1", "--within", "300"], 300),
        (["--reads", "2", "--within", "60m"], 3600),
    ],
)
def test_expected_reads(capsys: pytest.CaptureFixture[str], arguments: list[str], ttl: int) -> None:
    assert [ttl] == [mark["ttl"] for mark in report(capsys, write(), *arguments)["markers"]]


def test_too_few_reads_do_not_pay(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["breakpoints", write(), "--reads-per-hour", "1"])
    assert "Caching does not pay." in capsys.readouterr().out


def test_turn_gap_and_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, write(), "--conversation", "--turn-gap", "10m")
    assert [("system", 3600), ("messages[0]", 3600)] == [(mark["path"], mark["ttl"]) for mark in printed["markers"]]
    assert 1 == len(report(capsys, write(), "--one-shot")["markers"])


def test_provider_and_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert "llama.cpp" == report(capsys, write(), "--provider", "llama-server")["provider"]
    assert 4096 == report(capsys, write(), "--model", "claude-opus-4-5")["minimum_tokens"]
    assert "bedrock" == report(capsys, write(), "--provider", "bedrock")["provider"]


def test_explicit_caching_is_planned_where_there_is_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert "explicit" == report(capsys, write(model="qwen-plus"), "--dialect", "openai")["control"]


def test_named_cache(capsys: pytest.CaptureFixture[str]) -> None:
    Path("gemini.json").write_text(
        json.dumps({"systemInstruction": {"parts": [{"text": SYSTEM * 5}]}, "contents": [{"parts": [{"text": "q"}]}]}),
        encoding="utf-8",
    )
    arguments = ["gemini.json", "--model", "gemini-2.5-pro", "--input-price", "1.25", "--reads-per-hour", "9"]
    printed = report(capsys, *arguments)
    assert ("resource", True, "3600s") == (printed["control"], printed["pays"], printed["resource"]["ttl"])
    assert 0 == run(["breakpoints", *arguments])
    assert "create: a cache of systemInstruction" in capsys.readouterr().out


def test_patched_request_goes_to_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    name = write()
    before = Path(name).read_bytes()
    assert 0 == run(["breakpoints", name, "--patched"])
    printed = capsysbinary.readouterr()
    assert {"type": "ephemeral"} == json.loads(printed.out)["system"][0]["cache_control"]
    assert b"" == printed.err
    assert before == Path(name).read_bytes()


def test_nothing_is_written_over_without_write(capsys: pytest.CaptureFixture[str]) -> None:
    name = write()
    before = Path(name).read_bytes()
    assert 2 == run(["breakpoints", name, "--output", name])
    assert f"{name} exists." in capsys.readouterr().err
    assert before == Path(name).read_bytes()


def test_write_and_output(capsys: pytest.CaptureFixture[str]) -> None:
    name = write()
    assert 0 == run(["breakpoints", name, "--output", "patched.json"])
    assert "Wrote patched.json." in capsys.readouterr().err
    patched = Path("patched.json").read_bytes()
    assert 0 == run(["breakpoints", name, "--write"])
    assert patched == Path(name).read_bytes()
    assert 0 == run(["breakpoints", name, "--write"])
    assert patched == Path(name).read_bytes()


def test_a_line_of_a_log_is_planned_for_its_body(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    body = Path(write()).read_text(encoding="utf-8")
    records = [{"timestamp": 1, "body": {"messages": []}}, {"timestamp": 2, "body": json.loads(body)}]
    Path("log.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    assert 0 == run(["breakpoints", "body.json", "--patched"])
    expected = capsysbinary.readouterr().out
    assert 0 == run(["breakpoints", "log.jsonl:2", "--patched"])
    assert expected == capsysbinary.readouterr().out
    assert 2 == run(["breakpoints", "log.jsonl:2", "--write"])


def test_a_record_is_kept_around_its_body() -> None:
    body = json.loads(Path(write()).read_text(encoding="utf-8"))
    Path("record.json").write_text(json.dumps({"timestamp": 2, "body": body}), encoding="utf-8")
    assert 0 == run(["breakpoints", "body.json", "--write"])
    assert 0 == run(["breakpoints", "record.json", "--write"])
    patched = json.loads(Path("body.json").read_text(encoding="utf-8"))
    assert {"timestamp": 2, "body": patched} == json.loads(Path("record.json").read_text(encoding="utf-8"))
    assert body != patched


def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    content = Path(write()).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert report(capsys, "-")["pays"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.json"], "There is no file missing.json."),
        (["body.json", "--reads", "3"], "--reads and --within belong together."),
        (["body.json", "--reads", "3", "--within", "5m", "--reads-per-hour", "3"], "say the same thing"),
        (["body.json", "--reads", "3", "--within", "soon"], "'soon' is not a time"),
        (["body.json", "--reads", "3", "--within", "0m"], "'0m' is not a time"),
        (["body.json", "--provider", "nobody"], "The provider 'nobody' is not known."),
        (["body.json", "--model", "unheard-of"], "No cache rules are known for the model 'unheard-of'."),
        (["body.json", "--model", "gpt-4o", "--provider", "anthropic"], "'gpt-4o' at anthropic"),
        (["body.json", "--dialect", "esperanto"], "There is no dialect 'esperanto'."),
        (["body.json", "--patched", "--json"], "--patched and --json exclude each other."),
        (["-", "--write"], "- is no file to write to."),
        (["body.json", "--output", "no/such/folder.json"], "no/such/folder.json cannot be written"),
        (["nameless.json"], "The body names no model."),
        (["broken.json"], "line 2, column 1"),
        (["object.json", "--dialect", "anthropic"], "messages is not a list of messages, but an object."),
        (["number.json"], "messages[0] is not a message, but a number."),
        (["binary.json"], "not UTF-8"),
        (["empty.json"], "The body is empty."),
        (["list.json"], "The body is not a JSON object."),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    write()
    Path("nameless.json").write_text('{"messages": [{"role": "user", "content": "hi"}]}', encoding="utf-8")
    Path("broken.json").write_text('{"messages": [\n}', encoding="utf-8")
    write("object.json", messages={"role": "user"})
    write("number.json", messages=[3])
    Path("binary.json").write_bytes(b"\xff\xfe\x00\x01")
    Path("empty.json").write_bytes(b"")
    Path("list.json").write_text("[1, 2]", encoding="utf-8")
    assert 2 == run(["breakpoints", *arguments])
    printed = capsys.readouterr()
    assert message in printed.err
    assert "hint: " in printed.err
    assert "" == printed.out
