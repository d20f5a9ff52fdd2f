"""`prefold order`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.cli.order import order
from prefold.errors import PrefoldError, UsageError

RULES = "".join(f"Rule {number}: look at item {number} of the handbook before you answer.\n" for number in range(30))


def body(number: int) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-4-5",
        "system": f"Now: 2026-11-01T10:{number:02}:00Z\nYou are a support agent [of a shop].\n{RULES}",
        "messages": [{"role": "user", "content": f"Where is order {number}?"}],
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps({"body": body(number), "ts": number}) + "\n" for number in range(6)), "utf-8")
    return path


def run(*arguments: str | Path, stdin: str | bytes | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(order, [str(argument) for argument in arguments], input=stdin)
    assert code == result.exit_code, result.output
    return result


def refused(*arguments: str | Path, stdin: str | bytes | None = None) -> PrefoldError:
    result = CliRunner().invoke(order, [str(argument) for argument in arguments], input=stdin)
    assert isinstance(result.exception, PrefoldError)
    return result.exception


def test_the_table_shows_what_varies_and_where_it_goes(log: Path) -> None:
    output = run(log, code=1).output
    row = next(line for line in output.splitlines() if "Now: 2026" in line)
    assert ["system", "per", "request"] == row.split("…")[-1].split()[-6:-3]
    assert "system: 'Now: 2026-11-01T10:05:00Z' goes behind the newest user message." in output
    assert "never" in next(line for line in output.splitlines() if "You are a support" in line)
    assert "Cacheable share of input: 0.0% -> 7" in output
    assert "Token counts are an estimate." in output


def test_json(log: Path) -> None:
    report = json.loads(run(log, "--json", code=1).stdout)
    assert 1 == report["schema_version"]
    assert (6, 0, "estimate (claude)") == (report["requests"], report["requests_outside"], report["tokens"])
    assert 0 == report["share_before"] < 0.7 < report["share_after"]
    (family,) = report["families"]
    assert 6 == family["requests"]
    now, rules, question = family["spans"]
    assert ("system", "system", "request") == (now["path"], now["section"], now["varies"])
    assert "behind the newest user message" == now["goes_to"]
    assert 0 == now["now_at"] < now["proposed_at"]
    assert ("static", None, 0) == (rules["varies"], rules["goes_to"], rules["proposed_at"])
    assert ("messages[0]", "messages", "request") == (question["path"], question["section"], question["varies"])


def test_the_patched_request_is_the_last_one(log: Path) -> None:
    patched = json.loads(run(log, "--patched").stdout)
    assert f"You are a support agent [of a shop].\n{RULES}" == patched["system"]
    assert "Where is order 5?\n\nNow: 2026-11-01T10:05:00Z" == patched["messages"][0]["content"]
    assert "claude-sonnet-4-5" == patched["model"]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_is_in_order_is_no_finding(options: Sequence[str], indent: int | None, tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_text(json.dumps({**body(0), "system": RULES}, indent=indent) + "\n", "utf-8")
    before = path.read_bytes()
    run(path, *options)
    assert before == run(path, "--patched").stdout_bytes
    assert before == path.read_bytes()


def test_standard_input(log: Path) -> None:
    from_file = run(log, "--json", code=1).stdout
    assert from_file == run("-", "--json", stdin=log.read_text("utf-8"), code=1).stdout


def test_a_text_template_on_standard_input() -> None:
    template = "Now: {now}\nYou answer.\n\nQuestion: {question}\n"
    assert "You answer.\nNow: {now}\n\nQuestion: {question}\n" == run("-", "--patched", stdin=template).stdout


def test_the_dialect_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_text(json.dumps({"system": f"Now: {{now}}\n{RULES}", "messages": [{"role": "user", "content": "a"}]}))
    assert ["Now: {now}", "system"] == [
        json.loads(run(path, "--json", "--dialect", "claude", code=1).stdout)["families"][0]["spans"][0][key]
        for key in ("text", "path")
    ]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    assert f"There is no file {tmp_path / 'none'}" in refused(tmp_path / "none").message
    assert "cannot be read" in refused(tmp_path).message
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps(body(0)) + "\n{]\n", "utf-8")
    assert f"Line 2 of {broken}: The body is not valid JSON" in refused(broken).message
    broken.write_text("not json\n", "utf-8")
    assert f"Line 1 of {broken}: There is no JSON object" in refused(broken).message
    assert "line 1, column 2" in refused("-", stdin="{]").message
    assert "empty" in refused("-", stdin="").message
    assert "Standard input is not UTF-8" in refused("-", stdin=b"\x80\x81\n").message
    assert "NUL" in refused("-", stdin=b"GGUF\x00\x00").message
    assert "no dialect 'latin'" in refused("-", "--dialect", "latin", stdin="{}").message
    assert "nested too deeply" in refused("-", stdin='{"messages":' + "[" * 200_000).message
    assert "none of messages" in refused("-", stdin='{"a": 1}').message
    assert "tools is not a list" in refused("-", stdin='{"messages": [], "tools": {"a": 1}}').message


def test_options_that_exclude_each_other(log: Path) -> None:
    assert isinstance(refused(log, "--patched", "--json"), UsageError)


def test_the_tokenizer_can_be_given(log: Path) -> None:
    report = json.loads(run(log, "--json", "--tokenizer", "o200k_base", code=1).stdout)
    assert "o200k_base" == report["tokens"]
    assert "There is no tokenizer" in refused(log, "--tokenizer", "none").message


@pytest.mark.parametrize("option", ["--json", "--tokenizer=o200k_base"])
def test_signs_that_no_terminal_should_get(option: str) -> None:
    value = {**body(0), "system": "\ud800\x1b[31mRed\u202e. [b]Now[/b]: {now}"}
    output = run("-", option, stdin=json.dumps(value), code=0).output
    assert "\ufffd" in output
    assert not {"\x1b", "\ud800", "\u202e"} & set(output)


@pytest.mark.parametrize(
    "value",
    [
        {"model": "gpt-4.1", "messages": []},
        {"model": "claude-sonnet-4-5", "messages": [], "tools": []},
        {"model": "gemini-3", "contents": []},
    ],
)
def test_there_may_be_nothing_to_order(value: dict[str, Any]) -> None:
    content = json.dumps(value)
    assert "There is nothing to order.\n" == run("-", stdin=content).output
    assert [{"requests": 1, "spans": []}] == json.loads(run("-", "--json", stdin=content).stdout)["families"]
    assert f"{content}\n" == run("-", "--patched", stdin=content).stdout


def test_a_line_of_a_log(log: Path) -> None:
    report = json.loads(run(f"{log}:2", "--json", code=1).stdout)
    assert "Now: 2026-11-01T10:01:00Z" == report["families"][0]["spans"][0]["text"]


def test_the_patched_request_keeps_the_bytes_of_a_body_in_a_record(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    content = '{"model": "gpt-4.1",  "temperature": 1.50, "messages": []}'
    path.write_text(f'{{"body": {content}, "ts": 1}}\n', "utf-8")
    assert f"{content}\n" == run(path, "--patched").stdout
